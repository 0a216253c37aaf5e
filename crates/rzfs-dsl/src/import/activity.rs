//! Watching a pool for another host's heartbeat (spec 01, sections 10.2 and 10.3).
//!
//! A host that has a pool with `multihost=on` rewrites an uberblock about every second. Before such
//! a pool is opened, its best uberblock is polled for as long as the owner may be silent; if it
//! changes, the pool is in use. Nothing is written.

use super::error::ImportError;
use super::host::HostIdentity;
use rzfs_format::Txg;
use rzfs_format::config::LastHost;
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::Uberblock;
use rzfs_tunables::Tunables;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Interval between polls.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Longest watch: settings in uberblocks are untrusted too.
const LONGEST_WATCH: Duration = Duration::from_secs(24 * 3600);

/// Outcome of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The time elapsed.
    Elapsed,
    /// The caller cancelled the wait.
    Interrupted,
}

/// Time and randomness, replaceable in tests.
pub trait Clock: Send + Sync {
    /// Sleeps.
    fn sleep(&self, time: Duration) -> Wait;

    /// A random number below `bound`, which is not 0.
    fn random(&self, bound: u64) -> u64;
}

/// The system's clock, with randomness from its hash seeds.
#[derive(Clone, Debug)]
pub struct SystemClock(rzfs_clock::Clock);

impl Default for SystemClock {
    fn default() -> Self {
        Self(rzfs_clock::Clock::system())
    }
}

impl Clock for SystemClock {
    fn sleep(&self, time: Duration) -> Wait {
        self.0.sleep(time);
        Wait::Elapsed
    }

    fn random(&self, bound: u64) -> u64 {
        RandomState::new().hash_one(bound) % bound.max(1)
    }
}

/// What is known about a pool's owner before it is opened.
pub(super) struct Watch<'a> {
    /// This host.
    pub(super) host: &'a HostIdentity,
    /// The host in the newest label.
    pub(super) last: &'a LastHost,
    /// The state in the newest label.
    pub(super) state: PoolState,
    pub(super) clock: &'a dyn Clock,
    pub(super) tunables: &'a Tunables,
}

impl Watch<'_> {
    /// Watches the pool whose best uberblock is `best`, if its settings demand that. `look` rereads
    /// the best uberblock.
    ///
    /// # Errors
    /// [`ImportError::ActiveElsewhere`] when it changes, [`ImportError::HostIdRequired`] when this
    /// host has no id to tell itself from the owner.
    pub(super) fn run(
        &self,
        best: &Uberblock,
        mut look: impl FnMut() -> Option<Uberblock>,
    ) -> Result<(), ImportError> {
        if !self.is_needed(best) {
            return Ok(());
        }
        if self.host.id == 0 {
            return Err(ImportError::HostIdRequired);
        }
        let watch = duration(best, self.tunables).min(LONGEST_WATCH);
        let quarter = u64::try_from(watch.as_nanos() / 4).unwrap_or(u64::MAX);
        let mut left = watch + Duration::from_nanos(self.clock.random(quarter.max(1)));
        tracing::info!(seconds = left.as_secs(), "watching for activity of another host");
        while !left.is_zero() {
            let pause = left.min(LOOK_INTERVAL);
            if self.clock.sleep(pause) == Wait::Interrupted {
                return Err(ImportError::Interrupted);
            }
            left -= pause;
            if look().is_some_and(|now| heartbeat(&now) != heartbeat(best)) {
                return Err(ImportError::ActiveElsewhere { host: self.last.clone() });
            }
        }
        Ok(())
    }

    fn is_needed(&self, best: &Uberblock) -> bool {
        let exported_by_us =
            self.host.id != 0 && self.host.wrote(self.last) && self.state == PoolState::Exported;
        let destroyed = self.state == PoolState::Destroyed;
        let heartbeats = best.multihost.is_some_and(|multihost| multihost.delay != 0);
        heartbeats && !exported_by_us && !destroyed
    }
}

/// The fields that change with every heartbeat.
fn heartbeat(uberblock: &Uberblock) -> (Txg, u64, u16) {
    uberblock.precedence()
}

