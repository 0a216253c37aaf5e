//! Leaf writes: sorted, adjacent ones joined, a few at a time on each leaf.

use crate::error::VdevError;
use crate::health::LeafEvent;
use crate::leaf::{Leaf, not_open};
use crate::read::is_gone;
use crate::tree::{NodeId, VdevTree};
use crate::unconfirmed::{KeptWrite, Refused, RunId, Standing, limit_of_leaf};
use bytes::Bytes;
use rzfs_blockdev::{
    Batch, BlockDevice, CompletionQueue, DeviceError, IoBuffer, IoOperation, IoRequest,
    submit_awaited,
};
use rzfs_format::Txg;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::ErrorKind;
use std::sync::Arc;

/// Size below which copying is cheaper than another piece of a request.
const SHORT: usize = 16 << 10;

/// The caller of a batch of writes, which determines how many of them a leaf has at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteClass {
    /// A waiting caller: the intent log.
    Sync,
    /// The syncing txg.
    Async,
}

/// A leaf's part of a block.
#[derive(Clone, Debug)]
pub(super) struct LeafWrite {
    /// The block.
    pub(super) task: usize,
    /// Its column.
    pub(super) column: usize,
    pub(super) leaf: NodeId,
    /// Byte position on the device.
    pub(super) position: u64,
    pub(super) data: Bytes,
    /// The block's birth.
    pub(super) birth: Txg,
}

/// One request to a device: one or more writes without gaps.
#[derive(Debug)]
struct Span {
    leaf: NodeId,
    members: Vec<LeafWrite>,
    attempt: Attempt,
}

/// A failed write is retried once, at the same place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    First,
    Second,
}

/// The writes of a batch.
pub(super) struct WriteQueue<'t> {
    tree: &'t VdevTree,
    waiting: Vec<LeafWrite>,
    /// Unsent writes of each leaf, by position.
    pending: BTreeMap<NodeId, LeafQueue>,
    /// Maximum concurrent requests of a leaf.
    max_active: usize,
    in_flight: HashMap<u64, Span>,
    next_token: u64,
    completions: Arc<CompletionQueue>,
    failed: Vec<(LeafWrite, VdevError)>,
    suspects: Vec<NodeId>,
}

/// The requests of one leaf.
#[derive(Default)]
struct LeafQueue {
    spans: VecDeque<Span>,
    active: usize,
    /// The run that the leaf keeps until it is flushed.
    run: Option<RunId>,
}

impl<'t> WriteQueue<'t> {
    pub(super) fn new(tree: &'t VdevTree, class: WriteClass) -> Self {
        let tunables = tree.tunables();
        let max_active = match class {
            WriteClass::Sync => tunables.sync_write_max_active,
            WriteClass::Async => tunables.async_write_max_active,
        };
        Self {
            tree,
            waiting: Vec::new(),
            pending: BTreeMap::new(),
            max_active: max_active.max(1),
            in_flight: HashMap::new(),
            next_token: 0,
            completions: CompletionQueue::new(),
            failed: Vec::new(),
            suspects: Vec::new(),
        }
    }

    pub(super) fn extend(&mut self, writes: impl Iterator<Item = LeafWrite>) {
        self.waiting.extend(writes);
    }

