//! What a pool that changes takes from the world: time, chance and the host's name.

use crate::import::HostIdentity;
use rustix::rand::{GetRandomFlags, getrandom};
use rzfs_clock::Clock;
use rzfs_dmu::write::WriteInjector;
use rzfs_format::Guid;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time, chance and the host, so that tests can replay a pool's life.
pub trait Environment: Send + Sync + fmt::Debug {
    /// The clock by which a pool does what it does from time to time. A pool asks for it once.
    fn clock(&self) -> Clock;

    /// The time since 1970.
    fn now_exactly(&self) -> Duration {
        self.clock().since_1970()
    }

    /// Seconds since 1970, as they are written to disk.
    fn now(&self) -> u64 {
        self.now_exactly().as_secs()
    }

    /// A random number.
    fn random(&self) -> u64;

    /// The host that the pool is in use on.
    fn host(&self) -> &HostIdentity;

    /// A random number that is not zero.
    fn random_nonzero(&self) -> u64 {
        std::iter::repeat_with(|| self.random()).find(|number| *number != 0).unwrap_or(1)
    }

    /// Stops the machine: a pool with `failmode=panic` cannot be written. Of a program that is
    /// nothing but the process.
    fn halt(&self, reason: &str) {
        tracing::error!(reason, "failmode is panic");
        std::process::abort();
    }

    /// What changes blocks on their way to the devices: nothing but in tests.
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
        // Eight bytes come whole or not at all, and not at all only when a signal interrupts.
        while getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {}
        u64::from_ne_bytes(bytes)
    }

    fn host(&self) -> &HostIdentity {
        &self.host
    }
}
