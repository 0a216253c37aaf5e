//! What `zpool import` prints about missing devices, and if none are missing.

use crate::harness::kill_server;
use crate::workshop::Workshop;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

#[test]
fn a_cache_device_is_missed_only_if_it_is_missing() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -m none tank A cache B");
    for line in ["zpool import -d IMAGES", "zpool import -d A -d B"] {
        let listed = shop.succeed(line);
        let by_name = "\naction: The pool can be imported using its name or numeric identifier.\n";
        assert!(listed.contains(by_name) && listed.contains("\n\tcache\n"), "{line}: {listed}");
        assert!(!listed.contains("status:") && !listed.contains("see:"), "{line}: {listed}");
    }
    fs::remove_file(shop.image("B")).unwrap();
    let listed = shop.succeed("zpool import -d IMAGES");
    assert!(listed.contains("status: Devices are missing."), "{listed}");
    assert!(listed.contains("msg/ZFS-8000-2Q\n"), "{listed}");
}

#[test]
fn missing_log_devices_are_named_with_the_way_to_do_without() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -m none tank A log mirror B C");
    for device in ["B", "C"] {
        fs::remove_file(shop.image(device)).unwrap();
    }
    let listed = shop.succeed("zpool import -d IMAGES");
    assert!(listed.contains("Log devices are missing: use '-m' to import the pool"), "{listed}");
    let below = "to import the pool anyway:\n\t    mirror-1 [log]\n\t      B\n\t      C\n\n\
        cannot import 'tank': one or more devices is currently unavailable\n";
    let refused =
        |option| format!("The devices below are missing or corrupted, use '{option}' {below}");
    assert_eq!(shop.refuse("zpool import -d IMAGES tank", 1), refused("-m"));
    // `rzfs mount` has no such option.
    assert_eq!(shop.refuse("mount A ROOT", 1), refused("zpool import -m"));
    let imported = shop.run("zpool import -d IMAGES -m tank");
    assert_eq!(imported.status, 0, "{imported:?}");
    shop.succeed("zpool export tank");
}

#[test]
fn devices_without_which_a_pool_cannot_be_imported_are_named() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -m none tank raidz1 A B C special mirror D E");
    let needs = |lost: &[&str], told: &str| {
        let moved = |name: &str| (shop.image(name), shop.rzfs.path(name));
        lost.iter()
            .map(|name| moved(name))
            .for_each(|(image, away)| fs::rename(image, away).unwrap());
        let refused = shop.refuse("zpool import -d IMAGES tank", 1);
        lost.iter()
            .map(|name| moved(name))
            .for_each(|(image, away)| fs::rename(away, image).unwrap());
        let why = "one or more devices is currently unavailable";
        assert_eq!(refused, format!("cannot import 'tank': {why}\n{told}"));
    };
    needs(&["A", "C"], "Attach those that are missing, then import the pool:\n\tA\n\tC\n");
    // Nobody who is there knows their names.
    needs(&["D", "E"], "");
}

#[test]
fn what_is_lost_with_a_log_device_is_told_in_a_sentence() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A log B");
    shop.succeed("zpool sync tank");
    let mut file = File::create_new(shop.root().join("file")).unwrap();
    file.write_all(b"this is in the log").unwrap();
    file.sync_all().unwrap();
    kill_server(&shop.rzfs, "tank");
    drop(file);
    fs::remove_file(shop.image("B")).unwrap();
    let imported = shop.run("zpool import -f -m -d IMAGES -R ROOT tank");
    let told = "'tank': the intent log is given up, as a log device is missing; \
        changes that are only there are lost\n";
    assert_eq!((imported.status, imported.err.as_str()), (0, told));
    shop.succeed("zpool export tank");
}

/// The labels on the devices have the new guid, the uberblock does not.
#[test]
fn a_pool_is_found_by_its_guid_after_a_crash_before_it_got_another_one() {
    /// The configuration in a label ends where the uberblock ring begins.
    const CONFIG: std::ops::Range<usize> = 16 << 10..128 << 10;
    const LABEL: usize = 256 << 10;
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export -m none tank mirror A B");
    let images = ["A", "B"].map(|device| shop.image(device));
    let read = || images.each_ref().map(|image| fs::read(image).unwrap());
    let before = read();
    shop.succeed("zpool import -d IMAGES tank");
    let guid = shop.succeed("zpool get -H -o value guid tank");
    shop.succeed("zpool reguid tank");
    assert_ne!(shop.succeed("zpool get -H -o value guid tank"), guid);
    shop.succeed("zpool export tank");
    for ((image, before), after) in images.iter().zip(&before).zip(read()) {
        fs::write(image, before).unwrap();
        let file = File::options().write(true).open(image).unwrap();
        for label in [0, before.len() - 2 * LABEL] {
            let config = label + CONFIG.start..label + CONFIG.end;
            file.write_all_at(&after[config.clone()], config.start as u64).unwrap();
        }
    }
    let listed = shop.succeed("zpool import -d IMAGES");
    assert!(listed.contains(&format!("id: {guid}")), "{listed}");
    assert!(listed.contains("state: ONLINE"), "{listed}");
    shop.succeed("zpool import -d IMAGES tank");
    assert_eq!(shop.succeed("zpool get -H -o value guid tank"), guid);
    shop.succeed("zpool export tank");
    shop.judge();
}
