//! A round: lives, troubles, power cuts and verdicts.

use super::error::RoundError;
use super::journal::{Journal, Tree};
use super::medium::Medium;
use super::served::{Home, PATIENCE, POOL, Served, in_time, succeed};
use super::server::{ImageServer, name};
use super::shelf::{Honesty, Moment, PowerCut, Shelf, Survivors};
use super::trouble::{Strike, Trouble};
use super::writer::{Progress, Writer, read_tree};
use rzfs_hostile::Random;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const IMAGE_SIZE: u64 = 256 << 20;
const WRITERS: u64 = 3;
/// Number of earlier power cuts examined in a life.
const EARLIER_CUTS: u64 = 2;
/// Interval of checks whether the pool is suspended.
const LOOK: Duration = Duration::from_millis(40);
/// One of this many checks injects a fault.
const STRIKE_ONCE_IN: u64 = 5;
/// Duration of trouble in a life: the minimum, and the maximum in addition.
const TROUBLED: [u64; 2] = [800, 1700];
/// Maximum time in milliseconds that writers continue before the power is cut.
const LAST_MOMENTS: u64 = 500;
/// Maximum time until a suspended pool is repaired.
const ABSENCE: u64 = 200;

/// The layout of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageShape {
    /// One image.
    Single,
    /// Two with the same contents.
    Mirror,
    /// Four, of which two may fail.
    Raidz2,
    /// One, and one for the intent log.
    Log,
}

impl ImageShape {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Single, Self::Mirror, Self::Raidz2, Self::Log];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mirror => "mirror",
            Self::Raidz2 => "raidz2",
            Self::Log => "log",
        }
    }

    /// The arguments of `zpool create`, with `{}` for each image.
    const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Single => &["{}"],
            Self::Mirror => &["mirror", "{}", "{}"],
            Self::Raidz2 => &["raidz2", "{}", "{}", "{}", "{}"],
            Self::Log => &["{}", "log", "{}"],
        }
    }

    /// Number of images with their own trouble: as many as the redundancy allows, but at least one.
    const fn troubled(self) -> usize {
        match self {
            Self::Single | Self::Mirror | Self::Log => 1,
            Self::Raidz2 => 2,
        }
    }

    fn images(self) -> usize {
        self.words().iter().filter(|word| **word == "{}").count()
    }
}

/// The programs used by a round.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The binary under test.
    pub rzfs: PathBuf,
    /// OpenZFS's `zdb`, which checks the remains if available.
    pub zdb: Option<PathBuf>,
}

/// A pool on failing images, changed by programs.
#[derive(Clone, Debug)]
pub struct ImageRound {
    /// The layout of the pool.
    pub shape: ImageShape,
    /// Determines troubles, changes and power cuts.
    pub seed: u64,
    /// Number of times the process is started and killed, each with a power cut.
    pub lives: u64,
    /// Whether the images keep flushed data.
    pub honesty: Honesty,
    /// The programs used.
    pub programs: Programs,
}

/// Statistics of a round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Number of acknowledged operations.
    pub acknowledged: u64,
    /// Number of errors reported to programs.
    pub refused: u64,
    /// Troubles of images.
    pub strikes: u64,
    /// Times that the pool was found suspended.
    pub suspensions: u64,
    /// Power cuts after which the pool was examined.
    pub cuts: u64,
}

impl Figures {
    /// Adds another round's.
    pub fn add(&mut self, other: Self) {
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.strikes += other.strikes;
        self.suspensions += other.suspensions;
        self.cuts += other.cuts;
    }
}

/// The expected state after a power cut.
struct Expected {
    /// The state at the beginning of the life.
    settled: Tree,
    /// The changes since, by directory.
    journals: Vec<(String, Journal)>,
}

