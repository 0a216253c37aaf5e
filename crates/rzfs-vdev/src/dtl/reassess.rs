//! Deriving the logs of interior vdevs, and removing entries (spec 07, sections 5.1, 5.5 and 5.6).

use super::TxgSet;
use crate::tree::{NodeId, Role, Vdev, VdevTree};
use rzfs_format::{Guid, Txg};

/// The first txg of every pool.
const INITIAL: Txg = Txg(4);

/// Maximum number of concurrent txgs: open, quiescing, syncing.
const CONCURRENT: u64 = 3;

/// Dirty time logs of a vdev.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct DirtyTimes {
    /// Txgs with data that is missing.
    pub missing: TxgSet,
    /// Txgs with data missing on some descendant.
    pub partial: TxgSet,
    /// Txgs with data that cannot be read now.
    pub outage: TxgSet,
}

/// How missing data was restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resilvered {
    /// A scan of all blocks, on all vdevs.
    Healing,
    /// A sequential rebuild of one top-level vdev, the vdev's guid.
    Rebuild(Guid),
}

/// Which leaves count as readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Readable {
    /// Usable ones.
    Usable,
    /// Usable ones, except for one.
    UsableBut(NodeId),
    /// The same, once the others have everything they have not confirmed yet, which is in memory.
    SettledBut(NodeId),
    /// All of them.
    All,
}

impl Readable {
    fn has(self, leaf: NodeId, is_usable: bool) -> bool {
        match self {
            Self::Usable => is_usable,
            Self::UsableBut(absent) | Self::SettledBut(absent) => is_usable && leaf != absent,
            Self::All => true,
        }
    }

    const fn counts_debts(self) -> bool {
        !matches!(self, Self::SettledBut(_))
    }
}

impl VdevTree {
    /// The logs of a vdev, assuming these leaves are readable.
    fn dirty_times(&self, id: NodeId, readable: Readable) -> DirtyTimes {
        let node = self.node(id);
        let leaf = |missing: TxgSet, is_usable: bool| DirtyTimes {
            partial: missing.clone(),
            outage: if readable.has(id, is_usable) { missing.clone() } else { TxgSet::all() },
            missing,
        };
        let needed = match &node.role {
            Role::Device(state) => {
                let mut missing = state.missing().assumed();
                if readable.counts_debts() {
                    let debts = state.unconfirmed().debts();
                    debts.into_iter().for_each(|birth| missing.insert(birth));
                }
                return leaf(missing, state.health().is_usable());
            }
            Role::DistributedSpare(spare) => {
                return leaf(spare.missing.assumed(), self.node_health(id).is_usable());
            }
            Role::Indirect(_) | Role::Empty => return DirtyTimes::default(),
            Role::Mirrored => node.children.len(),
            Role::Raidz(geometry) => geometry.parity().saturating_add(1),
            Role::Draid(geometry) => geometry.shape().parity.saturating_add(1),
            Role::Root => 1,
        };
        let children: Vec<DirtyTimes> =
            node.children.iter().map(|child| self.dirty_times(*child, readable)).collect();
        let outages: Vec<TxgSet> = children.iter().map(|child| child.outage.clone()).collect();
        let partials: Vec<TxgSet> = children.into_iter().map(|child| child.partial).collect();
        let outage = TxgSet::in_at_least(needed, &outages);
        DirtyTimes { missing: outage.clone(), partial: TxgSet::in_at_least(1, &partials), outage }
    }

    /// Whether readers would lose data if this leaf could not be read (spec 07, section 5.6).
    pub(crate) fn is_needed(&self, id: NodeId) -> bool {
        !self.dirty_times(self.top_of(id), Readable::UsableBut(id)).outage.is_empty()
    }

    /// Whether data would be lost if this leaf never came back: unconfirmed writes of the others
    /// can be repeated.
    pub(crate) fn is_needed_for_good(&self, id: NodeId) -> bool {
        !self.dirty_times(self.top_of(id), Readable::SettledBut(id)).outage.is_empty()
    }

