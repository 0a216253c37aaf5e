//! `zpool status -v` lists damaged files.

use crate::harness::{kill_server, outcome};
use crate::workshop::Workshop;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

/// The object number in an inode number; the upper bits identify the file system of a shared mount.
const OBJECT: u64 = (1 << 48) - 1;
/// Number of dnodes in a block.
const DNODES: u64 = 32;
/// Size in bytes of a file that has an indirect block.
const LARGE: usize = 1 << 20;
/// The contents of the damaged file.
const CONTENTS: &[u8] = b"what is not to be read any more. ";

/// The contents of another file.
const OTHER: &[u8] = b"what is damaged on another device. ";

/// Damages every copy of `contents` in an image.
fn damage(image: &str, contents: &[u8]) {
    let bytes = fs::read(image).unwrap();
    let places: Vec<_> =
        bytes.windows(contents.len()).enumerate().filter(|(_, it)| *it == contents).collect();
    assert!(!places.is_empty());
    let file = fs::File::options().write(true).open(image).unwrap();
    for (offset, _) in places {
        file.write_all_at(b"X", offset as u64).unwrap();
    }
}

fn damaged_files(shop: &Workshop) -> Vec<String> {
    shop.succeed("zpool sync");
    let status = shop.succeed("zpool status -v");
    let (_, files) = status.split_once("in the following files:\n\n").unwrap_or_default();
    files.lines().map(|line| line.trim().to_owned()).collect()
}

#[test]
fn status_names_the_files_that_cannot_be_read() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT -O compression=off tank A");
    let root = shop.root();
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/file"), CONTENTS.repeat(1000)).unwrap();
    shop.succeed("zpool export tank");
    damage(&shop.image("A"), CONTENTS);

    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(damaged_files(&shop), [""; 0]);
    let error = fs::read(root.join("dir/file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    // Also before the error log is on disk.
    let corrupt = "status: Data is damaged that no other copy makes up for.\n";
    let status = shop.succeed("zpool status -v");
    assert!(status.contains(corrupt) && status.contains("/dir/file\n"), "{status}");
    assert_eq!(damaged_files(&shop), [root.join("dir/file").display().to_string()]);
    assert!(shop.succeed("zpool status").contains("errors: 1 data errors, use '-v' for a list\n"));
    shop.succeed("zpool export tank");

    shop.succeed("zpool import -N -d IMAGES tank");
    assert_eq!(damaged_files(&shop), ["tank:/dir/file"]);
    shop.succeed("zpool export tank");

    // Files that no longer exist are not listed.
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    fs::remove_file(root.join("dir/file")).unwrap();
    shop.succeed("zpool sync");
    shop.succeed("zpool clear tank");
    assert_eq!(shop.succeed("zpool status -x"), "all pools are healthy\n");
    shop.succeed("zpool export tank");
}

/// Both sides of a mirror are damaged, so reads hit damage whichever side they prefer.
#[test]
fn status_does_not_claim_that_damaged_copies_are_repaired() {
    let told = "status: A device had errors.  Where others have good copies these are read, and\n\t\
        damaged copies stay as they are.\n\
        action: Keep the devices that have good copies: nothing repairs the others\n\t\
        until OpenZFS scrubs the pool, or the data is written anew.  'zpool clear'\n\t\
        only forgets that there were errors.\n   \
        see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-9P\n";
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT -O compression=off tank mirror A B");
    let files = [("one", CONTENTS.repeat(20_000)), ("other", OTHER.repeat(20_000))];
    for (name, contents) in &files {
        fs::write(shop.root().join(name), contents).unwrap();
    }
    shop.succeed("zpool export tank");
    damage(&shop.image("A"), CONTENTS);
    damage(&shop.image("B"), OTHER);

    // Clearing errors does not repair the damage.
    for _ in 0..2 {
        shop.succeed("zpool import -d IMAGES -R ROOT tank");
        assert!(!shop.succeed("zpool status tank").contains("status:"));
        for (name, contents) in &files {
            assert_eq!(&fs::read(shop.root().join(name)).unwrap(), contents);
        }
        let status = shop.succeed("zpool status tank");
        assert!(status.contains(told), "{status}");
        shop.succeed("zpool clear tank");
        shop.succeed("zpool export tank");
    }
}

/// The addresses on the device of those blocks of an object of `tank/a` for which `is_meant`
/// accepts the offset in the object and the level, as `zdb` prints them.
fn places(shop: &Workshop, object: u64, is_meant: impl Fn(&str, &str) -> bool) -> Vec<u64> {
    /// The offset on a device of address 0.
    const SPACE: u64 = 0x40_0000;
    let told = shop.succeed(&format!("zdb -e -p IMAGES -dddddd tank/a {object}"));
    let lines = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let meant = lines.filter(|words| words.len() > 2 && is_meant(words[0], words[1]));
    let addresses = meant.flat_map(|words| {
        let addresses = words.into_iter().filter_map(|word| word.strip_prefix("0:"));
        addresses.filter_map(|word| word.split(':').next().map(str::to_owned)).collect::<Vec<_>>()
    });
    addresses.map(|place| SPACE + u64::from_str_radix(&place, 16).unwrap()).collect()
}

/// The indirect blocks of a file.
fn pointer_blocks(shop: &Workshop, object: u64) -> Vec<u64> {
    places(shop, object, |_, level| level == "L1")
}

/// The block with the dnode of an object.
fn dnode_block(shop: &Workshop, object: u64) -> Vec<u64> {
    let beginning = format!("{:x}", object / DNODES * (DNODES << 9));
    places(shop, 0, |offset, level| level == "L0" && offset == beginning)
}

/// Overwrites all copies of a block.
fn overwrite(shop: &Workshop, places: Vec<u64>) {
    assert_eq!(places.len(), 2);
    let image = fs::File::options().write(true).open(shop.image("A")).unwrap();
    places.into_iter().for_each(|place| image.write_all_at(&[0; 512], place).unwrap());
}

#[test]
fn status_tells_what_is_leaked() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT -O compression=off tank A");
    shop.succeed("zfs create tank/a");
    let file = shop.root().join("a/file");
    fs::write(&file, vec![1; LARGE]).unwrap();
    let object = fs::metadata(&file).unwrap().ino() & OBJECT;
    shop.succeed("zpool export tank");
    overwrite(&shop, pointer_blocks(&shop, object));

    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert!(!shop.succeed("zpool status").contains("leaked"));
    shop.succeed("zfs destroy tank/a");
    shop.succeed("zpool wait -t free tank");
    let leaked = "\nleaked: 1M that cannot be freed because of damage\nerrors: ";
    let status = shop.succeed("zpool status");
    assert!(status.contains(leaked), "{status}");
    assert_eq!(shop.succeed("zpool get -Hpo value leaked tank"), format!("{LARGE}\n"));
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -d IMAGES -N tank");
    assert!(shop.succeed("zpool status").contains(leaked));
    shop.succeed("zpool export tank");
}

