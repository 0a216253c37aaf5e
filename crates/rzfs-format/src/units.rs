//! Newtypes for the numbers of ZFS, so that wrong mixes do not compile.

use std::fmt;

/// The unit of LSIZE, PSIZE, ASIZE and DVA offsets, in bytes, whatever the ashift
/// (spec 02, section 0).
pub const SECTOR_SIZE: u64 = 512;

/// log2 of [`SECTOR_SIZE`].
pub const SECTOR_SHIFT: u32 = 9;

/// The largest logical or physical size of a block, in bytes.
pub const MAX_BLOCK_SIZE: u64 = 16 << 20;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $format, ")"), self.0)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

number!(
    /// The number of a transaction group.
    Txg(u64), "{}"
);
number!(
    /// A random 64-bit identity of a pool, vdev, dataset or key.
    Guid(u64), "{}"
);
number!(
    /// The number of an object in its objset: 1 to 2^48 - 1, or one of the special numbers.
    ObjectId(u64), "{}"
);
number!(
    /// The number of an objset: the dataset's object number in the MOS, 0 for the MOS itself.
    ObjsetId(u64), "{}"
);
number!(
    /// The number of a block in its level of an object.
    BlockId(u64), "{}"
);
number!(
    /// The index of a top-level vdev below the root vdev.
    VdevId(u32), "{}"
);
number!(
    /// The level of a block in its object's tree: 0 is data; -1 is an objset's root block and
    /// -2 a block of the intent log (in bookmarks only).
    Level(i8), "{}"
);

impl Txg {
    /// The txg in which a new pool's first objects are born.
    pub const INITIAL: Self = Self(4);

    /// The next transaction group; saturates.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl ObjectId {
    /// The meta-dnode.
    pub const META_DNODE: Self = Self(0);
    /// Space used by user (in the objset block).
    pub const USER_USED: Self = Self(u64::MAX);
    /// Space used by group (in the objset block).
    pub const GROUP_USED: Self = Self(u64::MAX - 1);
    /// Space used by project (in the objset block).
    pub const PROJECT_USED: Self = Self(u64::MAX - 2);
    /// The objects that say what users, groups and projects use.
    pub const ACCOUNTING: [Self; 3] = [Self::USER_USED, Self::GROUP_USED, Self::PROJECT_USED];
    /// The first number that no object can have.
    pub const END: Self = Self(1 << 48);

    /// None for 0, the way on-disk references say "no object".
    #[must_use]
    pub const fn non_zero(self) -> Option<Self> {
        if self.0 == 0 { None } else { Some(self) }
    }
}

impl ObjsetId {
    /// The meta object set.
    pub const MOS: Self = Self(0);
}

impl BlockId {
    /// Block id of a dnode's spill block.
    pub const SPILL: Self = Self(u64::MAX - 1);
}

impl Level {
    /// Data blocks.
    pub const DATA: Self = Self(0);
    /// The root block of an objset.
    pub const ROOT: Self = Self(-1);
    /// A block of the intent log.
    pub const ZIL: Self = Self(-2);
}

/// The logical place of a block: which one of which object of which objset.
///
/// Errors carry it, decryption and scans are ordered by it (`zbookmark_phys_t`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Bookmark {
    /// The objset.
    pub objset: ObjsetId,
    /// The object in it.
    pub object: ObjectId,
    /// The level in the object's tree.
    pub level: Level,
    /// The block in the level.
    pub block: BlockId,
}

impl Bookmark {
    /// The bookmark of an objset's root block.
    #[must_use]
    pub const fn root(objset: ObjsetId) -> Self {
        Self { objset, object: ObjectId(0), level: Level::ROOT, block: BlockId(0) }
    }
}

impl fmt::Display for Bookmark {
    /// zdb's notation: `objset:object:level:blkid`, in hex.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}, {}, {}, {:x}>", self.objset, self.object, self.level, self.block.0)
    }
}