    /// Missing leaves with data that others lack: their top-level vdevs are usable without them.
    /// Log devices are checked with the intent logs.
    #[must_use]
    pub fn missed_leaves(&self) -> Vec<Vdev<'_>> {
        let misses = |top: &Vdev<'_>| {
            let outage = |readable| self.dirty_times(top.node_id(), readable).outage;
            top.health().is_usable()
                && !top.is_log()
                && outage(Readable::Usable) != outage(Readable::All)
        };
        self.unusable_leaves(misses)
    }

    /// Unusable leaves of usable top-level vdevs, except for log vdevs.
    #[must_use]
    pub fn absent_leaves(&self) -> Vec<Vdev<'_>> {
        self.unusable_leaves(|top| top.health().is_usable() && !top.is_log())
    }

    /// Unusable leaves of unusable top-level vdevs, except for log vdevs: what the pool lacks.
    #[must_use]
    pub fn missing_leaves(&self) -> Vec<Vdev<'_>> {
        self.unusable_leaves(|top| !top.health().is_usable() && !top.is_log())
    }

    fn unusable_leaves(&self, is_meant: impl Fn(&Vdev<'_>) -> bool) -> Vec<Vdev<'_>> {
        let leaves = self.top_levels().filter(is_meant).flat_map(Vdev::leaves_below);
        leaves.filter(|leaf| !leaf.health().is_usable()).collect()
    }

    /// Records that a leaf starts empty in `txg`: it was attached or replaces another. Returns
    /// whether the leaf exists.
    pub fn begin_resilver(&self, leaf: Guid, txg: Txg) -> bool {
        let Some(log) = self.dirty_time_log(leaf) else { return false };
        log.load(TxgSet::new());
        log.add_range(INITIAL, Txg(txg.get().saturating_add(CONCURRENT)));
        self.change(leaf, |config| config.leaf.resilver_txg = Some(txg))
    }

    /// Records that a leaf lacks what was born in a half-open range of txgs. Returns whether the
    /// leaf exists.
    pub fn add_missing_txgs(&self, leaf: Guid, start: Txg, end: Txg) -> bool {
        let log = self.dirty_time_log(leaf);
        log.inspect(|log| log.add_range(start, end)).is_some()
    }

    /// Records that a scan could not repair something on a leaf that was born in `txg`. Returns
    /// whether the leaf exists.
    pub fn add_unrepaired_txg(&self, leaf: Guid, txg: Txg) -> bool {
        let log = self.dirty_time_log(leaf);
        log.inspect(|log| log.add_scrub(txg)).is_some()
    }

    /// The range a resilver has to examine: the first and the end of all txgs that usable leaves
    /// lack; `None` if they lack nothing.
    #[must_use]
    pub fn resilver_range(&self) -> Option<(Txg, Txg)> {
        let mut range: Option<(Txg, Txg)> = None;
        for leaf in self.leaves().filter(|leaf| leaf.health().is_usable()) {
            let missing = leaf.missing_txgs().unwrap_or_default();
            let (Some(first), Some(last)) = (missing.first(), missing.last()) else { continue };
            let end = last.next();
            range = Some(match range {
                None => (first, end),
                Some((least, most)) => (least.min(first), most.max(end)),
            });
        }
        range
    }

    /// Removes from the logs what was restored by a scan or rebuild that ended without an error and
    /// covered everything before `end` (spec 07, section 5.5). Leaves that requested a resilver
    /// after it had started keep their logs.
    pub fn excise_dirty_times(&self, by: Resilvered, end: Txg) {
        for leaf in self.vdevs().filter(|vdev| self.dirty_time_log(vdev.guid()).is_some()) {
            let config = leaf.own_config();
            let requested = match by {
                Resilvered::Healing => config.leaf.resilver_txg,
                Resilvered::Rebuild(top)
                    if leaf.top_level().is_some_and(|own| own.guid() == top) =>
                {
                    config.leaf.rebuild_txg
                }
                Resilvered::Rebuild(_) => continue,
            };
            let Some(missing) = leaf.missing_txgs() else { continue };
            let is_usable = leaf.health().is_usable() && !config.flags.resilver_deferred;
            let is_covered = requested.is_none() || missing.last().is_none_or(|last| last < end);
            let Some(log) = self.dirty_time_log(leaf.guid()).filter(|_| is_usable && is_covered)
            else {
                continue;
            };
            if log.excise(end) && leaf.dirty_times().outage.is_empty() {
                self.change(leaf.guid(), |config| match by {
                    Resilvered::Healing => config.leaf.resilver_txg = None,
                    Resilvered::Rebuild(_) => config.leaf.rebuild_txg = None,
                });
            }
        }
    }
}

impl Vdev<'_> {
    /// Its dirty time logs, derived from those of the leaves below it and from their states.
    #[must_use]
    pub fn dirty_times(self) -> DirtyTimes {
        self.tree().dirty_times(self.node_id(), Readable::Usable)
    }

    /// Whether this leaf is required: some data can only be read with it.
    #[must_use]
    pub fn is_required(self) -> bool {
        self.tree().is_needed(self.node_id())
    }
}
