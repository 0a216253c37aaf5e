//! Why a proof cannot be carried out.

use rzfs_blockdev::{DeviceError, OpenError};
use rzfs_dsl::PoolError;
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::import::ImportFailure;
use rzfs_dsl::live::{ChangeError, CreatePoolError, LiveError, NotExported, NotWritable};
use rzfs_receive::ReceiveError;
use rzfs_send::SendError;
use rzfs_vdev::ConfigError;
use rzfs_vdev::create::{OpenFailure, PlanError, SpecError};
use rzfs_vdev::label::LabelError;
use rzfs_zdb::ZdbError;
use rzfs_zpl::ZplError;
use std::sync::Arc;

/// Why a proof cannot be carried out. Its findings are not errors, but its result.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The arguments of a shape.
    #[error(transparent)]
    Spec(Box<SpecError>),
    /// A device of a new pool cannot be opened.
    #[error(transparent)]
    NewDevice(Box<OpenFailure>),
    /// Devices cannot become vdevs.
    #[error(transparent)]
    Plan(Box<PlanError>),
    /// The vdevs of a new pool cannot be opened.
    #[error(transparent)]
    Config(Box<ConfigError>),
    /// First labels cannot be written.
    #[error(transparent)]
    Label(Box<LabelError>),
    /// A device cannot be opened.
    #[error(transparent)]
    Open(Box<OpenError>),
    /// A device cannot be read.
    #[error(transparent)]
    Device(Box<DeviceError>),
    /// No device has a label of the pool.
    #[error("no pool {0} was found")]
    NoPool(String),
    /// A pool cannot be imported.
    #[error(transparent)]
    Import(Box<ImportFailure>),
    /// A pool cannot be opened for writing.
    #[error(transparent)]
    NotWritable(Box<NotWritable>),
    /// A pool cannot be created.
    #[error(transparent)]
    CreatePoolError(Box<CreatePoolError>),
    /// A pool was suspended.
    #[error("the pool is suspended: {0:?}")]
    Suspended(Option<Arc<LiveError>>),
    /// The journal cannot be written.
    #[error("the journal: {0}")]
    Journal(std::io::Error),
    /// Images of a golden pool cannot be copied.
    #[error("images of a golden pool: {0}")]
    Image(std::io::Error),
    /// The walk over all blocks cannot be made.
    #[error(transparent)]
    Walk(Box<ZdbError>),
    /// A dataset cannot be created, renamed or destroyed.
    #[error(transparent)]
    Change(Box<ChangeError>),
    /// A pool was suspended before it could be exported.
    #[error(transparent)]
    NotExported(Box<NotExported>),
    /// Part of a pool cannot be read.
    #[error(transparent)]
    Pool(Box<PoolError>),
    /// A dataset cannot be read.
    #[error(transparent)]
    Dataset(Box<DatasetError>),
    /// A snapshot cannot be sent.
    #[error(transparent)]
    Send(Box<SendError>),
    /// A stream cannot be received.
    #[error(transparent)]
    Receive(Box<ReceiveError>),
    /// A received snapshot differs from the original.
    #[error("{snapshot} was received otherwise: {difference}")]
    Received {
        /// Its name.
        snapshot: String,
        /// What is different.
        difference: String,
    },
    /// An operation on a file failed.
    #[error("{path:?}: {source}")]
    File {
        /// Its path in the file system.
        path: String,
        /// The reason.
        source: Box<ZplError>,
    },
}

impl ProofError {
    /// A failed operation on a file.
    pub(crate) fn at(path: &str, source: ZplError) -> Self {
        Self::File { path: path.to_owned(), source: Box::new(source) }
    }
}

macro_rules! boxed {
    ($($source:ident: $variant:ident),*) => {
        $(impl From<$source> for ProofError {
            fn from(error: $source) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed! { SpecError: Spec, OpenFailure: NewDevice, PlanError: Plan, ConfigError: Config, LabelError: Label, OpenError: Open, DeviceError: Device, NotWritable: NotWritable, CreatePoolError: CreatePoolError, ZdbError: Walk, NotExported: NotExported, PoolError: Pool, DatasetError: Dataset, ChangeError: Change, ImportFailure: Import, SendError: Send, ReceiveError: Receive }
