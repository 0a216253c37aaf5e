//! The end of a txg: flush, labels, uberblock, labels (spec 01, section 3.7).
//!
//! ```text
//! flush    every leaf             the blocks of the txg are durable
//! L0, L2   leaves whose configuration changed; flush
//! ring     the uberblock, in all four labels of some or all leaves; flush      the txg is committed
//! L1, L3   as L0, L2; flush
//! ```
//! Before the uberblock is durable, L1 and L3 still match its predecessor; afterwards L0 and L2
//! match the new one. So at any moment the best uberblock has a pair of labels that is not younger.

use super::LabelError;
use super::blocks::{self, ConfigBlock};
use super::initial::LeafPlace;
use super::io::{self, LabelWrite};
use crate::error::LeafFailure;
use crate::health::LeafEvent;
use crate::read::is_gone;
use crate::tree::{NodeId, Vdev, VdevTree};
use crate::unconfirmed::{Refused, RunId};
use crate::write::{Durability, NotDurable};
use parking_lot::MutexGuard;
use rzfs_blockdev::{BlockDevice, DeviceError};
use rzfs_format::VdevId;
use rzfs_format::config::PoolConfig;
use rzfs_format::label::{CONFIG_OFFSET, LABELS, LabelIndex, LeafSize, Multihost, UberblockRing};
use rzfs_format::uberblock::Uberblock;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

/// Top-level vdevs that get the uberblock of a txg without configuration changes
/// (`SPA_SYNC_MIN_VDEVS`).
const MIN_VDEVS: usize = 3;

/// Leaves whose labels are written together; bounds the memory to 7 MiB.
const LEAVES_AT_ONCE: usize = 32;

/// The labels before and after the uberblock.
const EVEN: [usize; 2] = [0, 2];
const ODD: [usize; 2] = [1, 3];

/// A spare or cache device, which gets uberblocks when its pool is created.
#[derive(Clone, Debug)]
pub struct AuxiliaryDevice {
    /// log2 of its sector size, which gives the slots of its ring.
    pub ashift: u64,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

/// The contents of a commit.
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    /// The pool's entries in labels; txg, tree and number of vdevs are taken from the uberblock and
    /// the tree instead.
    pub pool: &'a PoolConfig,
    /// The uberblock.
    pub uberblock: &'a Uberblock,
    /// Whether the last ring slot is reserved for heartbeats.
    pub multihost: Multihost,
    /// Where the selection of vdevs starts when not all get the uberblock; any number.
    pub first_choice: u64,
    /// Devices outside the tree that also get the uberblock: those of a new pool.
    pub auxiliary: &'a [AuxiliaryDevice],
}

/// The results of a commit.
#[derive(Clone, Default, Debug)]
pub struct CommitReport {
    /// Top-level vdevs whose labels were rewritten.
    pub relabelled: BTreeSet<VdevId>,
    /// Copies of the uberblock that are durable.
    pub uberblocks: usize,
    /// Failed leaves that the commit does not depend on.
    pub failures: Vec<LeafFailure>,
}

/// Why a txg could not be committed. The same commit can be retried.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CommitError {
    /// A configuration cannot be written.
    #[error(transparent)]
    Label(#[from] LabelError),
    /// Too many leaves could not make the blocks of the txg durable. Nothing was committed.
    #[error("{name}: the blocks of txg {txg} are not durable: {source}")]
    Flush {
        /// Name of the top-level vdev.
        name: Arc<str>,
        /// The txg.
        txg: rzfs_format::Txg,
        /// The error of the last of these leaves.
        source: DeviceError,
    },
    /// No leaf of a top-level vdev has taken its new label. If `committed`, the uberblock is
    /// nevertheless durable.
    #[error("{name}: no label could be written: {}", describe(source.as_ref()))]
    Labels {
        /// Name of the top-level vdev.
        name: Arc<str>,
        /// Whether this was after the uberblock.
        committed: bool,
        /// The error of the last of its leaves, if there is one.
        source: Option<DeviceError>,
    },
    /// No leaf has taken the uberblock, as far as known.
    #[error("no uberblock could be written: {}", describe(source.as_ref()))]
    Uberblock {
        /// The error of the last leaf, if there is one.
        source: Option<DeviceError>,
    },
}

fn describe(error: Option<&DeviceError>) -> String {
    error.map_or_else(|| "no device is available".to_owned(), ToString::to_string)
}

