//! Messages for mounts that do not end.

use crate::protocol::{Refusal, RefusalKind};
use rzfs_fuse::MountError;
use std::io::ErrorKind;
use std::path::Path;

/// Why a mount is not ended.
pub(super) fn refusal(error: &MountError) -> Refusal {
    let message = match error.kind() {
        _ if error.is_in_use() => return busy(error.directory()),
        ErrorKind::NotConnected => {
            format!("{error}: a mount that it is in has no server; 'umount -l' removes that")
        }
        _ => error.to_string(),
    };
    Refusal::of_kind(RefusalKind::StillMounted, message)
}

/// Whether a mount cannot be unmounted by this process, not just momentarily, or is in use by such
/// mounts inside it.
pub(super) fn is_stuck(error: &MountError, inner: &[MountError]) -> bool {
    match error.is_in_use() {
        true => inner.iter().any(|one| one.directory().starts_with(error.directory())),
        false => !error.is_transient(),
    }
}

/// The message for a mount that stays without a server, as do `all` of these.
pub(super) fn left(error: &MountError, all: &[MountError]) -> String {
    let directory = error.directory();
    let outermost = outermost(directory, all.iter().map(MountError::directory)).display();
    let (directory, reason) = (directory.display(), error.reason());
    format!("'{directory}' could not be unmounted: {reason}; 'umount -l {outermost}' removes it")
}

/// The outermost directory among some that contains a directory: a mount without a server cannot be
/// passed, and those in it go with it.
fn outermost<'a>(directory: &'a Path, among: impl Iterator<Item = &'a Path>) -> &'a Path {
    let around = among.filter(|one| directory.starts_with(one));
    around.min_by_key(|one| one.components().count()).unwrap_or(directory)
}

/// Why a mount that is in use is not ended.
fn busy(directory: &Path) -> Refusal {
    let message = format!("cannot unmount '{}': pool or dataset is busy", directory.display());
    Refusal::of_kind(RefusalKind::StillMounted, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_a_mount_away_names_the_one_that_hides_it() {
        let mounts = ["/t/a/b", "/t/a", "/u", "/t/ab"].map(Path::new);
        let outermost = |directory| outermost(Path::new(directory), mounts.into_iter());
        for (directory, expected) in
            [("/t/a/b", "/t/a"), ("/t/a", "/t/a"), ("/t/ab", "/t/ab"), ("/u", "/u"), ("/v", "/v")]
        {
            assert_eq!(outermost(directory), Path::new(expected), "{directory}");
        }
    }
}
