//! Making writes durable: a flush counts only when nothing can be missing.

use crate::error::LeafFailure;
use crate::health::LeafEvent;
use crate::label;
use crate::leaf::{Leaf, not_open};
use crate::read::is_gone;
use crate::tree::{NodeId, Vdev, VdevTree};
use crate::unconfirmed::{
    FlushLead, FlushStart, KeptWrite, Portion, Standing, Ticket, Turn, limit_of_leaf,
};
use rzfs_blockdev::{BlockDevice, CompletionQueue, DeviceError, IoOperation, IoRequest};
use rzfs_format::{Txg, VdevId};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Concurrent requests while writes of a leaf are repeated.
const AGAIN_AT_ONCE: usize = 32;

/// The last possible txg.
const FOREVER: Txg = Txg(u64::MAX);

/// What to make durable.
#[derive(Clone, Copy, Debug)]
pub enum Durability<'a> {
    /// Everything of a txg. It does not depend on log devices: their contents are in the txg as
    /// well.
    Txg(Txg),
    /// Writes to top-level log vdevs.
    Records {
        /// The oldest birth.
        since: Txg,
        /// The vdevs.
        vdevs: &'a BTreeSet<VdevId>,
    },
}

/// Too many leaves of a top-level vdev could not make something durable. All of it is still in
/// memory, and is repeated by the next flush of such a leaf.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{name}: {source}")]
pub struct NotDurable {
    /// Name of the top-level vdev.
    pub name: Arc<str>,
    /// The error of the last of these leaves.
    pub source: DeviceError,
    /// The errors of all of them.
    pub failures: Vec<LeafFailure>,
}

/// How far log devices can be trusted ([`VdevTree::trust_in_logs`]).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LogTrust(u64);

/// A leaf whose writes are not durable.
struct Unflushed {
    leaf: NodeId,
    error: DeviceError,
}

impl VdevTree {
    /// Makes writes durable, so that they can be read back: on enough leaves of each vdev. Returns
    /// the leaves that could not be flushed. From now on these lack their unconfirmed writes of a
    /// txg, as others lack what they owe of it. Unconfirmed writes of records stay in memory and
    /// are repeated by their next flush.
    ///
    /// A failed flush counts as having lost everything since the one before: it is written and
    /// flushed again first.
    ///
    /// # Errors
    /// [`NotDurable`]; it can be retried.
    pub fn make_durable(&self, what: Durability<'_>) -> Result<Vec<LeafFailure>, NotDurable> {
        let (since, tops): (Txg, Vec<Vdev<'_>>) = match what {
            Durability::Txg(txg) => (txg, self.top_levels().collect()),
            Durability::Records { since, vdevs } => {
                (since, vdevs.iter().filter_map(|vdev| self.top_level(*vdev)).collect())
            }
        };
        let leaves: Vec<NodeId> =
            tops.iter().flat_map(|top| top.leaves_below()).map(Vdev::node_id).collect();
        let unflushed = self.flush_nodes(&leaves);
        let failures: Vec<LeafFailure> = unflushed.iter().map(|one| self.failure(one)).collect();
        let giving_up = self.giving_up.lock();
        for top in tops {
            let needs_it = matches!(what, Durability::Records { .. }) || !top.is_log();
            if needs_it && let Some(source) = self.loss(top, since, &unflushed) {
                return Err(NotDurable { name: top.name().into(), source, failures });
            }
        }
        if let Durability::Txg(txg) = what {
            for (id, leaf) in leaves.iter().filter_map(|id| Some((*id, self.leaf(*id)?))) {
                let is_unflushed = unflushed.iter().any(|one| one.leaf == id);
                if is_unflushed {
                    leaf.missing().add(txg);
                }
                give_up(leaf, if is_unflushed { Portion::All } else { Portion::Owed }, txg);
                leaf.missing().settle(txg);
            }
        }
        drop(giving_up);
        leaves.into_iter().for_each(|leaf| self.relieve(leaf));
        Ok(failures)
    }

