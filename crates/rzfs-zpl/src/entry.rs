//! Directory entries, as looked up and listed.

use crate::control_node::ControlNode;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zap::Cookie;

/// The name of the control directory in the root.
pub const CONTROL_NAME: &[u8] = b".zfs";

/// A position in a directory, for `telldir` and `seekdir`. It stays valid while other entries are
/// added and removed.
///
/// ```text
/// 0 before "."    1 before ".."    2 before ".zfs", where it is listed, else before the entries
/// 3 before the entries             2^28 .. 2^63 - 1 after an entry: the ZAP's cookie
/// 4 .. 2^28 - 1 free for whoever adds entries of its own
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DirCookie(pub u64);

impl DirCookie {
    /// Before the first entry.
    pub const START: Self = Self(0);
    /// The first of the positions unused by directories.
    pub const FREE: Self = Self(4);
    const PARENT: Self = Self(1);
    const CONTROL: Self = Self(2);
    const ENTRIES: Self = Self(3);
    /// The largest position that fits in the offset of a directory stream.
    const END: Self = Self(i64::MAX as u64);

    pub(crate) const fn zap(self) -> Cookie {
        match self {
            Self(0..=3) => Cookie::START,
            Self::END => Cookie::END,
            Self(other) => Cookie(other),
        }
    }

    /// Cookies after entries are large; the clamp protects from forged directories, whose listing
    /// must end.
    pub(crate) fn after(cookie: Cookie) -> Self {
        Self(cookie.0.clamp(Self::ENTRIES.0 + 1, Self::END.0))
    }
}

/// A listed directory entry.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// Its object. For `.zfs` the number of [`ControlNode::Root`].
    pub object: ObjectId,
    /// What kind of file it is.
    pub kind: FileKind,
    /// The position after it.
    pub next: DirCookie,
}

impl DirEntry<'_> {
    /// Whether it is the regular `.` or `..` of a directory. Others with these names come from
    /// forged directories.
    #[must_use]
    pub fn is_link_to_directory(&self) -> bool {
        matches!(self.name, b"." | b"..") && self.next <= DirCookie::CONTROL
    }
}

/// The target of a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NameTarget {
    /// A file.
    Object(ObjectId),
    /// The directory `.zfs`.
    Control,
}

/// The entries `.` and `..`, which are not in the ZAP.
pub(crate) const fn dot_entries(directory: ObjectId, parent: ObjectId) -> [DirEntry<'static>; 2] {
    let kind = FileKind::Directory;
    [
        DirEntry { name: b".", object: directory, kind, next: DirCookie::PARENT },
        DirEntry { name: b"..", object: parent, kind, next: DirCookie::CONTROL },
    ]
}

/// The entry `.zfs` of a root directory where it is visible.
pub(crate) fn control_entry() -> DirEntry<'static> {
    DirEntry {
        name: CONTROL_NAME,
        object: ControlNode::Root.inode(),
        kind: FileKind::Directory,
        next: DirCookie::ENTRIES,
    }
}
