//! The amount of space, and its consequences: which groups are avoided, whether frees are deferred,
//! which metaslabs stay in memory.

use super::Allocator;
use super::books::SyncBooks;
use super::group::SpaceTotals;
use super::metaslab::FreeTree;
use super::record::Deferral;
use super::request::ClassKind;
use super::rotor::{self, GroupWeight, Sharing};
use super::topology::{Member, Topology};
use super::tunables::{LogFeature, SpaceTunables};
use super::usage::{DedupRoom, LogStatus, PoolUsage, VdevUsage};
use crate::log::book::MetaslabId;
use crate::{fragmentation, layout};
use rzfs_format::Txg;
use rzfs_format::units::SECTOR_SIZE;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// What allocated bytes count as with a deflate ratio.
const fn deflated(bytes: u64, ratio: u64) -> u64 {
    (bytes / SECTOR_SIZE).saturating_mul(ratio)
}

/// Percentage of dedup vdevs that tables may fill ...
const DEDUP_PERCENT: u64 = 85;
/// ... or all but this, if that is more.
const DEDUP_RESERVE: u64 = 8 << 30;
/// Txgs for which full dedup vdevs count as full.
const SPILL_TXGS: u64 = 5;

impl Allocator {
    /// Whether dedup tables may grow when their quota is automatic (spec 02, section 9.7).
    #[must_use]
    pub fn dedup_room(&self) -> DedupRoom {
        let topology = self.topology();
        let special = self.context.tunables.ddt_data_is_special.then_some(ClassKind::Special);
        let classes = [Some(ClassKind::Dedup), special].into_iter().flatten();
        let mut totals = classes.map(|class| topology.totals(class));
        let Some(totals) = totals.find(|totals| totals.space > 0) else { return DedupRoom::Left };
        let percent = totals.space / 100 * DEDUP_PERCENT;
        let limit = percent.max(totals.space.saturating_sub(DEDUP_RESERVE));
        let spill = self.context.dedup_spill().get();
        let was_full =
            spill > 0 && self.context.committed().get().saturating_sub(spill) < SPILL_TXGS;
        match totals.allocated >= limit || was_full {
            true => DedupRoom::Full,
            false => DedupRoom::Left,
        }
    }

