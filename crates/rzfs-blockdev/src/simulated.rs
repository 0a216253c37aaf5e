//! A device for tests that can fail in any way, repeatably.
//!
//! It records every write and flush, so that a test can run a workload once and then examine the
//! state that a crash at any moment would have left ([`History::crash_image`]); it completes
//! requests in any order; and it fails, corrupts, loses and misdirects on demand ([`Fault`]).
//! Everything random follows from the seed of the [`Simulation`] and from the order of requests.

mod fault;
mod history;
mod random;

pub use fault::{Fault, FaultKind};
pub use history::{Event, EventKind, History, Loss, Moment};

use crate::device::check_range;
use crate::reply::Reply;
use crate::{BlockDevice, CompletionQueue, DeviceGeometry, IoBuffer, IoOperation, IoRequest};
use bytes::Bytes;
use history::{place, torn};
use parking_lot::Mutex;
use random::Random;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The contents of discarded sectors: unlike zeros, they reveal code that relies on them.
const DISCARDED: u8 = 0xdd;

/// The clock and the seed shared by the devices of one test.
#[derive(Debug)]
pub struct Simulation {
    seed: u64,
    clock: Arc<AtomicU64>,
    devices: AtomicU64,
}

impl Simulation {
    /// A simulation; the same seed gives the same run.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, clock: Arc::default(), devices: AtomicU64::new(0) }
    }

    /// A device with this content and sectors of 512 bytes.
    #[must_use]
    pub fn device(&self, name: impl Into<Arc<str>>, content: Vec<u8>) -> SimulatedDevice {
        self.device_with_sector(name, content, 512)
    }

    /// A device with this content and sectors of `sector` bytes, which is rounded up to a power of
    /// two from 512.
    #[must_use]
    pub fn device_with_sector(
        &self,
        name: impl Into<Arc<str>>,
        content: Vec<u8>,
        sector: u32,
    ) -> SimulatedDevice {
        let index = self.devices.fetch_add(1, Ordering::Relaxed);
        let sector = sector.max(512).checked_next_power_of_two().unwrap_or(1 << 31);
        let geometry = DeviceGeometry {
            size: content.len() as u64,
            logical_sector: sector,
            physical_sector: sector,
        };
        let mut random = Random::derive(self.seed, index);
        let corruption_seed = random.next();
        SimulatedDevice {
            name: name.into(),
            geometry,
            clock: Arc::clone(&self.clock),
            corruption_seed,
            state: Mutex::new(State {
                history: History::new(Bytes::from(content.clone()), u64::from(sector)),
                content,
                random,
                order: CompletionOrder::Submitted,
                held: Vec::new(),
                faults: BTreeMap::new(),
                next_fault: 0,
                presence: Presence::Here,
                counts: OperationCounts::default(),
            }),
        }
    }

    /// The current moment, for a crash of all devices at once.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment(self.clock.load(Ordering::Relaxed))
    }
}

/// The order in which a simulated device performs and completes requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CompletionOrder {
    /// At once, in the order of the batch.
    #[default]
    Submitted,
    /// At once, each batch in random order.
    Shuffled,
    /// Done at once, but completed, in random order, only by [`SimulatedDevice::release`].
    Held,
}

/// Identifies a fault, to end it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FaultId(u64);

/// The number of operations requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OperationCounts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// How many operations were affected by faults.
    pub faults: u64,
}

/// A device for tests that can fail in any way, repeatably.
pub struct SimulatedDevice {
    name: Arc<str>,
    geometry: DeviceGeometry,
    clock: Arc<AtomicU64>,
    corruption_seed: u64,
    state: Mutex<State>,
}

struct State {
    /// The contents seen by reads.
    content: Vec<u8>,
    history: History,
    random: Random,
    order: CompletionOrder,
    held: Vec<Held>,
    faults: BTreeMap<FaultId, Fault>,
    next_fault: u64,
    presence: Presence,
    counts: OperationCounts,
}

/// Whether a device is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Here,
    /// Pulled, and not accessed since.
    AwayUnseen,
    Away,
    /// Put back unnoticed.
    BackUnseen,
}

/// A request that is done but not completed.
struct Held {
    reply: Reply,
    result: io::Result<Option<IoBuffer>>,
    /// Its place in the history.
    event: Option<usize>,
}

impl SimulatedDevice {
    /// Changes the order in which requests are done and completed, from now on.
    pub fn set_order(&self, order: CompletionOrder) {
        self.state.lock().order = order;
    }

