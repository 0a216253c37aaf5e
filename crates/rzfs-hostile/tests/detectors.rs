//! Every kind of finding is detected: an engine with a planted fault reads an undamaged pool.

use bytes::Bytes;
use rzfs_blockdev::{
    BlockDevice, CompletionQueue, DeviceGeometry, FileDevice, IoRequest, OpenOptions,
};
use rzfs_dmu::BlockInjector;
use rzfs_format::BlockPointer;
use rzfs_format::units::Bookmark;
use rzfs_hostile::{CountingAllocator, Finding, Limits, Outcome, Subject, Tally, run_watched};
use rzfs_testkit::ReferencePool;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The fault of an engine.
#[derive(Clone, Copy)]
enum Fault {
    None,
    Panics,
    /// Hangs until this is set.
    Spins(&'static AtomicBool),
    /// Allocates this many bytes at once.
    Allocates(usize),
    /// Keeps this many bytes of every block.
    Leaks(usize),
    /// Returns a block with a flipped bit, as if the checksum was not verified.
    Flips,
}

/// Shows a fault at one of the blocks that are read.
struct Planted {
    fault: Fault,
    reads: AtomicU64,
}

/// Behind the import's first blocks.
const FAULTY_READ: u64 = 40;

impl BlockInjector for Planted {
    fn inject(&self, _: Bookmark, _: &BlockPointer, block: Bytes) -> Bytes {
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Leaks(bytes) => std::mem::forget(vec![1_u8; bytes]),
            _ if read != FAULTY_READ => {}
            Fault::None => {}
            Fault::Panics => panic!("a planted fault"),
            Fault::Spins(stop) => {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
            Fault::Allocates(bytes) => drop(std::hint::black_box(vec![1_u8; bytes])),
            Fault::Flips => {
                let mut bytes = block.to_vec();
                if let Some(byte) = bytes.first_mut() {
                    *byte ^= 1;
                }
                return bytes.into();
            }
        }
        block
    }
}

fn run(subject: &Arc<Subject>, fault: Fault) -> Outcome {
    let limits = Limits { cpu: Duration::from_secs(3), ..Limits::STATED };
    let subject = Arc::clone(subject);
    let fault = Arc::new(Planted { fault, reads: AtomicU64::new(0) });
    run_watched(move || subject.exercise_fault(fault), &limits)
}

/// A device that stops responding.
#[derive(Debug)]
struct Silent {
    base: Arc<dyn BlockDevice>,
    silent: Arc<AtomicBool>,
}

impl BlockDevice for Silent {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        self.base.geometry()
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        if !self.silent.load(Ordering::Relaxed) {
            self.base.submit(requests, completions);
        }
    }
}

/// One test, because what is measured belongs to the process.
#[test]
fn planted_faults_are_found() {
    let Some(pool) = ReferencePool::golden("g01-default") else { return };
    let subject = Arc::new(Subject::open(&pool).expect("images of the pool"));

    let sound = run(&subject, Fault::None);
    assert_eq!(sound.finding, None);
    assert!(sound.tally.imported && sound.tally.successes > 500, "{:?}", sound.tally);
    // Some queries fail legitimately, such as where the data of an empty file begin.
    assert!(sound.tally.errors < sound.tally.successes / 4, "{:?}", sound.tally);

    let found = run(&subject, Fault::Panics).finding;
    assert!(matches!(&found, Some(Finding::Panic(text)) if text.contains("planted")), "{found:?}");

    let bytes = Limits::STATED.largest + 1;
    let found = run(&subject, Fault::Allocates(bytes)).finding;
    assert!(matches!(found, Some(Finding::Memory(memory)) if memory.largest >= bytes), "{found:?}");

    let found = run(&subject, Fault::Leaks(1 << 20)).finding;
    let beyond = |peak| peak > Limits::STATED.peak;
    assert!(matches!(found, Some(Finding::Memory(memory)) if beyond(memory.peak)), "{found:?}");

    let found = run(&subject, Fault::Flips).finding;
    assert!(matches!(found, Some(Finding::WrongData(1..))), "{found:?}");

    let speechless = || Tally { speechless: 2, ..Tally::default() };
    let found = run_watched(speechless, &Limits::STATED).finding;
    assert_eq!(found, Some(Finding::Speechless(2)));

    static STOP: AtomicBool = AtomicBool::new(false);
    let found = run(&subject, Fault::Spins(&STOP)).finding;
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(found, Some(Finding::Hang));

    // An endless wait uses no processor time. The case never ends, so it is the last one.
    let silent = Arc::new(AtomicBool::new(false));
    let options = OpenOptions::new();
    let image = &pool.images().expect("images of the pool")[0];
    let base = Arc::new(FileDevice::open(image, &options).expect("an image"));
    let device = Silent { base, silent: Arc::clone(&silent) };
    let subject = Arc::new(Subject::new("silent", vec![Arc::new(device)]));
    silent.store(true, Ordering::Relaxed);
    let limits = Limits { clock: Duration::from_secs(2), ..Limits::STATED };
    let fault = Arc::new(Planted { fault: Fault::None, reads: AtomicU64::new(0) });
    let found = run_watched(move || subject.exercise_fault(fault), &limits).finding;
    assert_eq!(found, Some(Finding::Hang));
}
