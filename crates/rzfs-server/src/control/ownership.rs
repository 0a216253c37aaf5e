//! Ownership of the directories of control sockets.

use super::namespace::UserNamespace;
use rustix::fs::{Access, access};
use rustix::process::{Uid, geteuid};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Whether a directory belongs to a user whom the calling root could lock out of it. Root of a
/// namespace has no power over unmapped users. On the host every user counts, `nobody` too.
pub(super) fn is_of_a_user(owner: u32) -> bool {
    let is_known = |namespace: UserNamespace| namespace.outside_of(Uid::from_raw(owner)).is_some();
    owner != 0 && UserNamespace::current().is_none_or(is_known)
}

/// Whether a directory belongs to the calling user, or can be made by it.
pub(super) fn may_have(user: Uid, directory: &Path) -> bool {
    let can_make = |above: &Path| access(above, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    is_place_of(user, directory)
        && (directory.symlink_metadata().is_ok() || directory.parent().is_some_and(can_make))
}

/// The owner, if it is a directory and closed to all others.
pub(super) fn private_to(directory: &Path) -> std::io::Result<Option<Uid>> {
    let metadata = fs::symlink_metadata(directory)?;
    let is_private = metadata.is_dir() && metadata.mode() & 0o077 == 0;
    Ok(is_private.then(|| Uid::from_raw(metadata.uid())))
}

/// Whether it is a directory, ours, and closed to all others.
pub(super) fn is_private(directory: &Path) -> std::io::Result<bool> {
    Ok(private_to(directory)? == Some(geteuid()))
}

/// Whether a directory belongs to a user, or could be made where it is missing.
pub(super) fn is_place_of(user: Uid, directory: &Path) -> bool {
    let is_theirs =
        |path: &Path| fs::symlink_metadata(path).map(|found| found.uid() == user.as_raw());
    match is_theirs(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            directory.parent().is_some_and(|above| is_theirs(above).unwrap_or(false))
        }
        found => found.unwrap_or(false),
    }
}

/// Whether it is a private directory; makes it if only it is missing.
pub(super) fn is_made_private(directory: &Path) -> bool {
    match fs::DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => false,
        _ => is_private(directory).unwrap_or(false),
    }
}
