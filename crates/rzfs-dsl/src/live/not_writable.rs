//! Why a pool is not opened for writing.

use super::LiveError;
use crate::dataset::DatasetError;
use crate::mos::error::MosError;
use crate::pool::PoolError;
use rzfs_dmu::DmuError;
use rzfs_dmu::intent_log::ChainEnd;
use rzfs_metaslab::MetaslabError;

/// Why a pool can be read but not written.
#[derive(Debug, thiserror::Error)]
pub enum NotWritable {
    /// Features that this implementation does not write are in use, by name.
    #[error("the pool uses features that cannot be written: {}", names.join(", "))]
    Features {
        /// The features.
        names: Vec<String>,
    },
    /// Blocks of the pool have the other byte order.
    #[error("the pool was written by a machine of the other byte order")]
    ByteOrder,
    /// Devices are missing, and the others lack data written while they were offline: a txg may
    /// have to read it.
    #[error(
        "one or more devices is currently unavailable\n\
         The others lack data that was written while they were away. Attach the missing devices, \
         then import the pool:\n\t{}",
        devices.join("\n\t")
    )]
    MissingNewer {
        /// The names of the missing devices.
        devices: Vec<String>,
    },
    /// The header of an intent log is damaged.
    #[error("the intent log of {dataset} is damaged: {source}")]
    LogHeader {
        /// The dataset.
        dataset: String,
        /// The error.
        source: Box<DmuError>,
    },
    /// An intent log is on a device that is missing.
    #[error("log devices are missing or corrupted ({dataset} has an intent log on one)")]
    MissingLog {
        /// The dataset.
        dataset: String,
    },
    /// An intent log continues where it cannot be read.
    #[error(
        "the intent log of {dataset} cannot be read: {end}\n\
         The last changes that were synced to disk are in it. Import the pool again when its \
         devices can be read,\nor with 'zpool import -m', which discards what follows."
    )]
    UnreadableLog {
        /// The dataset.
        dataset: String,
        /// Where, and why.
        end: Box<ChainEnd>,
    },
    /// The blocks of an intent log are in use by something else.
    #[error("the intent log of {dataset} cannot be claimed: {source}")]
    LogSpace {
        /// The dataset.
        dataset: String,
        /// The reason.
        source: Box<MetaslabError>,
    },
    /// Part of the pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// The first txg cannot be written.
    #[error(transparent)]
    Live(#[from] LiveError),
}

impl From<MosError> for NotWritable {
    fn from(error: MosError) -> Self {
        Self::Pool(error.into())
    }
}

impl NotWritable {
    /// Whether the pool can still be read, as far as is known.
    #[must_use]
    pub fn allows_read_only(&self) -> bool {
        match self {
            Self::Features { .. }
            | Self::ByteOrder
            | Self::MissingNewer { .. }
            | Self::LogHeader { .. }
            | Self::MissingLog { .. }
            | Self::UnreadableLog { .. }
            | Self::LogSpace { .. } => true,
            Self::Pool(_) | Self::Dataset(_) | Self::Live(_) => false,
        }
    }
}
