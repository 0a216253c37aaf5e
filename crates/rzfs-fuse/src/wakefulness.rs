//! Processors that stay awake while requests follow each other closely.
//!
//! A request wakes a thread of the mount, and its answer wakes the program again. Where a processor
//! is halted as soon as it has nothing to do, or sleeps deeply, waking it takes longer than all
//! that is between (`docs/performance.md`). So while many small requests come, the system is asked
//! to let no processor sleep, through its interface for those who need that; and is let go when
//! they have ended.
//!
//! ```text
//!          a request              many in a beat
//! parked ────────────> watching ────────────────> awake
//!        <────────────          <────────────────
//!         none for long           few for a while
//! ```

use rustix::fs::{FileType, OFlags, fstat};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Where the longest time is told in which a processor has to wake up, for as long as the file is
/// open. Usually root's alone.
pub const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";

/// In microseconds: processors that have nothing to do wait for that awake.
const NO_LATENCY: i32 = 0;

/// How often requests are counted.
const BEAT: Duration = Duration::from_millis(2);
/// So many requests in a beat are worth it: each costs up to two wakings.
const MANY: u64 = 4;
/// After so many beats with fewer, processors may sleep again.
const PATIENCE: u32 = 5;
/// After so many beats without any, nobody counts any more.
const IDLE: u32 = 50;

/// Keeps processors awake while requests follow each other closely. Mounts of a process share one
/// ([`MountOptions::wakefulness`](crate::MountOptions::wakefulness)).
#[derive(Debug)]
pub struct Wakefulness {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    requests: AtomicU64,
    /// Whether the keeper waits for a request.
    is_parked: AtomicBool,
    is_over: AtomicBool,
}

impl Wakefulness {
    /// Starts the thread that counts. `device` is [`LATENCY_DEVICE`] but for tests.
    ///
    /// # Errors
    /// The device is missing or not for this user, or the system has no thread to give.
    pub fn start(device: &Path) -> io::Result<Self> {
        drop(keep_awake(device)?);
        let shared = Arc::new(Shared::default());
        let (device, counted) = (device.to_owned(), Arc::clone(&shared));
        let keep = move || counted.keep(&device);
        let keeper = std::thread::Builder::new().name("rzfs-awake".to_owned()).spawn(keep)?;
        Ok(Self { shared, keeper: Some(keeper) })
    }

    /// A request has come.
    pub(crate) fn note_request(&self) {
        self.shared.requests.fetch_add(1, Relaxed);
        // Should the keeper be parked a moment later, the next request wakes it.
        if self.shared.is_parked.load(Relaxed) && self.shared.is_parked.swap(false, Relaxed) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(keeper) = &self.keeper {
            keeper.thread().unpark();
        }
    }
}

impl Drop for Wakefulness {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Relaxed);
        self.unpark();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Shared {
    /// Counts until it is over.
    fn keep(&self, device: &Path) {
        let mut watch = Watch::default();
        let (mut held, mut counted) = (None, 0);
        while !self.is_over.load(Relaxed) {
            let requests = self.requests.load(Relaxed);
            match watch.beat(requests - counted) {
                // Who may not any more goes on without.
                State::Awake if held.is_none() => held = keep_awake(device).ok(),
                State::Awake => {}
                State::Watching => held = None,
                State::Parked => self.park(),
            }
            counted = requests;
            std::thread::park_timeout(BEAT);
        }
    }

    /// Waits for a request, or the end.
    fn park(&self) {
        self.is_parked.store(true, Relaxed);
        while self.is_parked.load(Relaxed) && !self.is_over.load(Relaxed) {
            std::thread::park();
        }
    }
}

/// Processors stay awake while this is open.
fn keep_awake(device: &Path) -> io::Result<File> {
    // A FIFO is not waited for.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut device = OpenOptions::new().write(true).custom_flags(flags).open(device)?;
    match FileType::from_raw_mode(fstat(&device)?.st_mode) {
        FileType::CharacterDevice | FileType::RegularFile => {}
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a device")),
    }
    device.write_all(&NO_LATENCY.to_ne_bytes())?;
    Ok(device)
}

/// What the keeper does until the next beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Watching,
    Awake,
    Parked,
}

/// What the last beats were like.
#[derive(Debug, Default)]
struct Watch {
    state: State,
    /// Beats in a row that call for a calmer state.
    lulls: u32,
}

impl Watch {
    /// Takes in how many requests came in a beat.
    fn beat(&mut self, requests: u64) -> State {
        let (is_lull, calmer, patience) = match self.state {
            State::Awake => (requests < MANY, State::Watching, PATIENCE),
            State::Watching | State::Parked => (requests == 0, State::Parked, IDLE),
        };
        self.lulls = if is_lull { self.lulls + 1 } else { 0 };
        if requests >= MANY {
            self.state = State::Awake;
        } else if self.lulls == patience {
            (self.state, self.lulls) = (calmer, 0);
        } else if self.state == State::Parked {
            self.state = State::Watching;
        }
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn processors_are_awake_for_bursts_only() {
        let mut watch = Watch::default();
        let mut states = |beats: &[u64]| beats.iter().map(|n| watch.beat(*n)).collect::<Vec<_>>();
        assert_eq!(states(&[1, 3, 4]), [State::Watching, State::Watching, State::Awake]);
        // A pause is not the end.
        assert!(states(&[3, 0, 0, 0, 9, 0, 0, 0, 0]).iter().all(|state| *state == State::Awake));
        assert_eq!(states(&[0]), [State::Watching]);
        // Slow requests do not count, and keep it watching.
        assert!(states(&[1; 200]).iter().all(|state| *state == State::Watching));
        assert!(states(&[0; 49]).iter().all(|state| *state == State::Watching));
        assert_eq!(states(&[0, 0]), [State::Parked, State::Watching]);
    }

    #[test]
    fn who_may_not_is_told() {
        let nowhere = tempfile::tempdir().unwrap();
        assert!(Wakefulness::start(&nowhere.path().join("device")).is_err());
    }

    #[test]
    fn a_pipe_is_not_waited_for_nor_written() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
        assert!(Wakefulness::start(&fifo).is_err(), "nobody reads");
        let mut reader = OpenOptions::new();
        reader.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
        let reader = reader.open(&fifo).unwrap();
        assert!(Wakefulness::start(&fifo).is_err());
        let mut bytes = [0; 4];
        assert_eq!(rustix::io::read(&reader, &mut bytes).unwrap(), 0, "nothing was written");
    }

    #[test]
    fn the_device_is_open_while_requests_come() {
        let directory = tempfile::tempdir().unwrap();
        let device = directory.path().join("device");
        fs::write(&device, b"").unwrap();
        let wakefulness = Wakefulness::start(&device).unwrap();
        let is_open = || {
            let mut open = fs::read_dir("/proc/self/fd").unwrap().flatten();
            open.any(|file| fs::read_link(file.path()).is_ok_and(|path| path == device))
        };
        for _ in 0..3 {
            while !is_open() {
                wakefulness.note_request();
            }
            while is_open() {
                std::thread::yield_now();
            }
            while !wakefulness.shared.is_parked.load(Relaxed) {
                std::thread::yield_now();
            }
        }
        assert_eq!(fs::read(&device).unwrap(), NO_LATENCY.to_ne_bytes());
    }
}
