//! Writes to a leaf that may not be durable yet: everything since its last successful flush, kept
//! in memory until the next one; and refused writes, which it owes.
//!
//! A failed flush means that something was lost, but not what. Linux reports a failed write-back
//! once, and marks the pages clean: the next flush succeeds without writing anything. So everything
//! is written again before a flush counts.
//!
//! ```text
//! write ─> kept ───────────────── flush succeeds ──> confirmed, let go of
//!           │  ^ │                      │ fails, or the device was away
//!           │  │ └─ refused ─> owed ────┤
//!           │  └─ flush <── written again, nothing else meanwhile
//!           └─ the vdev does without the leaf ─> given up: the leaf lacks what it was
//! ```
//! An owed write belongs to a block that can be read without it, so a device that fails for a
//! moment lacks nothing. That matters because missing data is tracked by whole txgs: leaves that
//! fail one after the other, each for a moment and with other blocks, would all lack the same txg,
//! and nothing of it would count as readable.
//!
//! Until then readers find older contents on the device, or nothing. Kept writes are also available
//! to them: [`Unconfirmed::recall`].
//!
//! A write counts as kept before it is sent: one in progress while a flush fails may have been lost
//! with it. Kept blocks share their bytes.
//!
//! One thread at a time flushes a leaf; callers that arrive meanwhile share the next flush. Of two
//! concurrent flushes of one file, Linux reports a loss to only one.

mod witness;

pub(crate) use witness::Witness;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use rzfs_blockdev::DeviceError;
use rzfs_format::Txg;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Minimum bytes that a leaf keeps without a flush.
const LEAST_KEPT: usize = 2 << 20;

/// How many bytes each of this many leaves keeps before it is flushed, with `most` in total.
pub(crate) fn limit_of_leaf(leaves: usize, most: usize) -> usize {
    (most / leaves.max(1)).max(LEAST_KEPT)
}

/// A write that may have to be repeated.
#[derive(Clone, Debug)]
pub(crate) struct KeptWrite {
    /// Byte position on the device.
    pub(crate) position: u64,
    pub(crate) data: Bytes,
    /// The birth of its block; `None` for a part of a label.
    pub(crate) birth: Option<Txg>,
    pub(crate) standing: Standing,
}

/// The state of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It is in progress, or accepted by the device: it is relied on.
    Sent,
    /// The leaf has refused it, and nothing relies on it.
    Owed,
}

/// Selects writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Portion {
    All,
    /// Those of blocks. Parts of labels are few, and not tracked in dirty time logs.
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

    /// The part of it after a position, if any.
    fn behind(&self, position: u64) -> Option<Self> {
        let skipped = usize::try_from(position.checked_sub(self.position)?).ok()?;
        let data = (skipped < self.data.len()).then(|| self.data.slice(skipped..))?;
        Some(Self { position, data, birth: self.birth, standing: self.standing })
    }
}

/// Writes of one caller, who waits for all of them.
#[derive(Debug)]
struct Run {
    id: RunId,
    writes: Vec<KeptWrite>,
    progress: Progress,
    debts: Debts,
}

/// The state of a run's owed writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Debts {
    /// There are none.
    None,
    /// Nothing yet.
    Open,
    /// The current flush began with repeating them.
    Tried,
}

/// The progress of a run's writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// Some may be in progress.
    Open,
    /// All are done.
    Done,
    /// All were done when the current flush began.
    Covered,
}

impl Run {
    /// Marks writes as owed, by position; leaves those it does not have.
    fn owe(&mut self, positions: &mut BTreeSet<u64>) {
        let wanted = positions.clone();
        for write in self.writes.iter_mut().filter(|write| wanted.contains(&write.position)) {
            write.standing = Standing::Owed;
            self.debts = Debts::Open;
            positions.remove(&write.position);
        }
    }
}

/// What happens to refused writes of a run, by position.
#[derive(Default, Debug)]
pub(crate) struct Refused {
    /// The leaf is to get them later.
    pub(crate) owed: BTreeSet<u64>,
    /// Their caller handles them.
    pub(crate) forgotten: BTreeSet<u64>,
}

/// Identifies a run on its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RunId(u64);

/// The current activity on a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Activity {
    #[default]
    None,
    Flush,
    /// Kept writes are repeated: other writes wait, as they may go to the same places.
    Rewrite,
}

