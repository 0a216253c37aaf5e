//! Why a block, object or object set cannot be read.

use rzfs_codec::compress::DecompressError;
use rzfs_codec::crypto::CryptoError;
use rzfs_format::units::Bookmark;
use rzfs_format::{Dva, FormatError, ObjectId, ObjsetId};
use rzfs_vdev::VdevError;
use rzfs_zap::ZapError;

/// Why one block cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum BlockError {
    /// The pointer is damaged.
    #[error("bad block pointer: {0}")]
    Pointer(#[from] FormatError),
    /// No copy could be read, or none has the right checksum; the last copy's error is given.
    #[error(transparent)]
    Device(VdevError),
    /// Another block has taken its place while it was read.
    #[error("the block was replaced while it was read")]
    Overtaken,
    /// No copy is on a vdev of this pool.
    #[error("no copy is on a device of this pool")]
    NoCopy,
    /// The gang tree contradicts its leader.
    #[error("gang block at {at}: {problem}")]
    Gang {
        /// Address of the gang header.
        at: Dva,
        /// What is wrong.
        problem: &'static str,
    },
    /// The checksum is right but the contents cannot be decompressed.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// The contents cannot be decrypted or authenticated.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The block is encrypted and no key is loaded.
    #[error("the key is not loaded")]
    KeyNotLoaded,
    /// A redacted send withheld the data.
    #[error("the data was redacted")]
    Redacted,
}

impl BlockError {
    /// Whether devices fail or are missing: the block may be there, and can be had when they work
    /// again. Anything else will not change by waiting.
    #[must_use]
    pub const fn is_of_devices(&self) -> bool {
        matches!(self, Self::Device(VdevError::Io { .. } | VdevError::Unavailable { .. }))
    }

    /// Whether a device that fails or is missing may have the block, though others answer with
    /// something else.
    #[must_use]
    pub const fn may_come_back(&self) -> bool {
        match self {
            Self::Device(VdevError::Checksum { absent, .. }) => *absent > 0,
            _ => self.is_of_devices(),
        }
    }

    /// Whether the block is damaged for good, as far as anybody can tell: no use waiting for it,
    /// and no device is missing that may have it.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        !matches!(self, Self::KeyNotLoaded | Self::Redacted | Self::Overtaken)
            && !self.may_come_back()
    }

    /// Whether devices answer, but not with the block: it is damaged, or was never written.
    #[must_use]
    pub const fn is_of_contents(&self) -> bool {
        matches!(self, Self::Device(VdevError::Checksum { .. }) | Self::Gang { .. })
    }

    /// The errno that a caller of ZFS expects.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::KeyNotLoaded => EACCES,
            _ => EIO,
        }
    }
}

impl From<VdevError> for BlockError {
    fn from(error: VdevError) -> Self {
        match error {
            VdevError::Overtaken { .. } => Self::Overtaken,
            error => Self::Device(error),
        }
    }
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENOTSUP: i32 = 95;
const ESTALE: i32 = 116;

/// Why an object or object set cannot be read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DmuError {
    /// One of its blocks cannot be read.
    #[error("block {bookmark}: {source}")]
    Block {
        /// The block.
        bookmark: Bookmark,
        /// Why.
        source: BlockError,
    },
    /// A block was read but is not what it should be.
    #[error("block {bookmark}: {source}")]
    Corrupt {
        /// The block.
        bookmark: Bookmark,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A dnode is damaged.
    #[error("object {object} of objset {objset}: {source}")]
    Dnode {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
        /// What is wrong with it.
        source: FormatError,
    },
    /// No object has this number.
    #[error("object {object} of objset {objset} does not exist")]
    NotAllocated {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
    },
    /// Another object set has taken the place of this one.
    #[error("objset {objset} has other contents now")]
    Superseded {
        /// The objset.
        objset: ObjsetId,
    },
    /// The number lies inside of a large dnode.
    #[error("number {object} of objset {objset} is taken by a larger dnode")]
    InteriorSlot {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
    },
    /// The number is not one that an object can have.
    #[error("{object} is not an object number")]
    InvalidObject {
        /// The number.
        object: ObjectId,
    },
    /// The object is not of the kind that it is used as.
    #[error("object {object} of objset {objset} is {found}, not {wanted}")]
    WrongType {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
        /// What the object is.
        found: &'static str,
        /// What was wanted.
        wanted: &'static str,
    },
    /// The size of an object's blocks cannot be changed any more.
    #[error("object {object} of objset {objset} has several blocks")]
    SeveralBlocks {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
    },
    /// All object numbers are taken.
    #[error("objset {objset} is full")]
    Full {
        /// The objset.
        objset: ObjsetId,
    },
    /// A block of another machine's byte order would have to be changed.
    #[error("block {bookmark} has a foreign byte order and cannot be changed")]
    ForeignOrder {
        /// The block.
        bookmark: Bookmark,
    },
    /// There is no memory for a block.
    #[error("block {bookmark}: {source}")]
    Memory {
        /// The block.
        bookmark: Bookmark,
        /// What the system says.
        source: std::sync::Arc<std::io::Error>,
    },
    /// The object's ZAP is damaged or cannot be read.
    #[error("object {object} of objset {objset}: {source}")]
    Zap {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        source: Box<ZapError<DmuError>>,
    },
}

impl DmuError {
    /// Whether devices that fail or are missing may have it: [`BlockError::may_come_back`].
    #[must_use]
    pub fn may_come_back(&self) -> bool {
        match self {
            Self::Block { source, .. } => source.may_come_back(),
            Self::Zap { source, .. } => {
                matches!(&**source, ZapError::Blocks(error) if error.may_come_back())
            }
            _ => false,
        }
    }

    /// Whether something is damaged for good: [`BlockError::is_damage`], or contents that make no
    /// sense.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Block { source, .. } => source.is_damage(),
            Self::Corrupt { .. } | Self::Dnode { .. } => true,
            Self::Zap { source, .. } => match &**source {
                ZapError::Blocks(error) => error.is_damage(),
                ZapError::Corrupt { .. } => true,
                _ => false,
            },
            _ => false,
        }
    }

    /// The errno that a caller of ZFS expects.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Block { source, .. } => source.errno(),
            Self::Corrupt { .. } | Self::Dnode { .. } => EIO,
            Self::NotAllocated { .. } => ENOENT,
            Self::Superseded { .. } => ESTALE,
            Self::InteriorSlot { .. } => EEXIST,
            Self::InvalidObject { .. } | Self::WrongType { .. } => EINVAL,
            Self::SeveralBlocks { .. } => ENOTSUP,
            Self::Full { .. } => ENOSPC,
            Self::ForeignOrder { .. } => EROFS,
            Self::Memory { .. } => ENOMEM,
            Self::Zap { source, .. } => source.errno(Self::errno),
        }
    }
}
