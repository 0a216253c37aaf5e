//! Why a proof cannot be carried out.

use rzfs_blockdev::{DeviceError, OpenError};
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::import::ImportFailure;
use rzfs_dsl::live::{LiveError, NotExported, NotWritable};
use rzfs_dsl::PoolError;
use rzfs_vdev::create::{OpenFailure, PlanError, SpecError};
use rzfs_vdev::label::LabelError;
use rzfs_vdev::ConfigError;
use rzfs_zpl::ZplError;

/// Why a proof cannot be carried out. What a proof finds out is no error, but its result.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The words of a shape.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A device of a new pool cannot be had.
    #[error(transparent)]
    NewDevice(#[from] OpenFailure),
    /// Devices cannot become vdevs.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The vdevs of a new pool cannot be opened.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// First labels cannot be written.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// A device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A device cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No device has a label of the pool.
    #[error("no pool {0} was found")]
    NoPool(String),
    /// A pool cannot be imported.
    #[error("{0}")]
    Import(#[from] Box<ImportFailure>),
    /// A pool cannot be opened for writing.
    #[error(transparent)]
    NotWritable(#[from] NotWritable),
    /// A pool cannot be made or changed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// A pool was suspended before it could be exported.
    #[error(transparent)]
    NotExported(#[from] NotExported),
    /// Something of a pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// Something cannot be done with a file.
    #[error("{path:?}: {source}")]
    File {
        /// Its path in the file system.
        path: String,
        /// Why.
        source: ZplError,
    },
}

impl ProofError {
    /// A failure to do something with a file.
    pub(crate) fn at(path: &str, source: ZplError) -> Self {
        Self::File { path: path.to_owned(), source }
    }
}
