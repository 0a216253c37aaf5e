//! What was written to a leaf and may not be durable yet: everything since its last successful
//! flush, kept in memory until the next one; and what it has refused, which it owes.
//!
//! A flush that fails says that something was lost, not what. Linux tells of a write-back that
//! failed once, and takes the pages for clean: the next flush succeeds, and has nothing to write.
//! So all of it is written again before a flush counts.
//!
//! ```text
//! write ─> kept ───────────────── flush succeeds ──> confirmed, let go of
//!           │  ^ │                      │ fails, or the device was away
//!           │  │ └─ refused ─> owed ────┤
//!           │  └─ flush <── written again, nothing else meanwhile
//!           └─ the vdev does without the leaf ─> given up: the leaf lacks what it was
//! ```
//! What is owed is a part of something that can be read without it. A device that fails for a
//! moment lacks nothing therefore. That matters because it is known for whole txgs what a leaf
//! lacks: leaves that fail one after the other, each for a moment and with other blocks, would lack
//! the same txg, and nothing of it could be taken for readable.
//!
//! A write counts as kept from before it is sent: one that is under way while a flush fails may
//! have been lost with it. What is kept of blocks is their own shared bytes.
//!
//! One thread at a time flushes a leaf; those who come meanwhile share the next flush. Two at once
//! could not be told apart: of two flushes of one file, Linux tells one that something was lost.

mod witness;

pub(crate) use witness::Witness;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use rzfs_blockdev::DeviceError;
use rzfs_format::Txg;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of all leaves of a pool that are kept before leaves are flushed, or given up, to let go of
/// some. What is under way comes on top, and what a txg writes while a device fails that the vdev
/// cannot do without.
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
    pub(crate) standing: Standing,
}

/// What is known of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It is under way, or the device has taken it: it is relied on.
    Sent,
    /// The leaf has not taken it, and nothing relies on it.
    Owed,
}

/// Which writes are meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Portion {
    All,
    /// Those of blocks. Parts of labels are few, and no dirty time log says that one is missing.
    Blocks,
    /// Those that the leaf owes.
    Owed,
}

impl Portion {
    fn has(self, write: &KeptWrite) -> bool {
        match self {
            Self::All => true,
            Self::Blocks => write.birth.is_some(),
            Self::Owed => write.standing == Standing::Owed,
        }
    }
}

impl KeptWrite {
    fn end(&self) -> u64 {
        self.position.saturating_add(self.data.len() as u64)
    }

    fn range(&self) -> Range<u64> {
        self.position..self.end()
    }

    /// What of it lies behind a position, if anything does.
    fn behind(&self, position: u64) -> Option<Self> {
        let skipped = usize::try_from(position.checked_sub(self.position)?).ok()?;
        let data = (skipped < self.data.len()).then(|| self.data.slice(skipped..))?;
        Some(Self { position, data, birth: self.birth, standing: self.standing })
    }
}

/// Writes of one caller, who waits for them all.
#[derive(Debug)]
struct Run {
    id: RunId,
    writes: Vec<KeptWrite>,
    progress: Progress,
    debts: Debts,
}

/// What has been done about those writes of a run that are owed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Debts {
    /// There are none.
    None,
    /// Nothing yet.
    Open,
    /// The flush that is under way began with writing them again.
    Tried,
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

impl Run {
    /// Takes writes for owed, by position; leaves those that it has not.
    fn owe(&mut self, positions: &mut BTreeSet<u64>) {
        let wanted = positions.clone();
        for write in self.writes.iter_mut().filter(|write| wanted.contains(&write.position)) {
            write.standing = Standing::Owed;
            self.debts = Debts::Open;
            positions.remove(&write.position);
        }
    }
}

/// What becomes of the writes of a run that were refused, by position.
#[derive(Default, Debug)]
pub(crate) struct Refused {
    /// The leaf is to get them later.
    pub(crate) owed: BTreeSet<u64>,
    /// Their caller knows, and sees to it.
    pub(crate) forgotten: BTreeSet<u64>,
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
    /// The youngest birth of what was given up that had been relied on.
    given_up: Option<Txg>,
    /// Bytes that were written again since that helped last.
    in_vain: usize,
    /// Whether nobody waits for the leaf before it is opened again.
    is_resigned: bool,
    /// The last block that was confirmed, if nothing has happened there since.
    witness: Option<Witness>,
}

/// What a leaf keeps.
#[derive(Default, Debug)]
pub(crate) struct Unconfirmed {
    state: Mutex<State>,
    changed: Condvar,
    debts: DebtSummary,
}

