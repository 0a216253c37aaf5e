//! `cargo xtask hostile --mounts`: pools that lie, or whose images are damaged, are mounted with
//! the binary, walked, read and executed, by root in a mount namespace of its own and by an
//! ordinary user. Nothing outside of the mount point may change, nobody may get rights, and nothing
//! may hang or end by itself.
//!
//! ```text
//! rzfs_proof::make_lying_pool ─> images ─> rzfs mount | zpool import ─> walk ─> list, get, status
//!    Subject::damage_images ──────┘                                     │     ─> umount | export
//! mounts, the directory `outside`, /etc: as before ─────────────────────┴───────────────┘
//! ```

use super::walk;
use rzfs_hostile::{Random, Subject};
use rzfs_proof::{Lie, Outside, PoolFiles, Shape, make_lying_pool};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;
use xtask::process::{self, AS_NOBODY, Failure, NOBODY, outcome};
use xtask::rzfs::Rzfs;

/// Seconds that any command may take on the slowest machine.
const PATIENCE: &str = "120";
/// What `timeout` answers with for a program that does not end, and for one that had to be killed.
const NOT_ENDED: [i32; 2] = [124, 137];
/// The least status that says that a program broke down: a panic, or a signal.
const BROKEN: i32 = 101;
/// The program whose rights are looked at.
const PROGRAM: &str = "/usr/bin/id";
/// Most entries of a directory that are compared.
const WITNESSES: usize = 500;

/// Shapes of the victims, which take turns: one device, and the two kinds of redundancy.
const SHAPES: [&str; 3] = ["single", "two-sided", "rz1"];

/// What is wrong with a victim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    /// It lies, with right checksums.
    Lies(Lie),
    /// It was honest; sectors, labels or members are not what they were.
    Damaged,
}

/// The shape of a victim, and what is wrong with it. All shapes have their turn to lie, then all
/// have theirs to be damaged.
fn turn(seed: u64) -> Option<(Shape, Wrong)> {
    let shapes = SHAPES.len() as u64;
    let name = SHAPES.get(usize::try_from(seed % shapes).ok()?)?;
    let wrong = match (seed / shapes).is_multiple_of(2) {
        true => Wrong::Lies(Lie::of(seed)),
        false => Wrong::Damaged,
    };
    Some((Shape::named(name)?, wrong))
}

/// Who mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Root,
    Nobody,
}

/// How.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Mount,
    Import,
}

/// Runs so many cases from this seed on. Root runs them in a mount namespace of its own.
pub(super) fn run(cases: u64, seed: u64, is_inside: bool) -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() && !is_inside {
        let this = std::env::current_exe().map_err(Failure::file(Path::new("xtask")))?;
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation=private"]).arg(this).args(["hostile", "--inside"]);
        unshare.args(["--mounts", &cases.to_string(), "--seed", &seed.to_string()]);
        return process::run(&mut unshare);
    }
    let rzfs = Rzfs::build()?;
    let (start, mut mounted, mut found) = (Instant::now(), 0, 0);
    for seed in seed..seed.saturating_add(cases) {
        let case = Case::new(&rzfs, seed)?;
        let told = case.examine()?;
        mounted += u64::from(told.is_mounted);
        for finding in &told.findings {
            let Case { who, way, wrong, shape, .. } = &case;
            println!("{who:?} {way:?} {} {wrong:?}: {finding}", shape.name);
            println!("  again: cargo xtask hostile --mounts 1 --seed {seed}");
        }
        found += u64::from(!told.findings.is_empty());
    }
    println!("{cases} victims, {mounted} mounted, {found} findings, {:.0?}", start.elapsed());
    match found {
        // Nobody has looked at anything.
        0 if mounted == 0 => Err(Failure::Checks("hostile: no mount".to_owned())),
        0 => Ok(()),
        _ => Err(Failure::Checks(format!("hostile: {found} mounts"))),
    }
}

/// What came of a case.
#[derive(Default)]
struct Told {
    is_mounted: bool,
    findings: Vec<String>,
}

impl Told {
    /// Notes what is wrong with how a command ended. Errors are right, breaking down is not.
    fn judge(&mut self, what: &str, output: &Output) {
        let err = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(code) if NOT_ENDED.contains(&code) => {
                self.findings.push(format!("{what} does not end"));
            }
            Some(code) if code < BROKEN && !err.contains("panicked at") => {}
            _ => self.findings.push(format!("{what}: {}: {err}", output.status)),
        }
    }
}

