//! Panics while a request is handled.

use crate::mounted::{options, serve, unmount};
use rustix::process::{getegid, geteuid};
use rzfs_format::ObjsetId;
use rzfs_format::znode::Timestamp;
use rzfs_fuse::Opens;
use rzfs_proof::ImagePool;
use rzfs_zpl::{ControlTree, FileSystem, SnapshotEntry, SnapshotSource, ZplError};
use std::fs;
use std::sync::Arc;

/// Snapshots whose lookup panics.
struct Panicking;

impl SnapshotSource for Panicking {
    fn snapshots(&self) -> Result<Vec<SnapshotEntry>, ZplError> {
        Ok(Vec::new())
    }

    fn find(&self, _: &[u8]) -> Result<Option<SnapshotEntry>, ZplError> {
        panic!("on purpose")
    }

    fn open(&self, objset: ObjsetId) -> Result<FileSystem, ZplError> {
        Err(ZplError::NoSnapshot { objset })
    }

    fn changed(&self) -> Result<Timestamp, ZplError> {
        Ok(Timestamp::default())
    }
}

#[test]
fn who_asks_for_what_panics_gets_an_error_and_the_mount_goes_on() {
    let world = ImagePool::new("A");
    let world = world.owned_by(geteuid().as_raw(), getegid().as_raw());
    let session = world.create_files(options());
    let control = ControlTree::new(Arc::clone(&session.fs), Box::new(Panicking));
    let directory = tempfile::tempdir().unwrap();
    let mount = serve(&session.fs, Some(control), directory.path(), Opens::Unasked);
    // More often than there are threads that handle requests.
    let many = 2 * std::thread::available_parallelism().map_or(2, usize::from);
    for number in 0..many {
        let snapshot = directory.path().join(".zfs/snapshot").join(number.to_string());
        let refused = fs::symlink_metadata(snapshot).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EIO), "{refused}");
    }
    fs::write(directory.path().join("file"), "written").unwrap();
    assert_eq!(fs::read_to_string(directory.path().join("file")).unwrap(), "written");
    assert!(!mount.is_finished());
    unmount(&mount);
    drop(mount);
    session.export();
    world.judge();
}
