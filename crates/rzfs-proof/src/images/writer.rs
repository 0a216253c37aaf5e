//! A program that works in its own directory, and keeps a journal.

use super::error::RoundError;
use super::journal::{FileId, Journal, Tree};
use super::shelf::{Moment, Shelf};
use crate::fill::noise;
use rustix::fs::OFlags;
use rzfs_hostile::Random;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Number of names used by a writer.
const NAMES: u64 = 8;
/// One of this many files is large.
const LARGE_ONCE_IN: u64 = 6;
const SMALL: u64 = 9000;
const LARGE: u64 = 300_000;
/// Maximum file size.
const LARGEST: usize = 600_000;
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(20);

/// The progress of a writer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Number of acknowledged operations.
    pub(super) acknowledged: AtomicU64,
    /// Number of errors returned.
    pub(super) refused: AtomicU64,
}

/// A program that works in its own directory.
pub(super) struct Writer<'a> {
    directory: PathBuf,
    random: Random,
    shelf: &'a Shelf,
    is_over: &'a AtomicBool,
    progress: &'a Progress,
    journal: Journal,
    finding: Option<String>,
}

/// A change of contents.
enum Edit {
    /// At this place.
    At(usize),
    Append,
    Truncate(usize),
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        directory: PathBuf,
        random: Random,
        shelf: &'a Shelf,
        is_over: &'a AtomicBool,
        progress: &'a Progress,
    ) -> Self {
        let (journal, finding) = (Journal::default(), None);
        Self { directory, random, shelf, is_over, progress, journal, finding }
    }

    /// Works until the end. Reports wrong reads.
    pub(super) fn work(mut self) -> Result<Journal, RoundError> {
        while !self.is_over() && self.finding.is_none() {
            let name = format!("f{}", self.random.below(NAMES));
            if self.step(&name).is_err() && !self.is_over() {
                self.progress.refused.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
        }
        match self.finding {
            Some(finding) => Err(RoundError::Found(finding)),
            None => Ok(self.journal),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn now(&self) -> Moment {
        self.shelf.moment()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn step(&mut self, name: &str) -> io::Result<()> {
        let Some(file) = self.journal.find(name) else {
            return self.make(name);
        };
        let Some(contents) = self.journal.contents(file) else {
            return self.replace(name);
        };
        match self.random.below(12) {
            0..3 => {
                let place = self.random.index(contents.len() + 1);
                self.edit(name, file, &contents, Edit::At(place))
            }
            3..5 => self.edit(name, file, &contents, Edit::Append),
            5 => {
                let len = self.random.index(contents.len() + 5000);
                self.edit(name, file, &contents, Edit::Truncate(len))
            }
            6 | 7 => self.replace(name),
            8 => {
                let to = format!("f{}", self.random.below(NAMES));
                self.rename(name, &to)
            }
            9 => self.remove(name),
            _ => self.look(name, &contents),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let largest = if self.random.once_in(LARGE_ONCE_IN) { LARGE } else { SMALL };
        let len = self.random.below(largest) as usize + 1;
        noise(self.random.draw(), len)
    }

    fn make(&mut self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        let file = self.journal.make(self.now(), name);
        let made = File::create_new(path);
        let mut opened = self.named(name, true, made)?;
        let bytes = self.bytes();
        self.journal.write(self.now(), file, bytes.clone());
        let written = opened.write_all(&bytes);
        self.edited(file, written)?;
        if self.random.once_in(4) { Ok(()) } else { self.sync(&opened, Some(file)) }
    }

    /// Handles the result of a change of names; `there`: whether the name exists after success.
    fn named<T>(&mut self, name: &str, there: bool, result: io::Result<T>) -> io::Result<T> {
        if result.is_err() && !self.is_over() {
            let is_there = fs::symlink_metadata(self.path(name)).is_ok();
            if is_there != there {
                self.journal.take_back();
            } else if let Some(file) = self.journal.find(name) {
                self.journal.lose_track(self.now(), file);
            }
        }
        result
    }

    /// Handles the result of a change of contents.
    fn edited(&mut self, file: FileId, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.journal.lose_track(self.now(), file);
        }
        result
    }

    fn edit(&mut self, name: &str, file: FileId, before: &[u8], edit: Edit) -> io::Result<()> {
        let bytes = self.bytes();
        let is_synchronous = self.random.once_in(4);
        let mut options = OpenOptions::new();
        options.write(true).append(matches!(edit, Edit::Append));
        if is_synchronous {
            let flag = if self.random.once_in(2) { OFlags::SYNC } else { OFlags::DSYNC };
            options.custom_flags(flag.bits().cast_signed());
        }
        let mut opened = options.open(self.path(name))?;
        let mut after = before.to_vec();
        let place = match edit {
            Edit::Truncate(len) => {
                after.resize(len, 0);
                None
            }
            Edit::At(place) => Some(place),
            Edit::Append => Some(before.len()),
        };
        if let Some(place) = place {
            after.resize(before.len().max(place + bytes.len()), 0);
            after[place..place + bytes.len()].copy_from_slice(&bytes);
        }
        if after.len() > LARGEST {
            return self.remove(name);
        }
        self.journal.write(self.now(), file, after);
        let promise = self.journal.promise(Some(file));
        let result = match edit {
            Edit::Truncate(len) => opened.set_len(len as u64),
            Edit::At(place) => opened.write_all_at(&bytes, place as u64),
            Edit::Append => opened.write_all(&bytes),
        };
        self.edited(file, result)?;
        if is_synchronous && place.is_some() {
            self.acknowledge(promise);
            return Ok(());
        }
        if self.random.once_in(4) { Ok(()) } else { self.sync(&opened, Some(file)) }
    }

    /// Replaces a file, as careful programs do: writes beside it, and renames over it when that is
    /// durable; some are less careful.
    fn replace(&mut self, name: &str) -> io::Result<()> {
        const BESIDE: &str = "beside";
        if self.journal.find(BESIDE).is_some() {
            self.remove(BESIDE)?;
        }
        self.make(BESIDE)?;
        self.rename(BESIDE, name)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        if from == to {
            return Ok(());
        }
        self.journal.rename(self.now(), from, to);
        let renamed = fs::rename(self.path(from), self.path(to));
        self.named(from, false, renamed)?;
        self.sync_names()
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.journal.remove(self.now(), name);
        let removed = fs::remove_file(self.path(name));
        self.named(name, false, removed)?;
        self.sync_names()
    }

    fn sync_names(&mut self) -> io::Result<()> {
        if self.random.once_in(3) {
            return Ok(());
        }
        let directory = File::open(&self.directory)?;
        self.sync(&directory, None)
    }

    /// Waits until something is durable, retrying if necessary.
    fn sync(&mut self, opened: &File, file: Option<FileId>) -> io::Result<()> {
        let promise = self.journal.promise(file);
        while let Err(error) = opened.sync_all() {
            if self.is_over() {
                return Err(error);
            }
            self.progress.refused.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
        self.acknowledge(promise);
        Ok(())
    }

    fn acknowledge(&mut self, promise: super::journal::Promise) {
        self.journal.acknowledge(self.now(), promise);
        self.progress.acknowledged.fetch_add(1, Ordering::Release);
    }

    /// Reads a file, half of the time bypassing the kernel's page cache.
    fn look(&mut self, name: &str, expected: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        options.read(true);
        if self.random.once_in(2) {
            options.custom_flags(OFlags::DIRECT.bits().cast_signed());
        }
        let mut seen = Vec::new();
        options.open(self.path(name))?.read_to_end(&mut seen)?;
        if seen != expected && !self.is_over() {
            let place = seen.iter().zip(expected).position(|(seen, expected)| seen != expected);
            self.finding = Some(format!(
                "a wrong read: {} has {} bytes, read were {}, different from {place:?} on",
                self.path(name).display(),
                expected.len(),
                seen.len()
            ));
        }
        Ok(())
    }
}

/// All files below a directory, with their paths in it.
pub(super) fn read_tree(directory: &Path) -> Result<Tree, RoundError> {
    let mut tree = Tree::new();
    let mut left = vec![directory.to_owned()];
    while let Some(place) = left.pop() {
        // Unreadable data was most likely acknowledged.
        let unreadable = |error: io::Error| {
            RoundError::Found(format!("{} cannot be read: {error}", place.display()))
        };
        for entry in fs::read_dir(&place).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let kind = fs::symlink_metadata(&path).map_err(unreadable)?;
            if kind.is_dir() {
                left.push(path);
                continue;
            }
            let contents = fs::read(&path).map_err(|error| {
                RoundError::Found(format!("{} cannot be read: {error}", path.display()))
            })?;
            let name = path.strip_prefix(directory).unwrap_or(&path);
            tree.insert(name.to_string_lossy().into_owned(), contents);
        }
    }
    Ok(tree)
}
