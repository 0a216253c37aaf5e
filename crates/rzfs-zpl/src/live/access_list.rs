//! Access control lists of new files and replaced lists, and the flags of NFSv4 lists (spec 05,
//! section 6.1).

use rzfs_format::acl::{Ace, AceFlags, trivial};
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::FileFlags;

/// Who may execute: owner, group and others.
const EXECUTE: u32 = 0o111;

/// The flags implied by the mode of a file with the trivial access control list.
pub(super) const fn mode_flags(permissions: u32) -> FileFlags {
    if permissions & EXECUTE == EXECUTE { FileFlags::NO_EXECS_DENIED } else { FileFlags(0) }
}

/// What a new file inherits from its directory.
#[derive(Debug)]
pub(super) struct Inherited {
    pub(super) permissions: u32,
    /// Extended attributes with the lists, in OpenZFS's storage order.
    pub(super) xattrs: Vec<(&'static [u8], Vec<u8>)>,
    /// An NFSv4 list, unless it follows from the mode.
    pub(super) list: Option<AccessList>,
}

/// An NFSv4 access control list.
#[derive(Clone, Debug)]
pub(super) struct AccessList {
    pub(super) entries: Vec<Ace>,
    /// File flags that belong to the list as a whole.
    pub(super) flags: FileFlags,
}

impl AccessList {
    /// The flags that belong to lists.
    pub(super) const FLAGS: FileFlags =
        FileFlags::ACL_PROTECTED.with(FileFlags::ACL_DEFAULTED).with(FileFlags::ACL_AUTO_INHERIT);

    /// All flags implied by a file's list.
    pub(super) fn all_flags(&self, kind: FileKind, permissions: u32) -> FileFlags {
        let any = |is_so: &dyn Fn(&Ace) -> bool, flag: FileFlags| {
            if self.entries.iter().any(is_so) { flag } else { FileFlags(0) }
        };
        let inherit = AceFlags::FILE_INHERIT | AceFlags::DIRECTORY_INHERIT;
        let flags = FileFlags(self.flags.0 & Self::FLAGS.0)
            .with(any(&|entry| entry.flags.0 & inherit != 0, FileFlags::INHERIT_ACE))
            .with(any(&|entry| entry.object.is_some(), FileFlags::ACL_OBJ_ACE));
        if self.entries == trivial(kind, permissions) {
            return flags.with(FileFlags::ACL_TRIVIAL).with(mode_flags(permissions));
        }
        flags
    }
}
