//! What was written to a leaf and may not be durable yet: everything since its last successful
//! flush, kept in memory until the next one.
//!
//! A flush that fails says that something was lost, not what. Linux tells of a write-back that
//! failed once, and takes the pages for clean: the next flush succeeds, and has nothing to write.
//! So all of it is written again before a flush counts.
//!
//! ```text
//! write ─> kept ───────────────── flush succeeds ──> confirmed, let go of
//!           │  ^                        │ fails, or the device was away
//!           │  └─ flush <── written again, nothing else meanwhile
//!           └─ the vdev does without the leaf ─> given up: the leaf lacks what it was
//! ```
//! A write counts as kept from before it is sent: one that is under way while a flush fails may
//! have been lost with it. What is kept of blocks is their own shared bytes.
//!
//! One thread at a time flushes a leaf; those who come meanwhile share the next flush. Two at once
//! could not be told apart: of two flushes of one file, Linux tells one that something was lost.

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rzfs_blockdev::DeviceError;
use rzfs_format::Txg;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of all leaves of a pool that are kept before leaves are flushed to let go of some. What
/// is under way comes on top, and what a txg writes while a device cannot be flushed.
const MOST_KEPT: usize = 64 << 20;
/// The least that a leaf keeps without being flushed.
const LEAST_KEPT: usize = 2 << 20;

/// How many bytes each of so many leaves keeps before it is flushed.
pub(crate) fn limit_of_leaf(leaves: usize) -> usize {
    (MOST_KEPT / leaves.max(1)).max(LEAST_KEPT)
}

/// A write that may have to be done again.
#[derive(Clone, Debug)]
pub(crate) struct KeptWrite {
    /// Byte position on the device.
    pub(crate) position: u64,
    pub(crate) data: Bytes,
    /// The birth of the block that it is of; `None` for a part of a label.
    pub(crate) birth: Option<Txg>,
}

impl KeptWrite {
    fn end(&self) -> u64 {
        self.position.saturating_add(self.data.len() as u64)
    }

    /// What of it lies behind a position, if anything does.
    fn behind(&self, position: u64) -> Option<Self> {
        let skipped = usize::try_from(position.checked_sub(self.position)?).ok()?;
        let data = (skipped < self.data.len()).then(|| self.data.slice(skipped..))?;
        Some(Self { position, data, birth: self.birth })
    }
}

/// Writes of one caller, who waits for them all.
#[derive(Debug)]
struct Run {
    id: RunId,
    writes: Vec<KeptWrite>,
    progress: Progress,
}

/// How far the writes of a run are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// Some may be under way.
    Open,
    /// All are done.
    Done,
    /// All were done when the flush began that is under way.
    Covered,
}

/// The name of a run, on its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunId(u64);

/// What is being done with a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Activity {
    #[default]
    None,
    Flush,
    /// What is kept is written again: other writes wait, as they may be of the same places.
    Rewrite,
}

#[derive(Default, Debug)]
struct State {
    runs: Vec<Run>,
    next_run: u64,
    bytes: usize,
    activity: Activity,
    /// Flushes that have begun.
    begun: u64,
    /// The answer of the last flush that has ended, and its number.
    ended: (u64, Option<DeviceError>),
    /// How often something happened after which what is kept has to be written again, and how many
    /// of these have been dealt with.
    suspicions: u64,
    settled: u64,
    /// The youngest birth that was given up.
    given_up: Option<Txg>,
}

/// What a leaf keeps.
#[derive(Default, Debug)]
pub(crate) struct Unconfirmed {
    state: Mutex<State>,
    changed: Condvar,
}

/// A flush that has not begun when somebody asked for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

/// What somebody who wants a flush has to do.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// To flush.
    Lead(Lead<'a>),
    /// To wait for somebody else.
    Wait,
    /// Nothing: it was flushed.
    Done(Result<(), DeviceError>),
}

/// How a flush is to begin.
#[derive(Debug)]
pub(crate) enum Begin {
    /// With the flush itself.
    Flush,
    /// With these writes, which do not overlap; [`Lead::written`] has to be called.
    Rewrite(Vec<KeptWrite>),
}

/// The right to flush a leaf, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lead<'a> {
    of: &'a Unconfirmed,
    number: u64,
    /// The suspicions that are dealt with when it succeeds.
    suspicions: u64,
    has_ended: bool,
}