    /// Whether devices have what they have confirmed of intent logs: as long as the result is
    /// unchanged, nothing has happened that makes it doubtful.
    #[must_use]
    pub fn trust_in_logs(&self) -> LogTrust {
        let doubts = self.leaves().filter_map(|leaf| Some(self.leaf(leaf.node_id())?.doubts()));
        LogTrust(doubts.fold(0, u64::wrapping_add))
    }

    /// Records that a leaf has failed to write or to flush, or is closed: it may have lost
    /// confirmed writes. This does not matter where others have them too.
    pub(crate) fn doubt(&self, id: NodeId) {
        let Some(leaf) = self.leaf(id) else { return };
        let top = self.top_of(id);
        let lacks =
            |other: &Leaf| other.unconfirmed().has_debts() || other.missing().lacks_since(Txg(0));
        let is_lost = |other: &NodeId| *other == id || self.leaf(*other).is_some_and(lacks);
        let leaves = Vdev::new(self, top).leaves_below().into_iter().map(Vdev::node_id);
        if !self.can_lose(top, &leaves.filter(is_lost).collect::<Vec<_>>()) {
            leaf.doubt();
        }
    }

    /// The same for a write, which only a log device holds alone: others have their uberblocks.
    pub(crate) fn doubt_log(&self, id: NodeId) {
        if Vdev::new(self, self.top_of(id)).is_log() {
            self.doubt(id);
        }
    }

