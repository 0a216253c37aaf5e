//! Pools with false contents, for tests of mounting them.
//!
//! The engine creates an honest pool full of what an attacker would put there, and while it is
//! written, some words are replaced, or some blocks become inconsistent, with right checksums
//! (`rzfs_hostile`).

use crate::crash::ReplayedEnvironment;
use crate::{Files, OpenPool, PoolFiles, ProofError, Settings, Shape};
use rzfs_clock::Clock;
use rzfs_dmu::write::WriteInjector;
use rzfs_dsl::import::HostIdentity;
use rzfs_dsl::live::Environment;
use rzfs_format::znode::DeviceNumber;
use rzfs_hostile::{Random, StructureForger, WordForger};
use rzfs_zpl::live::{LiveFileSystem, NewKind};
use std::fmt;
use std::sync::Arc;

/// The replacements of these names, paths and texts. Names of up to 21 bytes are contiguous on
/// disk.
const WORDS: [(&str, &str); 8] = [
    ("file-with-a-slash", "../outside/forged"),
    ("file-of-the-parent", ".."),
    ("file-of-itself-xx", "."),
    ("file-from-the-root", "/outside/absolute"),
    ("file-with-controls", "\u{1b}]0;x\u{7}\r\n"),
    ("/mount-point-up-x", "/../../outside"),
    ("/mount-point-rel-x", "../outside/rel"),
    ("text-with-colours", "\u{1b}[31mred\u{7}"),
];
/// The replacements of these file systems.
const NAMES: [(&str, &str); 4] = [
    ("dataset-of-parent", ".."),
    ("dataset-of-itself", "."),
    ("dataset-of-slashes", "../../outside/ds"),
    ("dataset-controls", "\u{1b}[2J\r"),
];
/// File systems below the root.
const DATASETS: [&str; 8] = [
    "sub",
    "up",
    "relative",
    "plain",
    "dataset-of-parent",
    "dataset-of-itself",
    "dataset-of-slashes",
    "dataset-controls",
];
/// Files of each directory.
const FILES: u64 = 30;

/// How a pool is falsified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// It is not; it still contains everything an attacker can have without lying.
    Nothing,
    /// Names of files, paths and texts become impossible ones.
    Words,
    /// Names of file systems do.
    Names,
    /// Structures become inconsistent, as determined by the seed.
    Structures(u64),
}

impl Lie {
    /// The lie of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        match Random::of_place(seed, &[0x11e]).below(8) {
            0..3 => Self::Words,
            3 => Self::Names,
            _ => Self::Structures(seed),
        }
    }

    fn injector(self) -> Option<Arc<dyn WriteInjector>> {
        match self {
            Self::Nothing => None,
            Self::Words => Some(Arc::new(WordForger(&WORDS))),
            Self::Names => Some(Arc::new(WordForger(&NAMES))),
            Self::Structures(seed) => Some(Arc::new(StructureForger::new(seed))),
        }
    }
}

/// What an attacker knows of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Outside<'a> {
    /// A directory outside the pool.
    pub directory: &'a str,
    /// A program that would show its privileges.
    pub program: &'a [u8],
}

/// An environment whose pools are falsified.
struct Lying {
    inner: ReplayedEnvironment,
    injector: Option<Arc<dyn WriteInjector>>,
}

impl fmt::Debug for Lying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lying").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Environment for Lying {
    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn now(&self) -> u64 {
        Environment::now(&self.inner)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn host(&self) -> &HostIdentity {
        self.inner.host()
    }

    fn write_injector(&self) -> Option<Arc<dyn WriteInjector>> {
        self.injector.clone()
    }
}

/// Creates a falsified pool, and exports it.
///
/// # Errors
/// [`ProofError`]; also when the pool fails because of its own lies.
pub fn make_lying_pool(
    files: &PoolFiles,
    shape: &Shape,
    lie: Lie,
    seed: u64,
    outside: Outside<'_>,
) -> Result<(), ProofError> {
    let inner = ReplayedEnvironment::new(seed);
    let environment = Arc::new(Lying { inner, injector: lie.injector() });
    let mut open = files.create(shape, &Settings { environment, ..Settings::default() })?;
    let name = open.pool.name().to_owned();
    for dataset in DATASETS {
        open.create_file_system(&format!("{name}/{dataset}"))?;
    }
    for (dataset, value) in [("up", "/mount-point-up-x"), ("relative", "/mount-point-rel-x")] {
        open.pool.set_property(&format!("{name}/{dataset}"), "mountpoint", value.into())?;
    }
    open.pool.set_property(&name, "user:text", "text-with-colours".into())?;
    for (number, fs) in open.file_systems.values().enumerate() {
        fill(fs, seed ^ number as u64, outside)?;
    }
    finish(open)
}

fn finish(open: OpenPool) -> Result<(), ProofError> {
    open.sync()?;
    open.export()
}

/// Everything that an attacker can have without lying, and what becomes a lie on its way to the
/// disk.
fn fill(fs: &LiveFileSystem, seed: u64, outside: Outside<'_>) -> Result<(), ProofError> {
    let (files, mut random) = (Files(fs), Random::new(seed));
    for (name, _) in WORDS.iter().filter(|(name, _)| name.starts_with("file")) {
        files.put(name, b"forged")?;
    }
    let directory = outside.directory.as_bytes();
    for link in ["sub", "up", "outside"] {
        files.make(link, NewKind::Symlink(directory))?;
    }
    files.make("around", NewKind::Symlink(b"around"))?;
    files.put("program", outside.program)?;
    files.chmod("program", 0o6755)?;
    files.make("zero", NewKind::CharDevice(DeviceNumber { major: 1, minor: 5 }))?;
    files.chmod("zero", 0o666)?;
    files.make("pipe", NewKind::Fifo)?;
    for directory in ["d", "d/e", "d/e/f"] {
        files.mkdir(directory)?;
        for number in 0..FILES {
            let size = random.below(40_000) as usize;
            files.put(&format!("{directory}/{number}"), &vec![number as u8; size])?;
        }
    }
    files.set_xattr("d/0", "user.text", &[7; 3000])?;
    files.set_xattr("d/1", "user.long", &[7; 40_000])
}