    /// Number of requests done but not completed.
    #[must_use]
    pub fn held(&self) -> usize {
        self.state.lock().held.len()
    }

    /// Completes up to `count` held requests, chosen at random; returns their number.
    pub fn release(&self, count: usize) -> usize {
        let state = &mut *self.state.lock();
        let count = count.min(state.held.len());
        for _ in 0..count {
            let chosen = state.random.below(state.held.len());
            let held = state.held.swap_remove(chosen);
            self.answer(state, held);
        }
        count
    }

    /// Adds a fault from now on; the newest fault that affects an operation applies.
    pub fn inject(&self, fault: Fault) -> FaultId {
        let state = &mut *self.state.lock();
        let id = FaultId(state.next_fault);
        state.next_fault += 1;
        state.faults.insert(id, fault);
        id
    }

    /// Ends a fault.
    pub fn heal(&self, fault: FaultId) {
        self.state.lock().faults.remove(&fault);
    }

    /// Ends all faults.
    pub fn heal_all(&self) {
        self.state.lock().faults.clear();
    }

    /// Pulls the device: every request fails with `ENXIO` until [`Self::attach`]. Its contents
    /// stay.
    pub fn detach(&self) {
        self.state.lock().presence = Presence::AwayUnseen;
    }

    /// Puts the device back.
    pub fn attach(&self) {
        self.state.lock().presence = Presence::Here;
    }

    /// Puts the device back such that its absence is noticed: if no request has failed since it was
    /// pulled, the next one does.
    pub fn reconnect(&self) {
        let state = &mut *self.state.lock();
        state.presence = match state.presence {
            Presence::AwayUnseen | Presence::BackUnseen => Presence::BackUnseen,
            Presence::Away | Presence::Here => Presence::Here,
        };
    }

    /// Loses writes that are not durable, as a device that loses its power alone.
    pub fn lose_cache(&self) {
        let state = &mut *self.state.lock();
        state.content = state.history.drop_loose(self.tick());
    }

    /// Changes the medium, durably, without a write: silent corruption. Data beyond the end is
    /// dropped.
    pub fn damage(&self, offset: u64, bytes: impl Into<Bytes>) {
        let state = &mut *self.state.lock();
        let bytes = bytes.into();
        let now = self.tick();
        place(&mut state.content, offset, bytes.clone());
        let kind = EventKind::Damage { offset, bytes };
        state.history.events.push(Event { submitted: now, completed: Some(now), kind });
    }

    /// Cuts the power now: held requests fail with `ENXIO`, loose writes are lost as `loss` says,
    /// and the history restarts with what remains.
    pub fn cut_power(&self, loss: &Loss) {
        let state = &mut *self.state.lock();
        for held in state.held.drain(..) {
            held.reply.answer(Err(Errno::NXIO.into()));
        }
        state.content = state.history.crash_image(self.tick(), loss);
        state.history = History::new(
            Bytes::from(state.content.clone()),
            u64::from(self.geometry.logical_sector),
        );
    }

    /// The contents currently seen by reads.
    #[must_use]
    pub fn content(&self) -> Vec<u8> {
        self.state.lock().content.clone()
    }

    /// The history of all writes so far.
    #[must_use]
    pub fn history(&self) -> History {
        self.state.lock().history.clone()
    }

    /// The number of operations requested.
    #[must_use]
    pub fn counts(&self) -> OperationCounts {
        self.state.lock().counts
    }

