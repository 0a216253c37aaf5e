//! Kinds of records of the intent log (spec 05, section 10.4).

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident = $number:literal, $name:literal, $minimum:literal;)*) => {
        /// What a record does.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum RecordKind {
            $($(#[$doc])* $variant = $number,)*
        }

        impl RecordKind {
            /// The kind with this number.
            #[must_use]
            pub const fn from_number(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            /// The name that `zdb` prints.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Bytes of the shortest record of this kind.
            #[must_use]
            pub const fn minimum_length(self) -> usize {
                match self { $(Self::$variant => $minimum,)* }
            }
        }
    };
}

kinds! {
    /// Creates a file.
    Create = 1, "TX_CREATE", 105;
    /// Creates a directory.
    Mkdir = 2, "TX_MKDIR", 105;
    /// Creates an xattr directory.
    MkXattr = 3, "TX_MKXATTR", 105;
    /// Creates a symbolic link.
    Symlink = 4, "TX_SYMLINK", 105;
    /// Removes a file's name.
    Remove = 5, "TX_REMOVE", 41;
    /// Removes a directory.
    Rmdir = 6, "TX_RMDIR", 41;
    /// Adds a name to a file.
    Link = 7, "TX_LINK", 49;
    /// Renames.
    Rename = 8, "TX_RENAME", 50;
    /// Writes.
    Write = 9, "TX_WRITE", 192;
    /// Frees a range.
    Truncate = 10, "TX_TRUNCATE", 56;
    /// Sets attributes.
    SetAttr = 11, "TX_SETATTR", 112;
    /// Sets an ACL of version 0.
    AclV0 = 12, "TX_ACL_V0", 48;
    /// Sets an ACL.
    Acl = 13, "TX_ACL_ACL", 80;
    /// Creates a file with an ACL.
    CreateAcl = 14, "TX_CREATE_ACL", 145;
    /// Creates a file with extended attributes.
    CreateAttr = 15, "TX_CREATE_ATTR", 105;
    /// Creates a file with an ACL and extended attributes.
    CreateAclAttr = 16, "TX_CREATE_ACL_ATTR", 145;
    /// Creates a directory with an ACL.
    MkdirAcl = 17, "TX_MKDIR_ACL", 145;
    /// Creates a directory with extended attributes.
    MkdirAttr = 18, "TX_MKDIR_ATTR", 105;
    /// Creates a directory with an ACL and extended attributes.
    MkdirAclAttr = 19, "TX_MKDIR_ACL_ATTR", 145;
    /// Extends a file over a block that was already synced.
    Write2 = 20, "TX_WRITE2", 192;
    /// Sets or removes an extended attribute.
    SetXattr = 21, "TX_SETSAXATTR", 49;
    /// Exchanges two names.
    RenameExchange = 22, "TX_RENAME_EXCHANGE", 50;
    /// Renames and leaves a whiteout.
    RenameWhiteout = 23, "TX_RENAME_WHITEOUT", 114;
    /// Clones blocks.
    CloneRange = 24, "TX_CLONE_RANGE", 72;
}
