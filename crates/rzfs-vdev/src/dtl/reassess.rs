//! What logs of leaves mean for the vdevs above, and how they shrink (spec 07, sections 5.1, 5.5
//! and 5.6).

use super::TxgSet;
use crate::tree::{NodeId, Role, Vdev, VdevTree};
use rzfs_format::{Guid, Txg};

/// The first txg of every pool.
const INITIAL: Txg = Txg(4);

/// Txgs that can be under way at once: open, quiescing, syncing.
const CONCURRENT: u64 = 3;

/// Dirty time logs of a vdev.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct DirtyTimes {
    /// Txgs with data that it lacks.
    pub missing: TxgSet,
    /// Txgs with data that is not everywhere below it where it should be.
    pub partial: TxgSet,
    /// Txgs with data that cannot be read from it now.
    pub outage: TxgSet,
}

/// What has brought missing data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resilvered {
    /// A scan of all blocks: of all vdevs.
    Healing,
    /// A sequential rebuild of one top-level vdev, the vdev's guid.
    Rebuild(Guid),
}

/// Which leaves are taken for readable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Readable {
    /// Those that are.
    Usable,
    /// Those that are, but for one.
    UsableBut(NodeId),
    /// The same when the others have got what they have not confirmed yet: it is in memory.
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
    /// The logs of a vdev if these leaves can be read.
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

    /// Whether data would be lost to readers if this leaf could not be read (spec 07, section 5.6).
    pub(crate) fn is_needed(&self, id: NodeId) -> bool {
        !self.dirty_times(self.top_of(id), Readable::UsableBut(id)).outage.is_empty()
    }

    /// Whether data would be lost if this leaf were never there again: what the others have not
    /// confirmed they can be sent again.
    pub(crate) fn is_needed_for_good(&self, id: NodeId) -> bool {
        !self.dirty_times(self.top_of(id), Readable::SettledBut(id)).outage.is_empty()
    }

    /// Leaves that are missed: the others of their top-level vdevs can be used without them, but
    /// lack data that these have. What log devices have is for the intent logs to say.
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

    /// Leaves that cannot be used, of top-level vdevs that can and are not for intent logs.
    #[must_use]
    pub fn absent_leaves(&self) -> Vec<Vdev<'_>> {
        self.unusable_leaves(|top| top.health().is_usable() && !top.is_log())
    }

    fn unusable_leaves(&self, is_meant: impl Fn(&Vdev<'_>) -> bool) -> Vec<Vdev<'_>> {
        let leaves = self.top_levels().filter(is_meant).flat_map(Vdev::leaves_below);
        leaves.filter(|leaf| !leaf.health().is_usable()).collect()
    }

    /// Notes that a leaf begins without any data, in `txg`: it was attached or replaces another.
    /// Returns whether there is such a leaf.
    pub fn begin_resilver(&self, leaf: Guid, txg: Txg) -> bool {
        let Some(log) = self.dirty_time_log(leaf) else { return false };
        log.load(TxgSet::new());
        log.add_range(INITIAL, Txg(txg.get().saturating_add(CONCURRENT)));
        self.change(leaf, |config| config.leaf.resilver_txg = Some(txg))
    }

    /// Notes that a leaf lacks what was born in a half-open range of txgs. Returns whether there
    /// is such a leaf.
    pub fn add_missing_txgs(&self, leaf: Guid, start: Txg, end: Txg) -> bool {
        let log = self.dirty_time_log(leaf);
        log.inspect(|log| log.add_range(start, end)).is_some()
    }

    /// Notes that a scan could not repair something on a leaf that was born in `txg`. Returns
    /// whether there is such a leaf.
    pub fn add_unrepaired_txg(&self, leaf: Guid, txg: Txg) -> bool {
        let log = self.dirty_time_log(leaf);
        log.inspect(|log| log.add_scrub(txg)).is_some()
    }

    /// What a resilver has to look at: the first and the end of all txgs that usable leaves lack;
    /// `None` if they lack nothing.
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

    /// Takes out of the logs what a scan or rebuild has brought that ended without an error and
    /// covered everything before `end` (spec 07, section 5.5). Leaves that asked for a resilver after
    /// it had begun keep their logs.
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

    /// Whether the pool cannot do without this leaf: some data can be read only with it.
    #[must_use]
    pub fn is_required(self) -> bool {
        self.tree().is_needed(self.node_id())
    }
}
