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
    /// No copy could be read, or none has the right checksum; with the last copy's error.
    #[error(transparent)]
    Device(VdevError),
    /// The block was replaced while it was read.
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
        /// The problem.
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
    /// Whether the cause is failing or missing devices: the block may be readable when they work
    /// again. Waiting does not help with other errors.
    #[must_use]
    pub const fn is_device_error(&self) -> bool {
        matches!(self, Self::Device(VdevError::Io { .. } | VdevError::Unavailable { .. }))
    }

    /// Whether a failing or missing device may have the block, though others returned something
    /// else.
    #[must_use]
    pub const fn may_come_back(&self) -> bool {
        match self {
            Self::Device(VdevError::Checksum { absent, .. }) => *absent > 0,
            _ => self.is_device_error(),
        }
    }

    /// Whether the block is permanently damaged, as far as can be told: waiting is useless, and no
    /// missing device may have it.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        !matches!(self, Self::KeyNotLoaded | Self::Redacted | Self::Overtaken)
            && !self.may_come_back()
    }

    /// Whether devices respond, but not with the block: it is damaged, or was never written.
    #[must_use]
    pub const fn is_content_error(&self) -> bool {
        matches!(self, Self::Device(VdevError::Checksum { .. }) | Self::Gang { .. })
    }

    /// The errno that callers of ZFS expect.
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
    /// A block was read but is invalid.
    #[error("block {bookmark}: {source}")]
    Corrupt {
        /// The block.
        bookmark: Bookmark,
        /// The error.
        source: FormatError,
    },
    /// A dnode is damaged.
    #[error("object {object} of objset {objset}: {source}")]
    Dnode {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
        /// The error.
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
    /// The object set was replaced by another one.
    #[error("objset {objset} has other contents now")]
    Superseded {
        /// The objset.
        objset: ObjsetId,
    },
    /// The number lies inside a large dnode.
    #[error("number {object} of objset {objset} is taken by a larger dnode")]
    InteriorSlot {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
    },
    /// The number is not a valid object number.
    #[error("{object} is not an object number")]
    InvalidObject {
        /// The number.
        object: ObjectId,
    },
    /// The object has the wrong type for its use.
    #[error("object {object} of objset {objset} is {found}, not {wanted}")]
    WrongType {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
        /// The type of the object.
        found: &'static str,
        /// The expected type.
        wanted: &'static str,
    },
    /// The block size of an object can no longer be changed.
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
    /// A block in the other byte order would have to be changed.
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
        /// The error of the system.
        source: std::sync::Arc<std::io::Error>,
    },
    /// The object's ZAP is damaged or cannot be read.
    #[error("object {object} of objset {objset}: {source}")]
    Zap {
        /// The objset.
        objset: ObjsetId,
        /// The object.
        object: ObjectId,
        /// The error.
        source: Box<ZapError<DmuError>>,
    },
}

impl DmuError {
    /// Whether failing or missing devices may have it: [`BlockError::may_come_back`].
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

    /// Whether there is permanent damage: [`BlockError::is_damage`], or invalid contents.
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

    /// The errno that callers of ZFS expect.
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
