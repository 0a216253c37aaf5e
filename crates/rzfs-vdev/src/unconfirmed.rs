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
//! Until then readers find in the device what was there before, or nothing. What is kept is there for
//! them, too: [`Unconfirmed::recall`].
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

/// The least that a leaf keeps without being flushed.
const LEAST_KEPT: usize = 2 << 20;

/// How many bytes each of so many leaves keeps before it is flushed, where all of them keep `most`.
pub(crate) fn limit_of_leaf(leaves: usize, most: usize) -> usize {
    (most / leaves.max(1)).max(LEAST_KEPT)
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
    FlushLead(FlushLead<'a>),
    /// To wait for somebody else.
    Wait,
    /// Nothing: it was flushed.
    Done(Result<(), DeviceError>),
}

/// How a flush is to begin.
#[derive(Debug)]
pub(crate) enum FlushStart {
    /// With the flush itself.
    Flush,
    /// With these writes, which do not overlap; [`FlushLead::written`] has to be called.
    Rewrite(Vec<KeptWrite>),
}

/// The right to flush a leaf, until it is dropped.
#[derive(Debug)]
pub(crate) struct FlushLead<'a> {
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

    /// A range of the device as it is once the leaf has all that is kept, if some of that lies
    /// there. `there` is what a reader has found, if anything; without, all of it has to be kept.
    pub(crate) fn recall(&self, range: &Range<u64>, there: Option<&[u8]>) -> Option<Bytes> {
        let lies_there =
            |write: &&KeptWrite| write.position < range.end && range.start < write.end();
        let kept = {
            let state = self.state.lock();
            latest(state.runs.iter().flat_map(|run| &run.writes).filter(lies_there))
        };
        if kept.is_empty() {
            return None;
        }
        let length = |bytes: u64| usize::try_from(bytes).ok();
        let mut found = vec![0; length(range.end - range.start)?];
        if let Some(there) = there {
            found.get_mut(..there.len())?.copy_from_slice(there);
        }
        let mut recalled = 0;
        for write in kept {
            let (start, end) = (write.position.max(range.start), write.end().min(range.end));
            let own = length(start - write.position)?..length(end - write.position)?;
            let place = length(start - range.start)?..length(end - range.start)?;
            recalled += place.len();
            found.get_mut(place)?.copy_from_slice(write.data.get(own)?);
        }
        (there.is_some() || recalled == found.len()).then(|| found.into())
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
        Turn::FlushLead(FlushLead {
            of: self,
            number,
            suspicions,
            still_owed: Vec::new(),
            has_ended: false,
        })
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

impl FlushLead<'_> {
    /// Begins, or begins again after something has gone wrong.
    pub(crate) fn begin(&mut self) -> FlushStart {
        let state = &mut *self.of.state.lock();
        self.suspicions = state.suspicions;
        self.still_owed.clear();
        let again = state.take_again();
        if again.is_empty() {
            state.cover();
            return FlushStart::Flush;
        }
        state.activity = Activity::Rewrite;
        FlushStart::Rewrite(again)
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

impl Drop for FlushLead<'_> {
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
mod tests;
