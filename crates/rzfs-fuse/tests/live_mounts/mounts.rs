//! Mounts among others.

use crate::mounted::Mounted;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

#[test]
fn a_mount_that_has_ended_leaves_others_alone() {
    for round in 0..8 {
        let first = Mounted::new();
        first.unmount();
        // It gets the number that the system has just given back, of the mount and of the
        // superblock, unless another test was faster. Nothing in it is in use.
        let second = Mounted::new();
        drop(first);
        File::create(second.path("file")).unwrap();
        let (inside, outside) = (second.path("."), second.path(".."));
        let device = |path| fs::metadata(path).unwrap().dev();
        assert_ne!(device(inside), device(outside), "round {round}");
    }
}
