//! The intent log of a head: what makes operations durable before their txg is on disk (spec 05,
//! section 11).
//!
//! ```text
//! operation ── adds a record in its transaction ──> records of the txg, in memory
//! fsync ───── takes the records ──> log blocks ──> write, flush
//! txg is on disk ── drops its records, frees the blocks that have none but such
//! ```
//! A commit never fails as long as the pool works: what cannot be logged, for want of space or
//! because of an error, is waited for as part of its txg. That is also how the first commit goes:
//! it begins a chain, to which the header in the set's root block has to point first.

mod chain;
mod contents;
mod layout;
mod pending;
mod turns;
mod writing;

pub use contents::{LoggedContents, LoggedPart, UnreadableWrite};
pub use pending::{CommitScope, LogOrder, LogRecord, LoggedWrite};

use super::LiveError;
use super::error::UnlessDamaged;
use super::features::Features;
use super::head::{LiveDataset, activate};
use super::mos::MosTx;
use super::pool::{Inner, LivePool};
use chain::{Chain, ChainState};
use layout::SizeGuess;
use parking_lot::Mutex;
use pending::Pending;
use rzfs_dmu::live::Transaction;
use rzfs_dmu::txg::Stopped;
use rzfs_format::features::Feature;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockPointer, ObjectId, Txg, VdevId};
use rzfs_vdev::LogTrust;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use turns::Turns;

/// What only the thread that writes needs.
#[derive(Default, Debug)]
struct Writing {
    /// Number of the last record.
    seq: u64,
    guess: SizeGuess,
}

/// The log of a head that is open. Locks are taken for a few instructions, but for that of what
/// the writing thread needs, while blocks are made.
#[derive(Default, Debug)]
pub(crate) struct IntentLog {
    pending: Mutex<Pending>,
    chain: Mutex<Chain>,
    writing: Mutex<Writing>,
    turns: Turns,
    /// The feature of records of extended attributes is enabled.
    has_xattr_feature: AtomicBool,
    /// The txg since which the dataset uses it.
    xattrs_since: Mutex<Option<Txg>>,
}

impl IntentLog {
    fn may_write_xattrs(&self, synced: Txg) -> bool {
        self.xattrs_since.lock().is_some_and(|since| since <= synced)
    }

    /// Whether nothing waits for a txg, and nothing of the chain will change.
    pub(super) fn is_idle(&self, synced: Txg) -> bool {
        self.pending.lock().is_empty() && self.chain.lock().is_idle(synced)
    }

    /// The txg of the oldest block of the chain that was written to one of these vdevs.
    pub(super) fn oldest_written(&self, vdevs: &BTreeSet<VdevId>) -> Option<Txg> {
        self.chain.lock().oldest_written(vdevs)
    }

    /// Says that blocks of the chain may be lost.
    pub(super) fn break_off(&self) {
        self.chain.lock().break_off();
    }

    /// Whether devices for logs still have the blocks of the chain; otherwise it ends.
    pub(super) fn goes_on_with(&self, trust: LogTrust) -> bool {
        self.chain.lock().require_trust(trust).is_ok()
    }

    /// Drops the records of txgs that are on disk.
    pub(super) fn settle(&self, synced: Txg) {
        self.pending.lock().settle(synced);
    }
}

/// The intent log of a head, for whoever changes its files.
#[derive(Clone)]
pub struct HeadLog {
    inner: Arc<Inner>,
    dataset: Arc<LiveDataset>,
}

impl fmt::Debug for HeadLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeadLog").field("dataset", &self.dataset).finish_non_exhaustive()
    }
}

impl LivePool {
    /// The intent log of a head that is open.
    #[must_use]
    pub fn intent_log(&self, dataset: &Arc<LiveDataset>) -> HeadLog {
        HeadLog { inner: Arc::clone(self.inner()), dataset: Arc::clone(dataset) }
    }
}

impl HeadLog {
    fn log(&self) -> &IntentLog {
        self.dataset.log()
    }

    /// Adds the record of an operation, which is part of the transaction.
    pub fn add(&self, tx: &dyn Transaction, order: LogOrder, record: LogRecord) {
        self.log().pending.lock().add(tx.txg(), order, record);
    }

    /// Says that the txg changes something that no record says: commits wait for it.
    pub fn add_unlogged(&self, txg: Txg) {
        self.log().pending.lock().add_unlogged(txg);
    }

    /// Whether blocks that were born in a txg are there after a crash now, so that records may
    /// share them: those of a txg that is being written are not.
    #[must_use]
    pub fn may_share(&self, birth: Txg) -> bool {
        birth <= self.inner.engine.synced_txg()
    }

    /// Has the records so far of a file committed with the names, in front of what follows: it
    /// is about to get another name.
    pub fn promote(&self, object: ObjectId) {
        self.log().pending.lock().promote(object);
    }

    /// Drops the records of a file that has lost its last name.
    pub fn forget(&self, object: ObjectId) {
        self.log().pending.lock().forget(object);
    }

    /// Whether the pool knows records of extended attributes (feature `zilsaxattr`).
    #[must_use]
    pub fn knows_xattrs(&self) -> bool {
        self.log().has_xattr_feature.load(Ordering::Relaxed)
    }

    /// Waits until what was done in these scopes, and what was done to any name, is durable.
    /// Commits of several threads are written together.
    ///
    /// # Errors
    /// [`Stopped`]: the pool is suspended.
    pub fn commit(
        &self,
        scopes: &[CommitScope],
        contents: &dyn LoggedContents,
    ) -> Result<(), Stopped> {
        self.log().turns.commit(scopes, |scopes| self.write_out(scopes, contents))
    }
}

impl LiveDataset {
    /// Writes the header of the log, and gives back the blocks that are not needed any more.
    pub(super) fn sync_log(
        &self,
        mos: &MosTx<'_>,
        features: &mut Features,
    ) -> Result<Vec<BlockPointer>, LiveError> {
        let (log, txg) = (self.log(), mos.tx().txg());
        let has_feature = features.is_enabled(Feature::ZilSaXattr);
        log.has_xattr_feature.store(has_feature, Ordering::Relaxed);
        let mut chain = log.chain.lock();
        let is_used = matches!(chain.state(), ChainState::Since(since) if since <= txg);
        let change = chain.sync(txg);
        drop(chain);
        if let Some(first) = change.first {
            let header = ZilHeader { first, ..ZilHeader::default() };
            self.objset().set_log_header(mos.tx(), header);
        }
        if is_used && has_feature && log.xattrs_since.lock().is_none() {
            // Without it no attributes are logged: who waits for them waits for a txg.
            let activated = activate(mos, features, self.id(), Feature::ZilSaXattr);
            let told = activated.unless_damaged(
                |error| tracing::debug!(%error, "the use of a feature is not noted"),
            )?;
            *log.xattrs_since.lock() = told.map(|()| txg);
        }
        Ok(change.frees)
    }
}