impl Unconfirmed {
    /// Begins a run: [`Self::end`] has to be called when none of its writes is under way any more.
    pub(crate) fn begin(&self) -> RunId {
        let mut state = self.state.lock();
        state.next_run += 1;
        RunId(state.next_run)
    }

    /// Keeps writes that are about to be sent. Waits while what is kept is written again.
    pub(crate) fn keep(&self, run: RunId, writes: impl IntoIterator<Item = KeptWrite>) {
        let state = &mut *self.wait_while(|state| state.activity == Activity::Rewrite);
        let index = state.runs.iter().rposition(|known| known.id == run).unwrap_or_else(|| {
            state.runs.push(Run { id: run, writes: Vec::new(), progress: Progress::Open });
            state.runs.len() - 1
        });
        if let Some(known) = state.runs.get_mut(index) {
            let before = known.writes.len();
            known.writes.extend(writes);
            let new = known.writes.iter().skip(before);
            state.bytes += new.map(|write| write.data.len()).sum::<usize>();
        }
    }

    /// Forgets a write that has failed: its caller knows.
    pub(crate) fn forget(&self, run: RunId, position: u64) {
        let state = &mut *self.state.lock();
        let Some(run) = state.runs.iter_mut().rfind(|known| known.id == run) else { return };
        if let Some(index) = run.writes.iter().rposition(|write| write.position == position) {
            state.bytes -= run.writes.swap_remove(index).data.len();
        }
    }

    /// Says that none of a run's writes is under way any more. Answers with how many bytes the
    /// leaf keeps that the next flush would confirm.
    pub(crate) fn end(&self, run: RunId) -> usize {
        let state = &mut *self.state.lock();
        state.runs.retain_mut(|known| {
            if known.id == run {
                known.progress = Progress::Done;
            }
            known.id != run || !known.writes.is_empty()
        });
        if state.is_suspect() { 0 } else { state.bytes }
    }

    /// Says that something of what is kept may be lost, though nothing has failed: the device was
    /// away, or is another one.
    pub(crate) fn suspect(&self) {
        let mut state = self.state.lock();
        if !state.runs.is_empty() {
            state.suspicions += 1;
        }
    }

    /// Whether anything is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().runs.iter().all(|run| run.writes.is_empty())
    }

    /// Whether something that was born in `birth` or later may have been given up.
    pub(crate) fn has_given_up(&self, birth: Txg) -> bool {
        self.state.lock().given_up.is_some_and(|last| last >= birth)
    }

    /// Lets go of everything without it being durable. Answers with the births of the blocks that
    /// the leaf lacks therefore.
    pub(crate) fn give_up(&self) -> BTreeSet<Txg> {
        let state = &mut *self.state.lock();
        let writes = state.runs.drain(..).flat_map(|run| run.writes);
        let births: BTreeSet<Txg> = writes.filter_map(|write| write.birth).collect();
        state.bytes = 0;
        state.settled = state.suspicions;
        state.given_up = state.given_up.max(births.last().copied());
        births
    }

    /// Asks for a flush that begins from now on.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.state.lock().begun + 1)
    }

    /// What is to be done for a flush.
    pub(crate) fn turn(&self, Ticket(wanted): Ticket) -> Turn<'_> {
        let state = &mut *self.state.lock();
        if state.ended.0 >= wanted {
            return Turn::Done(state.ended.1.clone().map_or(Ok(()), Err));
        }
        if state.activity != Activity::None {
            return Turn::Wait;
        }
        state.activity = Activity::Flush;
        state.begun += 1;
        let (number, suspicions) = (state.begun, state.suspicions);
        Turn::Lead(Lead { of: self, number, suspicions, has_ended: false })
    }

    /// Waits until there is something to be done for a flush.
    pub(crate) fn wait(&self, Ticket(wanted): Ticket) {
        drop(self.wait_while(|state| state.activity != Activity::None && state.ended.0 < wanted));
    }

    fn wait_while(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while condition(&state) {
            self.changed.wait(&mut state);
        }
        state
    }
}

impl State {
    const fn is_suspect(&self) -> bool {
        self.suspicions != self.settled
    }
}

