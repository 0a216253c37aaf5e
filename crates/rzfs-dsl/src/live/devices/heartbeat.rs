//! Heartbeats of a pool with `multihost=on` (spec 01, section 10.1).
//!
//! A thread rewrites the last uberblock with a new time about every second, on one leaf after the
//! other. Hosts that want the pool watch for that. A host that cannot write heartbeats must stop
//! writing, because another one may have taken the pool over.

use crate::live::LiveError;
use crate::live::devices::current::PoolDevices;
use crate::live::durable::Durable;
use crate::live::environment::Environment;
use crate::live::suspension::Suspension;
use parking_lot::{Condvar, Mutex};
use rzfs_clock::{Clock, Waited};
use rzfs_format::Txg;
use rzfs_format::label::Multihost as HeartbeatSlots;
use rzfs_format::uberblock::{Multihost, MultihostConfig, Uberblock};
use rzfs_tunables::Tunables;
use std::sync::Arc;
use std::time::Duration;

/// The weight of the past in the average time between heartbeats.
const DECAY: u128 = 127;

/// How often a pool with `multihost=on` shows that it is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HeartbeatOptions {
    /// The time in which every leaf gets a heartbeat (`zfs_multihost_interval`).
    interval: Duration,
    /// The number of missed intervals after which the pool is suspended
    /// (`zfs_multihost_fail_intervals`); 0: never.
    fail_intervals: u16,
}

impl From<&Tunables> for HeartbeatOptions {
    fn from(tunables: &Tunables) -> Self {
        Self {
            interval: tunables.zfs_multihost_interval,
            fail_intervals: tunables.zfs_multihost_fail_intervals,
        }
    }
}

impl HeartbeatOptions {
    /// The form of these options in uberblocks.
    fn config(self, sequence: u16) -> MultihostConfig {
        let interval = u32::try_from(self.interval.as_millis()).unwrap_or(u32::MAX);
        MultihostConfig::new(interval, sequence, self.fail_intervals)
    }

    /// The minimum time that other hosts watch before they take the pool over.
    fn patience(self) -> Option<Duration> {
        let intervals = u32::from(self.fail_intervals);
        // One interval leaves no time for a slow device.
        (intervals > 0).then(|| self.interval.saturating_mul(intervals.max(2)))
    }
}

/// The state and control of a pool's heartbeat.
#[derive(Debug)]
pub(crate) struct HeartbeatControl {
    options: HeartbeatOptions,
    clock: Clock,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    rhythm: RunState,
    /// Beats so far.
    beats: u64,
    last: Last,
}

/// What the thread should do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RunState {
    Off,
    On,
    Ended,
}

/// The last successful heartbeat.
#[derive(Clone, Copy, Debug)]
struct Last {
    at: Duration,
    /// Average nanoseconds between two heartbeats.
    delay: u64,
    /// The number of the next one among those of the same txg and second.
    sequence: u16,
    txg: Txg,
    timestamp: u64,
}

