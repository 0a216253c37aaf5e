//! A mount next to others.

use crate::mounted::Mounted;
use rzfs_fuse::{MountPlace, PlaceError};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};

#[test]
fn a_mount_that_has_ended_leaves_others_alone() {
    for round in 0..8 {
        let first = Mounted::new();
        first.unmount();
        // The second mount reuses the freed numbers of the mount and of the superblock, unless
        // another test was faster. Nothing in it is in use.
        let second = Mounted::new();
        drop(first);
        File::create(second.path("file")).unwrap();
        let (inside, outside) = (second.path("."), second.path(".."));
        let device = |path| fs::metadata(path).unwrap().dev();
        assert_ne!(device(inside), device(outside), "round {round}");
    }
}

#[test]
fn links_in_a_mount_lead_no_other_mount_anywhere() {
    let mounted = Mounted::new();
    let outside = tempfile::tempdir().unwrap();
    symlink(outside.path(), mounted.path("link")).unwrap();
    let led = MountPlace::on_host(&mounted.path("link/new"));
    assert!(matches!(led, Err(PlaceError::Link(_))), "{led:?}");
    assert!(!outside.path().join("new").exists());
    fs::create_dir(mounted.path("real")).unwrap();
    drop(MountPlace::on_host(&mounted.path("real/new")).unwrap());
    mounted.finish();
}