impl Lead<'_> {
    /// Begins, or begins again after something has gone wrong.
    pub(crate) fn begin(&mut self) -> Begin {
        let state = &mut *self.of.state.lock();
        self.suspicions = state.suspicions;
        if state.is_suspect() && !state.runs.is_empty() {
            state.activity = Activity::Rewrite;
            return Begin::Rewrite(latest(state.runs.iter().flat_map(|run| &run.writes)));
        }
        state.cover();
        Begin::Flush
    }

    /// Says that what was to be written again is written: now comes the flush.
    pub(crate) fn written(&self) {
        let mut state = self.of.state.lock();
        state.activity = Activity::Flush;
        state.cover();
        drop(state);
        self.of.changed.notify_all();
    }

    /// Says that the device may have lost something of what is kept.
    pub(crate) fn fail(&self) {
        self.of.state.lock().suspicions += 1;
    }

    /// Whether the flush that has succeeded says what it should: nothing has happened meanwhile.
    pub(crate) fn is_valid(&self) -> bool {
        self.of.state.lock().suspicions == self.suspicions
    }

    /// Ends. After success all that was done before the flush is let go of.
    pub(crate) fn end(mut self, result: Result<(), DeviceError>) -> Result<(), DeviceError> {
        self.finish(result.clone().err());
        result
    }

    fn finish(&mut self, error: Option<DeviceError>) {
        self.has_ended = true;
        let mut guard = self.of.state.lock();
        let state = &mut *guard;
        let mut confirmed = Vec::new();
        if error.is_none() && state.suspicions == self.suspicions {
            state.settled = self.suspicions;
            confirmed =
                state.runs.extract_if(.., |run| run.progress == Progress::Covered).collect();
            let kept = state.runs.iter().flat_map(|run| &run.writes);
            state.bytes = kept.map(|write| write.data.len()).sum();
        } else {
            state.uncover();
        }
        state.activity = Activity::None;
        state.ended = (self.number, error);
        drop(guard);
        self.of.changed.notify_all();
        // Giving much memory back takes a while.
        drop(confirmed);
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        // Somebody panics.
        if !self.has_ended {
            self.fail();
            let source = std::sync::Arc::new(std::io::ErrorKind::Interrupted.into());
            let error =
                DeviceError { device: "".into(), operation: "flush", offset: 0, len: 0, source };
            self.finish(Some(error));
        }
    }
}

impl State {
    /// A flush begins, which is about all that is done.
    fn cover(&mut self) {
        for run in self.runs.iter_mut().filter(|run| run.progress == Progress::Done) {
            run.progress = Progress::Covered;
        }
    }

    /// The flush has not succeeded.
    fn uncover(&mut self) {
        for run in self.runs.iter_mut().filter(|run| run.progress == Progress::Covered) {
            run.progress = Progress::Done;
        }
    }
}