#[derive(Default, Debug)]
struct State {
    runs: Vec<Run>,
    next_run: u64,
    bytes: usize,
    activity: Activity,
    /// Number of flushes started.
    begun: u64,
    /// The result and number of the last finished flush.
    ended: (u64, Option<DeviceError>),
    /// The number of events after which kept writes must be repeated, and how many of these have
    /// been handled.
    suspicions: u64,
    settled: u64,
    /// The youngest birth of dropped writes that were relied on.
    given_up: Option<Txg>,
    /// Bytes repeated since the last success.
    in_vain: usize,
    /// Whether the leaf is not waited for until it is reopened.
    is_resigned: bool,
    /// The last confirmed block, if its place was not touched since.
    witness: Option<Witness>,
}

/// The kept writes of a leaf.
#[derive(Default, Debug)]
pub(crate) struct Unconfirmed {
    state: Mutex<State>,
    changed: Condvar,
    debts: DebtSummary,
}

/// The births of what a leaf may not have, for readers: what it owes, and all it keeps while that
/// must be repeated. It changes with the state only. Most leaves owe nothing, and checking that
/// takes no lock.
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

/// A flush that had not begun when it was requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u64);

/// What a caller that needs a flush has to do.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// Flush.
    FlushLead(FlushLead<'a>),
    /// Wait for another thread.
    Wait,
    /// Nothing: it was flushed.
    Done(Result<(), DeviceError>),
}

/// How a flush begins.
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
    /// The suspicions resolved if it succeeds.
    suspicions: u64,
    /// Writes refused again by the device.
    still_owed: Vec<KeptWrite>,
    has_ended: bool,
}

impl Unconfirmed {
    /// Starts a run: [`Self::end`] must be called when none of its writes is in progress.
    pub(crate) fn begin(&self) -> RunId {
        let mut state = self.state.lock();
        state.next_run += 1;
        RunId(state.next_run)
    }

    /// Keeps writes about to be sent. Waits while kept writes are repeated.
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

    /// Ends a run whose writes are all finished, and disposes of the refused ones. Returns those
    /// that the leaf cannot owe, as they are no longer kept.
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

    /// Whether more than this many bytes are kept that a flush may release.
    pub(crate) fn wants_flush(&self, limit: usize) -> bool {
        self.state.lock().bytes > limit
    }

    /// The contents of a range of the device including all kept writes, if some are in that range.
    /// `there` is what a reader has found, if anything; without it, all of the range must be kept.
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

    /// Whether more bytes than this are kept, or were repeated in vain. Unknown while the leaf is
    /// being flushed.
    pub(crate) fn exceeds(&self, limit: usize) -> bool {
        let state = self.state.lock();
        state.activity == Activity::None && state.bytes.max(state.in_vain) > limit
    }

    /// Whether all kept writes must be repeated.
    pub(crate) fn is_suspect(&self) -> bool {
        self.state.lock().is_suspect()
    }

    /// Records that kept writes may be lost, though nothing has failed: the device was away, or is
    /// another one.
    pub(crate) fn suspect(&self) {
        let mut state = self.state.lock();
        state.is_resigned = false;
        if !state.runs.is_empty() {
            state.suspicions += 1;
            self.count(&mut state);
        }
    }

    /// Whether any kept write is relied on.
    pub(crate) fn has_sent(&self) -> bool {
        let state = self.state.lock();
        let mut kept = state.runs.iter().flat_map(|run| &run.writes);
        kept.any(|write| write.standing == Standing::Sent)
    }

    /// The births of writes that are owed, or must be repeated.
    pub(crate) fn debts(&self) -> BTreeSet<Txg> {
        self.debts.get()
    }

    /// Whether any write is owed or must be repeated.
    pub(crate) fn has_debts(&self) -> bool {
        self.debts.is_any()
    }

    /// Whether a write born in `birth` is owed or must be repeated.
    pub(crate) fn owes(&self, birth: Txg) -> bool {
        self.debts.has(birth)
    }

    /// The births of selected kept writes.
    pub(crate) fn births(&self, portion: Portion) -> BTreeSet<Txg> {
        self.state.lock().births(portion).collect()
    }

    /// Whether a relied-on write born in `birth` or later may have been dropped.
    pub(crate) fn has_given_up(&self, birth: Txg) -> bool {
        self.state.lock().given_up.is_some_and(|last| last >= birth)
    }

    /// Drops writes born until `last` that are not durable. `lacks` gets the births of the blocks
    /// that the leaf lacks therefore, before it no longer owes them: a reader that checks debts
    /// first and then missing data always sees one of them.
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

    /// Adds owed writes that were not kept.
    pub(crate) fn owe(&self, writes: impl IntoIterator<Item = KeptWrite>) {
        let owed = |write| KeptWrite { standing: Standing::Owed, ..write };
        let writes: Vec<KeptWrite> = writes.into_iter().map(owed).collect();
        let state = &mut *self.state.lock();
        state.witness.take_if(|witness| writes.iter().any(|write| witness.lies_in(&write.range())));
        let index = state.runs.len();
        state.add_owed(index, writes);
        self.count(state);
    }