    /// Sends everything, waits for it, and returns the failed writes. Leaves keep all of it until
    /// [`Self::end`].
    pub(super) fn run(&mut self) -> Vec<(LeafWrite, VdevError)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|write| (write.leaf, write.position));
        for span in join(waiting, |leaf| self.limit(leaf)) {
            self.pending.entry(span.leaf).or_default().spans.push_back(span);
        }
        let mut leaves: Vec<NodeId> = self.pending.keys().copied().collect();
        loop {
            let batches = leaves.drain(..).filter_map(|leaf| self.batch(leaf)).collect();
            submit_awaited(batches, self.in_flight.len(), &self.completions);
            if self.in_flight.is_empty() {
                break;
            }
            for completion in self.completions.wait_many() {
                let Some(span) = self.in_flight.remove(&completion.token) else { continue };
                leaves.push(span.leaf);
                let queue = self.pending.entry(span.leaf).or_default();
                queue.active = queue.active.saturating_sub(1);
                match completion.result {
                    Ok(_) => {
                        let bytes = span.members.iter().map(|write| write.data.len() as u64).sum();
                        self.tree.node(span.leaf).counters.count_write(bytes);
                    }
                    // One bad sector must not fail its neighbours: each is written on its own.
                    Err(error) if span.attempt == Attempt::First && !is_gone(&error) => {
                        self.tree.doubt_log(span.leaf);
                        for write in span.members.into_iter().rev() {
                            let (leaf, attempt) = (write.leaf, Attempt::Second);
                            queue.spans.push_front(Span { leaf, members: vec![write], attempt });
                        }
                    }
                    Err(error) => self.fail(span, &error),
                }
            }
            leaves.sort_unstable();
            leaves.dedup();
        }
        for leaf in std::mem::take(&mut self.suspects) {
            self.tree.probe(leaf);
        }
        std::mem::take(&mut self.failed)
    }

    /// Disposes of failed writes: leaves owe those of blocks that can be read without them. Others
    /// are retried by their callers, or dropped. Flushes leaves that keep too much; what they then
    /// still keep is dropped where the vdev can do without.
    pub(super) fn end(
        mut self,
        failed: &[(LeafWrite, VdevError)],
        is_written: impl Fn(usize) -> bool,
    ) {
        let mut refused: BTreeMap<NodeId, Refused> = BTreeMap::new();
        for (write, _) in failed {
            let Refused { owed, forgotten } = refused.entry(write.leaf).or_default();
            let positions = if is_written(write.task) { owed } else { forgotten };
            positions.insert(write.position);
        }
        let limit = limit_of_leaf(self.tree.leaves().count(), self.tree.tunables().unconfirmed_max);
        let mut full = Vec::new();
        for (id, queue) in &mut self.pending {
            let Some(leaf) = self.tree.leaf(*id) else { continue };
            let refused = refused.remove(id).unwrap_or_default();
            let lacking = match queue.run.take() {
                Some(run) => leaf.unconfirmed().end(run, refused),
                None => refused.owed,
            };
            let lacks = |write: &&LeafWrite| write.leaf == *id && lacking.contains(&write.position);
            let lacking = failed.iter().map(|(write, _)| write).filter(lacks);
            self.tree.do_without(*id, lacking.map(LeafWrite::to_keep).collect());
            if leaf.is_usable() && leaf.unconfirmed().wants_flush(limit) {
                full.push(*id);
            }
        }
        self.tree.flush_usable(full);
        self.pending.into_keys().for_each(|id| self.tree.relieve(id));
    }

    /// Maximum size of joined writes.
    fn limit(&self, leaf: NodeId) -> usize {
        let tunables = self.tree.tunables();
        if self.tree.leaf(leaf).is_some_and(Leaf::is_rotational) {
            tunables.aggregation_limit
        } else {
            tunables.aggregation_limit_non_rotating
        }
    }

    /// The next batch for a leaf: as many requests as it may have at a time.
    fn batch(&mut self, leaf: NodeId) -> Option<Batch<Arc<dyn BlockDevice>>> {
        let mut batch = Vec::new();
        let mut kept = Vec::new();
        while let Some(queue) = self.pending.get_mut(&leaf)
            && queue.active < self.max_active
            && let Some(span) = queue.spans.pop_front()
        {
            let state = self.tree.leaf(leaf);
            let has_device = state.is_some_and(Leaf::is_usable);
            let operation = if has_device { span.operation() } else { Err(not_open()) };
            let may_get_it = has_device || state.is_some_and(|l| !l.unconfirmed().is_resigned());
            if span.attempt == Attempt::First && may_get_it {
                kept.extend(span.members.iter().map(LeafWrite::to_keep));
            }
            match operation {
                Ok(operation) => {
                    queue.active += 1;
                    let (token, offset) = (self.next_token, span.position());
                    self.next_token += 1;
                    batch.push(IoRequest { token, offset, operation });
                    self.in_flight.insert(token, span);
                }
                Err(source) => {
                    let error = self.error(&span, source);
                    self.fail(span, &error);
                }
            }
        }
        let state = self.tree.leaf(leaf)?;
        if let Some(queue) = self.pending.get_mut(&leaf)
            && !kept.is_empty()
        {
            let run = *queue.run.get_or_insert_with(|| state.unconfirmed().begin());
            state.unconfirmed().keep(run, kept);
        }
        // Whatever happened to the leaf meanwhile, its device responds, or it has none any longer.
        let device = state.device();
        if device.is_none() {
            self.abandon(leaf, &batch);
        }
        device.filter(|_| !batch.is_empty()).map(|device| (device, batch))
    }

    /// Fails requests without a device.
    fn abandon(&mut self, leaf: NodeId, batch: &[IoRequest]) {
        for request in batch {
            let Some(span) = self.in_flight.remove(&request.token) else { continue };
            if let Some(queue) = self.pending.get_mut(&leaf) {
                queue.active = queue.active.saturating_sub(1);
            }
            let error = self.error(&span, not_open());
            self.fail(span, &error);
        }
    }

    fn error(&self, span: &Span, source: std::io::Error) -> DeviceError {
        DeviceError {
            device: self.tree.node(span.leaf).name.clone(),
            operation: "write",
            offset: span.position(),
            len: span.members.iter().map(|write| write.data.len() as u64).sum(),
            source: Arc::new(source),
        }
    }

    /// Records failed writes, and updates the leaf accordingly.
    fn fail(&mut self, span: Span, error: &DeviceError) {
        let node = self.tree.node(span.leaf);
        if let Some(leaf) = self.tree.leaf(span.leaf)
            && leaf.is_usable()
            && error.source.kind() != ErrorKind::OutOfMemory
        {
            node.counters.count_write_error();
            self.tree.doubt_log(span.leaf);
            if is_gone(error) {
                self.tree.transition(span.leaf, LeafEvent::Vanished);
            } else if !self.suspects.contains(&span.leaf) {
                self.suspects.push(span.leaf);
            }
        }
        let (name, guid) = (node.name.clone(), node.guid);
        let error = VdevError::Io { name, guid, source: error.clone() };
        self.failed.extend(span.members.into_iter().map(|write| (write, error.clone())));
    }
}

