//! Pools with volumes and intent logs left by OpenZFS.

use crate::workshop::Workshop;
use rzfs_format::ObjsetId;
use std::fs;

/// The heads with records that have not been replayed.
fn logs(shop: &Workshop) -> Vec<ObjsetId> {
    let pool = rzfs::PoolOptions::new().device_paths([shop.image("A")]).force().open().unwrap();
    pool.unreplayed_logs().unwrap()
}

#[test]
fn an_import_replays_logs_of_volumes_and_a_key_that_of_an_encrypted_one() {
    let shop = Workshop::new();
    rzfs_testkit::unpack_sample("volume-logs", shop.image("A").as_ref()).unwrap();
    assert_eq!(logs(&shop).len(), 3);

    shop.succeed("zpool import -f -d IMAGES -R ROOT vols tank");
    shop.succeed("zpool export tank");
    assert_eq!(logs(&shop).len(), 1, "the encrypted volume's is left");
    shop.judge();

    let phrase = shop.image("Phrase");
    fs::write(&phrase, "correct horse battery\n").unwrap();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    shop.succeed(&format!("zfs load-key -n -L file://{phrase} tank/secret"));
    shop.succeed(&format!("zfs load-key -L file://{phrase} tank/secret"));
    // The volume is no longer in use after the replay.
    shop.succeed("zfs unload-key tank/secret");
    shop.succeed("zpool export tank");
    assert_eq!(logs(&shop), []);
    shop.judge();
}
