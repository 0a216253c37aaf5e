//! What a live pool takes from its environment: time, randomness and the host's name.

use crate::import::HostIdentity;
use rustix::rand::{GetRandomFlags, getrandom};
use rzfs_clock::Clock;
use rzfs_dmu::write::WriteInjector;
use rzfs_format::Guid;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time, randomness and the host, so that tests can replay a pool's history.
pub trait Environment: Send + Sync + fmt::Debug {
    /// The clock for periodic work. A pool asks for it once.
    fn clock(&self) -> Clock;

    /// The time since 1970.
    fn now_exactly(&self) -> Duration {
        self.clock().since_1970()
    }

    /// Seconds since 1970, as written to disk.
    fn now(&self) -> u64 {
        self.now_exactly().as_secs()
    }

    /// A random number.
    fn random(&self) -> u64;

    /// The host that uses the pool.
    fn host(&self) -> &HostIdentity;

    /// A random number that is not zero.
    fn random_nonzero(&self) -> u64 {
        std::iter::repeat_with(|| self.random()).find(|number| *number != 0).unwrap_or(1)
    }

    /// Stops the machine: a pool with `failmode=panic` cannot be written. For a program, that is
    /// the process.
    fn halt(&self, reason: &str) {
        tracing::error!(reason, "failmode is panic");
        std::process::abort();
    }

    /// Injects faults into writes, in tests only.
    fn write_injector(&self) -> Option<Arc<dyn WriteInjector>> {
        None
    }

    /// A new guid.
    fn guid(&self) -> Guid {
        Guid(self.random_nonzero())
    }
}

/// The system's clock and random numbers.
#[derive(Clone, Debug, Default)]
pub struct SystemEnvironment {
    host: HostIdentity,
    clock: Clock,
}

impl SystemEnvironment {
    /// The environment of a process on this host.
    #[must_use]
    pub fn new(host: HostIdentity) -> Self {
        Self { host, clock: Clock::system() }
    }

    /// The same with another clock.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }
}

impl Environment for SystemEnvironment {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        // Eight bytes are read completely or not at all, the latter only when a signal interrupts.
        while getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {}
        u64::from_ne_bytes(bytes)
    }

    fn host(&self) -> &HostIdentity {
        &self.host
    }
}