impl Span {
    fn position(&self) -> u64 {
        self.members.first().map_or(0, |write| write.position)
    }

    fn end(&self) -> u64 {
        self.members.last().map_or(0, LeafWrite::end)
    }

    /// The request to the device. Long members stay in place; adjacent short ones are copied
    /// together, which is cheaper than passing each of them.
    fn operation(&self) -> std::io::Result<IoOperation> {
        if let [only] = self.members.as_slice() {
            return Ok(IoOperation::Write(only.data.clone()));
        }
        let mut pieces = Vec::new();
        let is_short = |write: &LeafWrite| write.data.len() < SHORT;
        for run in self.members.chunk_by(|a, b| is_short(a) && is_short(b)) {
            pieces.push(match run {
                [only] => only.data.clone(),
                run => joined(run)?,
            });
        }
        Ok(match <[Bytes; 1]>::try_from(pieces) {
            Ok([only]) => IoOperation::Write(only),
            Err(pieces) => IoOperation::Gather(pieces),
        })
    }
}

/// The bytes of adjacent writes, in one piece.
fn joined(writes: &[LeafWrite]) -> std::io::Result<Bytes> {
    let len = writes.iter().map(|write| write.data.len()).sum();
    let mut buffer = IoBuffer::zeroed(len)?;
    let mut rest = &mut buffer[..];
    for write in writes {
        let (now, later) = rest.split_at_mut(write.data.len());
        now.copy_from_slice(&write.data);
        rest = later;
    }
    Ok(buffer.freeze())
}

impl LeafWrite {
    fn to_keep(&self) -> KeptWrite {
        let Self { position, birth, .. } = *self;
        let (data, birth) = (self.data.clone(), Some(birth));
        KeptWrite { position, data, birth, standing: Standing::Sent }
    }

    fn end(&self) -> u64 {
        self.position.saturating_add(self.data.len() as u64)
    }
}

/// Joins adjacent writes of a leaf, sorted by leaf and position.
fn join(writes: Vec<LeafWrite>, limit: impl Fn(NodeId) -> usize) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::with_capacity(writes.len());
    for write in writes {
        if let Some(span) = spans.last_mut()
            && span.leaf == write.leaf
            && span.end() == write.position
            && write.end() - span.position() <= limit(span.leaf) as u64
        {
            span.members.push(write);
            continue;
        }
        let (leaf, attempt) = (write.leaf, Attempt::First);
        spans.push(Span { leaf, members: vec![write], attempt });
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_without_gaps_and_within_the_limit() {
        let write = |position, len| LeafWrite {
            task: 0,
            column: 0,
            leaf: NodeId::ROOT,
            position,
            data: Bytes::from(vec![position as u8; len]),
            birth: Txg(4),
        };
        let writes = [(0, 10), (10, 20), (31, 5), (36, 60), (96, 50), (200, 150)];
        let writes = writes.into_iter().map(|(position, len)| write(position, len)).collect();
        let spans = join(writes, |_| 100);
        let shape: Vec<_> =
            spans.iter().map(|s| (s.position(), s.end(), s.members.len())).collect();
        assert_eq!(shape, [(0, 30, 2), (31, 96, 2), (96, 146, 1), (200, 350, 1)]);
        let IoOperation::Write(bytes) = spans[0].operation().unwrap() else {
            panic!("short writes are one piece");
        };
        assert_eq!(bytes, [vec![0; 10], vec![10; 20]].concat());
    }

    #[test]
    fn long_members_are_not_copied() {
        let write = |position: u64, len: usize| LeafWrite {
            task: 0,
            column: 0,
            leaf: NodeId::ROOT,
            position,
            data: Bytes::from(vec![position as u8; len]),
            birth: Txg(4),
        };
        let members = vec![write(0, SHORT), write(1, 512), write(2, 512), write(3, SHORT + 1)];
        let originals: Vec<Bytes> = members.iter().map(|member| member.data.clone()).collect();
        let IoOperation::Gather(pieces) =
            (Span { leaf: NodeId::ROOT, members, attempt: Attempt::First }).operation().unwrap()
        else {
            panic!("not one piece");
        };
        assert_eq!(pieces.concat(), originals.concat());
        let lens: Vec<usize> = pieces.iter().map(Bytes::len).collect();
        assert_eq!(lens, [SHORT, 1024, SHORT + 1]);
        assert_eq!(pieces[0].as_ptr(), originals[0].as_ptr());
        assert_eq!(pieces[2].as_ptr(), originals[3].as_ptr());
    }
}
