//! Making durable what was written: flushes that are believed only when nothing can be missing.

use super::{BlockDevice, LeafFailure, VdevTree};
use crate::health::LeafEvent;
use crate::label;
use crate::leaf::Leaf;
use crate::read::is_gone;
use crate::tree::{NodeId, Vdev};
use crate::unconfirmed::{Begin, KeptWrite, Lead, Ticket, Turn};
use rzfs_blockdev::{CompletionQueue, DeviceError, IoOperation, IoRequest};
use rzfs_format::{Txg, VdevId};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

/// Requests that are under way together while a leaf is written again.
const AGAIN_AT_ONCE: usize = 32;

/// What is to be durable.
#[derive(Clone, Copy, Debug)]
pub enum Durability<'a> {
    /// Everything of a txg. It does not depend on devices for logs: what they are to have is in
    /// the txg as well.
    Txg(Txg),
    /// What was written to top-level vdevs for intent logs.
    Records {
        /// Nothing of it was born before.
        since: Txg,
        /// The vdevs.
        vdevs: &'a BTreeSet<VdevId>,
    },
}

/// Too many leaves of a top-level vdev have not made something durable. All of it is still in memory,
/// and is written once more by the next flush of such a leaf.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{name}: {source}")]
pub struct NotDurable {
    /// Name of the top-level vdev.
    pub name: Arc<str>,
    /// What the last of these leaves says.
    pub source: DeviceError,
    /// What all of them say.
    pub failures: Vec<LeafFailure>,
}

/// A leaf whose writes are not durable.
struct Unflushed {
    leaf: NodeId,
    error: DeviceError,
}

impl VdevTree {
    /// Makes something durable, as far as it can be read back afterwards: on enough leaves of each
    /// vdev. Leaves that could not be flushed lack from now on whatever they had not confirmed;
    /// they are the answer.
    ///
    /// A flush that fails is believed to have lost everything since the one before: it is
    /// written again and flushed again first.
    ///
    /// # Errors
    /// [`NotDurable`]; it can be tried again.
    pub fn make_durable(&self, what: Durability<'_>) -> Result<Vec<LeafFailure>, NotDurable> {
        let (since, tops): (Txg, Vec<Vdev<'_>>) = match what {
            Durability::Txg(txg) => (txg, self.top_levels().collect()),
            Durability::Records { since, vdevs } => {
                (since, vdevs.iter().filter_map(|vdev| self.top_level(*vdev)).collect())
            }
        };
        let leaves = tops.iter().flat_map(|top| top.leaves_below()).map(Vdev::node_id);
        let unflushed = self.flush_nodes(leaves.collect());
        let failures: Vec<LeafFailure> = unflushed.iter().map(|one| self.failure(one)).collect();
        for top in tops {
            let needs_it = matches!(what, Durability::Records { .. }) || !top.is_log();
            if needs_it && let Some(source) = self.loss(top, since, &unflushed) {
                return Err(NotDurable { name: top.name().into(), source, failures });
            }
        }
        for Unflushed { leaf, .. } in &unflushed {
            let Some(leaf) = self.leaf(*leaf) else { continue };
            for birth in leaf.unconfirmed().give_up() {
                leaf.missing().add(birth);
            }
        }
        Ok(failures)
    }

