//! Devices that were missing and have returned, in pools that then lose another device.

use crate::harness::{kill_server, wait_until};
use crate::workshop::Workshop;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

const BEFORE: u8 = 1;
const MEANWHILE: u8 = 2;
const AFTER: u8 = 3;

fn contents(byte: u8) -> Vec<u8> {
    vec![byte; 1 << 20]
}

/// Writes a file, and waits until it is on disk.
fn write(shop: &Workshop, name: &str, byte: u8) {
    let mut file = File::create(shop.root().join(name)).unwrap();
    file.write_all(&contents(byte)).unwrap();
    file.sync_all().unwrap();
    shop.succeed("zpool sync tank");
}

fn has(shop: &Workshop, name: &str, byte: u8) {
    assert!(fs::read(shop.root().join(name)).unwrap() == contents(byte), "{name}");
}

/// An exported pool `tank`, whose image B was missing while `meanwhile` was written, and has
/// returned. In `words`, `B` stands for its path.
fn returned(words: &str) -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 300M -R ROOT host H");
    let away = shop.rzfs.path("root").join("host").join("B");
    let words = words.replace('B', &away.display().to_string());
    shop.succeed(&format!("zpool create --size 96M -R ROOT -O compression=off tank {words}"));
    write(&shop, "before", BEFORE);
    // The image disappears while the pool uses it, and the pool continues.
    kill_server(&shop.rzfs, "host");
    wait_until("the image has gone", || fs::metadata(&away).is_err());
    write(&shop, "meanwhile", MEANWHILE);
    has(&shop, "before", BEFORE);
    shop.succeed("zpool import -f -d H -R ROOT host");
    shop.succeed("zpool clear tank");
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("\n state: ONLINE\n"), "{status}");
    let lacking: Vec<_> = status.lines().filter(|line| line.contains("lacks data of")).collect();
    let is_it = lacking.len() == 1 && lacking[0].contains(&*away.to_string_lossy());
    assert!(is_it, "{status}");
    write(&shop, "after", AFTER);
    for (name, byte) in [("before", BEFORE), ("meanwhile", MEANWHILE), ("after", AFTER)] {
        has(&shop, name, byte);
    }
    shop.succeed("zpool export tank");
    fs::copy(&away, shop.image("B")).unwrap();
    shop.succeed("zpool export host");
    fs::remove_file(shop.image("H")).unwrap();
    shop
}

/// Moves an image away; returns its new path.
fn lose(shop: &Workshop, name: &str) -> PathBuf {
    let lost = shop.rzfs.path(name);
    fs::rename(shop.image(name), &lost).unwrap();
    lost
}

/// Checks that a refused import names the missing image.
fn assert_names(refused: &str, lost: &str) {
    let why = "cannot import 'tank': one or more devices is currently unavailable\n";
    assert!(refused.starts_with(why), "{refused}");
    assert!(refused.contains(&format!("then import the pool:\n\t{lost}\n")), "{refused}");
}

/// The last complete device is lost: data missing on the returned device cannot be read, and this
/// is reported.
fn loses_what_it_lacks(words: &str, lost: &str) {
    let shop = returned(words);
    let away = lose(&shop, lost);
    let listed = shop.succeed("zpool import -d IMAGES");
    for text in [
        "\n state: UNAVAIL\n",
        "\nstatus: A device is missing that has data which was written while the others were\n\t\
         away.\n",
        "\naction: The pool cannot be imported in read-write mode.",
        "'-o readonly=on'",
        "UNAVAIL  cannot open\n",
    ] {
        assert!(listed.contains(text), "{text}: {listed}");
    }
    for _ in 0..2 {
        let refused = shop.refuse("zpool import -d IMAGES -R ROOT tank", 1);
        assert_names(&refused, lost);
        let hint = "\nThe pool can be imported using '-o readonly=on'.\n";
        assert!(refused.ends_with(hint), "{refused}");
    }
    shop.succeed("zpool import -o readonly=on -d IMAGES -R ROOT tank");
    has(&shop, "before", BEFORE);
    has(&shop, "after", AFTER);
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("data which was written while the others were\n\taway"), "{status}");
    let unreadable = fs::read(shop.root().join("meanwhile")).unwrap_err();
    assert_eq!(unreadable.raw_os_error(), Some(5));
    shop.succeed("zpool export tank");

    // Nothing was changed, so nothing is lost when the device is found again.
    fs::rename(away, shop.image(lost)).unwrap();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    for (name, byte) in [("before", BEFORE), ("meanwhile", MEANWHILE), ("after", AFTER)] {
        has(&shop, name, byte);
    }
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn a_raidz_without_another_member_than_the_one_that_was_away_is_only_read() {
    loses_what_it_lacks("raidz1 A B C", "C");
}