/// A pool that lies or is damaged, and who mounts it how.
struct Case {
    seed: u64,
    who: Who,
    way: Way,
    shape: Shape,
    wrong: Wrong,
    binary: PathBuf,
    walker: PathBuf,
    scratch: tempfile::TempDir,
}

impl Case {
    fn new(rzfs: &Rzfs, seed: u64) -> Result<Self, Failure> {
        let is_root = rustix::process::geteuid().is_root();
        let mut random = Random::of_place(seed, &[0x30]);
        let who = if is_root && random.once_in(2) { Who::Root } else { Who::Nobody };
        let way = if random.once_in(2) { Way::Mount } else { Way::Import };
        let mut builder = tempfile::Builder::new();
        let scratch = builder.permissions(Permissions::from_mode(0o755)).tempdir_in("/var/tmp");
        let scratch = scratch.map_err(Failure::file(Path::new("/var/tmp")))?;
        // Whoever is to use them may not get to where they were built.
        let copy = |from: &Path, name: &str| {
            let to = scratch.path().join(name);
            // By another process: none that this one starts may have the copy open when it is run.
            process::run(Command::new("cp").arg(from).arg(&to)).map(|()| to)
        };
        let this = std::env::current_exe().map_err(Failure::file(Path::new("xtask")))?;
        let (binary, walker) = (copy(&rzfs.binary, "rzfs")?, copy(&this, "xtask")?);
        let (shape, wrong) = turn(seed).ok_or(Failure::Checks("finding a shape".to_owned()))?;
        let case = Self { seed, who, way, shape, wrong, binary, walker, scratch };
        for name in ["images", "m", "outside", "run"] {
            fs::create_dir(case.path(name)).map_err(Failure::file(&case.path(name)))?;
            case.give(&case.path(name))?;
        }
        fs::write(case.path("outside/kept"), "kept").map_err(Failure::file(Path::new("kept")))?;
        Ok(case)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Gives a file to whoever mounts.
    fn give(&self, path: &Path) -> Result<(), Failure> {
        if self.who == Who::Nobody && rustix::process::geteuid().is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).map_err(Failure::file(path))?;
        }
        Ok(())
    }

    fn examine(&self) -> Result<Told, Failure> {
        let mut told = Told::default();
        let program = fs::read(PROGRAM).map_err(Failure::file(Path::new(PROGRAM)))?;
        let directory = self.path("outside").display().to_string();
        let outside = Outside { directory: &directory, program: &program };
        let files = PoolFiles::new(&self.path("images"), self.shape.name);
        match self.wrong {
            Wrong::Lies(lie) => {
                if make_lying_pool(&files, &self.shape, lie, self.seed, outside).is_err() {
                    // It lied to itself.
                    return Ok(told);
                }
            }
            Wrong::Damaged => {
                let made = make_lying_pool(&files, &self.shape, Lie::Nothing, self.seed, outside);
                made.map_err(|error| Failure::Checks(format!("making a pool: {error}")))?;
                self.damage()?;
            }
        }
        for image in self.images() {
            self.give(&image)?;
        }
        let before = self.witness()?;
        let mount = self.command(&self.begin())?;
        told.judge("mounting", &mount);
        // Perhaps not all of it.
        let inside = self.path("m").display().to_string();
        told.is_mounted = mounts()?.iter().any(|line| is_below(line, &inside));
        if told.is_mounted {
            self.look(&mut told)?;
            let end = self.command(&self.end())?;
            told.judge("unmounting", &end);
        }
        self.kill()?;
        let after = self.witness()?;
        let changed = before.symmetric_difference(&after);
        told.findings.extend(changed.map(|line| format!("outside of the mount: {line}")));
        Ok(told)
    }

    /// The images of the pool that are there.
    fn images(&self) -> Vec<PathBuf> {
        let images = self.shape.devices().map(|letter| self.path("images").join(letter));
        images.filter(|image| image.exists()).collect()
    }

    /// Damages the images where the pool is read.
    fn damage(&self) -> Result<(), Failure> {
        let images = self.images();
        let fail = || Failure::file(Path::new("images"));
        let subject = Subject::of_images(self.shape.name, &images).map_err(fail())?;
        subject.damage_images(&images, self.seed).map_err(fail())?;
        Ok(())
    }

    /// Looks at everything in the mount, and asks about the pool.
    fn look(&self, told: &mut Told) -> Result<(), Failure> {
        let mut words: Vec<&OsStr> = vec![self.walker.as_os_str(), "hostile".as_ref()];
        let mount_point = self.path("m");
        words.extend(["--walk".as_ref(), mount_point.as_os_str()]);
        // Who imports a pool trusts it with devices and programs, as with OpenZFS.
        if self.way == Way::Mount {
            words.push("--distrust".as_ref());
        }
        let walk = self.outcome(&words)?;
        told.judge("walking", &walk);
        let found = String::from_utf8_lossy(&walk.stdout).into_owned();
        let found = found.lines().filter_map(|line| line.strip_prefix(walk::FOUND));
        told.findings.extend(found.map(str::to_owned));
        for question in ["zfs list -r", "zfs get all", "zpool status -v", "zpool history -il"] {
            let words: Vec<String> = question.split(' ').map(str::to_owned).collect();
            told.judge(question, &self.command(&words)?);
        }
        Ok(())
    }

    /// The words that mount it.
    fn begin(&self) -> Vec<String> {
        let (images, at) = (self.path("images"), self.path("m").display().to_string());
        match self.way {
            Way::Mount => {
                let devices = self.images().into_iter().map(|image| image.display().to_string());
                std::iter::once("mount".into()).chain(devices).chain([at]).collect()
            }
            Way::Import => {
                let words = ["zpool", "import", "-f", "-d"].map(String::from).to_vec();
                let place = [images.display().to_string(), "-R".into(), at, self.shape.name.into()];
                [words, place.to_vec()].concat()
            }
        }
    }

    /// The words that let go of it.
    fn end(&self) -> Vec<String> {
        match self.way {
            Way::Mount => vec!["umount".into(), "-f".into(), self.path("m").display().to_string()],
            Way::Import => ["zpool", "export", "-f", self.shape.name].map(String::from).to_vec(),
        }
    }

    fn command(&self, words: &[String]) -> Result<Output, Failure> {
        let binary = [self.binary.as_os_str()];
        let words = binary.into_iter().chain(words.iter().map(OsStr::new));
        self.outcome(&words.collect::<Vec<_>>())
    }

    /// Runs a program as whoever mounts, as long as it may take.
    fn outcome(&self, words: &[&OsStr]) -> Result<Output, Failure> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", PATIENCE]);
        if self.who == Who::Nobody && rustix::process::geteuid().is_root() {
            command.args(AS_NOBODY);
        }
        command.args(words).env("RZFS_RUNTIME_DIR", self.path("run"));
        outcome(&mut command)
    }

    /// Ends the process that has the pool, if it is still there, and its mounts with it.
    fn kill(&self) -> Result<(), Failure> {
        let mark = format!("RZFS_RUNTIME_DIR={}", self.path("run").display());
        for process in fs::read_dir("/proc").map_err(Failure::file(Path::new("/proc")))?.flatten() {
            // Others come and go.
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes()) {
                let number = process.file_name();
                outcome(Command::new("kill").arg("-KILL").arg(number))?;
            }
        }
        let scratch = self.scratch.path().display().to_string();
        for mount in mounts()?.iter().rev().filter_map(|line| line.split(' ').nth(4)) {
            if mount.starts_with(&scratch) {
                outcome(Command::new("umount").args(["--lazy", mount]))?;
            }
        }
        Ok(())
    }

    /// What is outside of the mount point.
    fn witness(&self) -> Result<BTreeSet<String>, Failure> {
        let inside = self.path("m").display().to_string();
        let is_outside = |line: &String| !is_below(line, &inside);
        let mut seen: BTreeSet<String> = mounts()?.into_iter().filter(is_outside).collect();
        for directory in [self.path("outside"), self.scratch.path().to_owned(), "/etc".into()] {
            let entries = fs::read_dir(&directory).map_err(Failure::file(&directory))?;
            for entry in entries.take(WITNESSES).flatten() {
                // What is used changes its times.
                if ["images", "m", "run"].iter().any(|used| entry.file_name() == *used) {
                    continue;
                }
                let metadata = entry.metadata().map_err(Failure::file(&entry.path()))?;
                let (mode, size) = (metadata.mode(), metadata.size());
                let (owner, changed) = (metadata.uid(), (metadata.ctime(), metadata.ctime_nsec()));
                let path = entry.path();
                seen.insert(format!("{} {mode:o} {owner} {size} {changed:?}", path.display()));
            }
        }
        Ok(seen)
    }
}

/// Whether a mount is in a directory.
fn is_below(mount: &str, directory: &str) -> bool {
    mount.split(' ').nth(4).is_some_and(|place| place.starts_with(directory))
}

/// The mounts of this namespace.
fn mounts() -> Result<Vec<String>, Failure> {
    let path = Path::new("/proc/self/mountinfo");
    let mounts = fs::read_to_string(path).map_err(Failure::file(path))?;
    Ok(mounts.lines().map(str::to_owned).collect())
}
