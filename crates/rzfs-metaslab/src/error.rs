//! The error of reading space accounting.

use crate::RangeError;
use rzfs_format::{FormatError, ObjectId, Txg, VdevId};

/// A failure of the object store below; whoever implements the store knows its type.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Space accounting that cannot be read or contradicts itself.
#[derive(Debug, thiserror::Error)]
pub enum MetaslabError {
    /// The store failed to read an object.
    #[error("object {object}: {source}")]
    Store {
        /// The object.
        object: ObjectId,
        /// What the store says.
        source: StoreError,
    },
    /// An object is not what its place says, or holds what the format does not allow.
    #[error("object {object}: {source}")]
    Format {
        /// The object.
        object: ObjectId,
        /// What is wrong.
        source: FormatError,
    },
    /// An entry of a space map allocates what is allocated or frees what is free.
    #[error("space map {object}, word {word}: {source}")]
    Conflict {
        /// The space map.
        object: ObjectId,
        /// Index of the entry's first word.
        word: u64,
        /// The conflict.
        source: RangeError,
    },
    /// An entry of a log space map is not inside of one metaslab of a vdev that has metaslabs.
    #[error(
        "log space map {object} of txg {txg}, word {word}: vdev {vdev:?}, offset {offset:#x}, {length:#x} bytes: no such metaslab"
    )]
    LogEntry {
        /// The log space map.
        object: ObjectId,
        /// Its txg.
        txg: Txg,
        /// Index of the entry's first word.
        word: u64,
        /// The vdev that the entry names.
        vdev: Option<VdevId>,
        /// Byte offset on the vdev.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// A metaslab says that it was flushed in a txg that has no log.
    #[error("vdev {vdev}, metaslab {metaslab}: no log space map of txg {txg}")]
    NoLog {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        metaslab: u64,
        /// Its unflushed txg.
        txg: Txg,
    },
    /// Space is allocated or freed twice.
    #[error("vdev {vdev}, metaslab {metaslab}: {source}")]
    Range {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        metaslab: u64,
        /// The conflict.
        source: RangeError,
    },
    /// A range to free or to claim is not inside of one metaslab that can be used.
    #[error("vdev {vdev}, offset {offset:#x}, {length:#x} bytes: no such metaslab")]
    NoMetaslab {
        /// The vdev.
        vdev: VdevId,
        /// Byte offset on the vdev.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Where a range of a removed vdev is now cannot be read.
    #[error("vdev {vdev}, offset {offset:#x}: {source}")]
    Mapping {
        /// The vdev.
        vdev: VdevId,
        /// Byte offset on the vdev.
        offset: u64,
        /// Why.
        source: StoreError,
    },
    /// A txg ends though something was allocated or freed after its last pass was recorded.
    #[error("txg {txg} ends with changes that are not recorded")]
    Unrecorded {
        /// The txg.
        txg: Txg,
    },
    /// A txg cannot be synced: an earlier one failed or is still being synced.
    #[error("txg {txg} cannot be synced after a failure")]
    OutOfOrder {
        /// The txg.
        txg: Txg,
    },
    /// A vdev that is there is to be added, or one that is not there is to be changed.
    #[error("vdev {vdev} cannot be added or changed")]
    Vdev {
        /// The vdev.
        vdev: VdevId,
    },
    /// The configuration of a vdev's metaslabs is impossible.
    #[error("vdev {vdev}: {field} of {value} is impossible")]
    Geometry {
        /// The vdev.
        vdev: VdevId,
        /// The field of the configuration.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl MetaslabError {
    /// Wraps an error of the format with its place.
    pub(crate) fn format(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Format { object, source }
    }

    /// Wraps an error of the store with its place.
    pub(crate) fn store(object: ObjectId) -> impl Fn(StoreError) -> Self {
        move |source| Self::Store { object, source }
    }

    /// Wraps a failure to change where objects are linked.
    pub(crate) fn in_directory(source: StoreError) -> Self {
        Self::Store { object: ObjectId(0), source }
    }
}