/// The right to write labels and uberblocks during one txg.
///
/// It takes the marks of changed configurations ([`VdevTree::mark_config_dirty`]): later marks
/// belong to the next txg, unless [`Self::absorb`] takes them too. If it is dropped without a
/// successful commit, the marks are restored. Only one exists at a time; creating another one
/// waits.
#[derive(Debug)]
pub struct ConfigSync<'t> {
    tree: &'t VdevTree,
    dirty: BTreeSet<VdevId>,
    failures: Vec<LeafFailure>,
    _turn: MutexGuard<'t, ()>,
}

/// The result of a phase for one leaf.
struct LeafOutcome {
    leaf: NodeId,
    top: NodeId,
    /// What the leaf keeps until it is flushed.
    run: Option<RunId>,
    written: usize,
    /// The refused writes: whether enough was written is checked here.
    refused: Refused,
    error: Option<DeviceError>,
}

impl<'t> ConfigSync<'t> {
    /// Starts the commit of the syncing txg.
    #[must_use]
    pub fn begin(tree: &'t VdevTree) -> Self {
        let turn = tree.labels.turn.lock();
        let mut sync = Self { tree, dirty: BTreeSet::new(), failures: Vec::new(), _turn: turn };
        sync.absorb();
        sync
    }

    /// The vdevs whose labels it writes: those of the pool in this txg.
    #[must_use]
    pub const fn tree(&self) -> &'t VdevTree {
        self.tree
    }

    /// Takes marks set meanwhile. Returns whether there were any: then the configuration in the MOS
    /// has to be rewritten in this txg.
    pub fn absorb(&mut self) -> bool {
        let new = std::mem::take(&mut *self.tree.labels.dirty.lock());
        let has_new = !new.is_empty();
        self.dirty.extend(new);
        has_new
    }

    /// Top-level vdevs whose labels this txg rewrites. If there are any, the configuration in the
    /// MOS must be written in this txg too.
    #[must_use]
    pub const fn dirty(&self) -> &BTreeSet<VdevId> {
        &self.dirty
    }

    /// Commits the txg: makes its blocks durable and then the uberblock and the labels.
    ///
    /// # Errors
    /// [`CommitError`]; the pool must be suspended, and the commit can be retried.
    pub fn commit(&mut self, commit: &Commit<'_>) -> Result<CommitReport, CommitError> {
        let labels = self.encode(commit)?;
        self.flush_blocks(commit)?;
        self.write_labels(&labels, EVEN, false)?;
        let uberblocks = self.write_uberblocks(commit)?;
        self.write_labels(&labels, ODD, true)?;
        Ok(CommitReport {
            relabelled: std::mem::take(&mut self.dirty),
            uberblocks,
            failures: std::mem::take(&mut self.failures),
        })
    }

    /// The labels of all leaves that get new ones.
    fn encode(&self, commit: &Commit<'_>) -> Result<Vec<(NodeId, ConfigBlock)>, LabelError> {
        let pool = PoolConfig { txg: commit.uberblock.txg, ..commit.pool.clone() };
        let mut labels = Vec::new();
        for top in self.dirty.iter().filter_map(|vdev| self.tree.top_level(*vdev)) {
            for leaf in self.usable_leaves(top) {
                let config = self.tree.label_config(&pool, top, LeafPlace::of(leaf), None)?;
                labels.push((leaf.node_id(), ConfigBlock::new(leaf.guid(), &config)?));
            }
        }
        Ok(labels)
    }

    fn usable_leaves(&self, top: Vdev<'t>) -> impl Iterator<Item = Vdev<'t>> + use<'t> {
        let tree = self.tree;
        let is_usable =
            move |leaf: &Vdev<'_>| tree.leaf(leaf.node_id()).is_some_and(|l| l.is_usable());
        top.leaves_below().into_iter().filter(is_usable)
    }

    /// Makes the blocks of the txg durable. A leaf that cannot lacks them; if that affects too many
    /// leaves, the uberblock must not be written.
    fn flush_blocks(&mut self, commit: &Commit<'_>) -> Result<(), CommitError> {
        let txg = commit.uberblock.txg;
        let _span = tracing::debug_span!("flush").entered();
        match self.tree.make_durable(Durability::Txg(txg)) {
            Ok(mut failures) => {
                self.failures.append(&mut failures);
                Ok(())
            }
            Err(NotDurable { name, source, mut failures }) => {
                self.failures.append(&mut failures);
                Err(CommitError::Flush { name, txg, source })
            }
        }
    }

    /// Writes the configurations to two of the four labels of each leaf, durably. Every top-level
    /// vdev except log vdevs needs one successful leaf.
    fn write_labels(
        &mut self,
        labels: &[(NodeId, ConfigBlock)],
        which: [usize; 2],
        committed: bool,
    ) -> Result<(), CommitError> {
        let _span = tracing::debug_span!("labels", committed, count = labels.len()).entered();
        let mut outcomes = Vec::with_capacity(labels.len());
        for batch in labels.chunks(LEAVES_AT_ONCE) {
            let parts = batch.iter().map(|(leaf, config)| {
                let config = |offset: u64| config.at(offset);
                (*leaf, LabelParts { part: CONFIG_OFFSET, which: &which, block: config })
            });
            outcomes.extend(self.write_parts(parts));
        }
        for vdev in self.dirty.clone() {
            let Some(top) = self.tree.top_node(vdev) else { continue };
            let mine = || outcomes.iter().filter(|outcome| outcome.top == top);
            if mine().any(|outcome| outcome.written > 0) || self.tree.node(top).is_log() {
                continue;
            }
            let name = self.tree.node(top).name.clone();
            let source = mine().filter_map(|outcome| outcome.error.clone()).next_back();
            return Err(CommitError::Labels { name, committed, source });
        }
        Ok(())
    }

    /// Writes the uberblock: to all vdevs if configurations have changed, else to some.
    fn write_uberblocks(&mut self, commit: &Commit<'_>) -> Result<usize, CommitError> {
        let _span = tracing::debug_span!("uberblock").entered();
        self.write_auxiliary_uberblocks(commit);
        let all: Vec<Vdev<'t>> =
            self.tree.top_levels().filter(|top| self.tree.has_labels(top.node_id())).collect();
        let mut last = None;
        if self.dirty.is_empty() {
            let some = choose(&all, commit.first_choice);
            let (good, error) = self.write_uberblocks_to(&some, commit);
            if good > 0 {
                return Ok(good);
            }
            last = error;
        }
        let (good, error) = self.write_uberblocks_to(&all, commit);
        if good > 0 { Ok(good) } else { Err(CommitError::Uberblock { source: error.or(last) }) }
    }

    /// Writes the uberblock to these vdevs. Returns the number of durable copies on readable vdevs,
    /// and the last error.
    fn write_uberblocks_to(
        &mut self,
        tops: &[Vdev<'t>],
        commit: &Commit<'_>,
    ) -> (usize, Option<DeviceError>) {
        const ALL: [usize; LABELS] = [0, 1, 2, 3];
        let mut good = 0usize;
        let mut last = None;
        for top in tops {
            let ring = UberblockRing::of_ashift(u64::from(top.ashift().unwrap_or(0)));
            let part = ring.slot_offset(blocks::slot_of(commit.uberblock, ring, commit.multihost));
            let block = |offset: u64| blocks::slot(commit.uberblock, ring, offset);
            let leaves: Vec<NodeId> = self.usable_leaves(*top).map(Vdev::node_id).collect();
            for leaf in leaves.iter().filter_map(|leaf| self.tree.leaf(*leaf)) {
                leaf.note_sent(commit.uberblock);
            }
            let parts =
                leaves.into_iter().map(|leaf| (leaf, LabelParts { part, which: &ALL, block }));
            let outcomes = self.write_parts(parts);
            for outcome in outcomes.iter().filter(|outcome| outcome.written > 0) {
                if let Some(leaf) = self.tree.leaf(outcome.leaf) {
                    leaf.note_committed(commit.uberblock.txg);
                }
            }
            if top.has_metaslabs() {
                good += outcomes.iter().map(|outcome| outcome.written).sum::<usize>();
            }
            last = outcomes.into_iter().filter_map(|outcome| outcome.error).next_back().or(last);
        }
        (good, last)
    }

    /// Nothing depends on the uberblocks of spares and cache devices.
    fn write_auxiliary_uberblocks(&self, commit: &Commit<'_>) {
        let mut writes = Vec::new();
        for AuxiliaryDevice { ashift, device } in commit.auxiliary {
            let Some(size) = LeafSize::of_device(device.geometry().size) else { continue };
            let ring = UberblockRing::of_ashift(*ashift);
            let part = ring.slot_offset(blocks::slot_of(commit.uberblock, ring, commit.multihost));
            for label in LabelIndex::ALL {
                let offset = size.label_offset(label).saturating_add(part);
                let block = blocks::slot(commit.uberblock, ring, offset);
                writes.push(LabelWrite { device, offset, block });
            }
        }
        let _ = io::write(writes);
    }

    /// Writes parts of labels and flushes the leaves involved.
    fn write_parts<'p, B>(
        &mut self,
        parts: impl Iterator<Item = (NodeId, LabelParts<'p, B>)>,
    ) -> Vec<LeafOutcome>
    where
        B: Fn(u64) -> std::io::Result<bytes::Bytes>,
    {
        let tree = self.tree;
        let device = |leaf| tree.leaf(leaf)?.usable_device();
        let parts: Vec<_> =
            parts.filter_map(|(leaf, parts)| Some((leaf, parts, device(leaf)?))).collect();
        let mut writes = Vec::new();
        let mut owners = Vec::new();
        let mut outcomes: Vec<LeafOutcome> = Vec::new();
        for (leaf, parts, device) in &parts {
            let leaf = *leaf;
            let Some(size) = LeafSize::of_device(device.geometry().size) else { continue };
            let first = writes.len();
            let labels = LabelIndex::ALL.into_iter();
            for label in labels.filter(|label| parts.which.contains(&usize::from(label.get()))) {
                let offset = size.label_offset(label).saturating_add(parts.part);
                writes.push(LabelWrite { device, offset, block: (parts.block)(offset) });
                owners.push((outcomes.len(), offset));
            }
            let run = tree.leaf(leaf).map(|state| {
                let run = state.unconfirmed().begin();
                let parts = writes.iter().skip(first);
                state.unconfirmed().keep(run, parts.filter_map(LabelWrite::to_keep));
                run
            });
            let top = tree.top_of(leaf);
            let refused = Refused::default();
            outcomes.push(LeafOutcome { leaf, top, run, written: 0, refused, error: None });
        }
        for ((owner, offset), answer) in owners.into_iter().zip(io::write(writes)) {
            let Some(outcome) = outcomes.get_mut(owner) else { continue };
            match answer {
                Ok(()) => outcome.written += 1,
                Err(error) => {
                    outcome.refused.forgotten.insert(offset);
                    outcome.error = Some(error);
                }
            }
        }
        for LeafOutcome { leaf, run, refused, error, .. } in &mut outcomes {
            if let (Some(state), Some(run)) = (tree.leaf(*leaf), run) {
                state.unconfirmed().end(*run, std::mem::take(refused));
            }
            if let Some(error) = error {
                self.blame(*leaf, error);
            }
        }
        let leaves = outcomes.iter().map(|outcome| outcome.leaf).collect();
        for (leaf, answer) in tree.flush_usable(leaves) {
            let Some(outcome) = outcomes.iter_mut().find(|outcome| outcome.leaf == leaf) else {
                continue;
            };
            if let Err(error) = answer {
                self.failures
                    .push(LeafFailure { leaf: tree.node(leaf).guid, error: error.clone() });
                outcome.written = 0;
                outcome.error = Some(error);
            }
        }
        outcomes
    }

    /// Counts an error of a leaf and checks whether it still works.
    fn blame(&mut self, leaf: NodeId, error: &DeviceError) {
        let node = self.tree.node(leaf);
        self.failures.push(LeafFailure { leaf: node.guid, error: error.clone() });
        if error.source.kind() == ErrorKind::OutOfMemory {
            return;
        }
        node.counters.count_write_error();
        self.tree.doubt_log(leaf);
        if is_gone(error) {
            self.tree.transition(leaf, LeafEvent::Vanished);
        } else {
            self.tree.probe(leaf);
        }
    }
}

/// A part of some labels of one leaf.
struct LabelParts<'p, B> {
    /// Offset in the label.
    part: u64,
    which: &'p [usize],
    /// The block for a byte offset on the leaf.
    block: B,
}

impl Drop for ConfigSync<'_> {
    fn drop(&mut self) {
        if !self.dirty.is_empty() {
            self.tree.labels.dirty.lock().append(&mut self.dirty);
        }
    }
}

/// A few top-level vdevs for an uberblock, from a position on: those with metaslabs, except log
/// vdevs.
fn choose<'t>(all: &[Vdev<'t>], first: u64) -> Vec<Vdev<'t>> {
    let is_chosen = |top: &&Vdev<'t>| top.has_metaslabs() && !top.is_log();
    let first = usize::try_from(first % all.len().max(1) as u64).unwrap_or(0);
    let (before, after) = all.split_at_checked(first).unwrap_or((all, &[]));
    after.iter().chain(before).filter(is_chosen).take(MIN_VDEVS).copied().collect()
}
