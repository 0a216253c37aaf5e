//! Reports freed space to devices (`autotrim`; spec 06, section 16). All other free space is
//! handled by [`super::sweep`].
//!
//! ```text
//! sync: txg is durable ── every few txgs ──> trimmer: ranges that can be allocated again
//!                                              the metaslab rests, the device discards
//! ```

use super::sweep::Sweeps;
use crate::live::devices::current::PoolDevices;
use parking_lot::{Condvar, Mutex};
use rzfs_format::Txg;
use rzfs_metaslab::allocator::{Allocator, TrimBatch};
use rzfs_metaslab::log::book::MetaslabId;
use rzfs_tunables::Tunables;
use rzfs_vdev::{FreeRange, TrimLimits, TrimReport};
use std::sync::Arc;

/// The signal that the trimming thread waits for.
#[derive(Debug, Default)]
struct TrimSignal {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Wanted {
    #[default]
    Nothing,
    Round,
    End,
}

impl TrimSignal {
    fn want(&self, what: Wanted) {
        let mut wanted = self.wanted.lock();
        if *wanted != Wanted::End {
            *wanted = what;
            self.changed.notify_all();
        }
    }

    /// Waits for a round; returns whether there is one.
    fn wait(&self) -> bool {
        let mut wanted = self.wanted.lock();
        loop {
            match *wanted {
                Wanted::Nothing => self.changed.wait(&mut wanted),
                Wanted::Round => {
                    *wanted = Wanted::Nothing;
                    return true;
                }
                Wanted::End => return false,
            }
        }
    }
}

/// Trims what txgs free, and resumes sweeps that are not running.
#[derive(Debug)]
pub(crate) struct Trimmer {
    signal: TrimSignal,
    devices: Arc<PoolDevices>,
    allocator: Arc<Allocator>,
    sweeps: Arc<Sweeps>,
    limits: TrimLimits,
    /// Txgs between two rounds.
    txg_batch: u64,
}

impl Trimmer {
    pub(crate) fn new(
        devices: &Arc<PoolDevices>,
        allocator: &Arc<Allocator>,
        sweeps: &Arc<Sweeps>,
        tunables: &Tunables,
    ) -> Self {
        Self {
            signal: TrimSignal::default(),
            devices: Arc::clone(devices),
            allocator: Arc::clone(allocator),
            sweeps: Arc::clone(sweeps),
            limits: TrimLimits::from(tunables),
            txg_batch: tunables.zfs_trim_txg_batch,
        }
    }

    /// Trims round by round until it is told to stop.
    pub(crate) fn run(&self) {
        while self.signal.wait() {
            self.sweeps.resume();
            let report = self.trim_freed();
            for failure in &report.failures {
                tracing::warn!(leaf = %failure.leaf, error = %failure.error, "a trim failed");
            }
        }
    }

    /// A txg is durable.
    pub(crate) fn committed(&self, txg: Txg) {
        if txg.get().is_multiple_of(self.txg_batch) {
            self.signal.want(Wanted::Round);
        }
    }

    /// Stops the thread.
    pub(crate) fn end(&self) {
        self.signal.want(Wanted::End);
    }

    /// Trims what was freed since the last round, if `autotrim` is on.
    pub(crate) fn trim_freed(&self) -> TrimReport {
        let limits = &self.limits;
        let mut report = TrimReport::default();
        for metaslab in self.allocator.trim_candidates() {
            if let Some(batch) = self.allocator.take_trims(metaslab, limits.extent_bytes_min) {
                add(&mut report, self.trim_batch(&batch, limits));
            }
        }
        report
    }

    fn trim_batch(&self, batch: &TrimBatch, limits: &TrimLimits) -> TrimReport {
        let MetaslabId { vdev, .. } = batch.metaslab();
        let ranges = batch.ranges().iter().map(|range| FreeRange {
            vdev,
            offset: range.start,
            size: range.end - range.start,
        });
        self.devices.vdevs().trim(&ranges.collect::<Vec<_>>(), limits)
    }
}

fn add(sum: &mut TrimReport, more: TrimReport) {
    sum.trimmed = sum.trimmed.saturating_add(more.trimmed);
    sum.skipped = sum.skipped.saturating_add(more.skipped);
    for leaf in more.unsupported {
        if !sum.unsupported.contains(&leaf) {
            sum.unsupported.push(leaf);
        }
    }
    sum.failures.extend(more.failures);
}
