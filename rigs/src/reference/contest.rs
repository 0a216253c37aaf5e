//! A pool that rzfs and the kernel change in turns.

use rzfs_format::property::DatasetProperty;
use rzfs_hostile::Random;
use rzfs_proof::{
    Files, Habit, LIMITS, OpenPool, PoolFiles, ProofError, QUOTAS, Settings, Shape, change,
    change_durably, differences, fill, read_dataset, record, wrong_accounts,
};
use rzfs_testkit::{FileSystemManifest, Manifest, ReferencePool};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::process::{Failure, copy_image, outcome};

/// Most differences that are told of one file system.
const TOLD: usize = 8;

/// File systems of a pool that get new files.
const FILLED: usize = 8;

/// Bytes that have to be available for a file system to get new files: more than the kernel needs
/// for its turn.
const ROOM: u64 = 34 << 20;

/// Bytes that have to be available for files to be changed, which snapshots have as they were: with
/// none left the kernel has no place for a mount point.
const ROOM_FOR_CHANGES: u64 = 16 << 20;

/// Shapes of which the kernel gets a copy too that was taken while rzfs had the pool.
const COPIED: [&str; 7] =
    ["single9", "two-sided", "rz2", "classes", "nologs", "sharing", "encrypted-rz1"];

/// Where a program of rzfs, and one of the kernel, makes changes that it waits for.
const WAITED: &str = "waited";
const WAITED_BY_KERNEL: &str = "waited-by-kernel";

/// Longer than any turn: groups end when somebody says so.
const NEVER: Duration = Duration::from_secs(86_400);

/// The passphrase of encrypted file systems: what golden pools have, too.
const PASSPHRASE: &[u8] = b"correct horse battery\n";

/// Where a contest stands.
#[derive(Debug, Clone)]
enum Stage {
    /// The pool is to be made.
    New(Shape),
    /// The pool has an intent log that rzfs replays before its first turn; its manifest is of what
    /// is there afterwards.
    Logged,
    /// The pool is there.
    Playing,
    /// A copy that was taken while rzfs had the pool, with changes that are in intent logs only.
    /// The kernel takes one turn, and leaves such a copy too.
    Copied,
    /// Something failed.
    Lost,
    /// rzfs does not open the pool for writing, for this reason.
    ReadOnly(String),
    /// The last turn is over.
    Over,
}

/// A pool that rzfs and the kernel change in turns.
#[derive(Debug)]
pub(super) struct Contest {
    name: String,
    directory: PathBuf,
    files: PoolFiles,
    seed: u64,
    habit: Habit,
    stage: Stage,
    /// What was seen last of every file system and snapshot.
    seen: BTreeMap<String, FileSystemManifest>,
    findings: Vec<String>,
    turns: u32,
    compared: usize,
}

impl Contest {
    fn new(
        name: &str,
        pool: &str,
        directory: &Path,
        seed: u64,
        stage: Stage,
    ) -> Result<Self, Failure> {
        let directory = directory.join("pools").join(name);
        let images = directory.join("images");
        let keys = directory.join("keys");
        for directory in [&images, &keys] {
            fs::create_dir_all(directory).map_err(Failure::file(directory))?;
        }
        let passphrase = keys.join("passphrase");
        fs::write(&passphrase, PASSPHRASE).map_err(Failure::file(&passphrase))?;
        Ok(Self {
            name: name.to_owned(),
            files: PoolFiles::new(&images, pool),
            directory,
            seed,
            habit: Habit::Plain,
            stage,
            seen: BTreeMap::new(),
            findings: Vec::new(),
            turns: 0,
            compared: 0,
        })
    }

    /// A pool that rzfs makes.
    pub(super) fn of_shape(shape: Shape, directory: &Path, seed: u64) -> Result<Self, Failure> {
        let this = Self::new(shape.name, shape.name, directory, seed, Stage::New(shape))?;
        Ok(Self { habit: shape.habit, ..this })
    }

    /// A copy of a pool that OpenZFS made.
    pub(super) fn of_golden(
        pool: &ReferencePool,
        directory: &Path,
        seed: u64,
    ) -> Result<Self, Failure> {
        let this = Self::new(pool.name(), pool.pool_name(), directory, seed, Stage::Playing)?;
        for image in pool.images().map_err(Failure::file(pool.dir()))? {
            copy_image(&image, this.files.dir())?;
        }
        for name in ["raw.key", "hex.key"] {
            if let Ok(key) = pool.text(name) {
                let path = this.keys().join(name);
                fs::write(&path, key).map_err(Failure::file(&path))?;
            }
        }
        let manifest = pool.manifest().map_err(Failure::file(pool.dir()))?;
        let seen = manifest.datasets().map(|(name, files)| (name.to_owned(), files.clone()));
        let logs = this.files.read(&this.settings()).map(|pool| pool.unreplayed_logs());
        // A pool that cannot be read says so in its first turn.
        let has_logs = matches!(logs, Ok(Ok(logs)) if !logs.is_empty());
        let stage = if has_logs { Stage::Logged } else { Stage::Playing };
        Ok(Self { stage, seen: seen.collect(), ..this })
    }

