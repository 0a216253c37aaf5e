//! The syncing thread.

use super::group::Syncer;
use crate::live::LiveError;
use crate::live::suspension::Suspension;
use crate::live::sync_state::SyncState;
use rzfs_dmu::Patience;
use rzfs_dmu::txg::{QuiescedTxg, Torn, TxgEngine, Work};
use std::sync::Arc;
use std::time::Duration;

/// Longest sleep of the syncing thread between checks whether to stop.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Notifies all waiters for the syncing thread when it panics.
struct FailOnPanic<'a>(&'a Suspension);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(LiveError::Panicked);
        }
    }
}

/// Syncs groups until the engine is stopped, `first` before the others.
pub(crate) fn sync_forever(syncer: &Syncer, mut state: SyncState, first: Option<QuiescedTxg>) {
    let _guard = FailOnPanic(&syncer.suspension);
    // A txg cannot be abandoned.
    let _patience = Patience::Endless.enter();
    let first = first.into_iter().map(Ok);
    let mut groups = first.chain(std::iter::from_fn(|| next_group(&syncer.engine).transpose()));
    if let Err(error) = groups.try_for_each(|txg| syncer.sync_group(&mut state, txg?)) {
        syncer.suspension.fail(error);
    }
}

/// Waits for the next group to sync; `None` if there will be none.
fn next_group(engine: &Arc<TxgEngine>) -> Result<Option<QuiescedTxg>, Torn> {
    loop {
        match engine.wait_for_work(LONGEST_SLEEP) {
            Work::Sync => return engine.quiesce().map(Some),
            Work::Nothing => {}
            Work::Finished => return Ok(None),
        }
    }
}