impl Expected {
    /// The error in the state found.
    fn wrong_with(&self, seen: &Tree, cut: Moment) -> Option<String> {
        let mut rest = seen.clone();
        for (directory, journal) in &self.journals {
            let inside = format!("{directory}/");
            let of_journal: Vec<String> =
                rest.keys().filter(|path| path.starts_with(&inside)).cloned().collect();
            let files = of_journal.into_iter().filter_map(|path| {
                let contents = rest.remove(&path)?;
                Some((path.strip_prefix(&inside)?.to_owned(), contents))
            });
            if let Some(wrong) = journal.wrong_with(&files.collect(), cut) {
                return Some(format!("{directory}: {wrong}"));
            }
        }
        let mut paths = rest.keys().chain(self.settled.keys());
        let changed = paths.find(|path| rest.get(*path) != self.settled.get(*path))?;
        Some(format!("{changed} is not what it was when the last life began"))
    }
}

/// The process of a life, and its records.
struct Life<'a> {
    served: Served,
    trouble: Trouble<'a>,
    random: Random,
    figures: &'a mut Figures,
}

impl ImageRound {
    /// Runs the round in its own directory, which must be empty.
    ///
    /// # Errors
    /// The error found: something that was waited for is lost, unreadable or changed, a block is
    /// lost or leaked, or something hangs or ends unexpectedly.
    pub fn play(&self, directory: &Path) -> Result<Figures, RoundError> {
        let mut figures = Figures::default();
        let images = directory.join("images");
        fs::create_dir(&images).map_err(RoundError::at(&images))?;
        let shelf = Arc::new(Shelf::new(self.shape.images(), IMAGE_SIZE, self.honesty));
        let server = ImageServer::start(&shelf, &images)?;
        let home = Home::new(&self.programs.rzfs, &directory.join("served"))?;
        home.create(&self.properties(), self.shape.words(), server.paths())?;
        // The images lose data only from now on.
        let made = PowerCut { moment: shelf.moment(), survivors: Survivors::All };
        shelf.restart(shelf.remains(made));
        let mut settled = Tree::new();
        for life in 0..self.lives {
            let served = Served::start(&home, server.paths())?;
            compare_with_copies(&home, &settled)?;
            let trouble = Trouble::new(&shelf, self.chance(&[0]), self.shape.troubled());
            let random = self.chance(&[1, life]);
            let begun = Life { served, trouble, random, figures: &mut figures };
            let (since, expected) = self.live(begun, &shelf, &home, life, settled)?;
            settled = self.cut_power(&shelf, life, since, &expected, directory, &mut figures)?;
        }
        let served = Served::start(&home, server.paths())?;
        compare_with_copies(&home, &settled)?;
        served.export()?;
        Ok(figures)
    }

    fn chance(&self, place: &[u64]) -> Random {
        Random::of_place(self.seed, &[&[0x1_4a6e], place].concat())
    }

    fn properties(&self) -> Vec<String> {
        let mut random = self.chance(&[2]);
        let record = 4096_u64 << random.below(6);
        let bias = if random.once_in(4) { "throughput" } else { "latency" };
        let files = [format!("recordsize={record}"), format!("logbias={bias}")];
        let files = files.into_iter().flat_map(|property| ["-O".to_owned(), property]);
        files.chain(["-o".to_owned(), "failmode=wait".to_owned()]).collect()
    }

    /// Runs the writers in trouble until the process is killed; returns the moment since which a
    /// power cut preserves their directories, and their changes.
    fn live(
        &self,
        mut life: Life<'_>,
        shelf: &Shelf,
        home: &Home,
        number: u64,
        settled: Tree,
    ) -> Result<(Moment, Expected), RoundError> {
        let directories: Vec<String> =
            (0..WRITERS).map(|writer| format!("life{number}-{writer}")).collect();
        for directory in &directories {
            make_directory(home.mount().join(directory))?;
        }
        let since = shelf.moment();
        let is_over = AtomicBool::new(false);
        let progress: Vec<Progress> = directories.iter().map(|_| Progress::default()).collect();
        let journals = thread::scope(|scope| {
            let writers: Vec<_> = (0..)
                .zip(directories.iter().zip(&progress))
                .map(|(writer, (directory, progress))| {
                    let random = self.chance(&[3, number, writer]);
                    let path = home.mount().join(directory);
                    let writer = Writer::new(path, random, shelf, &is_over, progress);
                    scope.spawn(|| writer.work())
                })
                .collect();
            let watched = life.watch(shelf, &progress);
            is_over.store(true, Ordering::Release);
            // Waiters continue when it is dead.
            let killed = life.served.kill();
            shelf.mend_all();
            drop(life);
            let journals: Vec<_> = writers
                .into_iter()
                .map(|writer| writer.join().unwrap_or_else(|_| Err(found("a writer panics"))))
                .collect();
            shelf.hang_up();
            watched.and(killed)?;
            journals.into_iter().collect::<Result<Vec<_>, _>>()
        })?;
        let journals = directories.into_iter().zip(journals).collect();
        Ok((since, Expected { settled, journals }))
    }