/// The births of what a leaf may not have, for readers: what it owes, and all that it keeps while
/// that has to be written again. It changes with the state only. Most leaves owe nothing, and
/// looking at that costs no lock.
#[derive(Default, Debug)]
struct DebtSummary {
    is_any: AtomicBool,
    births: RwLock<BTreeSet<Txg>>,
}

impl DebtSummary {
    fn set(&self, births: BTreeSet<Txg>) {
        let is_any = !births.is_empty();
        if !is_any && !self.is_any() {
            return;
        }
        *self.births.write() = births;
        self.is_any.store(is_any, Ordering::Release);
    }

    fn add(&self, births: impl IntoIterator<Item = Txg>) {
        let mut known = self.births.write();
        known.extend(births);
        self.is_any.store(!known.is_empty(), Ordering::Release);
    }

    fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    fn has(&self, birth: Txg) -> bool {
        self.is_any() && self.births.read().contains(&birth)
    }

    fn get(&self) -> BTreeSet<Txg> {
        if self.is_any() { self.births.read().clone() } else { BTreeSet::new() }
    }
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
    /// What the device has refused once more.
    still_owed: Vec<KeptWrite>,
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
            state.runs.push(Run {
                id: run,
                writes: Vec::new(),
                progress: Progress::Open,
                debts: Debts::None,
            });
            state.runs.len() - 1
        });
        if let Some(known) = state.runs.get_mut(index) {
            let before = known.writes.len();
            known.writes.extend(writes);
            let new = || known.writes.iter().skip(before);
            state.bytes += new().map(|write| write.data.len()).sum::<usize>();
            state.witness.take_if(|witness| new().any(|write| witness.lies_in(&write.range())));
            if state.suspicions != state.settled {
                self.debts.add(new().filter_map(|write| write.birth));
            }
        }
    }

    /// Says that none of a run's writes is under way any more, and what becomes of those that were
    /// refused. Answers with those that the leaf cannot owe, as they are not kept any more.
    pub(crate) fn end(&self, run: RunId, refused: Refused) -> BTreeSet<u64> {
        let Refused { mut owed, forgotten } = refused;
        let has_refused = !owed.is_empty() || !forgotten.is_empty();
        let state = &mut *self.state.lock();
        if let Some(known) = state.runs.iter_mut().rfind(|known| known.id == run) {
            known.progress = Progress::Done;
            if has_refused {
                known.writes.retain(|write| !forgotten.contains(&write.position));
                known.owe(&mut owed);
            }
        }
        state.runs.retain(|known| known.id != run || !known.writes.is_empty());
        if has_refused {
            self.count(state);
        }
        owed
    }

    /// Whether more than so many bytes are kept, which a flush may let go of.
    pub(crate) fn wants_flush(&self, limit: usize) -> bool {
        self.state.lock().bytes > limit
    }

    /// Whether more is kept, or was written again in vain, than so many bytes. While the leaf is
    /// being flushed that is not known.
    pub(crate) fn exceeds(&self, limit: usize) -> bool {
        let state = self.state.lock();
        state.activity == Activity::None && state.bytes.max(state.in_vain) > limit
    }

    /// Whether all that is kept has to be written again.
    pub(crate) fn is_suspect(&self) -> bool {
        self.state.lock().is_suspect()
    }

    /// Says that something of what is kept may be lost, though nothing has failed: the device was
    /// away, or is another one.
    pub(crate) fn suspect(&self) {
        let mut state = self.state.lock();
        state.is_resigned = false;
        if !state.runs.is_empty() {
            state.suspicions += 1;
            self.count(&mut state);
        }
    }

    /// Whether anything is kept that is relied on.
    pub(crate) fn has_sent(&self) -> bool {
        let state = self.state.lock();
        let mut kept = state.runs.iter().flat_map(|run| &run.writes);
        kept.any(|write| write.standing == Standing::Sent)
    }

    /// The births of what is owed, or may have been lost and has to be written again.
    pub(crate) fn debts(&self) -> BTreeSet<Txg> {
        self.debts.get()
    }

    /// Whether anything is owed or has to be written again.
    pub(crate) fn has_debts(&self) -> bool {
        self.debts.is_any()
    }

    /// Whether something that was born in `birth` is owed or has to be written again.
    pub(crate) fn owes(&self, birth: Txg) -> bool {
        self.debts.has(birth)
    }

    /// The births of some of what is kept.
    pub(crate) fn births(&self, portion: Portion) -> BTreeSet<Txg> {
        self.state.lock().births(portion).collect()
    }

    /// Whether something that was born in `birth` or later, and was relied on, may have been given
    /// up.
    pub(crate) fn has_given_up(&self, birth: Txg) -> bool {
        self.state.lock().given_up.is_some_and(|last| last >= birth)
    }

    /// Lets go of what was born until `last` without it being durable. `lacks` is told the births
    /// of the blocks that the leaf lacks therefore, before it owes them no more: nobody who looks
    /// at debts first and then at what is lacking sees neither.
    pub(crate) fn give_up(&self, portion: Portion, last: Txg, lacks: impl FnMut(Txg)) {
        let state = &mut *self.state.lock();
        let is_given_up = |write: &mut KeptWrite| {
            portion.has(write) && write.birth.is_none_or(|birth| birth <= last)
        };
        let mut births = BTreeSet::new();
        for run in &mut state.runs {
            for write in run.writes.extract_if(.., is_given_up) {
                births.extend(write.birth);
                if write.standing == Standing::Sent {
                    state.given_up = state.given_up.max(write.birth);
                }
            }
        }
        state.runs.retain(|run| !run.writes.is_empty());
        if state.runs.is_empty() {
            state.settled = state.suspicions;
        }
        state.in_vain = 0;
        births.into_iter().for_each(lacks);
        self.count(state);
    }

    /// Owes writes that were not kept.
    pub(crate) fn owe(&self, writes: impl IntoIterator<Item = KeptWrite>) {
        let owed = |write| KeptWrite { standing: Standing::Owed, ..write };
        let writes: Vec<KeptWrite> = writes.into_iter().map(owed).collect();
        let state = &mut *self.state.lock();
        state.witness.take_if(|witness| writes.iter().any(|write| witness.lies_in(&write.range())));
        let index = state.runs.len();
        state.add_owed(index, writes);
        self.count(state);
    }

    /// The last block that the leaf has confirmed, if nothing was sent to its place since.
    pub(crate) fn witness(&self) -> Option<Witness> {
        self.state.lock().witness.clone()
    }

    /// Says that a range of the device is about to be discarded.
    pub(crate) fn discards(&self, range: &Range<u64>) {
        self.state.lock().witness.take_if(|witness| witness.lies_in(range));
    }

    /// Says that nobody waits for the leaf before it is opened again.
    pub(crate) fn resign(&self) {
        self.state.lock().is_resigned = true;
    }

    /// Says that the leaf is open.
    pub(crate) fn reinstate(&self) {
        self.state.lock().is_resigned = false;
    }

    pub(crate) fn is_resigned(&self) -> bool {
        self.state.lock().is_resigned
    }

    /// Counts what is kept.
    fn count(&self, state: &mut State) {
        let portion = if state.is_suspect() { Portion::Blocks } else { Portion::Owed };
        self.debts.set(state.births(portion).collect());
        let kept = state.runs.iter().flat_map(|run| &run.writes);
        state.bytes = kept.map(|write| write.data.len()).sum();
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
        Turn::Lead(Lead { of: self, number, suspicions, still_owed: Vec::new(), has_ended: false })
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

    /// The births of blocks of which something is kept.
    fn births(&self, portion: Portion) -> impl Iterator<Item = Txg> {
        let kept = self.runs.iter().flat_map(|run| &run.writes);
        kept.filter(move |write| portion.has(write)).filter_map(|write| write.birth)
    }

    /// What has to be written again before a flush.
    fn take_again(&mut self) -> Vec<KeptWrite> {
        let is_suspect = self.is_suspect();
        if !is_suspect && self.runs.iter().all(|run| run.debts == Debts::None) {
            return Vec::new();
        }
        // What somebody who is still at work was refused is for them.
        let is_meant = |run: &Run, write: &KeptWrite| {
            run.progress != Progress::Open || write.standing == Standing::Sent
        };
        let writes = self
            .runs
            .iter()
            .flat_map(|run| run.writes.iter().filter(move |write| is_meant(run, write)));
        let mut found = latest(writes);
        if !is_suspect {
            found.retain(|write| Portion::Owed.has(write));
        }
        for run in &mut self.runs {
            if run.progress != Progress::Open && run.debts == Debts::Open {
                run.debts = Debts::Tried;
            }
        }
        self.in_vain += found.iter().map(|write| write.data.len()).sum::<usize>();
        found
    }
}