    /// The log devices with writes that are not durable, or were dropped.
    #[must_use]
    pub fn uncertain_logs(&self) -> BTreeSet<VdevId> {
        let is_uncertain = |top: &Vdev<'_>| {
            let leaves = top.leaves_below().into_iter();
            leaves.filter_map(|leaf| self.leaf(leaf.node_id())).any(|leaf| {
                let unconfirmed = leaf.unconfirmed();
                unconfirmed.has_sent()
                    || unconfirmed.has_debts()
                    || unconfirmed.has_given_up(Txg(0))
            })
        };
        let logs = self.top_levels().filter(|top| top.is_log() && is_uncertain(top));
        logs.filter_map(Vdev::vdev_id).collect()
    }

    /// Why something born since a txg cannot be read back from a vdev, if so.
    fn loss(&self, top: Vdev<'_>, since: Txg, unflushed: &[Unflushed]) -> Option<DeviceError> {
        let failed = |id: NodeId| unflushed.iter().find(|one| one.leaf == id);
        let leaves: Vec<NodeId> = top.leaves_below().into_iter().map(Vdev::node_id).collect();
        // Relied-on writes may be missing. Writes that are merely missing were not relied on when
        // written.
        let is_uncertain = |id: &NodeId| {
            let gave_up = |leaf: &Leaf| leaf.unconfirmed().has_given_up(since);
            failed(*id).is_some() || self.leaf(*id).is_some_and(gave_up)
        };
        if !leaves.iter().any(is_uncertain) {
            return None;
        }
        let owes =
            |leaf: &Leaf| leaf.unconfirmed().debts().last().is_some_and(|last| *last >= since);
        let mut lost = Vec::new();
        for id in &leaves {
            let Some(leaf) = self.leaf(*id) else { continue };
            if is_uncertain(id) || owes(leaf) || leaf.missing().lacks_since(since) {
                lost.push(*id);
            }
        }
        if self.can_lose(top.node_id(), &lost) {
            return None;
        }
        let last = leaves.iter().rev().find_map(|id| failed(*id));
        let given_up = || lost.last().map(|id| self.unavailable(*id));
        last.map(|one| one.error.clone()).or_else(given_up)
    }

    /// Whether a top-level vdev would work without these leaves.
    fn can_lose(&self, top: NodeId, lost: &[NodeId]) -> bool {
        let without =
            |id: &NodeId| Some((*id, self.leaf(*id)?.health().after(LeafEvent::ProbeFailed)));
        let lost: Vec<_> = lost.iter().filter_map(without).collect();
        self.health_assuming(top, &lost).is_usable()
    }

    /// Drops the unconfirmed writes of a leaf, if the vdev can do without everything ever dropped
    /// of this age. So the leaves that lack something of a txg not on disk never exceed the
    /// redundancy: with all others it can be made durable when they work again.
    fn give_up_if_possible(&self, id: NodeId) {
        let Some(leaf) = self.leaf(id) else { return };
        let works = leaf.is_usable() && !leaf.unconfirmed().is_suspect();
        let is_relied_on = !works && leaf.unconfirmed().has_sent();
        let portion = if is_relied_on { Portion::Blocks } else { Portion::Owed };
        let _giving_up = self.giving_up.lock();
        let births = leaf.unconfirmed().births(portion);
        if births.first().is_some_and(|since| self.can_give_up(id, portion, *since)) {
            give_up(leaf, portion, FOREVER);
        }
    }

    /// Whether the vdev can do without a leaf's kept writes born since a txg. Owed writes of others
    /// were not relied on when written, but cannot be lost in addition to relied-on ones.
    fn can_give_up(&self, id: NodeId, portion: Portion, since: Txg) -> bool {
        let top = self.top_of(id);
        let has_lost = |leaf: &Leaf| {
            let kept = leaf.unconfirmed();
            let may_lose = portion != Portion::Owed || kept.is_suspect();
            let owes = kept.debts().last().is_some_and(|last| *last >= since);
            may_lose && owes || kept.has_given_up(since) || leaf.missing().lacks_since(since)
        };
        let is_lost = |other: &NodeId| *other == id || self.leaf(*other).is_some_and(has_lost);
        let leaves = Vdev::new(self, top).leaves_below().into_iter().map(Vdev::node_id);
        let lost: Vec<NodeId> = leaves.filter(is_lost).collect();
        self.can_lose(top, &lost)
    }

    /// Records that a leaf has missed writes, which are neither relied on nor kept. If the vdev
    /// needs it, as others lack something too, it owes them nevertheless.
    pub(super) fn do_without(&self, id: NodeId, writes: Vec<KeptWrite>) {
        let births: BTreeSet<Txg> = writes.iter().filter_map(|write| write.birth).collect();
        let (Some(leaf), Some(since)) = (self.leaf(id), births.first()) else { return };
        let _giving_up = self.giving_up.lock();
        if self.can_give_up(id, Portion::Owed, *since) {
            births.into_iter().for_each(|birth| leaf.missing().add(birth));
        } else {
            leaf.unconfirmed().owe(writes);
        }
    }

    /// Drops the kept writes of a leaf if they are too many, or were repeated in vain too often.
    pub(crate) fn relieve(&self, id: NodeId) {
        let limit = limit_of_leaf(self.leaves().count(), self.tunables().unconfirmed_max);
        if self.leaf(id).is_some_and(|leaf| leaf.unconfirmed().exceeds(limit)) {
            self.give_up_if_possible(id);
        }
    }

    /// Writes what leaves owe. What they may still lack when the current txg is committed is
    /// recorded, so that this txg stores it: afterwards it would be known in memory only.
    pub fn settle_debts(&self) {
        let leaves =
            || self.leaves().filter_map(|leaf| Some((leaf.node_id(), self.leaf(leaf.node_id())?)));
        let owing = leaves().filter(|(_, leaf)| leaf.is_usable() && leaf.unconfirmed().has_debts());
        self.flush_usable(owing.map(|(id, _)| id).collect());
        for (id, leaf) in leaves() {
            let is_away = !leaf.is_usable();
            if !is_away && !leaf.unconfirmed().has_debts() {
                continue;
            }
            let works = !is_away && !leaf.unconfirmed().is_suspect();
            // Without a required leaf nothing is committed.
            let can_be_lost = || self.can_lose(self.top_of(id), &[id]);
            let portion = if works || !can_be_lost() { Portion::Owed } else { Portion::Blocks };
            for birth in leaf.unconfirmed().births(portion) {
                leaf.missing().expect(birth);
            }
        }
    }

    /// Flushes leaves, and waits for them. Returns those whose writes are not durable: usable ones
    /// that could not be flushed, and others with writes since their last flush.
    fn flush_nodes(&self, nodes: &[NodeId]) -> Vec<Unflushed> {
        let (usable, away): (Vec<_>, Vec<_>) = nodes
            .iter()
            .filter_map(|id| Some((*id, self.leaf(*id)?)))
            .partition(|(_, leaf)| leaf.is_usable());
        let away = away.into_iter().filter(|(_, leaf)| leaf.unconfirmed().has_sent());
        let away = away.map(|(leaf, _)| Unflushed { leaf, error: self.unavailable(leaf) });
        let mut unflushed: Vec<Unflushed> = away.collect();
        let answers = self.flush_usable(usable.into_iter().map(|(id, _)| id).collect());
        let failed =
            |(leaf, answer): (_, Result<(), _>)| Some(Unflushed { leaf, error: answer.err()? });
        unflushed.extend(answers.into_iter().filter_map(failed));
        unflushed
    }

    /// Flushes usable leaves, each by this thread or by another one, and waits for them.
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
                Turn::FlushLead(lead) => {
                    mine.push((*id, *leaf, lead));
                    false
                }
                Turn::Done(answer) => {
                    answers.push((*id, answer));
                    false
                }
                Turn::Wait => true,
            });
            // While it waits, no other thread waits for it.
            if mine.is_empty()
                && let Some((_, leaf, ticket)) = open.first()
            {
                leaf.unconfirmed().wait(*ticket);
            }
            self.lead_flushes(mine, &mut answers);
        }
        answers
    }

    /// Flushes leaves led by this thread, all at once.
    fn lead_flushes(
        &self,
        leaves: Vec<(NodeId, &Leaf, FlushLead<'_>)>,
        answers: &mut Vec<(NodeId, Result<(), DeviceError>)>,
    ) {
        let mut ready = Vec::with_capacity(leaves.len());
        for (id, leaf, mut lead) in leaves {
            // Repeated writes belong on the device that is there from now on.
            let begin = lead.begin();
            let Some(device) = leaf.device() else {
                answers.push((id, lead.end(Err(self.unavailable(id)))));
                continue;
            };
            match begin {
                FlushStart::Flush => ready.push((id, device, lead)),
                FlushStart::Rewrite(writes) => {
                    let answer = self.write_again(id, &device, writes, &mut lead);
                    let answer = answer.and_then(|()| flush(&device));
                    answers.push((id, self.confirm(id, &device, lead, answer)));
                }
            }
        }
        let flushed = label::flush(ready.iter().map(|(_, device, _)| device));
        for ((id, device, lead), answer) in ready.into_iter().zip(flushed) {
            answers.push((id, self.confirm(id, &device, lead, answer)));
        }
    }

    /// Ends a flush with a result; an inconclusive one is repeated, after everything it covered has
    /// been written again.
    fn confirm(
        &self,
        id: NodeId,
        device: &Arc<dyn BlockDevice>,
        mut lead: FlushLead<'_>,
        answer: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        if let Err(error) = &answer {
            lead.fail();
            if error.source.kind() != ErrorKind::OutOfMemory {
                self.doubt(id);
                self.node(id).counters.count_write_error();
            }
            if is_gone(error) {
                self.transition(id, LeafEvent::Vanished);
                return lead.end(answer);
            }
        } else if lead.is_valid() {
            return lead.end(answer);
        }
        if self.leaf(id).is_none_or(|leaf| !leaf.is_usable()) {
            return lead.end(Err(self.unavailable(id)));
        }
        let again = match lead.begin() {
            FlushStart::Flush => Ok(()),
            FlushStart::Rewrite(writes) => self.write_again(id, device, writes, &mut lead),
        };
        let mut answer = again.and_then(|()| flush(device));
        if answer.is_ok() && !lead.is_valid() {
            // The device went away and came back meanwhile: its contents must be settled again.
            answer = Err(self.unsettled(id));
        }
        if let Err(error) = &answer {
            lead.fail();
            if is_gone(error) {
                self.transition(id, LeafEvent::Vanished);
            } else {
                self.probe(id);
            }
        }
        lead.end(answer)
    }

    /// Repeats the kept writes of a leaf. A device that has become another one is closed.
    fn write_again(
        &self,
        id: NodeId,
        device: &Arc<dyn BlockDevice>,
        writes: Vec<KeptWrite>,
        lead: &mut FlushLead<'_>,
    ) -> Result<(), DeviceError> {
        let is_suspect = self.leaf(id).is_some_and(|leaf| leaf.unconfirmed().is_suspect());
        if is_suspect && let Some(aux) = self.replaced_by(id, device) {
            self.transition(id, LeafEvent::OpenFailed(aux));
            return Err(self.unsettled(id));
        }
        send_again(device, writes, lead)
    }

    fn failure(&self, unflushed: &Unflushed) -> LeafFailure {
        LeafFailure { leaf: self.node(unflushed.leaf).guid, error: unflushed.error.clone() }
    }

    fn unavailable(&self, leaf: NodeId) -> DeviceError {
        self.flush_error(leaf, not_open())
    }

    fn unsettled(&self, leaf: NodeId) -> DeviceError {
        self.flush_error(leaf, ErrorKind::Interrupted.into())
    }

    fn flush_error(&self, leaf: NodeId, source: io::Error) -> DeviceError {
        DeviceError {
            device: self.node(leaf).name.clone(),
            operation: "flush",
            offset: 0,
            len: 0,
            source: Arc::new(source),
        }
    }

    /// Makes all earlier writes durable where possible. A device without a write cache has nothing
    /// to do.
    #[must_use]
    pub fn flush(&self) -> Vec<LeafFailure> {
        let leaves: Vec<NodeId> = self.leaves().map(Vdev::node_id).collect();
        self.flush_nodes(&leaves).iter().map(|one| self.failure(one)).collect()
    }
}

