//! Listing directories that change during the listing.

use crate::mounted::Mounted;
use rzfs_format::ObjectId;
use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

const COUNT: usize = 100_000;

/// Names that always exist are listed exactly once, whatever is created or removed meanwhile.
#[test]
fn a_large_directory_is_listed_while_it_changes() {
    let mounted = Mounted::new();
    let dir = mounted.path("many");
    fs::create_dir(&dir).unwrap();
    File::create(dir.join("first")).unwrap();
    // Bypasses the kernel, which has not looked up these names yet.
    let object = |path| ObjectId(fs::metadata(path).unwrap().ino());
    let (directory, file) = (object(dir.clone()), object(dir.join("first")));
    for number in 0..COUNT {
        let name = format!("stays-{number}");
        mounted.files().link(file, directory, name.as_bytes()).unwrap();
    }
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (count, entry) in fs::read_dir(&dir).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        *seen.entry(name).or_default() += 1;
        if count % 100 == 0 {
            let new = dir.join(format!("comes-{count}"));
            fs::hard_link(dir.join("first"), &new).unwrap();
            if count % 200 == 0 {
                fs::remove_file(new).unwrap();
            }
        }
    }
    for number in 0..COUNT {
        assert_eq!(seen.get(&format!("stays-{number}")), Some(&1), "stays-{number}");
    }
    let mounted = mounted.again();
    let comes = COUNT / 200;
    let listed = fs::read_dir(mounted.path("many")).unwrap().count();
    assert!(listed >= COUNT + 1 + comes && listed <= COUNT + 2 + comes + 20, "{listed}");
    mounted.finish();
}