    /// Examines the states left by power cuts; the last one becomes the state of the images.
    fn cut_power(
        &self,
        shelf: &Shelf,
        life: u64,
        since: Moment,
        expected: &Expected,
        directory: &Path,
        figures: &mut Figures,
    ) -> Result<Tree, RoundError> {
        let mut random = self.chance(&[4, life]);
        let last = shelf.moment();
        let earlier = (0..EARLIER_CUTS).map(|_| since + random.index(last - since + 1));
        let mut left = (Tree::new(), Vec::new());
        for moment in earlier.collect::<Vec<_>>().into_iter().chain([last]) {
            let survivors = match random.below(4) {
                0 => Survivors::All,
                1 => Survivors::None,
                _ => Survivors::Some(random.draw()),
            };
            let media = shelf.remains(PowerCut { moment, survivors });
            let which = format!("life {life}, power cut at {moment} of {last}, {survivors:?}");
            let seen = self.look_at(&media, expected, moment, directory).map_err(|error| {
                let kept = directory.join("as-cut");
                let saved = save(&media, &kept).map_or_else(
                    |error| error.to_string(),
                    |_| format!("images: {}", kept.display()),
                );
                RoundError::Found(format!("{which}: {error}\n  {saved}"))
            })?;
            figures.cuts += 1;
            left = (seen, media);
        }
        shelf.restart(left.1);
        Ok(left.0)
    }

    /// Imports the pool from copies of media and exports it; returns its contents.
    fn look_at(
        &self,
        media: &[Medium],
        expected: &Expected,
        cut: Moment,
        directory: &Path,
    ) -> Result<Tree, RoundError> {
        let copies = directory.join("copies");
        let paths = save(media, &copies)?;
        let home = Home::new(&self.programs.rzfs, &directory.join("looked-at"))?;
        let served = Served::start(&home, &paths)?;
        let seen = read(home.mount())?;
        let wrong = expected.wrong_with(&seen, cut);
        served.export()?;
        if let Some(wrong) = wrong {
            return Err(RoundError::Found(wrong));
        }
        judge(home.command(&["zdb"]), &copies)?;
        if let Some(zdb) = &self.programs.zdb {
            judge(Command::new(zdb), &copies)?;
        }
        Ok(seen)
    }
}

fn found(what: &str) -> RoundError {
    RoundError::Found(what.to_owned())
}

/// The contents of a mounted pool.
fn read(mount: PathBuf) -> Result<Tree, RoundError> {
    in_time("reading all files", move || read_tree(&mount))
}

/// Checks that everything on the copies of the images is on the images.
fn compare_with_copies(home: &Home, copies: &Tree) -> Result<(), RoundError> {
    match read(home.mount())? == *copies {
        true => Ok(()),
        false => Err(found("what is on the images differs from what was on copies of them")),
    }
}

/// Creates a directory that survives power cuts.
fn make_directory(path: PathBuf) -> Result<(), RoundError> {
    in_time("making a directory", move || {
        let made = fs::create_dir(&path).and_then(|()| File::open(&path)?.sync_all());
        made.map_err(|error| RoundError::Found(format!("{}: {error}", path.display())))
    })
}