/// Drops what a leaf has not confirmed, or owes, until a txg; a leaf that is away is no longer
/// waited for. The caller has checked that the vdev can do without.
fn give_up(leaf: &Leaf, portion: Portion, last: Txg) {
    leaf.stop_waiting_if_closed();
    leaf.unconfirmed().give_up(portion, last, |birth| leaf.missing().add(birth));
}

fn flush(device: &Arc<dyn BlockDevice>) -> Result<(), DeviceError> {
    label::flush(std::iter::once(device)).into_iter().collect()
}

/// Repeats the kept writes of a leaf, a few requests at a time: relied-on ones first, which must
/// not fail, then owed ones, which may be refused again.
fn send_again(
    device: &Arc<dyn BlockDevice>,
    writes: Vec<KeptWrite>,
    lead: &mut FlushLead<'_>,
) -> Result<(), DeviceError> {
    let (sent, owed): (Vec<_>, Vec<_>) =
        writes.into_iter().partition(|write| write.standing == Standing::Sent);
    let result = write_sent(device, &sent).and_then(|()| write_owed(device, owed));
    // Others may write again, whatever the result.
    lead.written();
    result.map(|refused| lead.refused(refused))
}

fn write_sent(device: &Arc<dyn BlockDevice>, writes: &[KeptWrite]) -> Result<(), DeviceError> {
    let mut chunks = writes.chunks(AGAIN_AT_ONCE);
    chunks.try_for_each(|chunk| write_chunk(device, chunk).into_iter().collect())
}