    /// Makes durable what was born since some txg on devices for logs, as far as that is not so yet.
    ///
    /// # Errors
    /// As [`VdevTree::make_durable`].
    pub fn make_logs_durable(&self, since: Txg) -> Result<Vec<LeafFailure>, NotDurable> {
        let is_uncertain = |top: &Vdev<'_>| {
            let leaves = top.leaves_below().into_iter();
            leaves.filter_map(|leaf| self.leaf(leaf.node_id())).any(|leaf| {
                let unconfirmed = leaf.unconfirmed();
                !unconfirmed.is_empty() || unconfirmed.has_given_up(since)
            })
        };
        let logs = self.top_levels().filter(|top| top.is_log() && is_uncertain(top));
        let vdevs: BTreeSet<VdevId> = logs.filter_map(Vdev::vdev_id).collect();
        match vdevs.is_empty() {
            true => Ok(Vec::new()),
            false => self.make_durable(Durability::Records { since, vdevs: &vdevs }),
        }
    }

    /// Why something that was born since some txg cannot be read back from a vdev, if so.
    fn loss(&self, top: Vdev<'_>, since: Txg, unflushed: &[Unflushed]) -> Option<DeviceError> {
        let failed = |id: NodeId| unflushed.iter().find(|one| one.leaf == id);
        let leaves: Vec<NodeId> = top.leaves_below().into_iter().map(Vdev::node_id).collect();
        let is_uncertain = |id: &NodeId| {
            let gave_up = |leaf: &Leaf| leaf.unconfirmed().has_given_up(since);
            failed(*id).is_some() || self.leaf(*id).is_some_and(gave_up)
        };
        if !leaves.iter().any(is_uncertain) {
            return None;
        }
        let mut lost = Vec::new();
        for id in &leaves {
            let Some(leaf) = self.leaf(*id) else { continue };
            if is_uncertain(id) || leaf.missing().lacks_since(since) {
                lost.push((*id, leaf.health().after(LeafEvent::ProbeFailed)));
            }
        }
        if self.health_assuming(top.node_id(), &lost).is_usable() {
            return None;
        }
        let last = leaves.iter().rev().find_map(|id| failed(*id));
        let given_up = || lost.last().map(|(id, _)| self.unavailable(*id));
        last.map(|one| one.error.clone()).or_else(given_up)
    }

    /// Flushes leaves, and waits for them. Answers with those whose writes are not durable: usable
    /// ones that could not be flushed, and others that have had something since their last flush.
    fn flush_nodes(&self, nodes: Vec<NodeId>) -> Vec<Unflushed> {
        let (usable, away): (Vec<_>, Vec<_>) = nodes
            .into_iter()
            .filter_map(|id| Some((id, self.leaf(id)?)))
            .partition(|(_, leaf)| leaf.usable_device().is_some());
        let away = away.into_iter().filter(|(_, leaf)| !leaf.unconfirmed().is_empty());
        let away = away.map(|(leaf, _)| Unflushed { leaf, error: self.unavailable(leaf) });
        let mut unflushed: Vec<Unflushed> = away.collect();
        let answers = self.flush_usable(usable.into_iter().map(|(id, _)| id).collect());
        let failed =
            |(leaf, answer): (_, Result<(), _>)| Some(Unflushed { leaf, error: answer.err()? });
        unflushed.extend(answers.into_iter().filter_map(failed));
        unflushed
    }

    /// Flushes leaves that can be, each by this thread or by another one, and waits for them.
    pub(crate) fn flush_usable(
        &self,
        nodes: Vec<NodeId>,
    ) -> Vec<(NodeId, Result<(), DeviceError>)> {
        let mut answers = Vec::with_capacity(nodes.len());
        let with_ticket = |id| Some((id, self.leaf(id)?, self.leaf(id)?.unconfirmed().ticket()));
        let mut open: Vec<(NodeId, &Leaf, Ticket)> =
            nodes.into_iter().filter_map(with_ticket).collect();
        while !open.is_empty() {
            let mut mine = Vec::new();
            open.retain(|(id, leaf, ticket)| match leaf.unconfirmed().turn(*ticket) {
                Turn::Lead(lead) => {
                    mine.push((*id, *leaf, lead));
                    false
                }
                Turn::Done(answer) => {
                    answers.push((*id, answer));
                    false
                }
                Turn::Wait => true,
            });
            // While it waits it has nothing that others wait for.
            if mine.is_empty()
                && let Some((_, leaf, ticket)) = open.first()
            {
                leaf.unconfirmed().wait(*ticket);
            }
            self.lead_flushes(mine, &mut answers);
        }
        answers
    }

    /// Flushes leaves that are this thread's to flush, all at once.
    fn lead_flushes(
        &self,
        leaves: Vec<(NodeId, &Leaf, Lead<'_>)>,
        answers: &mut Vec<(NodeId, Result<(), DeviceError>)>,
    ) {
        let mut ready = Vec::with_capacity(leaves.len());
        for (id, leaf, mut lead) in leaves {
            // What is to be written again belongs on the device that is there from now on.
            let begin = lead.begin();
            let Some(device) = leaf.device() else {
                answers.push((id, lead.end(Err(self.unavailable(id)))));
                continue;
            };
            match begin {
                Begin::Flush => ready.push((id, device, lead)),
                Begin::Rewrite(writes) => {
                    let answer = write_again(device, writes, &lead).and_then(|()| flush(device));
                    answers.push((id, self.confirm(id, device, lead, answer)));
                }
            }
        }
        let flushed = label::flush(ready.iter().map(|(_, device, _)| *device));
        for ((id, device, lead), answer) in ready.into_iter().zip(flushed) {
            answers.push((id, self.confirm(id, device, lead, answer)));
        }
    }

    /// Ends a flush that was answered; one that says nothing is followed by another one, after
    /// everything that it was about has been written again.
    fn confirm(
        &self,
        id: NodeId,
        device: &Arc<dyn BlockDevice>,
        mut lead: Lead<'_>,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if let Err(error) = &answer {
            lead.fail();
            if error.source.kind() != ErrorKind::OutOfMemory {
                self.node(id).counters.count_write_error();
            }
            if is_gone(error) {
                self.happen(id, LeafEvent::Vanished);
                return lead.end(answer);
            }
        } else if lead.is_valid() {
            return lead.end(answer);
        }
        let again = match lead.begin() {
            Begin::Flush => Ok(()),
            Begin::Rewrite(writes) => write_again(device, writes, &lead),
        };
        let mut answer = again.and_then(|()| flush(device));
        if answer.is_ok() && !lead.is_valid() {
            // The device went away and came back meanwhile: what it has must be settled anew.
            answer = Err(self.unsettled(id));
        }
        if let Err(error) = &answer {
            lead.fail();
            if is_gone(error) {
                self.happen(id, LeafEvent::Vanished);
            } else {
                self.probe(id);
            }
        }
        lead.end(answer)
    }

    fn failure(&self, unflushed: &Unflushed) -> LeafFailure {
        LeafFailure { leaf: self.node(unflushed.leaf).guid, error: unflushed.error.clone() }
    }

    fn unavailable(&self, leaf: NodeId) -> DeviceError {
        self.flush_error(leaf, ErrorKind::NotFound)
    }

    fn unsettled(&self, leaf: NodeId) -> DeviceError {
        self.flush_error(leaf, ErrorKind::Interrupted)
    }

    fn flush_error(&self, leaf: NodeId, kind: ErrorKind) -> DeviceError {
        DeviceError {
            device: self.node(leaf).name.clone(),
            operation: "flush",
            offset: 0,
            len: 0,
            source: Arc::new(kind.into()),
        }
    }

    /// Makes everything durable that was written before, wherever that is possible. A device without
    /// a write cache has nothing to do.
    #[must_use]
    pub fn flush(&self) -> Vec<LeafFailure> {
        let leaves = self.leaves().map(Vdev::node_id).collect();
        self.flush_nodes(leaves).iter().map(|one| self.failure(one)).collect()
    }
}

fn flush(device: &Arc<dyn BlockDevice>) -> Result<(), DeviceError> {
    label::flush(std::iter::once(device)).into_iter().collect()
}

/// Writes again what a leaf keeps, a few requests at a time.
fn write_again(
    device: &Arc<dyn BlockDevice>,
    writes: Vec<KeptWrite>,
    lead: &Lead<'_>,
) -> Result<(), DeviceError> {
    let completions = CompletionQueue::new();
    let mut result = Ok(());
    for chunk in writes.chunks(AGAIN_AT_ONCE) {
        let requests: Vec<IoRequest> = (0..)
            .zip(chunk)
            .map(|(token, write)| {
                let operation = IoOperation::Write(write.data.clone());
                IoRequest { token, offset: write.position, operation }
            })
            .collect();
        let count = requests.len();
        device.submit(requests, &completions);
        for _ in 0..count {
            result = completions.wait().result.map(drop).and(result);
        }
        if result.is_err() {
            break;
        }
    }
    // Others may write again, whatever came of it.
    lead.written();
    result
}
