#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod simulation;
mod waited;

pub use simulation::{Passing, Simulation};
pub use waited::Waited;

use parking_lot::{Condvar, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Tells the time, and lets it pass; clones tell the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System { start: Instant },
    Simulated(Simulation),
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// A clock that shows simulated time, and what makes that.
    #[must_use]
    pub fn simulated(passing: Passing) -> (Self, Simulation) {
        let simulation = Simulation::new(passing);
        (Self(Source::Simulated(simulation.clone())), simulation)
    }

    /// The time since some fixed moment; it never goes backwards.
    #[must_use]
    pub fn now(&self) -> Duration {
        match &self.0 {
            Source::System { start } => start.elapsed(),
            Source::Simulated(simulation) => simulation.now(),
        }
    }

    /// The time since 1970, which somebody may set. Simulated time begins at 1970.
    #[must_use]
    pub fn since_1970(&self) -> Duration {
        match &self.0 {
            Source::System { .. } => {
                SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
            }
            Source::Simulated(simulation) => simulation.now(),
        }
    }

    /// Sleeps.
    pub fn sleep(&self, time: Duration) {
        match &self.0 {
            Source::System { .. } => std::thread::sleep(time),
            Source::Simulated(simulation) => simulation.sleep(time),
        }
    }

    /// Waits for a condition until `deadline`, in the time of [`Clock::now`].
    pub fn wait_until<T>(
        &self,
        condition: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        deadline: Duration,
    ) -> Waited {
        match &self.0 {
            Source::System { start } => {
                let has_elapsed = match start.checked_add(deadline) {
                    Some(deadline) => condition.wait_until(guard, deadline).timed_out(),
                    None => {
                        condition.wait(guard);
                        false
                    }
                };
                if has_elapsed { Waited::Elapsed } else { Waited::Notified }
            }
            Source::Simulated(simulation) => simulation.wait_until(condition, guard, deadline),
        }
    }

    /// Waits for a condition for some time.
    pub fn wait_for<T>(
        &self,
        condition: &Condvar,
        guard: &mut MutexGuard<'_, T>,
        time: Duration,
    ) -> Waited {
        self.wait_until(condition, guard, self.now().saturating_add(time))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}