/// An exported pool with a file `broken` in `tank/a`, of which some blocks are damaged, and others.
fn broken(blocks: impl Fn(&Workshop, u64) -> Vec<u64>) -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT -O compression=off tank A");
    shop.succeed("zfs create tank/a");
    let directory = shop.root().join("a");
    let object = |name| fs::metadata(directory.join(name)).unwrap().ino() & OBJECT;
    // Their dnodes fill more than one block.
    for number in 0..3 * DNODES {
        fs::write(directory.join(format!("other{number}")), CONTENTS).unwrap();
    }
    shop.succeed("zpool sync");
    fs::write(directory.join("broken"), vec![1; LARGE]).unwrap();
    let object_of_broken = object("broken");
    assert!(object_of_broken / DNODES > object("other0") / DNODES, "another block has its dnode");
    shop.succeed("zpool export tank");
    overwrite(&shop, blocks(&shop, object_of_broken));
    shop
}

fn refuses<T>(result: io::Result<T>) {
    assert_eq!(result.err().and_then(|error| error.raw_os_error()), Some(5));
}

/// The pool can still be used normally, and reports the damage.
fn goes_on(shop: &Workshop, round: u32) {
    let directory = shop.root().join("a");
    let mut file = fs::File::create(directory.join(format!("new{round}"))).unwrap();
    file.write_all(OTHER).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(directory.join("other0")).unwrap(), CONTENTS);
    fs::remove_file(directory.join(format!("other{}", 1 + round))).unwrap();
    assert!(fs::read_dir(&directory).unwrap().any(|entry| entry.unwrap().file_name() == "broken"));
    shop.succeed("zpool sync");
    let status = shop.succeed("zpool status tank");
    for text in [
        "\n state: ONLINE\n",
        "\nstatus: Data is damaged that no other copy makes up for.\n",
        "msg/ZFS-8000-8A\n",
        "\nerrors: 1 data errors, use '-v' for a list\n",
    ] {
        assert!(status.contains(text), "{text}: {status}");
    }
    assert!(!shop.succeed("zpool status -x").contains("healthy"));
}

/// Both checks of the exported pool report only one damaged block and its children.
fn assert_one_damaged_block(shop: &Workshop) {
    let judge = |told: String| {
        let skipped: Vec<_> = told.lines().filter(|line| line.contains("Got error")).collect();
        assert!(skipped.len() == 1 && skipped[0].contains("error 52 reading"), "{told}");
        let leaks = told.lines().filter(|line| line.starts_with("leaked space")).map(str::to_owned);
        leaks.collect::<Vec<_>>()
    };
    let walked = shop.run("zdb -bcc -e -p IMAGES tank");
    assert_eq!(walked.status, 3, "{walked:?}");
    let leaks = judge(walked.out);
    assert!(!leaks.is_empty());
    let Some(zdb) = rzfs_testkit::zdb_program() else { return };
    let images = shop.rzfs.path("images");
    let words = ["-bcc", "-e", "-p"].map(OsStr::new).into_iter();
    let walked =
        outcome(Command::new(zdb).args(words.chain([images.as_os_str(), OsStr::new("tank")])));
    assert_eq!(walked.status, 3, "{walked:?}");
    assert_eq!(judge(walked.out), leaks);
}

