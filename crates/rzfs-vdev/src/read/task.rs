//! The read of one block, from its plan to its bytes.

use super::assembly::{Lookup, assemble, concatenate, expected_parity, place, place_of, rebuild};
use super::leaf_io::{Blame, Fate, LeafQueue, LeafRead, Outcome, is_gone};
use super::request::{BlockRead, Finding, FindingKind, Scrubbed};
use super::search::{Combinations, Selections};
use crate::error::VdevError;
use crate::plan::{LeafCopy, Plan};
use crate::stripe::Stripe;
use crate::tree::{NodeId, Vdev, VdevTree};
use bytes::Bytes;
use rzfs_blockdev::DeviceError;

/// Why a block is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// For its contents.
    Read,
    /// To find out whether it exists, like the next block of an intent log; if not, that is no
    /// error.
    Speculative,
    /// To check all of it.
    Scrub,
}

impl Purpose {
    /// Who is to blame for what such a read does not find.
    const fn blame(self) -> Blame {
        match self {
            Self::Read | Self::Scrub => Blame::Leaf,
            Self::Speculative => Blame::Nobody,
        }
    }
}

/// What a task does next.
pub(super) enum Step {
    /// It is waiting for leaf reads.
    Waiting,
    /// It is done.
    Finished(Scrubbed),
}

/// How much is read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    /// One good copy of everything required.
    Needed,
    /// Everything stored.
    All,
}

/// One copy of a column that was read.
struct Version {
    data: Bytes,
    copy: usize,
}

/// The progress of reading a column.
#[derive(Default)]
struct ColumnRead {
    /// Copies requested so far, in order.
    issued: usize,
    pending: usize,
    versions: Vec<Version>,
}

/// A range that a leaf failed to return.
struct Fault {
    leaf: NodeId,
    len: usize,
    error: DeviceError,
}

/// The read of one block.
pub(super) struct Task<'t> {
    tree: &'t VdevTree,
    index: usize,
    read: BlockRead<'t>,
    plan: Plan,
    /// What to try when the plan yields nothing.
    other_plans: std::vec::IntoIter<Plan>,
    purpose: Purpose,
    depth: Depth,
    columns: Vec<ColumnRead>,
    pending: usize,
    attempts: u64,
    faults: Vec<Fault>,
    /// Whether this is the second attempt after device errors.
    retrying: bool,
    /// Whether the block is gone and its space possibly reused.
    is_overtaken: bool,
    /// The block.
    found: Option<Bytes>,
    /// Errors found with earlier plans.
    findings: Vec<Finding>,
}

impl<'t> Task<'t> {
    pub(super) fn new(
        tree: &'t VdevTree,
        index: usize,
        read: BlockRead<'t>,
        plans: Vec<Plan>,
        purpose: Purpose,
    ) -> Option<Self> {
        let mut plans = plans.into_iter();
        let plan = plans.next()?;
        let columns = plan.columns.iter().map(|_| ColumnRead::default()).collect();
        let depth = Self::first_depth(purpose);
        Some(Self {
            tree,
            index,
            read,
            plan,
            other_plans: plans,
            purpose,
            depth,
            columns,
            pending: 0,
            attempts: 0,
            faults: Vec::new(),
            retrying: false,
            is_overtaken: false,
            found: None,
            findings: Vec::new(),
        })
    }

    fn first_depth(purpose: Purpose) -> Depth {
        if purpose == Purpose::Scrub { Depth::All } else { Depth::Needed }
    }

    /// Accepts the result of a requested read.
    pub(super) fn accept(&mut self, read: LeafRead, outcome: Outcome) {
        self.pending = self.pending.saturating_sub(1);
        let Some(column) = self.columns.get_mut(read.column) else { return };
        column.pending = column.pending.saturating_sub(1);
        match outcome {
            Ok(data) => column.versions.push(Version { data, copy: read.copy }),
            Err(error) => self.faults.push(Fault { leaf: read.leaf, len: read.len, error }),
        }
    }

