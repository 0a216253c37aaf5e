//! The attributes kept by a copy: owner, mode, extended attributes with ACLs, times.

use super::destination::{Held, mode_of};
use rustix::fs::{AtFlags, CWD, Gid, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use rzfs::format::dirent::FileKind;
use rzfs::format::xattr::Namespace;
use rzfs::format::znode::Timestamp;
use rzfs::zpl::Attributes;
use rzfs::{FileError, FileNode};
use rzfs_blockdev::without_number;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// The copy that gets attributes.
pub(super) enum Made<'a> {
    /// An open file or directory.
    Open(BorrowedFd<'a>),
    /// A link or special file, which cannot be opened.
    Held(Held),
}

/// An attribute that could not be kept.
#[derive(Debug)]
pub(super) enum NotPreserved {
    /// It cannot be read.
    Read(FileError),
    /// The host rejects it.
    Host(String, io::Error),
}

impl fmt::Display for NotPreserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "{error}"),
            Self::Host(what, error) => write!(f, "cannot keep {what}: {}", without_number(error)),
        }
    }
}

/// Applies the attributes of `node` to its copy; returns those that could not be kept. Only root
/// can keep owners and attributes of the namespaces `trusted` and `security`.
pub(super) fn keep(
    node: &FileNode,
    attributes: &Attributes,
    made: &Made<'_>,
    is_root: bool,
) -> Vec<NotPreserved> {
    let mut unkept = Vec::new();
    let unkept_by_host = |what: &str, kept: rustix::io::Result<()>| {
        kept.err().map(|error| NotPreserved::Host(what.to_owned(), error.into()))
    };
    // Changing the owner clears set-id bits and capabilities; setting an ACL changes the time.
    if is_root {
        unkept.extend(unkept_by_host("the owner", made.chown(attributes.uid, attributes.gid)));
    }
    // The owner of the parent directory may make it give default ACLs to new entries. These grant
    // no access as long as the mode does not.
    let unlisted = match attributes.kind {
        FileKind::Symlink => Ok(()),
        kind => made.remove_lists(kind),
    };
    let is_unlisted = unlisted.is_ok();
    unkept.extend(unkept_by_host("access rights", unlisted));
    match xattrs(node, is_root) {
        Err(error) => unkept.push(NotPreserved::Read(error)),
        Ok(xattrs) => {
            for (name, value) in xattrs {
                let shown = format!("the attribute {}", rzfs::ShownPath(&name));
                if let Err(error) = made.set_xattr(&name, &value) {
                    unkept.push(NotPreserved::Host(shown, error));
                }
            }
        }
    }
    // After removing ACLs: with one the group bits would be its mask.
    if attributes.kind != FileKind::Symlink && is_unlisted {
        let owns = rustix::process::geteuid().as_raw() == attributes.uid
            && rustix::process::getegid().as_raw() == attributes.gid;
        // No copy may become a set-id program of another user.
        let kept_bits = if is_root || owns { 0o7777 } else { 0o1777 };
        unkept.extend(unkept_by_host("the mode", made.chmod(attributes.permissions & kept_bits)));
    }
    let times = made.set_times(attributes.atime, attributes.mtime);
    unkept.extend(unkept_by_host("the times", times));
    unkept
}

/// Name and value of an extended attribute.
type Xattr = (Vec<u8>, Vec<u8>);

/// The extended attributes that this user may set, in a possible order: an ACL can take away the
/// owner's right to set others.
fn xattrs(node: &FileNode, is_root: bool) -> Result<Vec<Xattr>, FileError> {
    let may_set = |name: &Vec<u8>| match Namespace::of(name) {
        Some(Namespace::User | Namespace::PosixAcl) => true,
        Some(Namespace::Trusted | Namespace::Security) => is_root,
        None => false,
    };
    let mut names: Vec<_> = node.xattr_names()?.into_iter().filter(may_set).collect();
    names.sort_by_key(|name| Namespace::of(name) == Some(Namespace::PosixAcl));
    names
        .into_iter()
        .map(|name| {
            let value = node.xattr(&name)?;
            Ok((name, value))
        })
        .collect()
}

impl Made<'_> {
    fn chown(&self, uid: u32, gid: u32) -> rustix::io::Result<()> {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        match self {
            Self::Open(fd) => rustix::fs::fchown(fd, uid, gid),
            Self::Held(held) => rustix::fs::chownat(held, c"", uid, gid, AtFlags::EMPTY_PATH),
        }
    }

    fn chmod(&self, permissions: u16) -> rustix::io::Result<()> {
        match self {
            Self::Open(fd) => rustix::fs::fchmod(fd, mode_of(permissions)),
            Self::Held(held) => rustix::fs::chmod(held.path(), mode_of(permissions)),
        }
    }

    /// Removes the ACLs that it got on creation.
    fn remove_lists(&self, kind: FileKind) -> rustix::io::Result<()> {
        let default = (kind == FileKind::Directory).then_some(c"system.posix_acl_default");
        for list in [Some(c"system.posix_acl_access"), default].into_iter().flatten() {
            let removed = match self {
                Self::Open(fd) => rustix::fs::fremovexattr(fd, list),
                Self::Held(held) => rustix::fs::removexattr(held.path(), list),
            };
            match removed {
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> io::Result<()> {
        let attribute = CString::new(name)?;
        match self {
            Self::Open(fd) => {
                rustix::fs::fsetxattr(fd, &*attribute, value, XattrFlags::empty())?;
            }
            Self::Held(held) => {
                rustix::fs::setxattr(held.path(), &*attribute, value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }

    fn set_times(&self, access: Timestamp, modification: Timestamp) -> rustix::io::Result<()> {
        let time = |time: Timestamp| Timespec {
            tv_sec: time.seconds,
            tv_nsec: i64::from(time.nanoseconds.min(999_999_999)),
        };
        let times = Timestamps { last_access: time(access), last_modification: time(modification) };
        match self {
            Self::Open(fd) => rustix::fs::futimens(fd, &times),
            Self::Held(held) => rustix::fs::utimensat(CWD, held.path(), &times, AtFlags::empty()),
        }
    }
}
