//! Closing a pool.

use super::change::ByPath;
use super::contents::Contents;
use super::deleted::DeletedImage;
use super::open::Open;
use super::passages::Closed;
use super::refusal::SUSPENDED;
use super::relief::Relief;
use crate::daemon::{Disposition, Ending};
use crate::protocol::Refusal;
use rzfs_dsl::live::Event;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a pool may remain in use when it is about to be exported.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

impl Open {
    /// Refuses an end that would have to write to a read-only pool.
    pub(super) fn check_manner(&self, manner: Disposition) -> Result<(), Refusal> {
        match manner {
            Disposition::Release => Ok(()),
            Disposition::Destroy => self.writable_to(manner.verb()).map(|_| ()),
        }
    }

    /// Refuses an end that would wait for the devices of a suspended pool, unless it is forced.
    pub(super) fn check_devices(&self, ending: &Ending) -> Result<(), Refusal> {
        match self.is_suspended() && !ending.force {
            true => Err(not_ended(ending.manner, &self.name(), SUSPENDED)),
            false => Ok(()),
        }
    }

    /// Refuses to close a pool with passing streams, unless these are broken off. No stream begins
    /// while the result is held.
    pub(super) fn close_passages(&self, ending: &Ending) -> Result<Closed, Refusal> {
        if ending.force {
            return Ok(self.passages.break_off());
        }
        self.passages.close().ok_or_else(|| {
            let reason = "pool is busy\nA snapshot is being sent or received.";
            not_ended(ending.manner, &self.name(), reason)
        })
    }

    /// Stops waits for devices during a forced end: if they are not mended, unwritten data are
    /// lost.
    pub(super) fn relieve(&self, ending: &Ending) -> Option<Relief> {
        let pool = self.contents.writable().filter(|_| ending.force)?;
        Some(Relief::begin(pool, Arc::new(ByPath::outside_of(self))))
    }

    /// Refuses to close images that would vanish with their data.
    pub(super) fn check_images(&self, ending: &Ending) -> Result<(), Refusal> {
        let Some(pool) = self.contents.writable() else { return Ok(()) };
        match (ending.manner, DeletedImage::of(pool)) {
            (Disposition::Release, Some(deleted)) if !ending.force => {
                Err(not_ended(ending.manner, pool.name(), &deleted.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Writes all pending data while the pool can still be kept if that fails.
    pub(super) fn write_everything(&self, manner: Disposition) -> Result<(), Refusal> {
        let Some(pool) = self.contents.writable() else { return Ok(()) };
        match pool.sync() {
            Err(_) if pool.live().is_suspended() => Err(not_ended(manner, pool.name(), SUSPENDED)),
            // A pool that has failed for good is closed.
            _ => Ok(()),
        }
    }

    /// Closes the pool.
    pub(super) fn close(self, Ending { manner, command, .. }: Ending) -> Result<(), Refusal> {
        let Contents::Writing(mut pool, _) = self.contents else { return Ok(()) };
        if let Some((line, user)) = command {
            // A suspended pool cannot be closed in order either, which is reported below.
            let _ = pool.live().log(Event::Command { line, user });
        }
        let name = pool.name().to_owned();
        let start = Instant::now();
        // A lookup of a snapshot may be under way.
        let pool = loop {
            match Arc::try_unwrap(pool) {
                Ok(pool) => break pool,
                Err(shared) if start.elapsed() < PATIENCE => pool = shared,
                Err(_) => return Err(given_up(manner, &name, "somebody still reads it")),
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let ended = match manner {
            Disposition::Release => pool.export(),
            Disposition::Destroy => pool.destroy(),
        };
        ended.map_err(|error| given_up(manner, &name, &error.to_string()))
    }
}

/// The refusal for a pool that was closed, but not in order.
pub(super) fn given_up(manner: Disposition, pool: &str, reason: &str) -> Refusal {
    Refusal::new(format!(
        "the pool '{pool}' was let go of but not {}, and what was not written is lost: {reason}\n\
         'zpool import -f {pool}' imports its last state on disk.",
        manner.past_participle()
    ))
}

/// The refusal for a pool that stays open.
pub(super) fn not_ended(manner: Disposition, pool: &str, reason: &str) -> Refusal {
    Refusal::new(format!("cannot {} '{pool}': {reason}", manner.verb()))
}

/// The refusal for a pool that stays open as an ended mount of it is still in use elsewhere.
pub(super) fn busy_elsewhere(manner: Disposition, pool: &str) -> Refusal {
    let Refusal { message, .. } = not_ended(manner, pool, "pool is busy");
    let verb = manner.verb();
    let advice = format!(
        "Others have it: a container or another mount namespace, a bind mount, or who was in it when \
         it was unmounted ('grep {pool} /proc/*/mountinfo'). 'zpool {verb} -f {pool}' takes it from \
         them."
    );
    Refusal::new(format!("{message}\n{advice}"))
}
