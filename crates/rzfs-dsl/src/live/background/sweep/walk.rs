//! The thread of a sweep: from metaslab to metaslab, one part at a time.

use super::news::{SweepEvent, SweepId};
use super::run::Run;
use crate::live::devices::current::PoolDevices;
use crate::pool::{SweepKind, columns};
use rzfs_format::units::SECTOR_SIZE;
use rzfs_format::{Guid, Txg, VdevId, label};
use rzfs_metaslab::allocator::{Allocator, FreePart, TrimBatch};
use rzfs_metaslab::log::book::MetaslabId;
use rzfs_tunables::Tunables;
use rzfs_vdev::{FreeRange, InitialPattern, LeafRange, TrimLimits, VdevTree};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of a leaf overwritten while a metaslab is disabled.
const INITIALIZE_STEP: u64 = 16 << 20;

/// Bytes trimmed while a metaslab is disabled, without a rate limit.
const TRIM_STEP: u64 = 128 << 20;

/// Steps per second of a rate-limited TRIM.
const STEPS_PER_SECOND: u64 = 8;

/// Longest sleep of a rate-limited TRIM between checks.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// How a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// At the end of the leaf.
    Done,
    /// Before that, on request or because the leaf is gone.
    Stopped,
    /// The device does not support it.
    Unsupported,
}

/// How a leaf's space is processed.
#[derive(Debug)]
enum Work {
    Initialize(InitialPattern),
    Trim(TrimLimits),
}

/// A walk along a leaf.
struct Walk<'a> {
    devices: &'a PoolDevices,
    allocator: &'a Allocator,
    run: &'a Run,
    leaf: Guid,
    work: Work,
    /// Bytes per second; 0 for no limit.
    rate: u64,
    started: Duration,
    /// Bytes trimmed so far.
    done: u64,
}

/// Sweeps a leaf to its end; reports how it ended, unless it was stopped before.
pub(super) fn sweep(
    (leaf, kind): SweepId,
    (rate, tunables): (u64, &Tunables),
    run: &Run,
    (devices, allocator): (&PoolDevices, &Allocator),
) -> Option<SweepEvent> {
    let work = match kind {
        SweepKind::Trim => Work::Trim(TrimLimits::from(tunables)),
        SweepKind::Initialize => match InitialPattern::new(tunables) {
            Ok(pattern) => Work::Initialize(pattern),
            Err(error) => {
                tracing::warn!(%leaf, %error, "a device is not initialized");
                return None;
            }
        },
    };
    let (started, done) = (run.clock.now(), 0);
    let mut walk = Walk { devices, allocator, run, leaf, work, rate, started, done };
    match walk.go() {
        End::Done => Some(SweepEvent::Finished),
        End::Unsupported => Some(SweepEvent::Cancelled),
        End::Stopped => None,
    }
}