    /// The directory with the keys of encrypted file systems, which the kernel gets, too.
    fn keys(&self) -> PathBuf {
        self.directory.join("keys")
    }

    fn settings(&self) -> Settings {
        let files = fs::read_dir(self.keys()).into_iter().flatten().flatten();
        let others = files.filter(|file| file.file_name() != "passphrase");
        let others = others.filter_map(|file| fs::read(file.path()).ok());
        let keys = std::iter::once(PASSPHRASE.to_vec()).chain(others).collect();
        Settings { keys, ..Settings::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn pool(&self) -> &str {
        self.files.name()
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn findings(&self) -> &[String] {
        &self.findings
    }

    /// Whether the kernel is to take its turn.
    pub(super) const fn is_playing(&self) -> bool {
        matches!(self.stage, Stage::Playing | Stage::Copied)
    }

    /// Whether the kernel is to leave changes in intent logs.
    pub(super) const fn leaves_log(&self) -> bool {
        matches!(self.stage, Stage::Copied)
    }

    /// Whether the next comparison is after a replay: logs do not tell the times of changes.
    const fn is_replayed(&self) -> bool {
        matches!(self.stage, Stage::Logged | Stage::Copied)
    }

    pub(super) fn verdict(&self) -> String {
        let Self { name, turns, compared, .. } = self;
        match &self.stage {
            Stage::ReadOnly(reason) => format!("{name}: not opened for writing: {reason}"),
            _ if !self.findings.is_empty() => format!("{name}: FAILED after {turns} turns"),
            _ => format!("{name}: {turns} turns, {compared} trees equal"),
        }
    }

    fn lose(&mut self, finding: String) {
        self.find(finding);
        self.stage = Stage::Lost;
    }

    /// Something is not as it should be.
    fn find(&mut self, finding: String) {
        println!("{}: {finding}", self.name);
        self.findings.push(finding);
    }

    /// rzfs' turn; it may leave a copy that was taken in the middle of it.
    pub(super) fn turn(&mut self, round: u32) -> Option<Self> {
        if !matches!(self.stage, Stage::New(_) | Stage::Logged | Stage::Playing) {
            return None;
        }
        let copy = match self.play(round) {
            Ok(copy) => copy,
            Err(ProofError::NotWritable(reason)) => {
                self.findings.clear();
                self.stage = Stage::ReadOnly(reason.to_string());
                return None;
            }
            Err(error) => {
                self.lose(format!("rzfs' turn {round}: {error}"));
                return None;
            }
        };
        self.turns += 1;
        self.ask_zdb(round);
        if let Err(error) = self.compare_all("after rzfs' turn", &self.settings()) {
            self.lose(format!("after rzfs' turn {round}: {error}"));
        }
        copy
    }

    fn play(&mut self, round: u32) -> Result<Option<Self>, ProofError> {
        let mut settings = self.settings();
        let seed = self.seed + u64::from(round);
        let is_copied = matches!(self.stage, Stage::New(shape) if COPIED.contains(&shape.name));
        if is_copied {
            settings.pool.tunables.zfs_txg_timeout = NEVER;
        }
        let pool = match &self.stage {
            Stage::New(shape) => {
                let pool = self.files.create(shape, &settings)?;
                self.stage = Stage::Playing;
                pool
            }
            Stage::Logged => {
                self.replay()?;
                self.stage = Stage::Playing;
                self.files.open(&settings)?
            }
            _ => {
                self.compare_all("before rzfs' turn", &settings)?;
                self.files.open(&settings)?
            }
        };
        for (number, (name, fs)) in pool.file_systems.iter().enumerate() {
            let available = available(&pool, name)?;
            if available >= ROOM_FOR_CHANGES {
                change(fs, seed)?;
            }
            if number < FILLED && available >= ROOM {
                fill(fs, &format!("rzfs-{round}"), seed)?;
                let mut random = Random::of_place(seed, &[number as u64]);
                self.habit.follow(fs, round.into(), &mut random)?;
            }
        }
        self.see(&pool)?;
        let _ = pool.pool.sync();
        let copy = if is_copied { self.copy_with_logs(&pool, seed)? } else { None };
        pool.export()?;
        Ok(copy)
    }

    /// Remembers what users see of the heads.
    fn see(&mut self, pool: &OpenPool) -> Result<(), ProofError> {
        for (name, fs) in &pool.file_systems {
            self.seen.insert(name.clone(), record(&**fs)?);
        }
        Ok(())
    }

    /// Copies the images while changes that somebody has waited for are in intent logs only.
    fn copy_with_logs(&mut self, pool: &OpenPool, seed: u64) -> Result<Option<Self>, ProofError> {
        for fs in pool.file_systems.values() {
            // The first wait begins a log, and is one for a group.
            Files(fs).mkdir(WAITED)?;
            fs.commit_all().map_err(|source| ProofError::File {
                path: WAITED.to_owned(),
                source: Box::new(source),
            })?;
        }
        for fs in pool.file_systems.values() {
            change_durably(fs, &format!("{WAITED}/for"), "rzfs-1/text1m", seed)?;
        }
        self.see(pool)?;
        Ok(self.copy())
    }

    /// Copies the images as they are while the pool is open.
    fn copy(&mut self) -> Option<Self> {
        let parent = self.directory.parent().and_then(Path::parent)?;
        let name = format!("{}-live", self.name);
        let copied = Self::new(&name, self.pool(), parent, self.seed, Stage::Copied);
        let copied = copied.and_then(|copied| {
            let images = fs::read_dir(self.files.dir()).map_err(Failure::file(self.files.dir()))?;
            for image in images.flatten() {
                copy_image(&image.path(), copied.files.dir())?;
            }
            let seen = self.seen.iter().map(|(name, it)| (name.clone(), it.clone().timeless()));
            Ok(Self { seen: seen.collect(), habit: self.habit, ..copied })
        });
        match copied {
            Ok(mut copied) => {
                copied.zdb(&["-m"], "copied while open");
                copied.zdb(&["-iiii"], "copied while open");
                copied.require_logs(WAITED);
                Some(copied)
            }
            Err(failure) => {
                self.find(failure.to_string());
                None
            }
        }
    }

    /// Sees to it that something is in the intent log of each file system that has a directory
    /// where somebody waited for changes.
    fn require_logs(&mut self, directory: &str) {
        let found = self.files.read(&self.settings()).and_then(|pool| {
            let all = self
                .seen
                .iter()
                .filter(|(_, seen)| seen.entries.contains_key(directory.as_bytes()))
                .map(|(name, seen)| {
                    let found = record(&read_dataset(&pool, name)?)?.timeless();
                    Ok(found == seen.clone().timeless())
                });
            all.collect::<Result<Vec<bool>, ProofError>>()
        });
        match found {
            Ok(equal) if equal.is_empty() || equal.contains(&true) => {
                self.find("the intent log of a file system has nothing to tell".to_owned());
            }
            Ok(_) => {}
            Err(error) => self.find(format!("copied while open: {error}")),
        }
    }

    /// Compares everything that was seen last with what rzfs reads.
    fn compare_all(&mut self, when: &str, settings: &Settings) -> Result<(), ProofError> {
        let pool = self.files.read(settings)?;
        for (name, expected) in std::mem::take(&mut self.seen) {
            let looked =
                read_dataset(&pool, &name).and_then(|fs| Ok((record(&fs)?, wrong_accounts(&fs)?)));
            match looked {
                Ok((found, wrong)) => {
                    match self.is_replayed() {
                        true => {
                            let expected = expected.clone().timeless();
                            self.compare(when, &name, &expected, &found.timeless());
                        }
                        false => self.compare(when, &name, &expected, &found),
                    }
                    for wrong in wrong {
                        self.find(format!("{when}: {name}: {wrong}"));
                    }
                }
                Err(error) => self.find(format!("{when}: {name}: {error}")),
            }
            self.seen.insert(name, expected);
        }
        Ok(())
    }

    fn compare(
        &mut self,
        when: &str,
        name: &str,
        expected: &FileSystemManifest,
        found: &FileSystemManifest,
    ) {
        let differences = differences(expected, found);
        self.compared += 1;
        for difference in differences.iter().take(TOLD) {
            self.find(format!("{when}: {name}: {difference}"));
        }
        if differences.len() > TOLD {
            self.find(format!("{when}: {name}: {} more", differences.len() - TOLD));
        }
    }

    /// Asks OpenZFS's zdb whether what rzfs left is whole.
    fn ask_zdb(&mut self, round: u32) {
        let when = format!("after rzfs' turn {round}");
        for options in [["-bcc"], ["-dddd"], ["-mmm"]] {
            self.zdb(&options, &when);
        }
    }

    fn zdb(&mut self, options: &[&str], when: &str) {
        let mut zdb = Command::new("zdb");
        zdb.args(options).args(["-e", "-p"]).arg(self.files.dir()).arg(self.pool());
        let finding = match outcome(&mut zdb) {
            Err(failure) => Some(failure.to_string()),
            Ok(output) => {
                let text = String::from_utf8_lossy(&output.stdout);
                let errors = String::from_utf8_lossy(&output.stderr);
                let is_leaky = options == ["-bcc"] && !text.contains("No leaks");
                let is_bad = !output.status.success() || is_leaky;
                is_bad.then(|| format!("zdb {options:?}: {}", tail(&format!("{text}\n{errors}"))))
            }
        };
        if let Some(finding) = finding {
            self.find(format!("{when}: {finding}"));
        }
    }

    /// Takes in what the kernel said about the pool.
    pub(super) fn kernel_said(&mut self, said: &Path) {
        if !said.exists() {
            self.lose("the reference machine had no time for it".to_owned());
            return;
        }
        let text = |name: &str| fs::read_to_string(said.join(name)).unwrap_or_default();
        let manifest =
            |name: &str| fs::read(said.join(name)).ok().and_then(|it| Manifest::parse(&it).ok());
        let (Some(before), Some(after)) = (manifest("before"), manifest("after")) else {
            self.lose(format!("the kernel does not import it: {}", tail(&text("import"))));
            return;
        };
        let expected = std::mem::take(&mut self.seen);
        let is_copied = matches!(self.stage, Stage::Copied);
        for (name, expected) in &expected {
            match before.get(name) {
                Some(found) if is_copied => {
                    let found = found.clone().timeless();
                    self.compare("the kernel sees", name, expected, &found);
                }
                Some(found) => self.compare("the kernel sees", name, expected, found),
                None => self.find(format!("the kernel does not see {name}")),
            }
        }
        let limits = text("limits");
        if self.habit == Habit::Limits && limits != expected_limits() {
            self.find(format!("the kernel sees the limits {}", tail(&limits)));
        }
        let status = text("status");
        let is_scrubbed = status.contains("with 0 errors");
        if !is_scrubbed || !status.contains("errors: No known data errors") {
            self.find(format!("scrub: {}", tail(&status)));
        }
        if !said.join("left").exists() {
            self.lose(format!("the kernel does not export it: {}", tail(&text("export"))));
            return;
        }
        // Snapshots that were there before are as they were seen then.
        let snapshots = text("snapshots");
        let is_left = |name: &String| snapshots.lines().any(|snapshot| snapshot == name);
        self.seen = expected.into_iter().filter(|(name, _)| is_left(name)).collect();
        self.seen.extend(after.datasets().map(|(name, it)| (name.to_owned(), it.clone())));
        self.turns += 1;
        if is_copied {
            self.require_logs(WAITED_BY_KERNEL);
            self.turns += 1;
            if let Err(error) = self.replay() {
                self.lose(format!("replaying what the kernel left: {error}"));
                return;
            }
            self.ask_zdb(1);
            self.stage = Stage::Over;
        }
    }

    /// Has rzfs replay the intent logs that a kernel left, and looks at the outcome.
    fn replay(&mut self) -> Result<(), ProofError> {
        self.files.open(&self.settings())?.export()?;
        self.compare_all("after rzfs' replay", &self.settings())
    }

    /// Looks at what the kernel left in the end.
    pub(super) fn end(&mut self) {
        if !self.is_playing() {
            return;
        }
        let settings = self.settings();
        if let Err(error) = self.compare_all("in the end", &settings) {
            self.lose(format!("in the end: {error}"));
            return;
        }
        self.stage = Stage::Over;
    }
}

/// Bytes that a file system may take by its accounts, which do not bound what is done here.
fn available(pool: &OpenPool, name: &str) -> Result<u64, ProofError> {
    // They are of the last txg.
    pool.sync()?;
    Ok(pool.pool.dataset_tree()?.open(name)?.number(DatasetProperty::Available)?)
}

/// What `zfs get -Hp -o property,value` says of the limits of [`Habit::Limits`].
fn expected_limits() -> String {
    let quotas = QUOTAS.into_iter().map(|(name, _, _, limit)| (name, limit));
    let line = |(name, limit)| format!("{name}\t{limit}\n");
    LIMITS.into_iter().chain(quotas).map(line).collect()
}

/// The properties of [`Habit::Limits`], as `zfs get` takes them.
pub(super) fn limits() -> String {
    let quotas = QUOTAS.into_iter().map(|(name, ..)| name);
    LIMITS.into_iter().map(|(name, _)| name).chain(quotas).collect::<Vec<_>>().join(",")
}

/// The last lines of a text.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}