    /// The last block confirmed by the leaf, if nothing was sent to its place since.
    pub(crate) fn witness(&self) -> Option<Witness> {
        self.state.lock().witness.clone()
    }

    /// Records that a range of the device is about to be discarded.
    pub(crate) fn discards(&self, range: &Range<u64>) {
        self.state.lock().witness.take_if(|witness| witness.lies_in(range));
    }

    /// Stops waiting for the leaf until it is reopened.
    pub(crate) fn resign(&self) {
        self.state.lock().is_resigned = true;
    }

    /// Records that the leaf is open.
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

    /// Requests a flush that begins from now on.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.state.lock().begun + 1)
    }

    /// The next step towards a flush.
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

    /// Waits until there is a step to take towards a flush.
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

    /// The births of blocks with kept writes.
    fn births(&self, portion: Portion) -> impl Iterator<Item = Txg> {
        let kept = self.runs.iter().flat_map(|run| &run.writes);
        kept.filter(move |write| portion.has(write)).filter_map(|write| write.birth)
    }

    /// The writes to repeat before a flush.
    fn take_again(&mut self) -> Vec<KeptWrite> {
        let is_suspect = self.is_suspect();
        if !is_suspect && self.runs.iter().all(|run| run.debts == Debts::None) {
            return Vec::new();
        }
        // Refused writes of an unfinished run are handled by its caller.
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
    /// Starts, or restarts after a failure.
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

    /// Records that the device has refused owed writes again.
    pub(crate) fn refused(&mut self, writes: Vec<KeptWrite>) {
        self.still_owed = writes;
    }

    /// Marks the repeated writes as written: the flush comes next.
    pub(crate) fn written(&self) {
        let mut state = self.of.state.lock();
        state.activity = Activity::Flush;
        state.cover();
        drop(state);
        self.of.changed.notify_all();
    }

    /// Records that the device may have lost kept writes.
    pub(crate) fn fail(&self) {
        let mut state = self.of.state.lock();
        state.suspicions += 1;
        self.of.count(&mut state);
    }

    /// Whether a successful flush is conclusive: nothing has happened meanwhile.
    pub(crate) fn is_valid(&self) -> bool {
        self.of.state.lock().suspicions == self.suspicions
    }

    /// Ends the flush. After success everything done before it is released.
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
            state.record_witness(&confirmed);
            state.requeue_owed(std::mem::take(&mut self.still_owed));
            self.of.count(state);
        } else {
            state.uncover();
        }
        state.activity = Activity::None;
        state.ended = (self.number, error);
        drop(guard);
        self.of.changed.notify_all();
        // Freeing much memory takes a while.
        drop(confirmed);
    }
}

impl Drop for FlushLead<'_> {
    fn drop(&mut self) {
        // A panic is in progress.
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
    /// Starts a flush that covers everything done, except for writes owed since it was prepared.
    fn cover(&mut self) {
        let is_done = |run: &&mut Run| run.progress == Progress::Done && run.debts != Debts::Open;
        for run in self.runs.iter_mut().filter(is_done) {
            run.progress = Progress::Covered;
        }
    }

    /// Remembers one of the confirmed writes; not those of labels, which others write, too.
    fn record_witness(&mut self, confirmed: &[Run]) {
        let is_block =
            |write: &&KeptWrite| write.birth.is_some() && write.standing == Standing::Sent;
        let mut writes = confirmed.iter().rev().flat_map(|run| run.writes.iter().rev());
        let Some(last) = writes.find(is_block) else { return };
        let witness = Witness::of(last.position, &last.data);
        let mut kept = self.runs.iter().flat_map(|run| &run.writes);
        self.witness = (!kept.any(|write| witness.lies_in(&write.range()))).then_some(witness);
    }

    /// Records that the flush failed.
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

    /// Keeps writes refused again: they are older than all other kept ones.
    fn requeue_owed(&mut self, writes: Vec<KeptWrite>) {
        if writes.is_empty() {
            self.in_vain = 0;
            return;
        }
        self.add_owed(0, writes);
    }

    /// Keeps owed writes, before or after others.
    fn add_owed(&mut self, index: usize, writes: Vec<KeptWrite>) {
        self.next_run += 1;
        let id = RunId(self.next_run);
        let run = Run { id, writes, progress: Progress::Done, debts: Debts::Open };
        self.runs.insert(index.min(self.runs.len()), run);
    }
}

/// The final contents after these writes, in this order, without overlaps.
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
