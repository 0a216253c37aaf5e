//! Runs and supervises cases.

use crate::case::{ARC_MAX, Subject};
use crate::memory::{MemoryUse, MemoryWatch};
use crate::tally::Tally;
use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Stack size of the thread that runs a case: the usual one.
const STACK: usize = 2 << 20;
/// Interval of checks on a running case.
const LOOK: Duration = Duration::from_millis(200);

/// The first panic of a case, in any thread.
static PANIC: Mutex<Option<String>> = Mutex::new(None);
static HOOK: Once = Once::new();
/// Whether panics belong to a case.
static RUNNING: AtomicBool = AtomicBool::new(false);

/// The limits of a case.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Processor time.
    pub cpu: Duration,
    /// Elapsed time: an endless wait uses no processor.
    pub clock: Duration,
    /// Bytes that are allocated at the same time.
    pub peak: usize,
    /// Bytes of one allocation.
    pub largest: usize,
}

impl Limits {
    /// The limits that `docs/reliability.md` states.
    pub const STATED: Self = Self {
        cpu: Duration::from_secs(30),
        clock: Duration::from_secs(600),
        peak: ARC_MAX as usize + (64 << 20),
        largest: 32 << 20,
    };
}

/// The error of a program shown by a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Finding {
    /// It panicked.
    Panic(String),
    /// It did not end; the case continues in its thread, so the process must exit.
    Hang,
    /// It allocated more than allowed.
    Memory(MemoryUse),
    /// It returned this many blocks with wrong contents, without an error.
    WrongData(u64),
    /// It returned errors without messages.
    Speechless(u64),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic(message) => write!(f, "panic: {message}"),
            Self::Hang => write!(f, "hang"),
            Self::Memory(usage) => {
                write!(f, "memory: {} bytes at once, {} in one", usage.peak, usage.largest)
            }
            Self::WrongData(blocks) => write!(f, "{blocks} blocks of wrong data"),
            Self::Speechless(errors) => write!(f, "{errors} errors without words"),
        }
    }
}

/// The result of a case.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was read.
    pub tally: Tally,
    /// The error found, if any.
    pub finding: Option<Finding>,
    /// Memory that was needed; zero unless [`crate::CountingAllocator`] is the allocator.
    pub memory: MemoryUse,
    /// Time of the processors.
    pub cpu: Duration,
}

/// Runs one case. Cases of a process run one after the other.
#[must_use]
pub fn run_case(subject: &Arc<Subject>, seed: u64, limits: &Limits) -> Outcome {
    let subject = Arc::clone(subject);
    run_watched(move || subject.exercise(seed), limits)
}

/// Runs something as a case.
#[must_use]
pub fn run_watched(work: impl FnOnce() -> Tally + Send + 'static, limits: &Limits) -> Outcome {
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if RUNNING.load(Ordering::Relaxed) {
                PANIC.lock().get_or_insert_with(|| info.to_string());
            } else {
                others(info);
            }
        }));
    });
    PANIC.lock().take();
    RUNNING.store(true, Ordering::Relaxed);
    let outcome = watch(work, limits);
    RUNNING.store(false, Ordering::Relaxed);
    outcome
}

fn watch(work: impl FnOnce() -> Tally + Send + 'static, limits: &Limits) -> Outcome {
    let (memory, cpu, clock) = (MemoryWatch::start(), processor_time(), Instant::now());
    let (done, result) = mpsc::channel();
    let case = move || {
        let tally = panic::catch_unwind(AssertUnwindSafe(work));
        // The receiver is gone when the case took too long.
        let _ = done.send(tally.ok());
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(case);
    let tally = loop {
        match result.recv_timeout(LOOK) {
            Ok(tally) => break tally,
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => {
                let used = processor_time().saturating_sub(cpu);
                if used > limits.cpu || clock.elapsed() > limits.clock {
                    let tally = Tally::default();
                    let memory = memory.usage();
                    return Outcome { tally, finding: Some(Finding::Hang), memory, cpu: used };
                }
            }
        }
    };
    if let Ok(thread) = thread {
        // Panics were caught inside.
        let _ = thread.join();
    }
    let (memory, cpu) = (memory.usage(), processor_time().saturating_sub(cpu));
    let panicked = PANIC.lock().take().or_else(|| tally.is_none().then(|| "?".to_owned()));
    let tally = tally.unwrap_or_default();
    let finding = if let Some(message) = panicked {
        Some(Finding::Panic(message))
    } else if memory.peak > limits.peak || memory.largest > limits.largest {
        Some(Finding::Memory(memory))
    } else if tally.wrong > 0 {
        Some(Finding::WrongData(tally.wrong))
    } else {
        (tally.speechless > 0).then_some(Finding::Speechless(tally.speechless))
    };
    Outcome { tally, finding, memory, cpu }
}

/// The processor time used by the process.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