impl Lead<'_> {
    /// Begins, or begins again after something has gone wrong.
    pub(crate) fn begin(&mut self) -> Begin {
        let state = &mut *self.of.state.lock();
        self.suspicions = state.suspicions;
        self.still_owed.clear();
        let again = state.take_again();
        if again.is_empty() {
            state.cover();
            return Begin::Flush;
        }
        state.activity = Activity::Rewrite;
        Begin::Rewrite(again)
    }

    /// Says that the device has refused once more what it owed.
    pub(crate) fn refused(&mut self, writes: Vec<KeptWrite>) {
        self.still_owed = writes;
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
        let mut state = self.of.state.lock();
        state.suspicions += 1;
        self.of.count(&mut state);
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
            state.call_witness(&confirmed);
            state.owe_again(std::mem::take(&mut self.still_owed));
            self.of.count(state);
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
    /// A flush begins, which is about all that is done, but for what is owed since it was prepared.
    fn cover(&mut self) {
        let is_done = |run: &&mut Run| run.progress == Progress::Done && run.debts != Debts::Open;
        for run in self.runs.iter_mut().filter(is_done) {
            run.progress = Progress::Covered;
        }
    }

    /// Remembers one of the writes that were confirmed. Labels are none: others write them, too.
    fn call_witness(&mut self, confirmed: &[Run]) {
        let is_block =
            |write: &&KeptWrite| write.birth.is_some() && write.standing == Standing::Sent;
        let mut writes = confirmed.iter().rev().flat_map(|run| run.writes.iter().rev());
        let Some(last) = writes.find(is_block) else { return };
        let witness = Witness::of(last.position, &last.data);
        let mut kept = self.runs.iter().flat_map(|run| &run.writes);
        self.witness = (!kept.any(|write| witness.lies_in(&write.range()))).then_some(witness);
    }

    /// The flush has not succeeded.
    fn uncover(&mut self) {
        for run in &mut self.runs {
            if run.progress == Progress::Covered {
                run.progress = Progress::Done;
            }
            if run.debts == Debts::Tried {
                run.debts = Debts::Open;
            }
        }
    }

    /// Keeps what the device has refused once more: it is older than whatever else is kept.
    fn owe_again(&mut self, writes: Vec<KeptWrite>) {
        if writes.is_empty() {
            self.in_vain = 0;
            return;
        }
        self.add_owed(0, writes);
    }

    /// Keeps writes that are owed, before or after others.
    fn add_owed(&mut self, index: usize, writes: Vec<KeptWrite>) {
        self.next_run += 1;
        let id = RunId(self.next_run);
        let run = Run { id, writes, progress: Progress::Done, debts: Debts::Open };
        self.runs.insert(index.min(self.runs.len()), run);
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
        let (data, birth) = (Bytes::from_static(data), Some(Txg(7)));
        KeptWrite { position, data, birth, standing: Standing::Sent }
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
        kept.end(first, Refused::default());
        assert!(kept.wants_flush(3) && !kept.wants_flush(4));
        let mut lead = lead(&kept);
        assert!(matches!(lead.begin(), Begin::Flush));
        kept.end(second, Refused::default());
        lead.end(Ok(())).unwrap();
        assert!(kept.has_sent(), "the second was under way");
        flush(&kept);
        assert!(!kept.has_sent());
    }

    #[test]
    fn a_flush_that_fails_has_everything_written_again_also_what_is_under_way() {
        let kept = Unconfirmed::default();
        let (done, open) = (kept.begin(), kept.begin());
        kept.keep(done, [write(0, b"ab")]);
        kept.end(done, Refused::default());
        kept.keep(open, [write(2, b"cd")]);
        let mut lead = lead(&kept);
        assert!(matches!(lead.begin(), Begin::Flush));
        lead.fail();
        let Begin::Rewrite(again) = lead.begin() else { panic!("nothing is written again") };
        assert_eq!(again.len(), 2);
        lead.written();
        assert!(lead.is_valid());
        lead.end(Ok(())).unwrap();
        kept.end(open, Refused::default());
        flush(&kept);
        assert!(!kept.has_sent());
    }

    #[test]
    fn a_device_that_was_away_during_a_flush_has_not_confirmed_anything() {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, [write(0, b"ab")]);
        kept.end(run, Refused::default());
        let mut lead = lead(&kept);
        assert!(matches!(lead.begin(), Begin::Flush));
        kept.suspect();
        assert!(!lead.is_valid());
        assert!(matches!(lead.begin(), Begin::Rewrite(_)));
        lead.written();
        lead.end(Ok(())).unwrap();
        assert!(!kept.has_sent());
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
        assert_eq!(given_up(&kept, Portion::All), [Txg(7)]);
        assert!(kept.has_given_up(Txg(7)) && !kept.has_given_up(Txg(8)));
        kept.end(run, Refused::default());
        assert!(!kept.has_sent());
    }

    #[test]
    fn failed_writes_are_not_kept() {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, [write(0, b"ab"), write(2, b"cd")]);
        kept.end(run, Refused { forgotten: [0].into(), ..Refused::default() });
        assert!(kept.exceeds(1) && !kept.exceeds(2));
    }

    /// The births of what is given up of txg 7 and before.
    fn given_up(kept: &Unconfirmed, portion: Portion) -> Vec<Txg> {
        let mut births = Vec::new();
        kept.give_up(portion, Txg(7), |birth| births.push(birth));
        births
    }

    fn owing(writes: &[KeptWrite], positions: &[u64]) -> Unconfirmed {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, writes.iter().cloned());
        let owed = positions.iter().copied().collect();
        assert!(kept.end(run, Refused { owed, ..Refused::default() }).is_empty());
        kept
    }

    fn written_again(lead: &mut Lead<'_>) -> Vec<u64> {
        match lead.begin() {
            Begin::Flush => Vec::new(),
            Begin::Rewrite(writes) => writes.iter().map(|write| write.position).collect(),
        }
    }

    #[test]
    fn what_is_owed_is_written_again_alone_and_confirmed_by_the_flush() {
        let kept = owing(&[write(0, b"ab"), write(2, b"cd")], &[2]);
        assert!(kept.owes(Txg(7)) && !kept.owes(Txg(8)));
        let mut lead = lead(&kept);
        assert_eq!(written_again(&mut lead), [2]);
        lead.written();
        lead.end(Ok(())).unwrap();
        assert!(!kept.has_sent() && !kept.has_debts());
    }

    #[test]
    fn what_is_refused_again_is_owed_still_and_all_else_is_confirmed() {
        let kept = owing(&[write(0, b"ab"), write(2, b"cd")], &[0, 2]);
        let mut flushing = lead(&kept);
        assert_eq!(written_again(&mut flushing), [0, 2]);
        flushing.refused(vec![KeptWrite { standing: Standing::Owed, ..write(2, b"cd") }]);
        flushing.written();
        flushing.end(Ok(())).unwrap();
        assert!(kept.exceeds(1) && !kept.has_sent());
        assert_eq!(written_again(&mut lead(&kept)), [2]);
    }

    #[test]
    fn what_became_owed_during_a_flush_is_not_confirmed_by_it() {
        let kept = owing(&[write(0, b"ab")], &[0]);
        let late = kept.begin();
        kept.keep(late, [write(2, b"cd")]);
        let mut flushing = lead(&kept);
        assert_eq!(written_again(&mut flushing), [0]);
        kept.end(late, Refused { owed: [2].into(), ..Refused::default() });
        flushing.written();
        flushing.end(Ok(())).unwrap();
        assert_eq!(written_again(&mut lead(&kept)), [2]);
    }

    #[test]
    fn what_was_written_to_the_same_place_since_makes_a_debt_good() {
        let kept = owing(&[write(0, b"ab")], &[0]);
        let run = kept.begin();
        kept.keep(run, [write(0, b"cd")]);
        kept.end(run, Refused::default());
        flush(&kept);
        assert!(!kept.has_sent() && !kept.has_debts());
    }

    #[test]
    fn what_is_younger_is_not_given_up() {
        let young = KeptWrite { birth: Some(Txg(8)), ..write(2, b"cd") };
        let kept = owing(&[write(0, b"ab"), young, write(4, b"ef")], &[0]);
        assert_eq!(given_up(&kept, Portion::Owed), [Txg(7)]);
        assert!(!kept.has_given_up(Txg(7)), "nobody relied on it");
        assert_eq!(given_up(&kept, Portion::All), [Txg(7)]);
        assert!(kept.has_given_up(Txg(7)) && kept.has_sent());
    }

    #[test]
    fn what_is_given_up_is_owed_until_it_is_known_to_be_lacking() {
        let kept = owing(&[write(0, b"ab")], &[0]);
        let mut told = Vec::new();
        kept.give_up(Portion::Owed, Txg(7), |birth| told.push((birth, kept.owes(birth))));
        assert_eq!(told, [(Txg(7), true)]);
        assert!(!kept.owes(Txg(7)));
    }

    #[test]
    fn what_has_to_be_written_again_counts_as_owed_until_it_is_confirmed() {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, [write(0, b"ab")]);
        assert!(!kept.has_debts());
        let mut flushing = lead(&kept);
        assert!(matches!(flushing.begin(), Begin::Flush));
        flushing.fail();
        assert!(kept.owes(Txg(7)));
        kept.keep(run, [KeptWrite { birth: Some(Txg(8)), ..write(2, b"cd") }]);
        assert_eq!(kept.debts(), [Txg(7), Txg(8)].into());
        assert!(flushing.end(Err(error())).is_err());
        kept.end(run, Refused::default());
        let mut flushing = lead(&kept);
        assert_eq!(written_again(&mut flushing), [0, 2]);
        assert!(kept.owes(Txg(7)) && kept.owes(Txg(8)));
        flushing.written();
        flushing.end(Ok(())).unwrap();
        assert!(!kept.has_debts() && !kept.owes(Txg(7)));
    }

    #[test]
    fn labels_are_not_given_up_with_blocks() {
        let kept = Unconfirmed::default();
        let run = kept.begin();
        kept.keep(run, [write(0, b"ab"), KeptWrite { birth: None, ..write(9, b"label") }]);
        kept.end(run, Refused::default());
        assert_eq!(given_up(&kept, Portion::Blocks), [Txg(7)]);
        assert!(kept.exceeds(4) && !kept.exceeds(5));
        kept.suspect();
        assert_eq!(written_again(&mut lead(&kept)), [9]);
    }

    /// Whether there is a witness, and a device with this content has it.
    fn is_witnessed(kept: &Unconfirmed, content: &[u8]) -> Option<bool> {
        let witness = kept.witness()?;
        let start = witness.position() as usize;
        Some(witness.is_in(&content[start..start + witness.len()]))
    }

    #[test]
    fn what_was_confirmed_last_is_remembered_until_its_place_is_used_again() {
        let kept = Unconfirmed::default();
        let label = KeptWrite { birth: None, ..write(0, b"labe") };
        let run = kept.begin();
        kept.keep(run, [write(4, b"aaaa"), write(8, b"bbbb"), label.clone()]);
        kept.end(run, Refused::default());
        assert_eq!(is_witnessed(&kept, b"labeaaaabbbb"), None);
        flush(&kept);
        assert_eq!(is_witnessed(&kept, b"    aaaabbbb"), Some(true));
        assert_eq!(is_witnessed(&kept, b"labeaaaacccc"), Some(false));
        let run = kept.begin();
        kept.keep(run, [write(4, b"cccc"), label]);
        kept.end(run, Refused { forgotten: [4].into(), ..Refused::default() });
        flush(&kept);
        assert_eq!(is_witnessed(&kept, b"    aaaabbbb"), Some(true), "labels are no witnesses");
        let run = kept.begin();
        kept.keep(run, [write(8, b"dddd")]);
        assert_eq!(is_witnessed(&kept, b"    aaaabbbb"), None, "the place is being written");
        kept.end(run, Refused::default());
        flush(&kept);
        assert_eq!(is_witnessed(&kept, b"    aaaadddd"), Some(true));
        kept.discards(&(0..8));
        assert_eq!(is_witnessed(&kept, b"    aaaadddd"), Some(true));
        kept.discards(&(0..9));
        assert_eq!(is_witnessed(&kept, b"    aaaadddd"), None);
    }

    #[test]
    fn what_is_being_written_over_when_it_is_confirmed_is_no_witness() {
        let kept = Unconfirmed::default();
        let (done, open) = (kept.begin(), kept.begin());
        kept.keep(done, [write(0, b"aaaa")]);
        kept.end(done, Refused::default());
        kept.keep(open, [write(0, b"bbbb")]);
        flush(&kept);
        assert_eq!(kept.witness(), None);
    }

    #[test]
    fn what_was_not_kept_can_be_owed_all_the_same() {
        let kept = Unconfirmed::default();
        kept.owe([write(4, b"ef")]);
        assert!(kept.owes(Txg(7)) && !kept.has_sent());
        let mut flushing = lead(&kept);
        assert_eq!(written_again(&mut flushing), [4]);
        flushing.written();
        flushing.end(Ok(())).unwrap();
        assert!(!kept.has_debts());
    }
}
