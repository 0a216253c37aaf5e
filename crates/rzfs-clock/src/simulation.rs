//! Simulated time.
//!
//! Whoever waits for a moment notes it, and looks every now and then in real time whether it has
//! come; so waiting needs nobody who wakes the conditions of others.

use crate::waited::Waited;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Real time between two looks at the simulated one. In so long somebody who has something to do
/// is taken to have done it.
const LOOK: Duration = Duration::from_millis(1);

/// How simulated time passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passing {
    /// Only when somebody [moves](Simulation::advance) it.
    ByHand,
    /// Also when all that somebody does is to wait for it: to the nearest moment waited for.
    WhenIdle,
}

/// Simulated time; clones are the same time.
#[derive(Clone, Debug)]
pub struct Simulation {
    passing: Passing,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    /// The moments that are waited for, told apart by numbers.
    awaited: BTreeSet<(Duration, u64)>,
    waits: u64,
}

impl Simulation {
    pub(crate) fn new(passing: Passing) -> Self {
        Self { passing, state: Arc::default() }
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        let mut state = self.state.lock();
        state.now = state.now.saturating_add(time);
    }

    pub(crate) fn sleep(&self, time: Duration) {
        let moment = self.note(self.now().saturating_add(time));
        while !self.has_come(moment) {
            std::thread::sleep(LOOK);
        }
        self.forget(moment);
    }

    pub(crate) fn wait_until<T>(
        &self,
        condition: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        deadline: Duration,
    ) -> Waited {
        let moment = self.note(deadline);
        let waited = loop {
            if self.now() >= deadline {
                break Waited::Elapsed;
            }
            if !condition.wait_for(guard, LOOK).timed_out() {
                break Waited::Notified;
            }
            if self.has_come(moment) {
                break Waited::Elapsed;
            }
        };
        self.forget(moment);
        waited
    }

    fn note(&self, moment: Duration) -> (Duration, u64) {
        let mut state = self.state.lock();
        state.waits += 1;
        let noted = (moment, state.waits);
        state.awaited.insert(noted);
        noted
    }

    fn forget(&self, moment: (Duration, u64)) {
        self.state.lock().awaited.remove(&moment);
    }

    /// Whether a moment has come. That it is asked for makes it come, where time passes by itself
    /// and nobody waits for an earlier one.
    fn has_come(&self, moment: (Duration, u64)) -> bool {
        let mut state = self.state.lock();
        if self.passing == Passing::WhenIdle && state.awaited.first() == Some(&moment) {
            state.now = state.now.max(moment.0);
        }
        state.now >= moment.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn time_stands_still_until_it_is_moved() {
        let (clock, time) = Clock::simulated(Passing::ByHand);
        let (lock, condition) = (Mutex::new(()), Condvar::new());
        assert_eq!(clock.now(), Duration::ZERO);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| clock.wait_for(&condition, &mut lock.lock(), HOUR));
            time.advance(HOUR / 2);
            assert!(!waits.is_finished());
            // However late it began to wait.
            while !waits.is_finished() {
                time.advance(HOUR);
            }
            assert_eq!(waits.join().unwrap(), Waited::Elapsed);
        });
    }

    #[test]
    fn whoever_is_notified_waits_no_longer() {
        let (clock, time) = Clock::simulated(Passing::ByHand);
        let (lock, condition) = (Mutex::new(false), Condvar::new());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut is_told = lock.lock();
                while !*is_told {
                    let waited = clock.wait_for(&condition, &mut is_told, HOUR);
                    assert_eq!(waited, Waited::Notified);
                }
            });
            *lock.lock() = true;
            condition.notify_all();
            waits.join().unwrap();
        });
        assert_eq!(time.now(), Duration::ZERO);
    }

    #[test]
    fn idle_time_passes_from_moment_to_moment() {
        let (clock, _) = Clock::simulated(Passing::WhenIdle);
        let beats = std::thread::scope(|scope| {
            let long = scope.spawn(|| clock.sleep(HOUR));
            let mut beats = 0;
            while !long.is_finished() && beats < 1000 {
                let before = clock.now();
                clock.sleep(HOUR / 20);
                beats += 1;
                assert!(clock.now() >= before + HOUR / 20);
            }
            beats
        });
        assert!((1..=1000).contains(&beats), "{beats}");
        assert!(clock.now() >= HOUR);
    }
}
