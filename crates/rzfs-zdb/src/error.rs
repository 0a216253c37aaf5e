//! Why zdb stopped.

use rzfs_dmu::DmuError;
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::import::{ImportFailure, SelectError};
use rzfs_dsl::pool::PoolError;
use rzfs_format::{FormatError, ObjectId};
use rzfs_metaslab::MetaslabError;
use std::io;
use std::path::PathBuf;

/// Why zdb stopped before it showed what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ZdbError {
    /// The output cannot be written.
    #[error("output: {0}")]
    Output(#[from] io::Error),
    /// A device or file cannot be opened.
    #[error("cannot open '{path}': {reason}", path = path.display())]
    Open {
        /// The device or file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A device of the pool cannot be opened.
    #[error(transparent)]
    Device(#[from] rzfs_blockdev::OpenError),
    /// The command line asks for nothing that can be shown.
    #[error("{0}")]
    Usage(String),
    /// No pool, or several, go by the name.
    #[error("can't open '{name}': {source}")]
    Select {
        /// The name or guid.
        name: String,
        /// Why.
        source: SelectError,
    },
    /// The pool cannot be imported.
    #[error("can't open '{name}': {source}")]
    Import {
        /// The name.
        name: String,
        /// Why.
        source: Box<ImportFailure>,
    },
    /// A word of the command line names neither an object nor a range of them.
    #[error("Bad object or range: '{range}': {reason}\n")]
    BadRange {
        /// The word.
        range: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The dataset that the command line names cannot be opened.
    #[error("can't open '{name}': {reason}")]
    Hold {
        /// Its name.
        name: String,
        /// What the system calls the error.
        reason: String,
    },
    /// The object that the command line names does not exist.
    #[error("dmu_object_info() failed, errno 2")]
    NoObject,
    /// Something of the pool cannot be read.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A dataset cannot be found or read.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    /// An object cannot be read.
    #[error(transparent)]
    Dmu(#[from] DmuError),
    /// Space accounting cannot be read.
    #[error(transparent)]
    Space(#[from] MetaslabError),
    /// An object holds what the format does not allow.
    #[error("object {object}: {source}")]
    Corrupt {
        /// The object of the MOS.
        object: ObjectId,
        /// What is wrong.
        source: FormatError,
    },
}

impl ZdbError {
    /// Gives an error of the format its place.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { object, source }
    }
}
