//! Errors of reading and opening vdevs.

use rzfs_blockdev::DeviceError;
use rzfs_format::{Dva, Guid, VdevId};
use std::sync::Arc;

/// Linux's EIO.
const EIO: i32 = 5;
/// Linux's ENXIO.
const ENXIO: i32 = 6;
/// EBADE, which OpenZFS uses as ECKSUM on Linux.
const ECKSUM: i32 = 52;

/// Why a block cannot be read.
///
/// The three kinds that ZFS distinguishes are its errno values: ECKSUM (devices respond, but with
/// wrong data), EIO (devices fail) and ENXIO (devices are missing). If several occur for one block,
/// the worst is reported: EIO, then ECKSUM, then ENXIO.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VdevError {
    /// The address is not one of this pool's vdevs, or the size is impossible.
    #[error("vdev {vdev}: address {dva}, {size:#x} bytes: {problem}")]
    Address {
        /// The vdev.
        vdev: VdevId,
        /// The address.
        dva: Dva,
        /// Requested bytes.
        size: u64,
        /// The problem.
        problem: AddressProblem,
    },
    /// Too many of the devices that hold the block are missing, or known not to have it.
    #[error("{name} ({guid}): offset {offset:#x}: too few devices are available")]
    Unavailable {
        /// Name of the top-level vdev.
        name: Arc<str>,
        /// Its guid.
        guid: Guid,
        /// Offset on it.
        offset: u64,
    },
    /// No copy and no reconstruction has the checksum.
    #[error(
        "{name} ({guid}): offset {offset:#x}: the checksum is wrong in all {attempts} attempts"
    )]
    Checksum {
        /// Name of the top-level vdev.
        name: Arc<str>,
        /// Its guid.
        guid: Guid,
        /// Offset on it.
        offset: u64,
        /// Copies and reconstructions tried.
        attempts: u64,
        /// Unavailable leaves, which may have the data.
        absent: usize,
    },
    /// The block was replaced by another one while it was read.
    #[error("{name} ({guid}): offset {offset:#x}: the block has gone while it was read")]
    Overtaken {
        /// Name of the top-level vdev.
        name: Arc<str>,
        /// Its guid.
        guid: Guid,
        /// Offset on it.
        offset: u64,
    },
    /// Devices fail, and the block cannot be read without them.
    #[error("{name} ({guid}): {source}")]
    Io {
        /// Name of the leaf that failed.
        name: Arc<str>,
        /// Its guid.
        guid: Guid,
        /// The error of the device.
        source: DeviceError,
    },
}

impl VdevError {
    /// The errno that callers of ZFS expect; checksum errors are EBADE as on Linux.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Address { .. } | Self::Io { .. } | Self::Overtaken { .. } => EIO,
            Self::Unavailable { .. } => ENXIO,
            Self::Checksum { .. } => ECKSUM,
        }
    }
}

/// A failure of a leaf.
#[derive(Clone, Debug)]
pub struct LeafFailure {
    /// The leaf.
    pub leaf: Guid,
    /// The error of the device.
    pub error: DeviceError,
}

/// The problem with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressProblem {
    /// There is no such top-level vdev.
    #[error("the pool has no such vdev")]
    NoVdev,
    /// The vdev holds no data: a hole or a missing vdev.
    #[error("the vdev holds no data")]
    NoData,
    /// The offset is not a multiple of the vdev's allocation unit.
    #[error("the offset is not aligned")]
    Unaligned,
    /// It ends beyond the vdev.
    #[error("it reaches beyond the end of the vdev")]
    BeyondEnd,
    /// The size is invalid.
    #[error("no block has this size")]
    Size,
    /// The mapping of the removed vdev is not loaded.
    #[error("the mapping of the removed vdev is not loaded")]
    MappingNotLoaded,
    /// The mapping of the removed vdev does not cover it, or leads to an impossible vdev.
    #[error("the removed vdev has no mapping for it")]
    NotMapped,
    /// Mappings of removed vdevs lead to each other.
    #[error("the mappings of removed vdevs go in a circle")]
    MappingLoop,
}

/// Why a configuration is not a vdev tree.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("vdev {kind}, guid {guid}, id {id}: {problem}")]
pub struct ConfigError {
    /// `type` of the vdev.
    pub kind: &'static str,
    /// Its guid.
    pub guid: Guid,
    /// Its position in the parent.
    pub id: u64,
    /// The problem.
    pub problem: ConfigProblem,
}

/// The problem with a vdev's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigProblem {
    /// The tree does not start with a root.
    #[error("the tree does not start with a root")]
    NotRoot,
    /// The kind is not allowed here.
    #[error("it cannot be a child of {parent}")]
    Misplaced {
        /// The parent's kind.
        parent: &'static str,
    },
    /// The id is not the position.
    #[error("its position is {position}")]
    Position {
        /// The position.
        position: u64,
    },
    /// Two vdevs have the same guid.
    #[error("another vdev has the same guid")]
    DuplicateGuid,
    /// An interior vdev without children.
    #[error("it has no children")]
    NoChildren,
    /// A leaf with children.
    #[error("a leaf has children")]
    LeafWithChildren,
    /// A value out of range.
    #[error("{key} is {value}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
    },
    /// A required value is missing.
    #[error("{key} is missing")]
    Absent {
        /// The key.
        key: &'static str,
    },
    /// The pool's version does not support the vdev.
    #[error("a pool of version {version} cannot have it")]
    Version {
        /// The pool's version.
        version: u64,
    },
    /// The tree is nested too deep.
    #[error("the tree is nested too deep")]
    TooDeep,
    /// The dRAID's permutation map has another checksum than OpenZFS's.
    #[error("the permutation map has the wrong checksum")]
    PermutationMap,
}