/// What is to be found at each place after these writes, in this order; nothing overlaps.
fn latest<'w>(writes: impl Iterator<Item = &'w KeptWrite>) -> Vec<KeptWrite> {
    let mut found: BTreeMap<u64, KeptWrite> = BTreeMap::new();
    for write in writes {
        let (start, end) = (write.position, write.end());
        if let Some((first, before)) = found.range_mut(..start).next_back() {
            let rest = before.behind(end);
            before.data.truncate(usize::try_from(start - *first).unwrap_or(usize::MAX));
            found.extend(rest.map(|rest| (end, rest)));
        }
        while let Some((first, _)) = found.range(start..end).next() {
            let first = *first;
            let rest = found.remove(&first).and_then(|hidden| hidden.behind(end));
            found.extend(rest.map(|rest| (end, rest)));
        }
        found.insert(start, write.clone());
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(position: u64, data: &'static [u8]) -> KeptWrite {
        KeptWrite { position, data: Bytes::from_static(data), birth: Some(Txg(7)) }
    }

    fn lead(unconfirmed: &Unconfirmed) -> Lead<'_> {
        match unconfirmed.turn(unconfirmed.ticket()) {
            Turn::Lead(lead) => lead,
            other => panic!("{other:?}"),
        }
    }

    fn flush(unconfirmed: &Unconfirmed) {
        let mut lead = lead(unconfirmed);
        assert!(matches!(lead.begin(), Begin::Flush));
        lead.end(Ok(())).unwrap();
    }

    fn error() -> DeviceError {
        let source = std::sync::Arc::new(std::io::Error::from_raw_os_error(5));
        DeviceError { device: "disk".into(), operation: "flush", offset: 0, len: 0, source }
    }

    #[test]
    fn what_was_written_last_is_written_again() {
        let writes = [
            write(0, b"aaaa"),
            write(4, b"bbbb"),
            write(2, b"cccc"),
            write(20, b"dddddd"),
            write(22, b"ee"),
            write(30, b"f"),
            write(30, b"gg"),
        ];
        let mut image = [b' '; 32];
        for write in &writes {
            let start = write.position as usize;
            image[start..start + write.data.len()].copy_from_slice(&write.data);
        }
        let found = latest(writes.iter());
        let mut again = [b' '; 32];
        let mut end = 0;
        for write in &found {
            assert!(write.position >= end, "{found:?}");
            end = write.end();
            again[write.position as usize..end as usize].copy_from_slice(&write.data);
        }
        assert_eq!(again, image);
    }

    #[test]
    fn a_flush_confirms_what_was_done_before_it_began() {
        let kept = Unconfirmed::default();
        let (first, second) = (kept.begin(), kept.begin());
        kept.keep(first, [write(0, b"ab")]);
        kept.keep(second, [write(2, b"cd")]);
        assert_eq!(kept.end(first), 4);
        let mut lead = lead(&kept);
        assert!(matches!(lead.begin(), Begin::Flush));
        kept.end(second);
        lead.end(Ok(())).unwrap();
        assert!(!kept.is_empty(), "the second was under way");
        flush(&kept);
        assert!(kept.is_empty());
    }

    #[test]
    fn a_flush_that_fails_has_everything_written_again_also_what_is_under_way() {
        let kept = Unconfirmed::default();
        let (done, open) = (kept.begin(), kept.begin());
        kept.keep(done, [write(0, b"ab")]);
        kept.end(done);
        kept.keep(open, [write(2, b"cd")]);
        let mut lead = lead(&kept);
        assert!(matches!(lead.begin(), Begin::Flush));
        lead.fail();
        let Begin::Rewrite(again) = lead.begin() else { panic!("nothing is written again") };
        assert_eq!(again.len(), 2);
        lead.written();
        assert!(lead.is_valid());
        lead.end(Ok(())).unwrap();
        kept.end(open);
        flush(&kept);
        assert!(kept.is_empty());
    }

    #[test]
    fn a_device_that_was_away_during_a_flush_has_not_confirmed_anything() {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, [write(0, b"ab")]);
        kept.end(run);
        let mut lead = lead(&kept);
        assert!(matches!(lead.begin(), Begin::Flush));
        kept.suspect();
        assert!(!lead.is_valid());
        assert!(matches!(lead.begin(), Begin::Rewrite(_)));
        lead.written();
        lead.end(Ok(())).unwrap();
        assert!(kept.is_empty());
    }

    #[test]
    fn who_comes_during_a_flush_shares_the_next() {
        let kept = Unconfirmed::default();
        let first = lead(&kept);
        let tickets = [kept.ticket(), kept.ticket()];
        assert!(tickets.iter().all(|ticket| matches!(kept.turn(*ticket), Turn::Wait)));
        first.end(Ok(())).unwrap();
        let Turn::Lead(second) = kept.turn(tickets[0]) else { panic!("it is nobody's turn") };
        assert!(second.end(Err(error())).is_err());
        assert!(matches!(kept.turn(tickets[1]), Turn::Done(Err(_))));
    }

    #[test]
    fn what_is_given_up_is_told_by_its_births() {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, [write(0, b"ab"), KeptWrite { birth: None, ..write(9, b"label") }]);
        assert!(!kept.has_given_up(Txg(1)));
        assert_eq!(kept.give_up(), [Txg(7)].into());
        assert!(kept.has_given_up(Txg(7)) && !kept.has_given_up(Txg(8)));
        kept.end(run);
        assert!(kept.is_empty());
    }

    #[test]
    fn failed_writes_are_not_kept() {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, [write(0, b"ab"), write(2, b"cd")]);
        kept.forget(run, 0);
        assert_eq!(kept.end(run), 2);
    }
}
