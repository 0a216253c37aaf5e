//! `zpool initialize`, `trim` and `wait` on pools in use, and what OpenZFS's zdb shows for them.

use crate::workshop::Workshop;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

/// The bytes that an image occupies on the host.
fn held(shop: &Workshop, image: &str) -> u64 {
    fs::metadata(shop.image(image)).unwrap().blocks() * 512
}

/// The remark of `zpool status` after the counters of a device, without the time.
fn remark(shop: &Workshop, option: &str, image: &str) -> String {
    let status = shop.succeed(&format!("zpool status {option} tank"));
    let path = shop.image(image);
    let line = status.lines().find(|line| line.trim_start().starts_with(&path)).unwrap();
    let remark = line.split_once("0     0     0").unwrap().1.trim();
    remark.split(" at ").next().unwrap().to_owned()
}

/// Waits until the remark of `zpool status` on a device is as expected.
fn await_remark(shop: &Workshop, option: &str, image: &str, expected: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let remark = remark(shop, option, image);
        if expected(&remark) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{remark}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The values of an entry in the leaf ZAPs as zdb shows them, for both leaves of a mirror.
fn zap_values(shop: &Workshop, name: &str) -> Option<Vec<u64>> {
    let text = shop.zdb(&["-dddd"])?;
    let values = text.lines().filter_map(|line| {
        let (entry, value) = line.trim().split_once(" = ")?;
        (entry == name).then(|| value.trim().parse().unwrap())
    });
    Some(values.collect())
}

#[test]
fn free_space_is_trimmed_and_initialized_and_nothing_else() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 160M -R ROOT -O compression=off tank mirror A B");
    fs::write(shop.root().join("kept"), vec![7; 8 << 20]).unwrap();
    fs::write(shop.root().join("gone"), vec![8; 40 << 20]).unwrap();
    shop.succeed("zpool sync");
    fs::remove_file(shop.root().join("gone")).unwrap();
    // Freed space can be reused, and trimmed, only after some txgs.
    (0..4).for_each(|_| drop(shop.succeed("zpool sync")));
    let before = held(&shop, "A");
    assert!(before > 48 * MIB, "{before}");
    assert_eq!(remark(&shop, "-t", "A"), "(untrimmed)");
    shop.succeed("zpool trim -w tank A");
    let after = held(&shop, "A");
    assert!(after < 20 * MIB, "{before} {after}");
    assert_eq!(remark(&shop, "-t", "A"), "(100% trimmed, completed");
    assert_eq!(remark(&shop, "-t", "B"), "(untrimmed)");
    assert!(held(&shop, "B") > 48 * MIB);

    assert_eq!(remark(&shop, "-i", "B"), "(uninitialized)");
    shop.succeed("zpool initialize tank");
    shop.succeed("zpool wait -t initialize tank");
    assert_eq!(remark(&shop, "-i", "B"), "(100% initialized, completed");
    assert!(held(&shop, "A") > 140 * MIB);
    assert_eq!(fs::read(shop.root().join("kept")).unwrap(), vec![7; 8 << 20]);
    let history = shop.succeed("zpool history -i tank");
    let path = shop.image("A");
    for line in [
        format!("trim vdev={path} activated"),
        format!("trim vdev={path} complete"),
        format!("initialize vdev={path} complete"),
        format!("zpool trim -w tank {path}"),
    ] {
        assert!(history.contains(&line), "{line}: {history}");
    }
    let events = shop.succeed("zpool events");
    assert!(events.contains("sysevent.fs.zfs.trim_finish"), "{events}");
    shop.succeed("zpool export tank");
    shop.judge();
    let Some(states) = zap_values(&shop, "com.delphix:vdev_initialize_state") else { return };
    assert_eq!(states, [4, 4]);
    assert_eq!(zap_values(&shop, "org.zfsonlinux:vdev_trim_state").unwrap(), [4]);
    let image = fs::read(shop.image("A")).unwrap();
    let pattern = 0xdead_beef_dead_beee_u64.to_ne_bytes();
    let filled = image.chunks(8).filter(|word| *word == pattern).count() as u64 * 8;
    assert!(filled > 100 * MIB, "{filled}");
}

