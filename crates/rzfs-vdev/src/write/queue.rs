//! Writes of leaves: sorted, joined where they are neighbours, sent together.

use crate::error::VdevError;
use crate::health::LeafEvent;
use crate::leaf::Leaf;
use crate::read::is_gone;
use crate::tree::{NodeId, VdevTree};
use bytes::Bytes;
use rzfs_blockdev::{CompletionQueue, DeviceError, IoBuffer, IoOperation, IoRequest};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::sync::Arc;

/// What a leaf is to have of a block.
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
}

/// One request to a device: one or more writes without gaps.
#[derive(Debug)]
struct Span {
    leaf: NodeId,
    members: Vec<LeafWrite>,
}

/// The writes of a batch.
pub(super) struct WriteQueue<'t> {
    tree: &'t VdevTree,
    waiting: Vec<LeafWrite>,
    in_flight: HashMap<u64, Span>,
    next_token: u64,
    completions: Arc<CompletionQueue>,
    failed: Vec<(LeafWrite, VdevError)>,
    suspects: Vec<NodeId>,
}

impl<'t> WriteQueue<'t> {
    pub(super) fn new(tree: &'t VdevTree) -> Self {
        Self {
            tree,
            waiting: Vec::new(),
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

    /// Sends everything, waits for it, and returns what has failed.
    pub(super) fn run(mut self) -> Vec<(LeafWrite, VdevError)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|write| (write.leaf, write.position));
        let spans = join(waiting, |leaf| self.limit(leaf));
        self.send(spans);
        while !self.in_flight.is_empty() {
            for completion in self.completions.wait_many() {
                let Some(span) = self.in_flight.remove(&completion.token) else { continue };
                match completion.result {
                    Ok(_) => {
                        let bytes = span.members.iter().map(|write| write.data.len() as u64).sum();
                        self.tree.node(span.leaf).counters.count_write(bytes);
                    }
                    // One bad sector must not take its neighbours along: each on its own.
                    Err(error) if span.members.len() > 1 && !is_gone(&error) => {
                        let alone =
                            |write: LeafWrite| Span { leaf: write.leaf, members: vec![write] };
                        self.send(span.members.into_iter().map(alone).collect());
                    }
                    Err(error) => self.fail(span, &error),
                }
            }
        }
        for leaf in std::mem::take(&mut self.suspects) {
            self.tree.probe(leaf);
        }
        self.failed
    }

    /// How long joined writes may become.
    fn limit(&self, leaf: NodeId) -> usize {
        let tunables = self.tree.tunables();
        if self.tree.leaf(leaf).is_some_and(Leaf::is_rotational) {
            tunables.aggregation_limit
        } else {
            tunables.aggregation_limit_non_rotating
        }
    }

    fn send(&mut self, spans: Vec<Span>) {
        let mut requests: Vec<(NodeId, Vec<IoRequest>)> = Vec::new();
        for span in spans {
            let has_device = self.tree.leaf(span.leaf).and_then(Leaf::usable_device).is_some();
            let data = if has_device { span.data() } else { Err(ErrorKind::NotFound.into()) };
            let data = match data {
                Ok(data) => data,
                Err(source) => {
                    let error = self.error(&span, source);
                    self.fail(span, &error);
                    continue;
                }
            };
            let token = self.next_token;
            self.next_token += 1;
            let offset = span.position();
            let request = IoRequest { token, offset, operation: IoOperation::Write(data) };
            match requests.last_mut() {
                Some((leaf, batch)) if *leaf == span.leaf => batch.push(request),
                _ => requests.push((span.leaf, vec![request])),
            }
            self.in_flight.insert(token, span);
        }
        for (leaf, batch) in requests {
            // Whatever became of the leaf meanwhile, its device answers.
            if let Some(device) = self.tree.leaf(leaf).and_then(Leaf::device) {
                device.submit(batch, &self.completions);
            }
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

    /// Notes that writes have failed, and draws the conclusions about the leaf.
    fn fail(&mut self, span: Span, error: &DeviceError) {
        let node = self.tree.node(span.leaf);
        if let Some(leaf) = self.tree.leaf(span.leaf)
            && leaf.usable_device().is_some()
            && error.source.kind() != ErrorKind::OutOfMemory
        {
            node.counters.count_write_error();
            if is_gone(error) {
                self.tree.happen(span.leaf, LeafEvent::Vanished);
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

    /// The bytes of all members, in one piece.
    fn data(&self) -> std::io::Result<Bytes> {
        if let [only] = self.members.as_slice() {
            return Ok(only.data.clone());
        }
        let len = self.members.iter().map(|write| write.data.len()).sum();
        let mut buffer = IoBuffer::zeroed(len)?;
        let mut rest = &mut buffer[..];
        for write in &self.members {
            let (now, later) = rest.split_at_mut(write.data.len());
            now.copy_from_slice(&write.data);
            rest = later;
        }
        Ok(buffer.freeze())
    }
}

impl LeafWrite {
    fn end(&self) -> u64 {
        self.position.saturating_add(self.data.len() as u64)
    }
}

/// Joins writes that follow each other on a leaf, sorted by leaf and position.
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
        spans.push(Span { leaf: write.leaf, members: vec![write] });
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
        };
        let writes = [(0, 10), (10, 20), (31, 5), (36, 60), (96, 50), (200, 150)];
        let writes = writes.into_iter().map(|(position, len)| write(position, len)).collect();
        let spans = join(writes, |_| 100);
        let shape: Vec<_> =
            spans.iter().map(|s| (s.position(), s.end(), s.members.len())).collect();
        assert_eq!(shape, [(0, 30, 2), (31, 96, 2), (96, 146, 1), (200, 350, 1)]);
        assert_eq!(spans[0].data().unwrap(), [vec![0; 10], vec![10; 20]].concat());
    }
}