/// Saves media as files, in an otherwise empty directory.
fn save(media: &[Medium], directory: &Path) -> Result<Vec<PathBuf>, RoundError> {
    if directory.exists() {
        fs::remove_dir_all(directory).map_err(RoundError::at(directory))?;
    }
    fs::create_dir(directory).map_err(RoundError::at(directory))?;
    let paths: Vec<PathBuf> = (0..media.len()).map(|image| directory.join(name(image))).collect();
    for (medium, path) in media.iter().zip(&paths) {
        medium.save(path, IMAGE_SIZE).map_err(RoundError::at(path))?;
    }
    Ok(paths)
}

/// Runs `zdb` to find leaks and errors.
fn judge(mut zdb: Command, images: &Path) -> Result<(), RoundError> {
    let text = succeed(zdb.args(["-bcc", "-e", "-p"]).arg(images).arg(POOL))?;
    if text.contains("No leaks") { Ok(()) } else { Err(RoundError::Found(text)) }
}

impl Life<'_> {
    /// Injects faults, repairs and clears; returns at the moment of the power cut.
    fn watch(&mut self, shelf: &Shelf, writers: &[Progress]) -> Result<(), RoundError> {
        let troubled = TROUBLED[0] + self.random.below(TROUBLED[1]);
        let result = self
            .trouble_for(shelf, troubled)
            .and_then(|()| self.go_on(shelf, writers))
            .and_then(|()| self.last_moments());
        let count = |of: fn(&Progress) -> u64| writers.iter().map(of).sum::<u64>();
        self.figures.acknowledged += count(|one| one.acknowledged.load(Ordering::Acquire));
        self.figures.refused += count(|one| one.refused.load(Ordering::Relaxed));
        result
    }

    /// Injects faults for this many milliseconds.
    fn trouble_for(&mut self, shelf: &Shelf, millis: u64) -> Result<(), RoundError> {
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(millis) {
            if self.random.once_in(STRIKE_ONCE_IN) {
                self.strike()?;
            }
            self.look_after(shelf)?;
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn strike(&mut self) -> Result<(), RoundError> {
        self.figures.strikes += 1;
        match self.trouble.strike() {
            Strike::Mended => self.served.clear(),
            Strike::Trouble => Ok(()),
        }
    }

    /// Repairs a suspended pool, after a while.
    fn look_after(&mut self, shelf: &Shelf) -> Result<(), RoundError> {
        self.served.check()?;
        if !self.served.is_suspended()? {
            return Ok(());
        }
        self.figures.suspensions += 1;
        thread::sleep(Duration::from_millis(self.random.below(ABSENCE)));
        shelf.mend_all();
        self.served.clear()
    }

    /// Waits until every writer gets an acknowledgement, with all images repaired.
    fn go_on(&mut self, shelf: &Shelf, writers: &[Progress]) -> Result<(), RoundError> {
        let acknowledged = |one: &Progress| one.acknowledged.load(Ordering::Acquire);
        let before: Vec<u64> = writers.iter().map(acknowledged).collect();
        shelf.mend_all();
        self.served.clear()?;
        let started = Instant::now();
        loop {
            let waits = |(one, before): &(&Progress, &u64)| acknowledged(one) == **before;
            let waiting = writers.iter().zip(&before).filter(waits).count();
            if waiting == 0 {
                return Ok(());
            }
            if started.elapsed() > PATIENCE {
                let (place, complaints) = (self.served.where_it_waits(), self.served.complaints());
                return Err(RoundError::Found(format!(
                    "{waiting} programs wait although everything is mended: {place}: {complaints}"
                )));
            }
            self.look_after(shelf)?;
            thread::sleep(LOOK);
        }
    }

    /// The last moments before the power is cut.
    fn last_moments(&mut self) -> Result<(), RoundError> {
        if self.random.once_in(2) {
            self.strike()?;
        }
        thread::sleep(Duration::from_millis(self.random.below(LAST_MOMENTS)));
        self.served.check()
    }
}
