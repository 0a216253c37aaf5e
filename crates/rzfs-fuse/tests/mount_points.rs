//! Directories that exist only in the mount, so that other file systems can be mounted on them.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::import::{DeviceSource, Discovery, ImportOptions};
use rzfs_fuse::{Mount, MountOptions};
use rzfs_testkit::ReferencePool;
use rzfs_zpl::{FileSystem, FileSystemOptions};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

fn mount(dataset: &Dataset, pool: &Pool, directory: &Path, mount_points: &[&str]) -> Mount {
    let options = FileSystemOptions::of_dataset(dataset, pool.version()).unwrap();
    let file_system = FileSystem::open(dataset.open_objset().unwrap(), options).unwrap();
    let options = MountOptions {
        mount_points: mount_points.iter().map(Into::into).collect(),
        ..MountOptions::new(dataset.name())
    };
    Mount::new(Arc::new(file_system), None, directory, &options).unwrap()
}

/// How many times each name occurs in a directory.
fn names(directory: &Path) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        *names.entry(entry.unwrap().file_name().into_string().unwrap()).or_default() += 1;
    }
    names
}

#[test]
fn missing_directories_are_there_for_other_mounts() {
    if !rzfs_testkit::has_root("only root mounts on mounts") {
        return;
    }
    let golden = ReferencePool::golden("g01-default").unwrap();
    let sources: Vec<_> = golden.images().unwrap().into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let pool = Pool::import(&found.pools()[0], &ImportOptions::default()).unwrap();
    let root = pool.datasets().root().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let plain = mount(&root, &pool, directory.path(), &[]);
    let on_disk = names(directory.path());
    assert!(on_disk.contains_key("sa") && !on_disk.contains_key("home"));
    plain.unmount().unwrap();

    let wanted = ["sa", "home/ann", "home/bob", "srv"];
    let outer = mount(&root, &pool, directory.path(), &wanted);
    let mut expected = on_disk;
    expected.extend([("home".to_owned(), 1), ("srv".to_owned(), 1)]);
    assert_eq!(names(directory.path()), expected);
    let home = directory.path().join("home");
    assert_eq!(names(&home), [("ann".to_owned(), 1), ("bob".to_owned(), 1)].into());
    let metadata = home.metadata().unwrap();
    assert!(metadata.is_dir() && metadata.nlink() == 4, "{metadata:?}");
    let above = home.join("ann/..").metadata().unwrap();
    assert_eq!(above.ino(), metadata.ino());
    assert!(!home.join("nobody").exists());
    assert!(std::fs::write(home.join("new"), "").is_err());

    let inner_root = pool.datasets().open("g01/sa").unwrap();
    let inner = mount(&inner_root, &pool, &home.join("ann"), &[]);
    assert!(!names(&home.join("ann")).is_empty());
    assert!(names(&home.join("bob")).is_empty());
    inner.unmount().unwrap();
    outer.unmount().unwrap();
}
