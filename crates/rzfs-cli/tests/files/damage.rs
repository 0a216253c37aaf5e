//! How the commands handle unreadable blocks.

use crate::host::{Images, errors, garden, scratch};
use rzfs::format::ObjectId;
use rzfs::{OpenFiles, PoolOptions};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// The offset in bytes where a leaf's data begins.
const DATA_START: u64 = 4 << 20;

/// Overwrites every copy of a data block of a file.
fn damage(images: &Images, dataset: &str, path: &str, block: u64) {
    let pool = PoolOptions::new().device_paths(&images.paths).force().open().unwrap();
    let tree = pool.file_system(dataset).unwrap();
    let object = tree.link_node(path).unwrap().object();
    damage_object(images, &tree, object, block);
}

fn damage_object(images: &Images, tree: &rzfs::FileTree, object: ObjectId, block: u64) {
    let object = tree.file_system().objset().object(object).unwrap();
    let pointer = object.pointers(0, block..block + 1).pop().unwrap().unwrap();
    let image = File::options().write(true).open(&images.paths[0]).unwrap();
    let mut copies = 0;
    for dva in pointer.dvas() {
        image.write_all_at(&[0x55; 512], DATA_START + dva.offset()).unwrap();
        copies += 1;
    }
    assert!(copies > 0, "nothing to damage");
}

#[test]
fn contents_come_up_to_the_damage_and_its_place_is_told() {
    let images = garden();
    // One block of 200,000 bytes.
    damage(&images, "garden/seeds", "/catalogue.bin", 0);
    let output = images.run("cat", &["garden/seeds:/catalogue.bin", "garden/notes:/today"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.starts_with(b"Sow peas"));
    let told = errors(&output);
    let place = "rzfs cat: garden/seeds:/catalogue.bin, offset 0: block ";
    assert!(told.starts_with(place), "{told}");
    assert!(told.contains("checksum"), "{told}");
    let object = images.text("stat", &["garden/seeds:/catalogue.bin"]);
    let object = object.lines().find_map(|line| line.strip_prefix("object      ")).unwrap();
    assert!(told.contains(&format!(", {object}, 0, 0>")), "{told}");
}

#[test]
fn a_copy_goes_on_behind_damage() {
    let images = garden();
    damage(&images, "garden/seeds", "/catalogue.bin", 0);
    let out = scratch();
    let output = images.run("cp", &["-r", "garden/seeds:/", out.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors(&output).lines().count(), 1);
    assert!(errors(&output).contains("garden/seeds:/catalogue.bin, offset 0: "));
    assert_eq!(fs::metadata(out.path().join("sparse")).unwrap().len(), 5001 * 4096);
    assert_eq!(fs::metadata(out.path().join("catalogue.bin")).unwrap().len(), 0);
}

#[test]
fn a_damaged_directory_does_not_hide_its_neighbours() {
    let images = garden();
    damage(&images, "garden/notes", "/beds", 0);
    let found = images.run("find", &["garden/notes:/"]);
    let names = String::from_utf8(found.stdout.clone()).unwrap();
    for name in ["/beds", "/diary", "/today"] {
        assert!(names.contains(&format!("garden/notes:{name}\n")), "{names}");
    }
    assert_eq!(found.status.code(), Some(1));
    let listed = images.run("ls", &["garden/notes:/beds", "garden/notes:/"]);
    assert!(String::from_utf8_lossy(&listed.stdout).ends_with(":\nbeds\ndiary\ntoday\n"));
    for output in [found, listed] {
        let told = errors(&output);
        assert!(told.contains("garden/notes:/beds: "), "{told}");
        assert!(told.contains("checksum"), "{told}");
    }
}
