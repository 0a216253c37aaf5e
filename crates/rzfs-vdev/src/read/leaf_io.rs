//! Leaf reads: adjacent ones are joined, sent together, and returned separately.

use crate::health::LeafEvent;
use crate::leaf::{Leaf, not_open};
use crate::tree::{NodeId, VdevTree};
use bytes::Bytes;
use rzfs_blockdev::{
    Batch, BlockDevice, CompletionQueue, DeviceError, IoBuffer, IoOperation, IoRequest,
    submit_awaited,
};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;

/// Linux's errno values of a missing device.
const GONE: [i32; 2] = [6, 19];

/// Whether an error means that the device is gone.
pub(crate) fn is_gone(error: &DeviceError) -> bool {
    error.source.kind() == ErrorKind::NotFound
        || error.source.raw_os_error().is_some_and(|errno| GONE.contains(&errno))
}

/// A range of a leaf that a task needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafRead {
    /// The task.
    pub(crate) task: usize,
    /// The task's column.
    pub(crate) column: usize,
    /// The copy of the column.
    pub(crate) copy: usize,
    pub(crate) leaf: NodeId,
    /// Byte position on the device.
    pub(crate) position: u64,
    pub(crate) len: usize,
    /// Whether it may be joined with others; not after it has failed when joined.
    pub(crate) joinable: bool,
    pub(crate) fate: Fate,
    /// Whether a failure is an error of the leaf.
    pub(crate) blame: Blame,
}

/// What the task does with the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It copies them into the block.
    Copied,
    /// They are the block: the caller may keep them for long.
    Kept,
}

/// Who is to blame when a read fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blame {
    /// The leaf's.
    Leaf,
    /// Nobody: the data may be missing by design.
    Nobody,
}

impl LeafRead {
    fn end(&self) -> u64 {
        self.position.saturating_add(self.len as u64)
    }
}

/// The result of a [`LeafRead`].
pub(crate) type Outcome = Result<Bytes, DeviceError>;

/// One request to a device: one or more reads.
struct Span {
    leaf: NodeId,
    position: u64,
    len: usize,
    members: Vec<LeafRead>,
}

/// The reads of a batch.
pub(crate) struct LeafQueue<'t> {
    tree: &'t VdevTree,
    waiting: Vec<LeafRead>,
    in_flight: HashMap<u64, Span>,
    next_token: u64,
    completions: Arc<CompletionQueue>,
    suspects: Vec<NodeId>,
}

impl<'t> LeafQueue<'t> {
    pub(crate) fn new(tree: &'t VdevTree) -> Self {
        Self {
            tree,
            waiting: Vec::new(),
            in_flight: HashMap::new(),
            next_token: 0,
            completions: CompletionQueue::new(),
            suspects: Vec::new(),
        }
    }

    /// Adds a read, to be sent with all others added before [`Self::next`].
    pub(crate) fn push(&mut self, read: LeafRead) {
        if let Some(leaf) = self.tree.leaf(read.leaf) {
            leaf.begin(read.position, read.len as u64);
        }
        self.waiting.push(read);
    }

    /// Sends queued reads and returns the next finished ones; `None` when there are none left.
    pub(crate) fn next(&mut self) -> Option<Vec<(LeafRead, Outcome)>> {
        loop {
            let mut finished = self.send();
            if finished.is_empty() && self.in_flight.is_empty() {
                return None;
            }
            if finished.is_empty() {
                for completion in self.completions.wait_many() {
                    if let Some(span) = self.in_flight.remove(&completion.token) {
                        finished.extend(self.complete(span, completion.result));
                    }
                }
            }
            if !finished.is_empty() {
                return Some(finished);
            }
        }
    }