    /// Advances the clock and reads it.
    fn tick(&self) -> Moment {
        Moment(self.clock.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn answer(&self, state: &mut State, held: Held) {
        if held.result.is_ok()
            && let Some(event) = held.event.and_then(|index| state.history.events.get_mut(index))
        {
            event.completed = Some(self.tick());
        }
        held.reply.answer(held.result);
    }

    /// Performs one request; returns the result and its place in the history.
    fn perform(
        &self,
        state: &mut State,
        submitted: Moment,
        request: IoRequest,
    ) -> (io::Result<Option<IoBuffer>>, Option<usize>) {
        state.counts.add(&request.operation);
        if state.presence != Presence::Here {
            state.presence = match state.presence {
                Presence::BackUnseen => Presence::Here,
                _ => Presence::Away,
            };
            return (Err(Errno::NXIO.into()), None);
        }
        if let Err(error) = check_range(&self.geometry, request.offset, &request.operation) {
            return (Err(error), None);
        }
        let fault = state.strike(request.offset, &request.operation);
        state.counts.faults += u64::from(fault.is_some());
        let kind = fault.as_ref().map(Fault::kind);
        match (request.operation, kind) {
            (
                _,
                Some(
                    FaultKind::FailRead(errno)
                    | FaultKind::FailWrite(errno)
                    | FaultKind::FailFlush(errno)
                    | FaultKind::FailDiscard(errno),
                ),
            ) => (Err(io::Error::from_raw_os_error(errno)), None),
            (_, Some(FaultKind::DropOnFlush(errno))) => {
                state.content = state.history.drop_loose(submitted);
                (Err(io::Error::from_raw_os_error(errno)), None)
            }
            (IoOperation::Read(mut buffer), _) => {
                let result = state.read(request.offset, &mut buffer);
                if let Some(fault) = &fault {
                    let sector = u64::from(self.geometry.logical_sector);
                    fault.corrupt(self.corruption_seed, request.offset, sector, &mut buffer);
                }
                (result.map(|()| Some(buffer)), None)
            }
            (IoOperation::Flush, Some(_)) => (Ok(None), None),
            (IoOperation::Flush, None) => (Ok(None), state.record(submitted, EventKind::Flush)),
            (IoOperation::Write(bytes), _) => {
                self.write(state, submitted, request.offset, bytes, kind)
            }
            (IoOperation::Gather(pieces), _) => {
                let bytes = Bytes::from(pieces.concat());
                self.write(state, submitted, request.offset, bytes, kind)
            }
            (IoOperation::Discard { len }, _) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                let bytes = Bytes::from(vec![DISCARDED; len]);
                (Ok(None), state.write(submitted, request.offset, bytes))
            }
        }
    }

    fn write(
        &self,
        state: &mut State,
        submitted: Moment,
        offset: u64,
        bytes: Bytes,
        fault: Option<FaultKind>,
    ) -> (io::Result<Option<IoBuffer>>, Option<usize>) {
        match fault {
            Some(FaultKind::LoseWrite) => (Ok(None), None),
            Some(FaultKind::TearWrite(errno)) => {
                let sector = u64::from(self.geometry.logical_sector);
                for part in torn(&mut state.random, bytes.len(), sector) {
                    let at = offset + part.start as u64;
                    state.write(submitted, at, bytes.slice(part));
                }
                (Err(io::Error::from_raw_os_error(errno)), None)
            }
            Some(FaultKind::MisdirectWrite(distance)) => {
                let event = offset
                    .checked_add_signed(distance)
                    .and_then(|astray| state.write(submitted, astray, bytes));
                (Ok(None), event)
            }
            _ => (Ok(None), state.write(submitted, offset, bytes)),
        }
    }
}

impl State {
    /// The fault that affects an operation, if any: the newest.
    fn strike(&mut self, offset: u64, operation: &IoOperation) -> Option<Fault> {
        let mut faults = self.faults.values_mut().rev();
        faults.find_map(|fault| fault.strikes(offset, operation).then(|| fault.clone()))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let source = self.content.get(start..start.saturating_add(buffer.len()));
        buffer.copy_from_slice(source.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write(&mut self, submitted: Moment, offset: u64, bytes: Bytes) -> Option<usize> {
        place(&mut self.content, offset, bytes.clone());
        self.record(submitted, EventKind::Write { offset, bytes })
    }

    fn record(&mut self, submitted: Moment, kind: EventKind) -> Option<usize> {
        self.history.events.push(Event { submitted, completed: None, kind });
        self.history.events.len().checked_sub(1)
    }
}

impl OperationCounts {
    const fn add(&mut self, operation: &IoOperation) {
        match operation {
            IoOperation::Read(_) => self.reads += 1,
            IoOperation::Write(_) | IoOperation::Gather(_) => self.writes += 1,
            IoOperation::Flush => self.flushes += 1,
            IoOperation::Discard { .. } => self.discards += 1,
        }
    }
}

impl BlockDevice for SimulatedDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn geometry(&self) -> DeviceGeometry {
        self.geometry
    }

    fn submit(&self, mut requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        let state = &mut *self.state.lock();
        let submitted = self.tick();
        if state.order != CompletionOrder::Submitted {
            state.random.shuffle(&mut requests);
        }
        for request in requests {
            let reply = Reply::new(&self.name, &request, completions);
            let (result, event) = self.perform(state, submitted, request);
            let done = Held { reply, result, event };
            if state.order == CompletionOrder::Held {
                state.held.push(done);
            } else {
                self.answer(state, done);
            }
        }
    }
}

impl fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedDevice({}, {} bytes)", self.name, self.geometry.size)
    }
}