impl Walk<'_> {
    fn go(&mut self) -> End {
        let vdevs = self.devices.vdevs();
        let top = vdevs.by_guid(self.leaf).and_then(|leaf| leaf.top_level());
        let Some((top, vdev)) = top.and_then(|top| Some((top, top.vdev_id()?))) else {
            return End::Stopped;
        };
        let columns = columns(top);
        let begin = self.run.offset.load(Ordering::Acquire);
        for (metaslab, range) in self.allocator.metaslabs() {
            let end = label::START_SIZE.saturating_add(range.end.div_ceil(columns));
            if metaslab.vdev != vdev || end < begin {
                continue;
            }
            match self.metaslab(metaslab, &range, columns, begin) {
                End::Done => {}
                end => return end,
            }
        }
        End::Done
    }

    /// Processes a metaslab part by part.
    fn metaslab(&mut self, id: MetaslabId, range: &Range<u64>, columns: u64, begin: u64) -> End {
        let smallest = match &self.work {
            Work::Initialize(_) => 0,
            Work::Trim(limits) => limits.extent_bytes_min,
        };
        let mut from = Some(range.start);
        while let Some(start) = from {
            let vdevs = self.devices.vdevs();
            let leaf = vdevs.by_guid(self.leaf).filter(|leaf| leaf.health().is_usable());
            let Some(leaf) = leaf.filter(|_| !self.run.is_stopped()) else { return End::Stopped };
            if matches!(self.work, Work::Trim(_)) && !leaf.can_trim() {
                return End::Unsupported;
            }
            if self.is_too_fast() {
                return End::Stopped;
            }
            let most = self.step().saturating_mul(columns);
            let unit = allocation_unit(&vdevs, id.vdev);
            let part = FreePart { smallest, from: start, most, unit };
            let Some(step) = self.allocator.take_free(id, part) else { break };
            let ranges = self.own(&vdevs, &step.batch, begin);
            self.work_on(&vdevs, &ranges);
            from = step.next;
            // Only now may the space be allocated.
            drop(step.batch);
            if let Some(last) = ranges.last() {
                let end = last.position.saturating_add(last.len);
                self.run.offset.fetch_max(end, Ordering::AcqRel);
            }
        }
        End::Done
    }

    /// Bytes of the leaf to process at a time.
    fn step(&self) -> u64 {
        match &self.work {
            Work::Initialize(_) => INITIALIZE_STEP,
            Work::Trim(_) if self.rate == 0 => TRIM_STEP,
            Work::Trim(limits) => {
                (self.rate / STEPS_PER_SECOND).clamp(limits.extent_bytes_min, TRIM_STEP)
            }
        }
    }

    /// Waits until the rate allows another step; returns whether the sweep is to stop.
    fn is_too_fast(&self) -> bool {
        loop {
            let rate = u128::from(self.rate);
            let due = u128::from(self.done).saturating_mul(1_000_000).checked_div(rate);
            let due = due.map_or(Duration::ZERO, |micros| {
                Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
            });
            let early = due.saturating_sub(self.run.clock.now().saturating_sub(self.started));
            if early.is_zero() {
                return false;
            }
            if self.run.wait(early.min(LONGEST_SLEEP)) {
                return true;
            }
        }
    }

    /// The parts of a batch's ranges that lie on the leaf, beyond `begin`.
    fn own(&self, vdevs: &VdevTree, batch: &TrimBatch, begin: u64) -> Vec<LeafRange> {
        let vdev = batch.metaslab().vdev;
        let mut own: Vec<LeafRange> = Vec::new();
        for range in batch.ranges() {
            let size = range.end.saturating_sub(range.start);
            let range = FreeRange { vdev, offset: range.start, size };
            let found = match vdevs.leaf_ranges(&range) {
                Ok(found) => found,
                Err(problem) => {
                    tracing::warn!(%vdev, ?range, %problem, "free space is left as it is");
                    continue;
                }
            };
            for mut part in found.into_iter().filter(|part| part.leaf == self.leaf) {
                let end = part.position.saturating_add(part.len);
                part.position = part.position.max(begin);
                part.len = end.saturating_sub(part.position);
                if part.len > 0 {
                    own.push(part);
                }
            }
        }
        own.sort_unstable();
        own
    }

    fn work_on(&mut self, vdevs: &VdevTree, ranges: &[LeafRange]) {
        let failures = match &self.work {
            Work::Initialize(pattern) => vdevs.initialize(ranges, pattern).failures,
            Work::Trim(limits) => {
                let report = vdevs.trim_leaves(ranges, limits);
                self.done = self.done.saturating_add(report.trimmed);
                report.failures
            }
        };
        for failure in failures {
            let error = failure.error;
            tracing::warn!(leaf = %failure.leaf, %error, "free space is left as it is");
        }
    }
}

/// The allocation unit of a vdev in bytes.
fn allocation_unit(vdevs: &VdevTree, vdev: VdevId) -> u64 {
    vdevs.allocated_size(vdev, SECTOR_SIZE, Txg(0)).unwrap_or(SECTOR_SIZE)
}
