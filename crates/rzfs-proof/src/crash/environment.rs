//! Time and randomness determined by a seed.

use parking_lot::Mutex;
use rzfs_clock::Clock;
use rzfs_dsl::import::HostIdentity;
use rzfs_dsl::live::Environment;
use rzfs_format::znode::Timestamp;
use rzfs_hostile::Random;
use rzfs_zpl::live::WallClock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When simulated time begins, in seconds since 1970.
const EPOCH: u64 = 1_750_000_000;

/// An environment that is the same for the same seed: its time advances by a second with each
/// query.
#[derive(Debug)]
pub struct ReplayedEnvironment {
    host: HostIdentity,
    random: Mutex<Random>,
    seconds: AtomicU64,
    clock: Clock,
}

impl ReplayedEnvironment {
    /// The environment of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            host: HostIdentity { id: 0, name: Some("proof".to_owned()) },
            random: Mutex::new(Random::new(seed)),
            seconds: AtomicU64::new(EPOCH),
            clock: Clock::system(),
        }
    }
}

impl Environment for ReplayedEnvironment {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn now_exactly(&self) -> Duration {
        Duration::from_secs(self.seconds.fetch_add(1, Ordering::Relaxed))
    }

    fn random(&self) -> u64 {
        self.random.lock().draw()
    }

    fn host(&self) -> &HostIdentity {
        &self.host
    }
}

impl WallClock for ReplayedEnvironment {
    fn now(&self) -> Timestamp {
        let seconds = self.seconds.fetch_add(1, Ordering::Relaxed);
        Timestamp { seconds: seconds.cast_signed(), nanoseconds: 5 }
    }
}