impl HeartbeatControl {
    /// A heartbeat that is not running yet.
    pub(crate) fn new(options: HeartbeatOptions, clock: Clock) -> Self {
        let delay = u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX);
        let last = Last { at: clock.now(), delay, sequence: 1, txg: Txg(0), timestamp: 0 };
        let state = State { rhythm: RunState::Off, beats: 0, last };
        Self { options, clock, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Starts or stops the heartbeat, as the property says.
    pub(crate) fn follow(&self, multihost: bool) {
        let mut state = self.state.lock();
        let rhythm = if multihost { RunState::On } else { RunState::Off };
        if state.rhythm != RunState::Ended && state.rhythm != rhythm {
            state.rhythm = rhythm;
            state.last.at = self.clock.now();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Stops the thread.
    pub(crate) fn end(&self) {
        self.state.lock().rhythm = RunState::Ended;
        self.changed.notify_all();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.state.lock().rhythm == RunState::On
    }

    /// Whether the last ring slot is reserved for heartbeats.
    pub(crate) fn slots(&self) -> HeartbeatSlots {
        if self.is_on() { HeartbeatSlots::On } else { HeartbeatSlots::Off }
    }

    /// The multihost state in a txg's uberblock. It has number 0.
    pub(crate) fn of_txg(&self) -> Multihost {
        let state = self.state.lock();
        match state.rhythm {
            RunState::On => Multihost { delay: state.last.delay, config: self.options.config(0) },
            RunState::Off | RunState::Ended => Multihost { delay: 0, config: MultihostConfig(0) },
        }
    }

    /// Fails when other hosts may have taken the pool over.
    pub(crate) fn check(&self) -> Result<(), LiveError> {
        let state = self.state.lock();
        let silence = self.since(state.last);
        match self.options.patience() {
            Some(patience) if state.rhythm == RunState::On && silence > patience => {
                Err(LiveError::NoHeartbeat { seconds: silence.as_secs() })
            }
            _ => Ok(()),
        }
    }

    /// Time since the last successful heartbeat.
    fn since(&self, last: Last) -> Duration {
        self.clock.now().saturating_sub(last.at)
    }

    /// Waits for the next beat, of which there are `leaves` in an interval. Returns whether there
    /// is one, or the thread is to stop.
    fn wait(&self, leaves: usize) -> bool {
        let pause = self.options.interval / u32::try_from(leaves.max(1)).unwrap_or(u32::MAX);
        let mut due = self.clock.now() + pause;
        let mut state = self.state.lock();
        loop {
            let rhythm = state.rhythm;
            match rhythm {
                RunState::Ended => return false,
                RunState::Off => {
                    self.changed.wait(&mut state);
                    due = self.clock.now();
                }
                RunState::On => {
                    if self.clock.wait_until(&self.changed, &mut state, due) == Waited::Elapsed {
                        return true;
                    }
                }
            }
        }
    }

    /// The next heartbeat and its number, from the last uberblock on disk.
    fn next(&self, committed: Uberblock, now: u64) -> (Uberblock, u64) {
        let mut state = self.state.lock();
        state.beats += 1;
        let (beats, last) = (state.beats, &mut state.last);
        last.sequence = match (last.txg, last.timestamp) == (committed.txg, now) {
            true => last.sequence.wrapping_add(1),
            false => 1,
        };
        (last.txg, last.timestamp) = (committed.txg, now);
        let gap = nanoseconds(self.since(*last));
        let multihost =
            Multihost { delay: last.delay.max(gap), config: self.options.config(last.sequence) };
        (Uberblock { timestamp: now, multihost: Some(multihost), ..committed }, beats)
    }

    /// Records a successful heartbeat: the average rises quickly and falls slowly, but not below
    /// the pause between two.
    fn arrived(&self, leaves: usize) {
        let least = nanoseconds(self.options.interval) / leaves.max(1) as u64;
        let mut state = self.state.lock();
        let last = &mut state.last;
        let gap = nanoseconds(self.since(*last));
        let average = (u128::from(gap) + DECAY * u128::from(last.delay)) / (DECAY + 1);
        let average = u64::try_from(average).unwrap_or(u64::MAX);
        last.delay = gap.max(average).max(least);
        last.at = self.clock.now();
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The heartbeat thread.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    pub(crate) heart: Arc<HeartbeatControl>,
    pub(crate) devices: Arc<PoolDevices>,
    pub(crate) durable: Arc<Durable>,
    pub(crate) suspension: Arc<Suspension>,
    pub(crate) environment: Arc<dyn Environment>,
}

impl Heartbeat {
    /// Writes heartbeats until it is told to stop, or they no longer get through.
    pub(crate) fn run(&self) {
        loop {
            let vdevs = self.devices.vdevs();
            let leaves = vdevs.heartbeat_leaves();
            if !self.heart.wait(leaves) {
                return;
            }
            let committed = self.durable.uberblock();
            let (uberblock, turn) = self.heart.next(committed, self.environment.now());
            match vdevs.write_heartbeat(&uberblock, turn, self.environment.random()) {
                Ok(()) => self.heart.arrived(leaves),
                Err(error) => tracing::warn!(%error, "a heartbeat was lost"),
            }
            if let Err(error) = self.heart.check() {
                self.suspension.fail(error);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_clock::Passing;
    use rzfs_format::BlockPointer;
    use rzfs_format::uberblock::RaidzReflow;

    fn committed(txg: u64) -> Uberblock {
        Uberblock {
            version: 5000,
            txg: Txg(txg),
            guid_sum: 1,
            timestamp: 5,
            mos: BlockPointer::default(),
            software_version: 5000,
            multihost: None,
            checkpoint_txg: Txg(0),
            raidz_reflow: RaidzReflow(0),
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// A heartbeat every second, by this clock.
    fn heart_of(fail_intervals: u16, clock: Clock) -> HeartbeatControl {
        let heart =
            HeartbeatControl::new(HeartbeatOptions { interval: SECOND, fail_intervals }, clock);
        heart.follow(true);
        heart
    }

    fn heart(fail_intervals: u16) -> HeartbeatControl {
        heart_of(fail_intervals, Clock::system())
    }

    #[test]
    fn every_second_and_txg_counts_anew() {
        let heart = heart(10);
        let sequence = |txg, now| {
            let (uberblock, _) = heart.next(committed(txg), now);
            assert_eq!((uberblock.txg, uberblock.timestamp), (Txg(txg), now));
            uberblock.multihost.and_then(|multihost| multihost.config.sequence())
        };
        let numbers = [(1, 7), (1, 7), (1, 8), (1, 8), (2, 8)].map(|(txg, now)| sequence(txg, now));
        assert_eq!(numbers, [1, 2, 1, 2, 1].map(Some));
    }

    #[test]
    fn who_is_not_heard_must_not_write() {
        let (clock, time) = Clock::simulated(Passing::ByHand);
        let (silent, patient) = (heart_of(10, clock.clone()), heart_of(0, clock));
        time.advance(10 * SECOND);
        assert!(silent.check().is_ok());
        time.advance(SECOND);
        assert!(matches!(silent.check(), Err(LiveError::NoHeartbeat { seconds: 11 })));
        assert!(patient.check().is_ok());
        silent.follow(false);
        assert!(silent.check().is_ok(), "nobody listens");
    }

    #[test]
    fn every_leaf_gets_a_heartbeat_in_an_interval() {
        let (clock, time) = Clock::simulated(Passing::WhenIdle);
        let heart = heart_of(10, clock);
        for beat in 1..=20_u32 {
            assert!(heart.wait(4));
            assert_eq!(time.now(), SECOND / 4 * beat);
        }
        heart.end();
        assert!(!heart.wait(4));
    }

    #[test]
    fn uberblocks_say_whether_it_beats() {
        let heart = heart(10);
        assert_eq!(heart.of_txg().config, MultihostConfig::new(1000, 0, 10));
        assert_eq!(heart.slots(), HeartbeatSlots::On);
        heart.follow(false);
        assert_eq!(heart.of_txg(), Multihost { delay: 0, config: MultihostConfig(0) });
        assert_eq!(heart.slots(), HeartbeatSlots::Off);
    }

    #[test]
    fn the_average_rises_at_once_and_falls_slowly() {
        let heart =
            HeartbeatControl::new(HeartbeatOptions::from(&Tunables::default()), Clock::system());
        heart.follow(true);
        heart.arrived(1);
        let after_a_quick_one = heart.of_txg().delay;
        assert_eq!(after_a_quick_one, 1_000_000_000, "not below the interval");
        heart.state.lock().last.delay = 5_000_000_000;
        heart.arrived(1);
        let delay = heart.of_txg().delay;
        assert!((4_900_000_000..5_000_000_000).contains(&delay), "{delay}");
    }
}
