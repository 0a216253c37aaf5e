//! Files that turn out to be damaged are told by `zpool status -v`.

use crate::workshop::Workshop;
use std::fs;
use std::os::unix::fs::FileExt;

/// What is in the file that is damaged.
const CONTENTS: &[u8] = b"what is not to be read any more. ";

/// Damages what an image has of [`CONTENTS`].
fn damage(image: &str) {
    let bytes = fs::read(image).unwrap();
    let places: Vec<_> =
        bytes.windows(CONTENTS.len()).enumerate().filter(|(_, it)| *it == CONTENTS).collect();
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
    damage(&shop.image("A"));

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
