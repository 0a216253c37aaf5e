//! Why records are not logged.

use super::chain::ChainEnded;
use rzfs_codec::crypto::CryptoError;
use rzfs_dmu::DmuError;
use rzfs_dmu::txg::Stopped;
use rzfs_vdev::NotDurable;

/// Why records are not logged. Their operations become durable with their txg.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotLogged {
    #[error("the chain was begun just now")]
    NewChain,
    #[error("a block of the chain could not be written")]
    Broken,
    #[error(transparent)]
    Ended(#[from] ChainEnded),
    #[error("the log has not been replayed")]
    NotReplayed,
    #[error("{bytes} bytes of records")]
    Large { bytes: u64 },
    #[error("a record that no block can hold")]
    TooLong,
    #[error("the dataset does not use the feature of a record yet")]
    Feature,
    #[error("no space for log blocks")]
    NoSpace,
    #[error("the data of a write cannot be read")]
    Unreadable,
    #[error("the log cannot be encrypted: {0}")]
    Crypto(#[from] CryptoError),
    #[error("the header cannot be read: {0}")]
    Header(#[from] DmuError),
    #[error("a block cannot be written")]
    Write,
    #[error("it is not durable: {0}")]
    Flush(#[from] NotDurable),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl NotLogged {
    /// Whether there was a failure; otherwise the txg is simply the better way.
    pub(super) const fn is_failure(&self) -> bool {
        match self {
            Self::NewChain
            | Self::NotReplayed
            | Self::Large { .. }
            | Self::TooLong
            | Self::Feature
            | Self::NoSpace => false,
            Self::Broken
            | Self::Ended(_)
            | Self::Unreadable
            | Self::Crypto(_)
            | Self::Header(_)
            | Self::Write
            | Self::Flush(_)
            | Self::Stopped(_) => true,
        }
    }
}
