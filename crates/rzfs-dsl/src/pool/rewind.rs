//! The cost of opening an older state of a pool.

use rzfs_format::Txg;

/// An older state of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RewindInfo {
    /// Its txg.
    pub txg: Txg,
    /// When it was written, in seconds since 1970.
    pub timestamp: u64,
    /// Seconds of changes that are lost.
    pub seconds_lost: u64,
    /// Damaged blocks of data in its last txgs.
    pub data_errors: u64,
}
