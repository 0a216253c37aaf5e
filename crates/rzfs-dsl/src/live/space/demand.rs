//! What changes ask of the space of a dataset, and what they are told.

/// What a change does to the space that a dataset uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceDemand {
    /// It writes up to so many bytes.
    Takes(u64),
    /// It gets blocks that others have, too: they count for the dataset, but the pool has them
    /// already.
    Shares {
        /// Up to so many bytes of them.
        shared: u64,
        /// Up to so many bytes are written besides.
        written: u64,
    },
    /// It writes up to so many bytes and sets more than that free, or was done before: it may go
    /// into the slop space, so that files can be removed from a full pool.
    Frees(u64),
}

impl SpaceDemand {
    /// The same of what was done before and is only done again: nobody may refuse it, so it may go
    /// into the slop space, too, and quotas do not count.
    #[must_use]
    pub const fn done_before(self) -> Self {
        match self {
            Self::Takes(bytes) | Self::Shares { written: bytes, .. } | Self::Frees(bytes) => {
                Self::Frees(bytes)
            }
        }
    }

    /// The same without bytes to be written that were admitted before.
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

/// Why a change is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceRefusal {
    /// The pool is full.
    NoSpace,
    /// A quota is used up.
    Quota,
    /// There may be room when the txgs that are under way are on disk: the change is to be tried
    /// again then.
    Later,
}

/// Space as a dataset sees it, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceUse {
    /// Used by what the dataset references.
    pub referenced: u64,
    /// Still available to it, quotas and reservations considered.
    pub available: u64,
}