#[test]
fn a_file_with_damaged_pointers_is_refused_and_the_pool_goes_on() {
    let shop = broken(pointer_blocks);
    let file = shop.root().join("a/broken");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(damaged_files(&shop), [""; 0]);
    refuses(fs::remove_file(&file));
    refuses(fs::File::options().write(true).open(&file).unwrap().set_len(5));
    refuses(fs::read(&file));
    assert_eq!(fs::metadata(&file).unwrap().len(), LARGE as u64);
    assert_eq!(damaged_files(&shop), [file.display().to_string()]);
    goes_on(&shop, 0);
    shop.succeed("zpool export tank");

    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    goes_on(&shop, 1);
    let renamed = shop.root().join("a/broken as well");
    fs::rename(&file, &renamed).unwrap();
    assert_eq!(damaged_files(&shop), [renamed.display().to_string()]);
    assert_eq!(fs::read(shop.root().join("a/new0")).unwrap(), OTHER);
    fs::rename(&renamed, &file).unwrap();
    shop.succeed("zpool export tank");
    assert_one_damaged_block(&shop);
}

#[test]
fn a_file_whose_dnode_is_damaged_is_refused_and_the_pool_goes_on() {
    let shop = broken(dnode_block);
    let file = shop.root().join("a/broken");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    refuses(fs::remove_file(&file));
    refuses(fs::metadata(&file));
    // All objects in the block are damaged, and their names cannot be read.
    assert_eq!(damaged_files(&shop), ["tank/a:<0x0>"]);
    goes_on(&shop, 0);
    shop.succeed("zpool export tank");

    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    refuses(fs::remove_file(&file));
    goes_on(&shop, 1);
    assert_eq!(fs::read(shop.root().join("a/new0")).unwrap(), OTHER);
    shop.succeed("zpool export tank");
    assert_one_damaged_block(&shop);
}

/// No device is to blame: `zpool status` lists this many vdevs, all without errors.
fn assert_no_errors(shop: &Workshop, vdevs: usize) {
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("\nerrors: No known data errors\n"), "{status}");
    assert!(!status.contains("status:"), "{status}");
    let lines = status.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let counted: Vec<_> = lines.filter(|words| words.len() > 2 && words[1] == "ONLINE").collect();
    assert_eq!(counted.len(), vdevs, "{status}");
    assert!(counted.iter().all(|words| words[2..] == ["0", "0", "0"]), "{status}");
}

fn assert_is_in_order_again_and_again(shop: &Workshop, vdevs: usize) {
    (0..3).for_each(|_| assert_no_errors(shop, vdevs));
    assert_eq!(shop.succeed("zpool status -x"), "all pools are healthy\n");
}

/// The end of an intent log is found by reading a block that does not belong to it.
#[test]
fn nobody_is_blamed_for_the_ends_of_intent_logs() {
    for (layout, vdevs) in [("A", 2), ("mirror A B", 4), ("A log B", 3)] {
        let shop = Workshop::new();
        shop.succeed(&format!("zpool create --size 96M -R ROOT tank {layout}"));
        shop.succeed("zfs create tank/a");
        for round in 0..3 {
            let synced = |directory: &str| {
                let file = shop.root().join(format!("{directory}file{round}"));
                let mut file = fs::File::create(file).unwrap();
                for _ in 0..20 {
                    file.write_all(CONTENTS).unwrap();
                    file.sync_all().unwrap();
                }
            };
            ["", "a/"].into_iter().for_each(synced);
            assert_is_in_order_again_and_again(&shop, vdevs);
            // In the last round there is a log to replay.
            let force = if round < 2 {
                shop.succeed("zpool export tank");
                ""
            } else {
                kill_server(&shop.rzfs, "tank");
                "-f "
            };
            let listed = shop.succeed("zpool import -d IMAGES");
            assert!(listed.contains("\n state: ONLINE\n"), "{listed}");
            shop.succeed(&format!("zpool import {force}-d IMAGES -R ROOT tank"));
            assert_is_in_order_again_and_again(&shop, vdevs);
            let contents = fs::read(shop.root().join(format!("a/file{round}"))).unwrap();
            assert_eq!(contents, CONTENTS.repeat(20));
            assert_is_in_order_again_and_again(&shop, vdevs);
        }
        shop.succeed("zpool export tank");
        shop.judge();
    }
}
