//! Tunables of intent logs.

use super::layout::UNIT;
use rzfs_tunables::Tunables;

/// Tunables of intent logs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogTunables {
    /// Bytes of the largest new block; a multiple of [`UNIT`].
    pub(super) max_block: u64,
    /// Minimum size of a write that is placed, in bytes.
    pub(super) immediate_write: u64,
    /// More bytes than this in log blocks take longer than syncing the txg, which writes them once.
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
