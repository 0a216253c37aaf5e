//! The space that changes request from a dataset, and the possible refusals.

/// The effect of a change on the space of a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceDemand {
    /// It writes up to this many bytes.
    Takes(u64),
    /// It gains blocks that it shares with others: they count for the dataset, but are already
    /// allocated in the pool.
    Shares {
        /// Bytes of shared blocks at most.
        shared: u64,
        /// Bytes written besides, at most.
        written: u64,
    },
    /// It writes up to this many bytes and frees more than that, or was done before: it may use the
    /// slop space, so that files can be removed from a full pool.
    Frees(u64),
}

impl SpaceDemand {
    /// The same for a replayed operation: it must not be refused, so it may use the slop space, and
    /// quotas do not count.
    #[must_use]
    pub const fn done_before(self) -> Self {
        match self {
            Self::Takes(bytes) | Self::Shares { written: bytes, .. } | Self::Frees(bytes) => {
                Self::Frees(bytes)
            }
        }
    }

    /// The same without bytes that were admitted before.
    #[must_use]
    pub const fn less(self, bytes: u64) -> Self {
        match self {
            Self::Takes(all) => Self::Takes(all.saturating_sub(bytes)),
            Self::Shares { shared, written } => {
                Self::Shares { shared, written: written.saturating_sub(bytes) }
            }
            Self::Frees(all) => Self::Frees(all.saturating_sub(bytes)),
        }
    }

    /// The same with other amounts of bytes.
    pub(crate) fn map(self, bytes: impl Fn(u64) -> u64) -> Self {
        match self {
            Self::Takes(all) => Self::Takes(bytes(all)),
            Self::Shares { shared, written } => {
                Self::Shares { shared: bytes(shared), written: bytes(written) }
            }
            Self::Frees(all) => Self::Frees(bytes(all)),
        }
    }
}

/// Why a change is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceRefusal {
    /// The pool is full.
    NoSpace,
    /// A quota is exceeded.
    Quota,
    /// There may be room when the txgs in progress are on disk: retry then.
    Later,
}

/// The space of a dataset in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceUse {
    /// Referenced by the dataset.
    pub referenced: u64,
    /// Available to it within quotas and reservations.
    pub available: u64,
}