    /// Continues as far as possible without waiting.
    pub(super) fn step(&mut self, queue: &mut LeafQueue<'_>) -> Step {
        loop {
            if self.pending > 0 {
                return Step::Waiting;
            }
            let block = match self.depth {
                Depth::Needed => self.with_what_is_needed(queue),
                Depth::All => self.with_all_there_is(queue),
            };
            if self.pending > 0 {
                return Step::Waiting;
            }
            if let Some(block) = block.or_else(|| self.recall()) {
                self.succeed(block);
                if self.purpose != Purpose::Scrub || self.is_overtaken || !self.next_plan() {
                    return Step::Finished(self.finish());
                }
            } else if self.has_been_overtaken() {
                return Step::Finished(self.finish());
            } else if self.depth == Depth::Needed {
                self.depth = Depth::All;
            } else if !self.faults.is_empty() && !self.retrying {
                // Device errors can be temporary: retry everything, each read on its own.
                self.retrying = true;
                self.start();
            } else {
                self.fail();
                if !self.next_plan() {
                    return Step::Finished(self.finish());
                }
            }
        }
    }

    /// Continues with another plan, if there is one.
    fn next_plan(&mut self) -> bool {
        let Some(plan) = self.other_plans.next() else { return false };
        self.plan = plan;
        self.retrying = false;
        self.start();
        true
    }

    /// Drops what was read.
    fn start(&mut self) {
        self.depth = Self::first_depth(self.purpose);
        self.faults.clear();
        self.columns = self.plan.columns.iter().map(|_| ColumnRead::default()).collect();
    }

    /// Requests the next copy of a column. With [`Depth::Needed`] skips those on leaves known to
    /// lack the block.
    fn ask(&mut self, index: usize, queue: &mut LeafQueue<'_>) -> bool {
        let (Some(state), Some(column)) =
            (self.columns.get_mut(index), self.plan.columns.get(index))
        else {
            return false;
        };
        let Some(copy) = self.plan.copies(index).get(state.issued) else { return false };
        if copy.stale && self.depth == Depth::Needed {
            return false;
        }
        let filler = if self.purpose == Purpose::Scrub { column.filler } else { 0 };
        queue.push(LeafRead {
            task: self.index,
            column: index,
            copy: state.issued,
            leaf: copy.leaf,
            position: copy.position,
            len: column.len.saturating_add(filler),
            joinable: !self.retrying,
            fate: if self.plan.is_one_column() { Fate::Kept } else { Fate::Copied },
            blame: self.purpose.blame(),
        });
        state.issued += 1;
        state.pending += 1;
        self.pending += 1;
        true
    }

    /// Requests what is missing for every data column or enough parity; tries the result if nothing
    /// is.
    fn with_what_is_needed(&mut self, queue: &mut LeafQueue<'_>) -> Option<Bytes> {
        let mut enough = true;
        for index in 0..self.plan.stripes.len() {
            let Some(stripe) = self.plan.stripes.get(index).cloned() else { continue };
            enough &= self.ask_for_stripe(&stripe, queue);
        }
        if !enough || self.pending > 0 { None } else { self.try_first_versions() }
    }

    /// Returns whether the stripe is available or requested.
    fn ask_for_stripe(&mut self, stripe: &Stripe, queue: &mut LeafQueue<'_>) -> bool {
        let mut missing = 0;
        for index in stripe.data_columns() {
            let is_empty = self.plan.columns.get(index).is_none_or(|column| column.len == 0);
            if !is_empty && !self.has(index) && !self.ask(index, queue) {
                missing += 1;
            }
        }
        for index in stripe.parity_columns() {
            if missing == 0 {
                break;
            }
            if self.has(index) || self.ask(index, queue) {
                missing -= 1;
            }
        }
        missing == 0
    }

    fn has(&self, index: usize) -> bool {
        self.columns.get(index).is_some_and(|column| !column.versions.is_empty())
    }