    /// The space of the pool.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        let topology = self.topology();
        let mut usage = PoolUsage::default();
        for class in ClassKind::ALL {
            for member in topology.ring(class) {
                let totals = *member.group.totals.lock();
                if let Some(sum) = usage.classes.get_mut(class.index()) {
                    sum.add(totals);
                }
                let ratio = self.context.devices.deflate_ratio(member.group.vdev);
                let deflated = |bytes| deflated(bytes, ratio);
                match class {
                    ClassKind::Normal => {
                        if member.vdev.allocating == super::Allocating::Yes {
                            usage.normal_space += deflated(totals.space);
                        }
                    }
                    ClassKind::Special | ClassKind::Dedup => {
                        usage.special_allocated += deflated(totals.allocated);
                    }
                    ClassKind::EmbeddedLog => usage.embedded_log_space += deflated(totals.space),
                    ClassKind::Log => {}
                }
            }
        }
        usage.slop = layout::slop(usage.normal_space, usage.embedded_log_space);
        usage
    }

    /// The space of the vdevs that have metaslabs.
    #[must_use]
    pub fn vdev_usage(&self) -> Vec<VdevUsage> {
        let topology = self.topology();
        let of_vdev = topology.vdevs.iter().map(|(vdev, live)| {
            let mut totals = SpaceTotals::default();
            live.groups.iter().for_each(|group| totals.add(*group.totals.lock()));
            let parts = live.metaslabs.iter().map(|metaslab| {
                let state = metaslab.state.lock();
                (metaslab.fragmentation(&state), metaslab.free_bytes(&state))
            });
            VdevUsage { vdev: *vdev, totals, fragmentation: fragmentation::mean(parts) }
        });
        of_vdev.collect()
    }

    /// The logs as the last txg left them.
    #[must_use]
    pub fn log_status(&self) -> LogStatus {
        *self.log_status.lock()
    }

    pub(crate) fn publish(&self, books: &SyncBooks) {
        *self.log_status.lock() = LogStatus {
            logs: books.book.logs().count() as u64,
            blocks: books.book.blocks(),
            block_limit: books.book.block_limit(),
            dirty_metaslabs: books.book.dirty_metaslabs(),
            metaslabs: books.book.metaslab_count() as u64,
            unflushed_memory: books.unflushed_memory,
        };
    }

    /// Records that the feature of logs is active from now on.
    pub(crate) fn logs_became_active(&self) {
        let mut features = self.context.features.write();
        if features.logs == LogFeature::Enabled {
            features.logs = LogFeature::Active;
        }
    }

    pub(crate) fn take_arrivals(&self) -> BTreeSet<MetaslabId> {
        std::mem::take(&mut *self.arrivals.lock())
    }

    pub(crate) fn has_obsolete(&self) -> bool {
        !self.obsolete.lock().is_empty()
    }

    /// Whether frees of the ending txg are deferred: not if space is so short that waiting could
    /// keep the pool from freeing anything.
    pub(crate) fn deferral(&self, topology: &Topology) -> Deferral {
        let normal = topology.totals(ClassKind::Normal);
        if normal.free() <= self.usage().slop {
            return Deferral::None;
        }
        Deferral::TwoTxgs { held: self.holds.oldest() }
    }

    /// Re-evaluates which groups are avoided, and recomputes turns.
    pub(crate) fn assess_groups(&self) {
        let topology = self.topology();
        let tunables = &self.context.tunables;
        for class in ClassKind::ALL {
            let ring = topology.ring(class);
            for member in ring {
                let totals = *member.group.totals.lock();
                let low = u128::from(totals.free()) * 100
                    < u128::from(totals.space) * u128::from(tunables.mg_noalloc_threshold);
                let of_group =
                    member.vdev.metaslabs.iter().filter(|metaslab| metaslab.group.class == class);
                let fragmented = ring.len() > 1
                    && fragmentation::mean(of_group.map(|metaslab| {
                        let state = metaslab.state.lock();
                        (metaslab.fragmentation(&state), metaslab.free_bytes(&state))
                    }))
                    .is_some_and(|percent| percent > tunables.mg_fragmentation_threshold);
                member.group.avoided.store(low || fragmented, Ordering::Relaxed);
                member.group.full.store(false, Ordering::Relaxed);
            }
            self.share_turns(ring);
        }
    }

    fn share_turns(&self, ring: &[Member]) {
        let SpaceTunables { aliquot, bias_enabled, .. } = self.context.tunables;
        let sharing = if bias_enabled { Sharing::BySpace } else { Sharing::ByDisks };
        let stakes: Vec<_> = ring
            .iter()
            .map(|member| {
                let totals = *member.group.totals.lock();
                let disks = self.context.devices.data_disks(member.group.vdev).max(1);
                GroupWeight { space: totals.space, free: totals.free(), disks }
            })
            .collect();
        for (member, turn) in ring.iter().zip(rotor::turns(&stakes, aliquot, sharing)) {
            member.group.turn.store(turn, Ordering::Relaxed);
        }
    }

    /// Unloads metaslabs unused for some txgs, and counts the memory of the rest.
    pub(crate) fn unload_unused(&self, txg: Txg) {
        let topology = self.topology();
        let loaded: Vec<MetaslabId> = self.context.loaded.lock().iter().copied().collect();
        let mut bytes = 0;
        for metaslab in loaded.iter().filter_map(|id| topology.metaslab(*id)) {
            let (selected, memory) = {
                let state = metaslab.state.lock();
                (state.selected, state.free_memory())
            };
            let unused = txg.0 > selected.0.saturating_add(self.context.tunables.unload_delay);
            if !(unused && metaslab.unload(&self.context)) {
                bytes += memory;
            }
        }
        self.context.loaded_bytes.store(bytes, Ordering::Relaxed);
        self.unload_until(self.context.tunables.loaded_memory_limit());
    }

    /// Unloads metaslabs, the least recently used first, until the rest takes at most `limit` bytes
    /// or is in use.
    pub(crate) fn unload_until(&self, limit: u64) {
        if self.context.loaded_bytes.load(Ordering::Relaxed) <= limit {
            return;
        }
        let topology = self.topology();
        let loaded: Vec<MetaslabId> = self.context.loaded.lock().iter().copied().collect();
        let mut by_use: Vec<_> = loaded
            .iter()
            .filter_map(|id| topology.metaslab(*id))
            .map(|metaslab| (metaslab.state.lock().selected, metaslab))
            .collect();
        by_use.sort_by_key(|(selected, metaslab)| (*selected, metaslab.id));
        for (_, metaslab) in by_use {
            let memory = metaslab.state.lock().free_memory();
            if metaslab.unload(&self.context) {
                let before = self.context.loaded_bytes.fetch_sub(
                    memory.min(self.context.loaded_bytes.load(Ordering::Relaxed)),
                    Ordering::Relaxed,
                );
                if before.saturating_sub(memory) <= limit {
                    return;
                }
            }
        }
    }

    /// Loads the metaslabs likely to be used next, so that allocations do not wait: for a separate
    /// thread, after a txg.
    pub fn preload(&self) {
        let topology = self.topology();
        for member in ClassKind::ALL.iter().flat_map(|class| topology.ring(*class)) {
            for index in member.group.best(self.context.tunables.preload_limit) {
                let id = MetaslabId { vdev: member.group.vdev, index };
                let Some(metaslab) = topology.metaslab(id) else { continue };
                let mut state = metaslab.state.lock();
                metaslab.load(&mut state, &self.context);
            }
        }
    }
}

impl super::metaslab::State {
    /// Bytes of the free tree.
    fn free_memory(&self) -> u64 {
        match &self.free {
            FreeTree::Loaded(free) => free.segments().memory() as u64,
            _ => 0,
        }
    }
}
