//! The attributes that the format names (spec 05, section 2.2).

use crate::FormatError;

/// The number that one file system's registry gave to an attribute.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttributeNumber(pub u16);

/// How a value is converted between byte orders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SwapClass {
    /// 64-bit numbers.
    Uint64,
    /// 32-bit numbers.
    Uint32,
    /// 16-bit numbers.
    Uint16,
    /// Bytes.
    Bytes,
    /// Access control entries.
    Acl,
}

impl SwapClass {
    /// The class with this number.
    pub fn from_number(number: u8) -> Result<Self, FormatError> {
        Ok(match number {
            0 => Self::Uint64,
            1 => Self::Uint32,
            2 => Self::Uint16,
            3 => Self::Bytes,
            4 => Self::Acl,
            _ => return Err(FormatError::field("SA registry", "byte-swap class", number)),
        })
    }

    /// The on-disk number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Uint64 => 0,
            Self::Uint32 => 1,
            Self::Uint16 => 2,
            Self::Bytes => 3,
            Self::Acl => 4,
        }
    }
}

macro_rules! attributes {
    ($($(#[$doc:meta])* $variant:ident = $legacy:literal, $name:literal, $length:literal, $class:ident;)*) => {
        /// An attribute that the format names.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Attribute {
            $($(#[$doc])* $variant = $legacy,)*
        }

        impl Attribute {
            /// Every attribute, in the order of the numbers that a new file system gives.
            pub const ALL: [Self; [$(Self::$variant),*].len()] = [$(Self::$variant),*];

            /// The name in the registry.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Bytes of a value; 0 = every value has its own length.
            #[must_use]
            pub const fn length(self) -> u16 {
                match self { $(Self::$variant => $length,)* }
            }

            /// How values are byte-swapped.
            #[must_use]
            pub const fn swap_class(self) -> SwapClass {
                match self { $(Self::$variant => SwapClass::$class,)* }
            }

            /// The attribute with this name in the registry.
            #[must_use]
            pub fn from_name(name: &[u8]) -> Option<Self> {
                Self::ALL.into_iter().find(|attribute| attribute.name().as_bytes() == name)
            }
        }
    };
}

attributes! {
    /// Last access: seconds, nanoseconds.
    Atime = 0, "ZPL_ATIME", 16, Uint64;
    /// Last change of the contents.
    Mtime = 1, "ZPL_MTIME", 16, Uint64;
    /// Last change of an attribute.
    Ctime = 2, "ZPL_CTIME", 16, Uint64;
    /// Creation.
    Crtime = 3, "ZPL_CRTIME", 16, Uint64;
    /// The txg of creation: the generation number.
    Gen = 4, "ZPL_GEN", 8, Uint64;
    /// `st_mode` with its type bits.
    Mode = 5, "ZPL_MODE", 8, Uint64;
    /// Length of a file in bytes; entries + 2 of a directory; length of a link's target.
    Size = 6, "ZPL_SIZE", 8, Uint64;
    /// The directory of the last link; the owner of an xattr directory.
    Parent = 7, "ZPL_PARENT", 8, Uint64;
    /// Link count.
    Links = 8, "ZPL_LINKS", 8, Uint64;
    /// The xattr directory; 0 = none.
    Xattr = 9, "ZPL_XATTR", 8, Uint64;
    /// Device number.
    Rdev = 10, "ZPL_RDEV", 8, Uint64;
    /// Flags.
    Flags = 11, "ZPL_FLAGS", 8, Uint64;
    /// FUID of the owner.
    Uid = 12, "ZPL_UID", 8, Uint64;
    /// FUID of the group.
    Gid = 13, "ZPL_GID", 8, Uint64;
    /// Padding of the legacy znode.
    Pad = 14, "ZPL_PAD", 32, Uint64;
    /// The ACL of the legacy znode.
    ZnodeAcl = 15, "ZPL_ZNODE_ACL", 88, Bytes;
    /// Number of access control entries.
    DaclCount = 16, "ZPL_DACL_COUNT", 8, Uint64;
    /// Target of a symbolic link, without NUL.
    Symlink = 17, "ZPL_SYMLINK", 0, Bytes;
    /// Stamp of a virus scanner.
    Scanstamp = 18, "ZPL_SCANSTAMP", 32, Bytes;
    /// Packed access control entries.
    DaclAces = 19, "ZPL_DACL_ACES", 0, Acl;
    /// Extended attributes as a packed nvlist.
    Dxattr = 20, "ZPL_DXATTR", 0, Bytes;
    /// Project id.
    Projid = 21, "ZPL_PROJID", 8, Uint64;
    /// Modification counter.
    Seq = 22, "ZPL_SEQ", 8, Uint64;
}

impl Attribute {
    /// How many attributes the format fixes without a registry: those of the legacy znode.
    pub const LEGACY_COUNT: u16 = 16;

    /// The number in a file system whose registry does not name the attribute; only those of the
    /// legacy znode have one.
    #[must_use]
    pub const fn legacy_number(self) -> Option<AttributeNumber> {
        if (self as u16) < Self::LEGACY_COUNT { Some(AttributeNumber(self as u16)) } else { None }
    }

    /// Position in [`Attribute::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_the_order_of_numbers() {
        for (index, attribute) in Attribute::ALL.into_iter().enumerate() {
            assert_eq!(attribute.index(), index);
            assert_eq!(Attribute::from_name(attribute.name().as_bytes()), Some(attribute));
        }
        assert_eq!(Attribute::from_name(b"ZPL_FOREIGN"), None);
    }
}
