//! The error of reading space accounting.

use crate::RangeError;
use rzfs_format::{FormatError, ObjectId, Txg, VdevId};

/// A failure of the underlying object store, whose implementor knows the type.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Space accounting that cannot be read or is inconsistent.
#[derive(Debug, thiserror::Error)]
pub enum MetaslabError {
    /// The store failed to read an object.
    #[error("object {object}: {source}")]
    Store {
        /// The object.
        object: ObjectId,
        /// The error of the store.
        source: StoreError,
    },
    /// An object has the wrong type, or violates the format.
    #[error("object {object}: {source}")]
    Format {
        /// The object.
        object: ObjectId,
        /// The error.
        source: FormatError,
    },
    /// A double allocation or double free in a space map.
    #[error("space map {object}, word {word}: {source}")]
    Conflict {
        /// The space map.
        object: ObjectId,
        /// Index of the entry's first word.
        word: u64,
        /// The conflict.
        source: RangeError,
    },
    /// An entry of a log space map is not inside one metaslab of a vdev with metaslabs.
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
    /// The unflushed txg of a metaslab has no log.
    #[error("vdev {vdev}, metaslab {metaslab}: no log space map of txg {txg}")]
    NoLog {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        metaslab: u64,
        /// Its unflushed txg.
        txg: Txg,
    },
    /// A double allocation or double free.
    #[error("vdev {vdev}, metaslab {metaslab}: {source}")]
    Range {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        metaslab: u64,
        /// The conflict.
        source: RangeError,
    },
    /// A range to free or claim is not inside one usable metaslab.
    #[error("vdev {vdev}, offset {offset:#x}, {length:#x} bytes: no such metaslab")]
    NoMetaslab {
        /// The vdev.
        vdev: VdevId,
        /// Byte offset on the vdev.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// The current location of a range of a removed vdev cannot be read.
    #[error("vdev {vdev}, offset {offset:#x}: {source}")]
    Mapping {
        /// The vdev.
        vdev: VdevId,
        /// Byte offset on the vdev.
        offset: u64,
        /// The reason.
        source: StoreError,
    },
    /// A txg ends with unrecorded allocations or frees.
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
    /// A vdev to add already exists, or one to change does not.
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
    /// Adds the location to a format error.
    pub(crate) fn format(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Format { object, source }
    }

    /// Adds the location to a store error.
    pub(crate) fn store(object: ObjectId) -> impl Fn(StoreError) -> Self {
        move |source| Self::Store { object, source }
    }

    /// Wraps a failure to change object references.
    pub(crate) fn in_directory(source: StoreError) -> Self {
        Self::Store { object: ObjectId(0), source }
    }
}