    /// Sends queued reads. Returns those that cannot be sent.
    fn send(&mut self) -> Vec<(LeafRead, Outcome)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_unstable_by_key(|read| (read.leaf, read.position));
        let mut failed = Vec::new();
        let mut batches = Vec::new();
        let mut rest = waiting.as_slice();
        while let Some(first) = rest.first() {
            let same = rest.partition_point(|read| read.leaf <= first.leaf);
            let (own, others) = rest.split_at(same);
            rest = others;
            batches.extend(self.batch(first.leaf, own, &mut failed));
        }
        submit_awaited(batches, self.in_flight.len(), &self.completions);
        failed
    }

    /// The next requests to a leaf; reads that cannot be sent to it count as failed.
    fn batch(
        &mut self,
        id: NodeId,
        reads: &[LeafRead],
        failed: &mut Vec<(LeafRead, Outcome)>,
    ) -> Option<Batch<Arc<dyn BlockDevice>>> {
        let tree = self.tree;
        let leaf = tree.leaf(id);
        let device = leaf.and_then(Leaf::usable_device);
        let mut requests = Vec::new();
        for span in join(reads, limits(tree, leaf)) {
            let buffer = match &device {
                Some(device) => device.buffer(span.len),
                None => Err(not_open()),
            };
            match buffer {
                Ok(buffer) => {
                    let token = self.next_token;
                    self.next_token += 1;
                    requests.push(IoRequest {
                        token,
                        offset: span.position,
                        operation: IoOperation::Read(buffer),
                    });
                    self.in_flight.insert(token, span);
                }
                Err(error) => {
                    let error = DeviceError {
                        device: tree.node(id).name.clone(),
                        operation: "read",
                        offset: span.position,
                        len: span.len as u64,
                        source: Arc::new(error),
                    };
                    failed.extend(self.fail(span.members, &error));
                }
            }
        }
        device.map(|device| (device, requests))
    }

    fn complete(
        &mut self,
        span: Span,
        result: Result<Option<IoBuffer>, DeviceError>,
    ) -> Vec<(LeafRead, Outcome)> {
        let short = |len: usize| DeviceError {
            device: self.tree.node(span.leaf).name.clone(),
            operation: "read",
            offset: span.position,
            len: len as u64,
            source: Arc::new(ErrorKind::UnexpectedEof.into()),
        };
        let buffer = result.and_then(|buffer| {
            buffer.filter(|buffer| buffer.len() >= span.len).ok_or_else(|| short(span.len))
        });
        match buffer {
            Ok(buffer) => {
                self.tree.node(span.leaf).counters.count_read(span.len as u64);
                let data = buffer.freeze();
                let joined = span.members.len() > 1;
                let members = span.members.into_iter();
                members
                    .map(|read| {
                        self.end(&read);
                        let start = read.position.saturating_sub(span.position) as usize;
                        let part = start..start.saturating_add(read.len);
                        // A part that is kept must not keep the whole joined buffer alive.
                        let part = match data.get(part.clone()) {
                            Some(bytes) if joined && read.fate == Fate::Kept => {
                                Ok(Bytes::copy_from_slice(bytes))
                            }
                            Some(_) => Ok(data.slice(part)),
                            None => Err(short(read.len)),
                        };
                        (read, part)
                    })
                    .collect()
            }
            Err(_) if span.members.len() > 1 => {
                // One bad sector must not fail its neighbours: each is read on its own.
                for mut read in span.members {
                    read.joinable = false;
                    self.waiting.push(read);
                }
                Vec::new()
            }
            Err(error) => self.fail(span.members, &error),
        }
    }

    /// Fails reads with an error, and updates the leaf accordingly.
    fn fail(&mut self, reads: Vec<LeafRead>, error: &DeviceError) -> Vec<(LeafRead, Outcome)> {
        for read in &reads {
            self.end(read);
            let Some(leaf) = self.tree.leaf(read.leaf) else { continue };
            if !leaf.is_usable() || error.source.kind() == ErrorKind::OutOfMemory {
                continue;
            }
            if read.blame == Blame::Leaf {
                self.tree.node(read.leaf).counters.count_read_error();
            }
            if is_gone(error) {
                self.tree.transition(read.leaf, LeafEvent::Vanished);
            } else if !self.suspects.contains(&read.leaf) {
                self.suspects.push(read.leaf);
            }
        }
        reads.into_iter().map(|read| (read, Err(error.clone()))).collect()
    }

    fn end(&self, read: &LeafRead) {
        if let Some(leaf) = self.tree.leaf(read.leaf) {
            leaf.end();
        }
    }

    /// Probes the leaves that had errors.
    pub(crate) fn probe_suspects(self) {
        for leaf in self.suspects {
            self.tree.probe(leaf);
        }
    }
}

/// How far reads may be joined.
#[derive(Clone, Copy)]
struct Limits {
    span: usize,
    gap: u64,
}

fn limits(tree: &VdevTree, leaf: Option<&Leaf>) -> Limits {
    let tunables = tree.tunables();
    let span = if leaf.is_some_and(Leaf::is_rotational) {
        tunables.aggregation_limit
    } else {
        tunables.aggregation_limit_non_rotating
    };
    Limits { span, gap: tunables.read_gap_limit as u64 }
}

/// Joins neighbouring reads of one leaf, sorted by position (spec 07, section 20).
fn join(reads: &[LeafRead], limits: Limits) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::with_capacity(reads.len());
    for &read in reads {
        if let Some(span) = spans.last_mut()
            && let Some(len) = joined_len(span, &read, limits)
        {
            span.len = len;
            span.members.push(read);
            continue;
        }
        spans.push(Span {
            leaf: read.leaf,
            position: read.position,
            len: read.len,
            members: vec![read],
        });
    }
    spans
}

/// The length of the span with one more read, if they may be joined.
fn joined_len(span: &Span, read: &LeafRead, limits: Limits) -> Option<usize> {
    let end = span.position.saturating_add(span.len as u64);
    let gap = read.position.saturating_sub(end);
    let len = usize::try_from(read.end().max(end).saturating_sub(span.position)).ok()?;
    let joinable = read.joinable && span.members.iter().all(|member| member.joinable);
    (joinable && gap <= limits.gap && len <= limits.span).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(reads: &[(u64, usize)]) -> Vec<(u64, usize, usize)> {
        let reads: Vec<LeafRead> = reads
            .iter()
            .map(|(position, len)| LeafRead {
                task: 0,
                column: 0,
                copy: 0,
                leaf: NodeId::ROOT,
                position: *position,
                len: *len,
                joinable: *len != 7,
                fate: Fate::Copied,
                blame: Blame::Leaf,
            })
            .collect();
        let spans = join(&reads, Limits { span: 100, gap: 10 });
        spans.iter().map(|span| (span.position, span.len, span.members.len())).collect()
    }

    #[test]
    fn neighbours_are_joined_within_the_limits() {
        assert_eq!(spans(&[(0, 50), (50, 50)]), [(0, 100, 2)]);
        assert_eq!(spans(&[(0, 50), (50, 51)]), [(0, 50, 1), (50, 51, 1)]);
        assert_eq!(spans(&[(0, 20), (30, 20)]), [(0, 50, 2)]);
        assert_eq!(spans(&[(0, 20), (31, 20)]), [(0, 20, 1), (31, 20, 1)]);
        assert_eq!(spans(&[(0, 40), (0, 40), (10, 10)]), [(0, 40, 3)]);
        assert_eq!(spans(&[(0, 20), (20, 7), (27, 20)]), [(0, 20, 1), (20, 7, 1), (27, 20, 1)]);
        assert_eq!(spans(&[(0, 400), (400, 10)]), [(0, 400, 1), (400, 10, 1)]);
    }
}