/// Returns the refused writes. A device that accepts nothing is not waited for: then the rest
/// counts as refused too.
fn write_owed(
    device: &Arc<dyn BlockDevice>,
    mut writes: Vec<KeptWrite>,
) -> Result<Vec<KeptWrite>, DeviceError> {
    let mut refused = Vec::new();
    while !writes.is_empty() {
        let rest = writes.split_off(writes.len().min(AGAIN_AT_ONCE));
        let chunk = std::mem::replace(&mut writes, rest);
        let answers = write_chunk(device, &chunk);
        let nothing_works = answers.iter().all(Result::is_err);
        for (write, answer) in chunk.into_iter().zip(answers) {
            match answer {
                Err(error) if is_gone(&error) => return Err(error),
                Err(_) => refused.push(write),
                Ok(()) => {}
            }
        }
        if nothing_works {
            refused.append(&mut writes);
        }
    }
    Ok(refused)
}

/// Writes all at once; the results are in the order of the writes.
fn write_chunk(device: &Arc<dyn BlockDevice>, chunk: &[KeptWrite]) -> Vec<Result<(), DeviceError>> {
    let completions = CompletionQueue::new();
    let request = |(token, write): (u64, &KeptWrite)| {
        let operation = IoOperation::Write(write.data.clone());
        IoRequest { token, offset: write.position, operation }
    };
    device.submit((0..).zip(chunk).map(request).collect(), &completions);
    let mut answers: Vec<Result<(), DeviceError>> = chunk.iter().map(|_| Ok(())).collect();
    for _ in chunk {
        let completion = completions.wait();
        let index = usize::try_from(completion.token).unwrap_or(usize::MAX);
        if let Some(answer) = answers.get_mut(index) {
            *answer = completion.result.map(drop);
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockWrite, TreeOptions, VdevConfig, VdevKind};
    use bytes::Bytes;
    use rzfs_blockdev::{Access, MemoryDevice};
    use rzfs_format::{Dva, Guid, VdevId, label::LeafSize};
    use std::collections::HashMap;

    const SIZE: usize = 64 << 20;

    fn raidz(children: u64) -> VdevTree {
        let guids = || (0..children).map(|child| Guid(100 + child));
        let mut top = VdevConfig::new(VdevKind::Raidz, Guid(2));
        top.nparity = Some(1);
        top.top.ashift = Some(12);
        let leaf = LeafSize::of_device(SIZE as u64).unwrap().allocatable();
        top.top.asize = Some(leaf * children);
        let leaves = guids().map(|guid| VdevConfig::new(VdevKind::File, guid));
        let root =
            VdevConfig::new(VdevKind::Root, Guid(1)).with_children([top.with_children(leaves)]);
        let device = |guid| {
            let device = MemoryDevice::new("disk", vec![0; SIZE], Access::ReadWrite);
            (guid, Arc::new(device) as Arc<dyn BlockDevice>)
        };
        let devices: HashMap<Guid, _> = guids().map(device).collect();
        VdevTree::open(root, &devices, TreeOptions::default()).unwrap()
    }

    #[test]
    fn what_a_leaf_has_not_kept_is_done_without_only_as_far_as_others_have_it() {
        let tree = raidz(3);
        let ids = [100, 101].map(|guid| tree.find(Guid(guid)).unwrap());
        let [first, second] = ids.map(|id| tree.leaf(id).unwrap());
        let write = |birth| KeptWrite {
            position: 8 << 20,
            data: Bytes::from(vec![7; 4096]),
            birth: Some(birth),
            standing: Standing::Sent,
        };
        tree.do_without(ids[0], vec![write(Txg(6))]);
        assert!(first.missing().lacks(Txg(6)) && !first.unconfirmed().has_debts());
        second.missing().add(Txg(7));
        tree.do_without(ids[0], vec![write(Txg(7))]);
        assert!(!first.missing().lacks(Txg(7)) && first.unconfirmed().owes(Txg(7)));
        assert!(tree.make_durable(Durability::Txg(Txg(7))).unwrap().is_empty());
        assert!(!first.lacks(Txg(7)), "it was written");
    }

    #[test]
    fn a_device_that_is_closed_meanwhile_keeps_no_writer_waiting() {
        let tree = raidz(3);
        let leaf = tree.leaf(tree.find(Guid(100)).unwrap()).unwrap();
        let kept = leaf.unconfirmed();
        let run = kept.begin();
        kept.keep(
            run,
            [KeptWrite {
                position: 8 << 20,
                data: Bytes::from(vec![7; 4096]),
                birth: Some(Txg(6)),
                standing: Standing::Sent,
            }],
        );
        kept.end(run, crate::unconfirmed::Refused::default());
        kept.suspect();
        let Turn::FlushLead(mut lead) = kept.turn(kept.ticket()) else { panic!("nobody flushes") };
        // As long as this is written again, others wait with their requests made.
        assert!(matches!(lead.begin(), FlushStart::Rewrite(_)));
        let written = std::thread::scope(|scope| {
            let write = scope.spawn(|| {
                let dva = Dva::new(VdevId(0), 16 << 20, 24 << 10, false);
                let data = Bytes::from(vec![1; 16 << 10]);
                tree.write(vec![BlockWrite { dva, birth: Txg(7), data }])
            });
            std::thread::sleep(std::time::Duration::from_millis(100));
            leaf.close_device();
            lead.written();
            lead.end(Ok(())).unwrap();
            write.join().unwrap()
        });
        assert!(written.iter().all(Result::is_ok), "{written:?}");
        assert!(leaf.lacks(Txg(7)));
    }
}
