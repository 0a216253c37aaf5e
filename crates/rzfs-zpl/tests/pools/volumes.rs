//! Volumes with intent logs left by OpenZFS.

use crate::golden::Copy;
use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::live::LivePool;
use rzfs_zpl::Volume;
use rzfs_zpl::live::replay_volume;

const PASSPHRASE: &[u8] = b"correct horse battery";
const VOLUMES: [&str; 3] = ["vols/plain", "vols/throughput", "vols/secret"];
const SIZE: usize = 1 << 20;

/// Numbers from `first` on, 512 bytes each.
fn lines(first: usize, count: usize) -> Vec<u8> {
    (first..first + count).flat_map(|number| format!("{number:0511}\n").into_bytes()).collect()
}

/// The data written to a volume by `samples/make-volume-logs`.
fn expected(number: usize) -> Vec<u8> {
    let mut bytes = lines(1001 + 1000 * number, SIZE / 512);
    let logged = 4001 + 1000 * number;
    for (offset, data) in [
        (3 * 4096, lines(logged, 8)),
        (10 * 12288, lines(logged, 24)),
        (256 << 10, lines(logged, 512)),
        (640 << 10, vec![0; 128 << 10]),
        (170 * 4096, lines(7, 8)),
        (2047 * 512, lines(9, 1)),
    ] {
        bytes[offset..offset + data.len()].copy_from_slice(&data);
    }
    bytes
}

/// The volumes that have all written data.
fn complete(pool: &Pool) -> Vec<&'static str> {
    let is_complete = |(number, name): &(usize, &'static str)| {
        let dataset = pool.datasets().open(name).unwrap();
        let volume = Volume::of_dataset(&dataset, None).unwrap();
        let mut found = vec![1; SIZE];
        assert_eq!(volume.read_at(0, &mut found).unwrap(), SIZE);
        found == expected(*number)
    };
    VOLUMES.into_iter().enumerate().filter(is_complete).map(|(_, name)| name).collect()
}

fn unlocked(pool: &Pool) {
    pool.datasets().open("vols/secret").unwrap().load_key(PASSPHRASE).unwrap();
}

/// Replays a log; returns its number of records.
fn replay(pool: &LivePool, name: &str) -> u64 {
    let dataset = pool.dataset_tree().unwrap().open(name).unwrap();
    let summary = replay_volume(pool, &pool.open_dataset(&dataset).unwrap()).unwrap();
    assert!(summary.failure.is_none(), "{name}: {:?}", summary.failure);
    summary.replayed
}

#[test]
fn logs_of_volumes_are_replayed() {
    let copy = Copy::sample("volume-logs");
    let before = copy.import(&OpenOptions::new());
    unlocked(&before);
    assert_eq!(complete(&before), [""; 0], "there is nothing to replay");
    let pool = copy.open();
    let secret = pool.dataset_tree().unwrap().open("vols/secret").unwrap();
    secret.load_key(PASSPHRASE).unwrap();
    for (name, records) in VOLUMES.into_iter().zip([9, 22, 9]) {
        assert_eq!(replay(&pool, name), records, "{name}");
        assert_eq!(replay(&pool, name), 0, "{name} again");
    }
    assert_eq!(replay(&pool, "vols/untouched"), 0);
    pool.export().unwrap();
    let after = copy.import(&OpenOptions::new());
    unlocked(&after);
    assert_eq!(complete(&after), VOLUMES);
    copy.judge();
}

/// Each replay is cut off by a pool that is not exported.
#[test]
fn logs_of_volumes_are_replayed_one_at_a_time() {
    let copy = Copy::sample("volume-logs");
    for (number, name) in VOLUMES.into_iter().enumerate() {
        let pool = copy.open();
        let secret = pool.dataset_tree().unwrap().open("vols/secret").unwrap();
        if name == "vols/secret" {
            secret.load_key(PASSPHRASE).unwrap();
        }
        replay(&pool, name);
        drop(pool);
        let after = copy.import(&OpenOptions::new());
        unlocked(&after);
        assert_eq!(complete(&after), VOLUMES[..=number]);
        copy.judge();
    }
}
