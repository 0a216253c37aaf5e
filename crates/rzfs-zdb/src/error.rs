//! Errors of zdb.

use rzfs_dmu::DmuError;
use rzfs_dsl::dataset::DatasetError;
use rzfs_dsl::import::{ImportFailure, SelectError};
use rzfs_dsl::pool::PoolError;
use rzfs_format::{FormatError, ObjectId};
use rzfs_metaslab::MetaslabError;
use std::io;
use std::path::PathBuf;

/// Why zdb stopped before the end of its report.
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
        /// The system's reason.
        reason: String,
    },
    /// A device of the pool cannot be opened.
    #[error(transparent)]
    Device(#[from] rzfs_blockdev::OpenError),
    /// The command line asks for nothing that is supported.
    #[error("{0}")]
    Usage(String),
    /// No pool, or several, have the name.
    #[error("can't open '{name}': {source}")]
    Select {
        /// The name or guid.
        name: String,
        /// The reason.
        source: SelectError,
    },
    /// The pool cannot be imported.
    #[error("can't open '{name}': {source}")]
    Import {
        /// The name.
        name: String,
        /// The reason.
        source: Box<ImportFailure>,
    },
    /// A word of the command line is neither an object nor a range of objects.
    #[error("Bad object or range: '{range}': {reason}\n")]
    BadRange {
        /// The word.
        range: String,
        /// The problem.
        reason: &'static str,
    },
    /// The dataset on the command line cannot be opened.
    #[error("can't open '{name}': {reason}")]
    Hold {
        /// Its name.
        name: String,
        /// The system's text for the error.
        reason: String,
    },
    /// The object on the command line does not exist.
    #[error("dmu_object_info() failed, errno 2")]
    NoObject,
    /// Part of the pool cannot be read.
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
    /// The contents of an object are invalid.
    #[error("object {object}: {source}")]
    Corrupt {
        /// The object of the MOS.
        object: ObjectId,
        /// The problem.
        source: FormatError,
    },
}

impl ZdbError {
    /// Adds the place to a format error.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| Self::Corrupt { object, source }
    }
}
