//! What reading and opening vdevs can answer instead of success.

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
/// The three kinds that ZFS distinguishes are its errno values: ECKSUM (devices answer, but not
/// with the block), EIO (devices fail) and ENXIO (devices are not there). When several happen to
/// one block the error is the worst: EIO, then ECKSUM, then ENXIO.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VdevError {
    /// The address is not one of this pool's vdevs, or the size is impossible.
    #[error("vdev {vdev}: address {dva}, {size:#x} bytes: {problem}")]
    Address {
        /// The vdev.
        vdev: VdevId,
        /// The address.
        dva: Dva,
        /// Bytes asked for.
        size: u64,
        /// What is wrong.
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
        /// Copies and reconstructions that were tried.
        attempts: u64,
        /// Leaves that could not be asked: they may have what is missing.
        absent: usize,
    },
    /// The block has gone while it was read, and another one is in its place.
    #[error("{name} ({guid}): offset {offset:#x}: the block has gone while it was read")]
    Overtaken {
        /// Name of the top-level vdev.
        name: Arc<str>,
        /// Its guid.
        guid: Guid,
        /// Offset on it.
        offset: u64,
    },
    /// Devices fail, and without them the block cannot be had.
    #[error("{name} ({guid}): {source}")]
    Io {
        /// Name of the leaf that failed.
        name: Arc<str>,
        /// Its guid.
        guid: Guid,
        /// What the device says.
        source: DeviceError,
    },
}

impl VdevError {
    /// The errno that a caller of ZFS expects; checksum errors are EBADE as on Linux.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Address { .. } | Self::Io { .. } | Self::Overtaken { .. } => EIO,
            Self::Unavailable { .. } => ENXIO,
            Self::Checksum { .. } => ECKSUM,
        }
    }
}

/// A leaf that has not done what it should.
#[derive(Clone, Debug)]
pub struct LeafFailure {
    /// The leaf.
    pub leaf: Guid,
    /// What the device says.
    pub error: DeviceError,
}

/// What is wrong with an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressProblem {
    /// There is no such top-level vdev.
    #[error("the pool has no such vdev")]
    NoVdev,
    /// The vdev holds no data: a hole or a missing vdev.
    #[error("the vdev holds no data")]
    NoData,
    /// The offset is not a multiple of what the vdev allocates.
    #[error("the offset is not aligned")]
    Unaligned,
    /// It ends beyond the vdev.
    #[error("it reaches beyond the end of the vdev")]
    BeyondEnd,
    /// No block has this size.
    #[error("no block has this size")]
    Size,
    /// The mapping of the removed vdev is not loaded.
    #[error("the mapping of the removed vdev is not loaded")]
    MappingNotLoaded,
    /// The mapping of the removed vdev does not cover it, or leads to a vdev that cannot have it.
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
    /// What is wrong.
    pub problem: ConfigProblem,
}

/// What is wrong with a vdev's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigProblem {
    /// The tree does not start with a root.
    #[error("the tree does not start with a root")]
    NotRoot,
    /// The kind cannot be where it is.
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
    /// A value out of its range.
    #[error("{key} is {value}")]
    Value {
        /// The key.
        key: &'static str,
        /// Its value.
        value: u64,
    },
    /// A required value is not there.
    #[error("{key} is missing")]
    Absent {
        /// The key.
        key: &'static str,
    },
    /// The pool's version does not have what the vdev needs.
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
