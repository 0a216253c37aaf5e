//! What is tuned about intent logs.

use super::layout::UNIT;
use rzfs_tunables::Tunables;

/// What is tuned about intent logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogTunables {
    /// Bytes of the largest new block; a multiple of [`UNIT`].
    pub(super) max_block: u64,
    /// Bytes from which on a write is placed.
    pub(super) immediate_write: u64,
    /// More than this in log blocks is written sooner by syncing the txg, which writes it once.
    pub(super) commit_max: u64,
    /// The same with a log device.
    pub(super) commit_max_on_log_device: u64,
}

impl From<&Tunables> for LogTunables {
    fn from(tunables: &Tunables) -> Self {
        Self {
            max_block: tunables.zil_maxblocksize / UNIT * UNIT,
            immediate_write: tunables.zfs_immediate_write_sz,
            commit_max: tunables.rzfs_zil_commit_max,
            commit_max_on_log_device: tunables.rzfs_zil_commit_max_slog,
        }
    }
}
