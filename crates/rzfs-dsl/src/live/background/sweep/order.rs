//! Starting, suspending and cancelling sweeps.

use super::news::{SweepEvent, SweepId};
use super::sweeps::Sweeps;
use crate::live::LiveError;
use crate::live::administration::TaskContext;
use crate::live::change_error::ChangeError;
use crate::pool::{
    SweepKind, SweepRecord, SweepState, TRIM_PARTIAL, TRIM_RATE, TRIM_SECURE, leaf_zap,
};
use rzfs_format::Guid;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A request for a sweep.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SweepOrder {
    /// Starts it, or continues it if it was suspended.
    Start {
        /// Bytes per second of a TRIM, 0 for no limit; unchanged if it continues.
        rate: Option<u64>,
    },
    /// Suspends it.
    Suspend,
    /// Cancels it.
    Cancel,
    /// Removes all records of it.
    Forget,
}

/// The accepted change of a leaf's sweep.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    id: SweepId,
    record: SweepRecord,
    news: Option<SweepEvent>,
}

impl Sweeps {
    /// Starts or stops sweeps of the free space of leaves. Returns the refused ones; the others are
    /// on disk as requested. The work itself is done in the background.
    ///
    /// # Errors
    /// [`ChangeError`]: the pool is suspended.
    pub(crate) fn order(
        self: &Arc<Self>,
        kind: SweepKind,
        leaves: &[Guid],
        order: SweepOrder,
    ) -> Result<Vec<(Guid, ChangeError)>, ChangeError> {
        let _turn = self.turn.lock();
        let (mut accepted, mut refused) = (Vec::new(), Vec::new());
        for leaf in leaves {
            match self.accept((*leaf, kind), order) {
                Ok(one) => accepted.push(one),
                Err(error) => refused.push((*leaf, error)),
            }
        }
        for one in &mut accepted {
            let stopped = self.stop(one.id);
            if matches!(order, SweepOrder::Suspend | SweepOrder::Cancel) {
                one.record.offset = stopped.unwrap_or(one.record.offset);
            }
        }
        let changes = accepted.clone();
        self.tasks.administer(move |context| {
            context.check(|this| {
                let leaves = changes.iter().filter_map(|one| this.vdevs.by_guid(one.id.0));
                Ok(leaves.filter_map(leaf_zap).try_for_each(|zap| this.mos.check_zap(zap))?)
            })?;
            for one in &changes {
                context.change_sweep(one, order)?;
            }
            Ok(())
        })?;
        for Accepted { id, record, news } in accepted {
            self.all.lock().entry(id).or_default().record = record;
            match (order, news) {
                (SweepOrder::Start { .. }, Some(news)) => self.start(id, news),
                (_, Some(news)) => self.tell(id, news),
                (_, None) => {}
            }
        }
        Ok(refused)
    }

    /// Applies an order to a sweep, or refuses it.
    fn accept(&self, id: SweepId, order: SweepOrder) -> Result<Accepted, ChangeError> {
        let (leaf, kind) = id;
        let vdevs = self.devices.vdevs();
        let leaf = vdevs.by_guid(leaf).ok_or(ChangeError::NoSuchDevice)?;
        if !leaf.kind().is_device() {
            return Err(ChangeError::NotALeaf);
        }
        if !leaf.health().is_usable() {
            return Err(ChangeError::DeviceMissing);
        }
        if kind == SweepKind::Trim && !leaf.can_trim() {
            return Err(ChangeError::TrimUnsupported);
        }
        let old = self.record(id);
        let now = self.environment.now();
        // A suspended sweep continues with the time of its suspension.
        let action_time = if old.state == SweepState::Suspended { old.action_time } else { now };
        let record = SweepRecord { action_time, ..old };
        let is_active = old.state == SweepState::Active;
        let is_suspended = old.state == SweepState::Suspended;
        let (record, news) = match order {
            SweepOrder::Start { .. } | SweepOrder::Forget if is_active => {
                return Err(ChangeError::SweepActive(kind));
            }
            SweepOrder::Suspend if !is_active => return Err(ChangeError::NoSweep(kind)),
            SweepOrder::Cancel if !is_active && !is_suspended => {
                return Err(ChangeError::NoSweep(kind));
            }
            SweepOrder::Start { rate } => {
                // An initialization continues where the last one ended, until it is forgotten.
                let goes_on = is_suspended || kind == SweepKind::Initialize;
                let offset = if goes_on { old.offset } else { 0 };
                let known = if is_suspended { old.rate } else { 0 };
                let rate = rate.unwrap_or(known);
                let state = SweepState::Active;
                let news = if is_suspended { SweepEvent::Resumed } else { SweepEvent::Started };
                let is_secure = false;
                (SweepRecord { state, offset, rate, is_secure, ..record }, Some(news))
            }
            SweepOrder::Suspend => {
                let record = SweepRecord { state: SweepState::Suspended, ..record };
                (record, Some(SweepEvent::Suspended))
            }
            SweepOrder::Cancel => {
                let record = SweepRecord { state: SweepState::Cancelled, ..record };
                (record, Some(SweepEvent::Cancelled))
            }
            SweepOrder::Forget => (SweepRecord::default(), None),
        };
        Ok(Accepted { id, record, news })
    }
}

impl TaskContext<'_> {
    fn change_sweep(&mut self, accepted: &Accepted, order: SweepOrder) -> Result<(), LiveError> {
        let Accepted { id: (leaf, kind), record, .. } = *accepted;
        if order == SweepOrder::Forget {
            self.forget_sweep(leaf, kind)?;
        } else {
            self.store_sweep(leaf, kind, &record)?;
        }
        if matches!(order, SweepOrder::Start { .. }) && kind == SweepKind::Trim {
            self.store_trim_options(leaf, record.rate)?;
        }
        let what = match order {
            SweepOrder::Start { .. } => "activated",
            SweepOrder::Suspend => "suspended",
            SweepOrder::Cancel => "canceled",
            SweepOrder::Forget => return self.log_leaf("uninitialize", leaf, ""),
        };
        self.log_sweep(leaf, kind, what)
    }

    fn store_trim_options(&mut self, leaf: Guid, rate: u64) -> Result<(), LiveError> {
        let Some(zap) = self.vdevs.by_guid(leaf).and_then(leaf_zap) else { return Ok(()) };
        for (name, value) in [(TRIM_RATE, rate), (TRIM_PARTIAL, 0), (TRIM_SECURE, 0)] {
            self.mos.set(zap, name, value)?;
        }
        Ok(())
    }

    fn forget_sweep(&mut self, leaf: Guid, kind: SweepKind) -> Result<(), LiveError> {
        let Some(zap) = self.vdevs.by_guid(leaf).and_then(leaf_zap) else { return Ok(()) };
        let keys = kind.keys();
        for name in [keys.offset, keys.state, keys.action_time] {
            self.mos.remove(zap, name)?;
        }
        Ok(())
    }
}