    /// Reads everything, then tries everything. The copies of a contiguous block are read and tried
    /// one after another: most probably the next one is good.
    fn with_all_there_is(&mut self, queue: &mut LeafQueue<'_>) -> Option<Bytes> {
        if self.plan.single_column() && self.purpose != Purpose::Scrub {
            let found = self.try_latest_version();
            if found.is_none() {
                self.ask(0, queue);
            }
            return found;
        }
        for index in 0..self.columns.len() {
            while self.ask(index, queue) {}
        }
        if self.pending > 0 { None } else { self.search() }
    }

    /// As a last resort, uses unconfirmed writes of leaves, which these may have lost.
    fn recall(&mut self) -> Option<Bytes> {
        if self.depth == Depth::Needed {
            return None;
        }
        let mut is_any = false;
        for (index, state) in self.columns.iter_mut().enumerate() {
            let len = self.plan.columns.get(index).map_or(0, |column| column.len);
            for (number, copy) in self.plan.copies(index).iter().enumerate() {
                let Some(leaf) = self.tree.leaf(copy.leaf) else { continue };
                let range = copy.position..copy.position.saturating_add(len as u64);
                let there = state.versions.iter().find(|version| version.copy == number);
                let there = there.and_then(|version| version.data.get(..len));
                if let Some(data) = leaf.unconfirmed().recall(&range, there) {
                    state.versions.push(Version { data, copy: number });
                    is_any = true;
                }
            }
        }
        if is_any { self.search() } else { None }
    }

    fn accepts(&mut self, block: &[u8]) -> bool {
        self.attempts += 1;
        let size = self.read.size as usize;
        block.get(..size).is_some_and(|block| self.read.verify.is_block(block))
    }

    /// Whether something else was found because the block is gone. Its space was reassigned before
    /// the data now there was written.
    fn has_been_overtaken(&mut self) -> bool {
        self.is_overtaken |= self.attempts > 0 && !self.read.verify.is_expected();
        self.is_overtaken
    }

    /// Tries the copy that was read last.
    fn try_latest_version(&mut self) -> Option<Bytes> {
        let data = self.columns.first()?.versions.last()?.data.clone();
        self.accepts(&data).then_some(data)
    }

    /// Tries the first version of every column.
    fn try_first_versions(&mut self) -> Option<Bytes> {
        let selection = vec![0; self.columns.len()];
        let block = self.assemble(&selection)?;
        self.accepts(&block).then_some(block)
    }

    fn version(&self, index: usize, selection: &[usize]) -> Option<&[u8]> {
        let version = *selection.get(index)?;
        Some(&self.columns.get(index)?.versions.get(version)?.data)
    }

    /// The block with these versions of its columns. A block of one data column is that column's
    /// buffer itself.
    fn assemble(&self, selection: &[usize]) -> Option<Bytes> {
        if self.plan.is_one_column()
            && let Some(stripe) = self.plan.stripes.first()
        {
            let index = stripe.data_columns().start;
            let version = *selection.get(index)?;
            if let Some(version) = self.columns.get(index)?.versions.get(version) {
                return Some(version.data.slice(..self.plan.padded.min(version.data.len())));
            }
        }
        let lookup: Lookup<'_, '_> = &|index| self.version(index, selection);
        if let Some(block) = concatenate(&self.plan, lookup) {
            return Some(Bytes::from(block));
        }
        let mut block = vec![0; self.plan.padded];
        assemble(&self.plan, lookup, &mut block).then(|| Bytes::from(block))
    }

    /// Tries every combination of copies, and of columns assumed bad (spec 07, sections 9.3 and
    /// 13.4).
    fn search(&mut self) -> Option<Bytes> {
        let tunables = *self.tree.tunables();
        let suspects = self.plan.suspects();
        let mut left = tunables.reconstruct_parity_combinations_max;
        for bad in 0..=self.plan.max_parity() {
            let versions: Vec<usize> =
                self.columns.iter().map(|column| column.versions.len()).collect();
            let selections = Selections::new(versions.into_iter());
            let limit = tunables.reconstruct_indirect_combinations_max;
            for selection in selections.take(usize::try_from(limit).unwrap_or(usize::MAX)) {
                let base = self.assemble(&selection)?;
                if bad == 0 {
                    if self.accepts(&base) {
                        return Some(base);
                    }
                    continue;
                }
                let mut block = base.to_vec();
                for set in Combinations::new(suspects.len(), bad) {
                    left = left.checked_sub(1)?;
                    let sets = set.iter().filter_map(|index| suspects.get(*index));
                    let erased: Vec<usize> = sets.flatten().copied().collect();
                    if self.try_without(&erased, &selection, &mut block) {
                        return Some(Bytes::from(block));
                    }
                }
            }
        }
        None
    }