#[test]
fn sweeps_are_suspended_resumed_after_an_import_and_given_up() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 512M -R ROOT tank mirror A B");
    // At this rate it takes minutes.
    shop.succeed("zpool trim -r 4M tank");
    await_remark(&shop, "-t", "A", |text| !text.contains("(0%") && text.contains("started"));
    let busy = "cannot trim 'A': currently trimming\ncannot trim 'B': currently trimming\n";
    assert_eq!(shop.refuse("zpool trim tank", 255), busy);
    shop.succeed("zpool trim -s tank A");
    let suspended = remark(&shop, "-t", "A");
    assert!(suspended.ends_with("% trimmed, suspended, started"), "{suspended}");
    let idle = "cannot trim 'A': there is no active trim\n";
    assert_eq!(shop.refuse("zpool trim -s tank A", 255), idle);
    shop.succeed("zpool export tank");
    shop.judge();
    if let Some(states) = zap_values(&shop, "org.zfsonlinux:vdev_trim_state") {
        assert_eq!(states, [3, 1]);
        assert_eq!(zap_values(&shop, "org.zfsonlinux:vdev_trim_rate").unwrap(), [4 * MIB; 2]);
        let offsets = zap_values(&shop, "org.zfsonlinux:next_offset_to_trim").unwrap();
        assert!(offsets.iter().all(|offset| (5 * MIB..500 * MIB).contains(offset)), "{offsets:?}");
    }
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(remark(&shop, "-t", "A"), suspended);
    assert!(remark(&shop, "-t", "B").ends_with("% trimmed, started"));
    shop.succeed("zpool trim -c tank B");
    assert_eq!(remark(&shop, "-t", "B"), "(untrimmed)");
    // It continues from the same position, faster.
    shop.succeed("zpool trim -w -r 1G tank A");
    assert_eq!(remark(&shop, "-t", "A"), "(100% trimmed, completed");
    let none =
        "cannot trim 'A': there is no active trim\ncannot trim 'B': there is no active trim\n";
    assert_eq!(shop.refuse("zpool trim -c tank", 255), none);

    shop.succeed("zpool initialize tank A");
    shop.succeed("zpool initialize -w tank B");
    shop.succeed("zpool wait tank");
    shop.succeed("zpool initialize -u tank A");
    assert_eq!(remark(&shop, "-i", "A"), "(uninitialized)");
    assert_eq!(remark(&shop, "-i", "B"), "(100% initialized, completed");
    shop.succeed("zpool export tank");
    shop.judge();
    if let Some(states) = zap_values(&shop, "com.delphix:vdev_initialize_state") {
        assert_eq!(states, [4]);
    }
}

#[test]
fn what_cannot_be_swept_is_told_in_openzfs_words() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank mirror A B");
    let first = |text: String| text.lines().next().unwrap_or_default().to_owned();
    for (line, status, text) in [
        ("zpool initialize", 2, "missing pool name argument"),
        ("zpool trim", 2, "missing pool name argument"),
        ("zpool initialize nopool", 255, "cannot open 'nopool': no such pool"),
        ("zpool trim nopool", 255, "cannot open 'nopool': no such pool"),
        ("zpool trim tank nodev", 255, "cannot trim 'nodev': no such device in pool"),
        ("zpool initialize tank mirror-0", 255, "cannot initialize 'mirror-0': invalid device"),
        (
            "zpool initialize -c tank A",
            255,
            "cannot initialize 'A': there is no active initialization",
        ),
        ("zpool initialize -c -s tank", 2, "-s cannot be combined with other options"),
        ("zpool initialize -u -c tank", 2, "-c cannot be combined with other options"),
        ("zpool initialize -w -c tank", 2, "-w cannot be used with -c, -sor -u"),
        ("zpool trim -w -s tank", 2, "-w cannot be used with -c or -s"),
        (
            "zpool trim -d tank A",
            255,
            "cannot trim 'A': trim operations are not supported by this device",
        ),
        ("zpool trim -r x tank", 2, "invalid value for rate: bad numeric value 'x'"),
        ("zpool wait", 2, "missing 'pool' argument"),
        ("zpool wait -t bad tank", 2, "invalid activity 'bad'"),
        ("zpool wait tank nonumber", 2, "too many arguments"),
        ("zpool wait nopool", 1, "cannot open 'nopool': no such pool"),
    ] {
        assert_eq!(first(shop.refuse(line, status)), text, "{line}");
    }
    // Uninitializing without anything to undo is not an error.
    shop.succeed("zpool initialize -u tank");
    assert_eq!(
        shop.succeed("zpool wait -t trim,initialize tank 1"),
        "  INITIALIZE    TRIM\n           0       0\n"
    );
    assert_eq!(shop.succeed("zpool wait -H -t trim tank 1"), "\t0\n");
    shop.succeed("zpool export tank");
}