/// How long the owner of a pool may be silent.
fn duration(best: &Uberblock, tunables: &Tunables) -> Duration {
    let intervals = tunables.zfs_multihost_import_intervals;
    let own_interval = tunables.zfs_multihost_interval;
    let local = own_interval.saturating_mul(intervals);
    let Some(multihost) = best.multihost else { return local };
    let delay = Duration::from_nanos(multihost.delay);
    let config = multihost.config;
    let interval = config.interval_ms().map(|ms| Duration::from_millis(ms.into()));
    match (interval, config.fail_intervals()) {
        (Some(interval), Some(0)) => {
            local.max(interval.saturating_add(delay).saturating_mul(intervals))
        }
        (Some(interval), Some(fail)) => interval.saturating_mul(2 * u32::from(fail)),
        _ => local.max(own_interval.saturating_add(delay).saturating_mul(intervals)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::uberblock::{Multihost, MultihostConfig};
    use std::cell::Cell;
    use std::sync::Mutex;

    /// A clock that adds up the time waited.
    #[derive(Default)]
    struct Fake {
        waited: Mutex<Duration>,
        interrupt: bool,
    }

    impl Clock for Fake {
        fn sleep(&self, time: Duration) -> Wait {
            *self.waited.lock().unwrap() += time;
            if self.interrupt { Wait::Interrupted } else { Wait::Elapsed }
        }

        fn random(&self, _bound: u64) -> u64 {
            0
        }
    }

    fn uberblock(delay: u64, config: u64) -> Uberblock {
        let mut words = [0; 27];
        (words[0], words[2]) = (0x00ba_b10c, 9);
        let mut uberblock = Uberblock::from_words(&words).unwrap();
        uberblock.multihost = Some(Multihost { delay, config: MultihostConfig(config) });
        uberblock
    }

    fn run(
        best: &Uberblock,
        host: u32,
        state: PoolState,
        clock: &Fake,
        look: impl FnMut() -> Option<Uberblock>,
    ) -> Result<(), ImportError> {
        let host = HostIdentity { id: host, name: None };
        let last = LastHost { id: 7, name: None };
        let tunables = &Tunables::default();
        Watch { host: &host, last: &last, state, clock, tunables }.run(best, look)
    }

    fn watched(best: &Uberblock, host: u32, state: PoolState) -> u64 {
        let clock = Fake::default();
        run(best, host, state, &clock, || Some(best.clone())).unwrap();
        let waited = *clock.waited.lock().unwrap();
        waited.as_secs()
    }

    #[test]
    fn the_watch_lasts_as_long_as_the_owner_may_be_silent() {
        let defaults = MultihostConfig::new(1000, 0, 10).0;
        let never_suspends = MultihostConfig::new(2000, 0, 0).0;
        let second = 1_000_000_000;
        for (delay, config, seconds) in [
            (second, defaults, 20),
            (second, MultihostConfig::new(1000, 0, 30).0, 60),
            (second, never_suspends, 60),
            (second, 0, 40),
            (1, 0, 20),
            (u64::MAX, never_suspends, LONGEST_WATCH.as_secs()),
        ] {
            assert_eq!(watched(&uberblock(delay, config), 8, PoolState::Active), seconds);
        }
    }

    #[test]
    fn pools_without_heartbeats_need_no_watch() {
        let on = uberblock(1, 0);
        assert_eq!(watched(&uberblock(0, 0), 8, PoolState::Active), 0);
        assert_eq!(watched(&Uberblock { multihost: None, ..on.clone() }, 8, PoolState::Active), 0);
        assert_eq!(watched(&on, 8, PoolState::Destroyed), 0);
        assert_eq!(watched(&on, 7, PoolState::Exported), 0);
        assert_ne!(watched(&on, 8, PoolState::Exported), 0);
        assert_ne!(watched(&on, 7, PoolState::Active), 0);
    }

    #[test]
    fn a_heartbeat_means_that_the_pool_is_in_use() {
        let best = uberblock(1, MultihostConfig::new(1000, 1, 10).0);
        let looks = Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            let sequence = if looks.get() < 5 { 1 } else { 2 };
            Some(uberblock(1, MultihostConfig::new(1000, sequence, 10).0))
        };
        let error = run(&best, 8, PoolState::Active, &Fake::default(), look).unwrap_err();
        assert!(matches!(&error, ImportError::ActiveElsewhere { host } if host.id == 7));
        assert_eq!((looks.get(), error.errno()), (5, 121));
    }

    #[test]
    fn a_watch_needs_a_host_id_and_can_be_interrupted() {
        let best = uberblock(1, 0);
        let error = run(&best, 0, PoolState::Active, &Fake::default(), || None).unwrap_err();
        assert!(matches!(error, ImportError::HostIdRequired));
        let interrupted = Fake { interrupt: true, ..Fake::default() };
        let error = run(&best, 8, PoolState::Active, &interrupted, || None).unwrap_err();
        assert!(matches!(error, ImportError::Interrupted));
    }
}