    /// Tries the block with some columns reconstructed instead of read. If that fails, `block` is
    /// restored.
    fn try_without(&mut self, erased: &[usize], selection: &[usize], block: &mut [u8]) -> bool {
        let changed: Vec<Stripe> = self
            .plan
            .stripes
            .iter()
            .filter(|stripe| self.is_changed(stripe, erased))
            .cloned()
            .collect();
        if changed.is_empty() {
            return false;
        }
        let remaining = |index| {
            if erased.contains(&index) { None } else { self.version(index, selection) }
        };
        let rebuilt = changed.iter().all(|stripe| rebuild(&self.plan, stripe, &remaining, block));
        if rebuilt && self.accepts(block) {
            return true;
        }
        let all = |index| self.version(index, selection);
        for stripe in &changed {
            for index in stripe.data_columns().filter(|index| erased.contains(index)) {
                if let Some(data) = all(index) {
                    place(&self.plan, index, data, block);
                }
            }
            rebuild(&self.plan, stripe, &all, block);
        }
        false
    }

    /// Whether omitting these columns changes a stripe: when one of them is data, or parity used
    /// for reconstruction.
    fn is_changed(&self, stripe: &Stripe, erased: &[usize]) -> bool {
        let data = stripe.data_columns();
        let is_content = |index: &usize| self.plan.columns.get(*index).is_some_and(|c| c.len > 0);
        let reconstructs = data.clone().any(|index| is_content(&index) && !self.has(index));
        erased.iter().any(|index| {
            (data.contains(index) && is_content(index))
                || (reconstructs && stripe.parity_columns().contains(index))
        })
    }

    fn succeed(&mut self, block: Bytes) {
        self.findings.extend(self.unreadable());
        if self.depth == Depth::All {
            let wrong = self.wrong_versions(&block);
            if !wrong.is_empty() && !self.has_been_overtaken() {
                self.blame(wrong.iter().map(|(copy, _)| copy));
                let wrong: Vec<Finding> = wrong.into_iter().map(|it| self.finding(it)).collect();
                self.findings.extend(wrong);
            }
        }
        let size = (self.read.size as usize).min(block.len());
        self.found.get_or_insert(block.slice(..size));
    }

    fn unreadable(&self) -> Vec<Finding> {
        let finding = |fault: &Fault| Finding {
            leaf: self.tree.node(fault.leaf).guid,
            position: fault.error.offset,
            len: fault.len,
            kind: FindingKind::Unreadable(fault.error.clone()),
        };
        self.faults.iter().map(finding).collect()
    }

    /// Compares everything that was read with the right contents: returns the wrong copies with
    /// their lengths.
    fn wrong_versions(&self, block: &[u8]) -> Vec<(LeafCopy, usize)> {
        let mut wrong = Vec::new();
        for stripe in &self.plan.stripes {
            for index in stripe.data_columns() {
                let mut place = place_of(&self.plan, index);
                // Data after the block in its last sector is in no checksum.
                place.end = place.end.min(self.read.size as usize).max(place.start);
                let Some(expected) = block.get(place) else { continue };
                let len = self.plan.columns.get(index).map_or(0, |column| column.len);
                self.compare(index, &mut wrong, |data| {
                    let filler = data.get(len..).unwrap_or_default();
                    data.get(..expected.len()) == Some(expected) && filler.iter().all(|b| *b == 0)
                });
            }
            if stripe.parity_columns().any(|index| self.has(index)) {
                let expected = expected_parity(&self.plan, stripe, block);
                for (index, expected) in stripe.parity_columns().zip(expected) {
                    self.compare(index, &mut wrong, |data| data == expected);
                }
            }
        }
        wrong
    }