#[test]
fn a_mirror_whose_good_side_is_lost_is_only_read() {
    loses_what_it_lacks("mirror A B", "A");
}

#[test]
fn a_member_that_was_away_can_be_lost_again() {
    for (words, others) in [("raidz1 A B C", 2), ("mirror A B", 1)] {
        let shop = returned(words);
        lose(&shop, "B");
        shop.succeed("zpool import -d IMAGES -R ROOT tank");
        let status = shop.succeed("zpool status tank");
        assert!(status.contains("\n state: DEGRADED\n"), "{status}");
        assert_eq!(status.matches("  ONLINE ").count(), others, "{status}");
        for (name, byte) in [("before", BEFORE), ("meanwhile", MEANWHILE), ("after", AFTER)] {
            has(&shop, name, byte);
        }
        shop.succeed("zpool export tank");
    }
}

/// Its missing data includes blocks that every pool needs.
#[test]
fn a_side_of_a_mirror_that_cannot_be_opened_alone_names_the_other() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank mirror A B");
    shop.succeed("zpool export tank");
    let away = lose(&shop, "B");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    // The object directory of the MOS is written, and then not again.
    shop.succeed("zpool set comment=hello tank");
    (0..3).for_each(|number| drop(shop.succeed(&format!("zfs create tank/{number}"))));
    fs::rename(away, shop.image("B")).unwrap();
    shop.succeed("zpool clear tank");
    shop.succeed("zpool export tank");
    let away = lose(&shop, "A");
    let listed = shop.succeed("zpool import -d IMAGES");
    let attach = "cannot be imported as long as these devices are missing";
    for text in ["\n state: UNAVAIL\n", attach, "ZFS-8000-3C"] {
        assert!(listed.contains(text), "{text}: {listed}");
    }
    for options in ["", "-o readonly=on "] {
        let refused = shop.refuse(&format!("zpool import {options}-d IMAGES -R ROOT tank"), 1);
        assert_names(&refused, "A");
    }
    fs::rename(away, shop.image("A")).unwrap();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(shop.succeed("zfs list -Ho name").lines().count(), 4);
    shop.succeed("zpool export tank");
    shop.judge();
}

/// Nothing on the device shows that there is newer data.
#[test]
fn a_side_of_a_mirror_that_is_not_back_is_alone_what_it_was() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT -O compression=off tank mirror A B");
    write(&shop, "before", BEFORE);
    shop.succeed("zpool export tank");
    let away = lose(&shop, "B");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    write(&shop, "meanwhile", MEANWHILE);
    shop.succeed("zpool export tank");
    fs::rename(away, shop.image("B")).unwrap();
    let away = lose(&shop, "A");
    let listed = shop.succeed("zpool import -d IMAGES");
    assert!(listed.contains("\n state: DEGRADED\n"), "{listed}");
    assert!(listed.contains("UNAVAIL  cannot open\n"), "{listed}");
    shop.succeed("zpool import -o readonly=on -d IMAGES -R ROOT tank");
    has(&shop, "before", BEFORE);
    assert!(!shop.root().join("meanwhile").exists());
    assert!(shop.succeed("zpool status tank").contains("\n state: DEGRADED\n"));
    shop.succeed("zpool export tank");

    // If both devices are there, the newer one is used.
    fs::rename(away, shop.image("A")).unwrap();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    has(&shop, "before", BEFORE);
    has(&shop, "meanwhile", MEANWHILE);
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("lacks data of txgs"), "{status}");
    shop.succeed("zpool export tank");
}
