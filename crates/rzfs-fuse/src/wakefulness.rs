//! Keeps processors awake while requests follow each other closely.
//!
//! A request wakes a thread of the mount, and its reply wakes the program again. If a processor
//! halts when idle, or sleeps deeply, waking it takes longer than all the work between
//! (`docs/performance.md`). So while many small requests arrive, the system's latency interface is
//! used to keep processors from sleeping; afterwards it is released.
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

/// Takes the maximum wake-up latency of processors, which holds as long as the file is open.
/// Usually only for root.
pub const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";

/// In microseconds: idle processors stay awake.
const NO_LATENCY: i32 = 0;

/// How often requests are counted.
const BEAT: Duration = Duration::from_millis(2);
/// The requests in a beat that are worth it: each costs up to two wakings.
const MANY: u64 = 4;
/// Beats with fewer requests after which processors may sleep again.
const PATIENCE: u32 = 5;
/// Beats without requests after which counting stops.
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
    /// Starts the thread that counts. `device` is [`LATENCY_DEVICE`] except in tests.
    ///
    /// # Errors
    /// The device is missing or not for this user, or the system cannot start a thread.
    pub fn start(device: &Path) -> io::Result<Self> {
        drop(keep_awake(device)?);
        let shared = Arc::new(Shared::default());
        let (device, counted) = (device.to_owned(), Arc::clone(&shared));
        let keep = move || counted.keep(&device);
        let keeper = std::thread::Builder::new().name("rzfs-awake".to_owned()).spawn(keep)?;
        Ok(Self { shared, keeper: Some(keeper) })
    }

    /// Counts a request.
    pub(crate) fn note_request(&self) {
        self.shared.requests.fetch_add(1, Relaxed);
        // If the keeper parks a moment later, the next request wakes it.
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
    /// Counts requests until the end.
    fn keep(&self, device: &Path) {
        let mut watch = Watch::default();
        let (mut held, mut counted) = (None, 0);
        while !self.is_over.load(Relaxed) {
            let requests = self.requests.load(Relaxed);
            match watch.beat(requests - counted) {
                // Without permission it continues without the device.
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

/// Keeps processors awake while this is open.
fn keep_awake(device: &Path) -> io::Result<File> {
    // Does not block on a FIFO.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let mut device = OpenOptions::new().write(true).custom_flags(flags).open(device)?;
    match FileType::from_raw_mode(fstat(&device)?.st_mode) {
        FileType::CharacterDevice | FileType::RegularFile => {}
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a device")),
    }
    device.write_all(&NO_LATENCY.to_ne_bytes())?;
    Ok(device)
}

/// The state of the keeper until the next beat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    Watching,
    Awake,
    Parked,
}

/// The history of recent beats.
#[derive(Debug, Default)]
struct Watch {
    state: State,
    /// Consecutive beats that call for a calmer state.
    lulls: u32,
}

impl Watch {
    /// Records the number of requests in a beat.
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
        // A pause does not end it.
        assert!(states(&[3, 0, 0, 0, 9, 0, 0, 0, 0]).iter().all(|state| *state == State::Awake));
        assert_eq!(states(&[0]), [State::Watching]);
        // Slow requests keep it watching, but no more.
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
