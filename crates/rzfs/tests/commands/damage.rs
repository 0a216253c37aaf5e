//! Files that turn out to be damaged are told by `zpool status -v`.

use crate::workshop::Workshop;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

/// What of a file's number is its object's; above it stands which file system of a mount has it.
const OBJECT: u64 = (1 << 48) - 1;
/// Bytes of a file that has a block of pointers to its data.
const LARGE: usize = 1 << 20;
/// What is in the file that is damaged.
const CONTENTS: &[u8] = b"what is not to be read any more. ";

/// What is in another file.
const OTHER: &[u8] = b"what is damaged on another device. ";

/// Damages what an image has of some contents.
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
    assert_eq!(damaged_files(&shop), [root.join("dir/file").display().to_string()]);
    assert!(shop.succeed("zpool status").contains("errors: 1 data errors, use '-v' for a list\n"));
    shop.succeed("zpool export tank");

    shop.succeed("zpool import -N -d IMAGES tank");
    assert_eq!(damaged_files(&shop), ["tank:/dir/file"]);
    shop.succeed("zpool export tank");
}

/// Both sides of a mirror have damage, so reads meet some whichever side they prefer.
#[test]
fn status_does_not_claim_that_damaged_copies_are_repaired() {
    let told = "status: One or more devices has experienced an unrecoverable error.  Damaged\n\t\
        copies were read around with other copies, and stay as they are.\n\
        action: Keep the devices that have the good copies: nothing repairs the others\n\t\
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

    // What is cleared is still damaged.
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

/// The places on the device of the blocks of pointers of a file, as `zdb` tells.
fn pointer_blocks(shop: &Workshop, object: u64) -> Vec<u64> {
    /// Where the space of a device begins.
    const SPACE: u64 = 0x40_0000;
    let told = shop.succeed(&format!("zdb -e -p IMAGES -dddddd tank/a {object}"));
    let words = told.lines().filter(|line| line.contains(" L1 ")).flat_map(str::split_whitespace);
    let places = words.filter_map(|word| word.strip_prefix("0:")?.split(':').next());
    places.map(|place| SPACE + u64::from_str_radix(place, 16).unwrap()).collect()
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
    let image = fs::File::options().write(true).open(shop.image("A")).unwrap();
    let places = pointer_blocks(&shop, object);
    assert_eq!(places.len(), 2);
    places.into_iter().for_each(|place| image.write_all_at(&[0; 512], place).unwrap());

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
