//! Why a pool cannot be changed.

use crate::PoolError;
use crate::mos::error::MosError;
use rzfs_codec::crypto::CryptoError;
use rzfs_dmu::sync::SyncError;
use rzfs_dmu::txg::Torn;
use rzfs_dmu::{BlockError, DmuError};
use rzfs_format::{FormatError, ObjectId, Txg};
use rzfs_metaslab::MetaslabError;
use rzfs_vdev::{CommitError, VdevError};
use std::io;
use std::sync::Arc;

/// Why the first objects of a set cannot be created; the caller knows the type.
pub type ContentsError = Box<dyn std::error::Error + Send + Sync>;

/// Why a change of the pool's own objects failed. The txg is then not committed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The pool cannot be read.
    #[error(transparent)]
    Pool(Box<PoolError>),
    /// Blocks cannot be built.
    #[error(transparent)]
    Sync(Box<SyncError>),
    /// Blocks cannot be read from the devices.
    #[error(transparent)]
    Read(Box<BlockError>),
    /// Blocks cannot be written to the devices.
    #[error(transparent)]
    Write(Box<VdevError>),
    /// Labels or the uberblock cannot be written.
    #[error(transparent)]
    Commit(Box<CommitError>),
    /// Space cannot be accounted for.
    #[error(transparent)]
    Space(Box<MetaslabError>),
    /// The first objects of a new set cannot be created.
    #[error("a new object set: {0}")]
    Contents(ContentsError),
    /// Keys cannot be wrapped.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The pool is already suspended.
    #[error("the pool is suspended{}", reason.as_ref().map_or_else(String::new, |r| format!(": {r}")))]
    Suspended {
        /// The cause.
        reason: Option<Arc<LiveError>>,
    },
    /// The thread that writes txgs has panicked because of a bug.
    #[error("the thread that writes has panicked")]
    Panicked,
    /// A change was interrupted by a bug.
    #[error(transparent)]
    Torn(#[from] Torn),
    /// The system cannot start a thread for the pool.
    #[error("no thread can be started: {0}")]
    Thread(#[source] io::Error),
    /// Other hosts may have taken the pool over, because this one's heartbeats failed.
    #[error("no heartbeat has got through for {seconds} seconds")]
    NoHeartbeat {
        /// For how long.
        seconds: u64,
    },
    /// Each pass of a txg made another one necessary.
    #[error("txg {txg} was not complete after {passes} passes")]
    NoConvergence {
        /// The txg.
        txg: Txg,
        /// The number of passes.
        passes: u32,
    },
}

macro_rules! boxed {
    ($($source:ident: $variant:ident),*) => {
        $(impl From<$source> for LiveError {
            fn from(error: $source) -> Self {
                Self::$variant(Box::new(error))
            }
        })*
    };
}

boxed! {
    PoolError: Pool, SyncError: Sync, BlockError: Read, VdevError: Write, CommitError: Commit,
    MetaslabError: Space
}

impl From<MosError> for LiveError {
    fn from(error: MosError) -> Self {
        PoolError::from(error).into()
    }
}

impl From<DmuError> for LiveError {
    fn from(error: DmuError) -> Self {
        MosError::from(error).into()
    }
}

impl LiveError {
    /// The errno that callers of ZFS expect.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        match self {
            Self::Pool(source) => source.errno(),
            _ => EIO,
        }
    }

    /// Whether the pool is permanently damaged: waiting for devices is useless, and operations that
    /// need the damaged part are skipped where possible.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Pool(error) => error.is_damage(),
            Self::Read(error) => error.is_damage(),
            _ => false,
        }
    }

    /// Whether something of the MOS has no place for what it should have, because of damage or of what
    /// somebody has put there.
    pub(crate) fn leaves_no_room(&self) -> bool {
        let of_zap =
            |error: &PoolError| matches!(error, PoolError::Mos(error) if error.is_of_full_zap());
        self.is_damage() || matches!(self, Self::Pool(error) if of_zap(error))
    }

    /// Wraps an error of the format with the object of the MOS.
    pub(crate) fn corrupt(object: ObjectId) -> impl Fn(FormatError) -> Self {
        move |source| MosError::Corrupt { object, source }.into()
    }
}

/// An error that may be caused by damage.
pub(crate) trait MayBeDamage {
    /// The damage, if that is the cause: [`LiveError::is_damage`].
    fn damage(&self) -> Option<&LiveError>;
}

impl MayBeDamage for LiveError {
    fn damage(&self) -> Option<&LiveError> {
        Some(self).filter(|error| error.is_damage())
    }
}

/// Skips operations on damaged objects: nothing waits for them, the txg continues without.
pub(crate) trait UnlessDamaged<T, E> {
    /// The value; `None` if it is damaged, after passing the error to `warn`.
    fn unless_damaged(self, warn: impl FnOnce(&LiveError)) -> Result<Option<T>, E>;
}

impl<T, E: MayBeDamage> UnlessDamaged<T, E> for Result<T, E> {
    fn unless_damaged(self, warn: impl FnOnce(&LiveError)) -> Result<Option<T>, E> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(error) => match error.damage() {
                Some(damage) => {
                    warn(damage);
                    Ok(None)
                }
                None => Err(error),
            },
        }
    }
}
