//! The log of an open head.

use super::chain::{Chain, ChainState};
use super::layout::SizeGuess;
use super::pending::Pending;
use super::turns::Turns;
use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use crate::mos::extensible::activate;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use parking_lot::Mutex;
use rzfs_dmu::live::{LiveObjset, Transaction};
use rzfs_format::features::Feature;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{BlockPointer, ObjectId, Txg, VdevId};
use rzfs_vdev::LogTrust;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// State of the writing thread only.
#[derive(Default, Debug)]
pub(super) struct Writing {
    /// Number of the last record.
    pub(super) seq: u64,
    pub(super) guess: SizeGuess,
}

/// The log of an open head. Locks are held briefly, except for that of the writing thread's state,
/// while blocks are made.
#[derive(Default, Debug)]
pub(crate) struct IntentLog {
    pub(super) pending: Mutex<Pending>,
    pub(super) chain: Mutex<Chain>,
    pub(super) writing: Mutex<Writing>,
    pub(super) turns: Turns,
    /// The feature of records of extended attributes is enabled.
    has_xattr_feature: AtomicBool,
    /// The txg since which the dataset uses it.
    xattrs_since: Mutex<Option<Txg>>,
}

impl IntentLog {
    pub(super) fn may_write_xattrs(&self, synced: Txg) -> bool {
        self.xattrs_since.lock().is_some_and(|since| since <= synced)
    }

    /// Whether nothing waits for a txg, and the chain will not change.
    pub(crate) fn is_idle(&self, synced: Txg) -> bool {
        self.pending.lock().is_empty() && self.chain.lock().is_idle(synced)
    }

    /// The txg of the oldest block of the chain on one of these vdevs.
    pub(crate) fn oldest_written(&self, vdevs: &BTreeSet<VdevId>) -> Option<Txg> {
        self.chain.lock().oldest_written(vdevs)
    }

    /// Ends it for good with a txg that is being synced; returns the blocks of the chain, unless
    /// only its header knows them.
    pub(crate) fn end(&self, txg: Txg) -> Option<Vec<BlockPointer>> {
        self.chain.lock().end(txg)
    }

    /// Whether blocks were allocated for an ended chain.
    pub(crate) fn has_orphans(&self) -> bool {
        self.chain.lock().has_orphans()
    }

    /// The blocks allocated up to `txg` for an ended chain.
    pub(crate) fn take_orphans(&self, txg: Txg) -> Vec<BlockPointer> {
        self.chain.lock().take_orphans(txg)
    }

    /// Marks blocks of the chain as possibly lost.
    pub(crate) fn break_off(&self) {
        self.chain.lock().break_off();
    }

    /// Whether log devices still have the blocks of the chain; otherwise it ends.
    pub(crate) fn still_trusts(&self, trust: LogTrust) -> bool {
        self.chain.lock().require_trust(trust).is_ok()
    }

    /// Drops the records of txgs that are on disk.
    pub(crate) fn settle(&self, synced: Txg) {
        self.pending.lock().settle(synced);
    }

    /// Whether the pool supports records of extended attributes.
    pub(super) fn knows_xattrs(&self) -> bool {
        self.has_xattr_feature.load(Ordering::Relaxed)
    }

    /// Writes the log header of `head`, whose contents are `objset`, and frees blocks that are no
    /// longer needed.
    pub(crate) fn sync(
        &self,
        (head, objset): (ObjectId, &LiveObjset),
        mos: &MosTx<'_>,
        features: &mut Features,
    ) -> Result<Vec<BlockPointer>, LiveError> {
        let txg = mos.tx().txg();
        let has_feature = features.is_enabled(Feature::ZilSaXattr);
        self.has_xattr_feature.store(has_feature, Ordering::Relaxed);
        let mut chain = self.chain.lock();
        let is_used = matches!(chain.state(), ChainState::Since(since) if since <= txg);
        let change = chain.sync(txg);
        drop(chain);
        if let Some(first) = change.first {
            let header = ZilHeader { first, ..ZilHeader::default() };
            objset.set_log_header(mos.tx(), header);
        }
        if is_used && has_feature && self.xattrs_since.lock().is_none() {
            // Without it no attributes are logged: their commits wait for a txg.
            let activated = activate(mos, features, head, Feature::ZilSaXattr);
            let told = activated.unless_damaged(
                |error| tracing::debug!(%error, "the use of a feature is not noted"),
            )?;
            *self.xattrs_since.lock() = told.map(|()| txg);
        }
        Ok(change.frees)
    }
}