    fn finding(&self, (copy, len): (LeafCopy, usize)) -> Finding {
        Finding {
            leaf: self.tree.node(copy.leaf).guid,
            position: copy.position,
            len,
            kind: FindingKind::Wrong,
        }
    }

    /// Adds the wrong versions of a column, with their lengths.
    fn compare(
        &self,
        index: usize,
        wrong: &mut Vec<(LeafCopy, usize)>,
        is_right: impl Fn(&[u8]) -> bool,
    ) {
        let Some(column) = self.columns.get(index) else { return };
        for version in column.versions.iter().filter(|version| !is_right(&version.data)) {
            if let Some(copy) = self.plan.copies(index).get(version.copy) {
                wrong.push((*copy, version.data.len()));
            }
        }
    }

    /// Counts one checksum error on each of these leaves, however many parts of the block it has.
    /// One that is known to lack the block is not at fault.
    fn blame<'c>(&self, copies: impl Iterator<Item = &'c LeafCopy>) {
        let mut leaves: Vec<NodeId> =
            copies.filter(|copy| !copy.stale).map(|copy| copy.leaf).collect();
        leaves.sort_unstable();
        leaves.dedup();
        for leaf in leaves {
            self.tree.node(leaf).counters.count_checksum_error();
        }
    }

    /// Records that the plan failed.
    fn fail(&mut self) {
        self.findings.extend(self.unreadable());
        if self.purpose.blame() == Blame::Leaf && self.attempts > 0 {
            self.blame_all();
        }
    }

    /// The block, or the worst error.
    fn finish(&mut self) -> Scrubbed {
        let findings = std::mem::take(&mut self.findings);
        if let Some(block) = self.found.take() {
            return Scrubbed { data: Ok(block), findings };
        }
        let dva = self.read.dva;
        let top = self.tree.node(self.tree.top_node(dva.vdev()).unwrap_or(NodeId::ROOT));
        let (name, guid, offset) = (top.name.clone(), top.guid, dva.offset());
        let fault = self.faults.iter().find(|fault| !is_gone(&fault.error));
        let error = if self.is_overtaken {
            VdevError::Overtaken { name, guid, offset }
        } else if let Some(Fault { leaf, error, .. }) = fault {
            let leaf = self.tree.node(*leaf);
            let (name, guid) = (leaf.name.clone(), leaf.guid);
            VdevError::Io { name, guid, source: error.clone() }
        } else if self.attempts > 0 {
            let absent = self.absent_leaves();
            VdevError::Checksum { name, guid, offset, attempts: self.attempts, absent }
        } else {
            VdevError::Unavailable { name, guid, offset }
        };
        // A leaf that is a top-level vdev has counted already.
        if self.purpose.blame() == Blame::Leaf && !top.children.is_empty() {
            match &error {
                VdevError::Io { .. } => top.counters.count_read_error(),
                VdevError::Checksum { .. } => top.counters.count_checksum_error(),
                _ => {}
            }
        }
        Scrubbed { data: Err(error), findings }
    }

    /// The currently unavailable leaves of the vdev.
    fn absent_leaves(&self) -> usize {
        let top = self.tree.top_level(self.read.dva.vdev());
        let leaves = top.map(Vdev::leaves_below).unwrap_or_default();
        let is_absent =
            |leaf: &&Vdev<'_>| self.tree.leaf(leaf.id).is_none_or(|leaf| !leaf.is_usable());
        leaves.iter().filter(is_absent).count()
    }

    /// It is unknown who is wrong: counts an error for everybody who responded.
    fn blame_all(&self) {
        let answers = self.columns.iter().enumerate().flat_map(|(index, column)| {
            let copies = self.plan.copies(index);
            column.versions.iter().filter_map(|version| copies.get(version.copy))
        });
        self.blame(answers);
    }
}
