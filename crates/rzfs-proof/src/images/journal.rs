//! A program's changes to its directory, which of them are acknowledged as durable, and so the
//! states a power cut may leave.
//!
//! `fsync` returns when all changes of the file, and of all names, are durable. So the names are
//! always those after one of the changes between the last acknowledged and the last begun, and so
//! is each file's contents, by its own `fsync`s. A write may be torn.

use super::shelf::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A file, regardless of its names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileId(usize);

/// Files by name, with their contents.
pub(super) type Tree = BTreeMap<String, Vec<u8>>;

#[derive(Clone, Debug)]
struct Version {
    begun: Moment,
    contents: Arc<[u8]>,
}

/// The contents of a file after each change, and when they became durable.
#[derive(Clone, Debug)]
struct Story {
    versions: Vec<Version>,
    /// At this moment this version was.
    durable: Vec<(Moment, usize)>,
    /// From this moment its contents are unknown: a change has failed.
    unknown_since: Option<Moment>,
}

#[derive(Clone, Debug)]
enum Change {
    Make(String, FileId),
    Rename { from: String, to: String },
    Remove(String),
}

/// The changes of a program, and their acknowledgements.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    files: Vec<Story>,
    changes: Vec<(Moment, Change)>,
    /// Number of durable changes of names at this moment.
    durable: Vec<(Moment, usize)>,
    names: BTreeMap<String, FileId>,
}

/// The guarantee of a successful `fsync`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Promise {
    file: Option<(FileId, usize)>,
    changes: usize,
}

impl Journal {
    /// The file with a name.
    pub(super) fn find(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// The contents of a file, if known.
    pub(super) fn contents(&self, file: FileId) -> Option<Arc<[u8]>> {
        let story = self.files.get(file.0).filter(|story| story.unknown_since.is_none())?;
        story.versions.last().map(|version| Arc::clone(&version.contents))
    }

    /// Records the start of creating an empty file.
    pub(super) fn make(&mut self, begun: Moment, name: &str) -> FileId {
        let file = FileId(self.files.len());
        let versions = vec![Version { begun, contents: Arc::default() }];
        self.files.push(Story { versions, durable: Vec::new(), unknown_since: None });
        self.change(begun, Change::Make(name.to_owned(), file));
        file
    }

    /// Records the start of a rename, possibly over another file.
    pub(super) fn rename(&mut self, begun: Moment, from: &str, to: &str) {
        self.change(begun, Change::Rename { from: from.to_owned(), to: to.to_owned() });
    }

    /// Records the start of removing a file.
    pub(super) fn remove(&mut self, begun: Moment, name: &str) {
        self.change(begun, Change::Remove(name.to_owned()));
    }

    fn change(&mut self, begun: Moment, change: Change) {
        apply(&mut self.names, &change);
        self.changes.push((begun, change));
    }

    /// Reverts the last change of a name, which was refused.
    pub(super) fn take_back(&mut self) {
        self.changes.pop();
        self.names = self.names_after(self.changes.len());
    }

    /// Records the start of writing these contents to a file.
    pub(super) fn write(&mut self, begun: Moment, file: FileId, contents: Vec<u8>) {
        if let Some(story) = self.files.get_mut(file.0) {
            story.versions.push(Version { begun, contents: contents.into() });
        }
    }

    /// Records a failed write: part of it may be there.
    pub(super) fn lose_track(&mut self, now: Moment, file: FileId) {
        if let Some(story) = self.files.get_mut(file.0) {
            story.unknown_since.get_or_insert(now);
        }
    }

    /// The guarantee of an `fsync` of a file, or else of the directory, started now.
    pub(super) fn promise(&self, file: Option<FileId>) -> Promise {
        let version = |file: FileId| {
            self.files.get(file.0).map(|story| (file, story.versions.len().saturating_sub(1)))
        };
        Promise { file: file.and_then(version), changes: self.changes.len() }
    }

    /// Records that it succeeded.
    pub(super) fn acknowledge(&mut self, now: Moment, promise: Promise) {
        self.durable.push((now, promise.changes));
        if let Some((file, version)) = promise.file
            && let Some(story) = self.files.get_mut(file.0)
        {
            story.durable.push((now, version));
        }
    }

    fn names_after(&self, changes: usize) -> BTreeMap<String, FileId> {
        let mut names = BTreeMap::new();
        self.changes.iter().take(changes).for_each(|(_, change)| apply(&mut names, change));
        names
    }

    /// The error in the state left by a power cut at a moment.
    pub(super) fn wrong_with(&self, seen: &Tree, cut: Moment) -> Option<String> {
        let least = last_until(&self.durable, cut);
        let most = self.changes.iter().take_while(|(begun, _)| *begun <= cut).count();
        let mut finding = None;
        for changes in least..=most.max(least) {
            let names = self.names_after(changes);
            if !names.keys().eq(seen.keys()) {
                continue;
            }
            let mut contents = names.iter().zip(seen.values());
            let wrong = contents.find_map(|((name, file), contents)| {
                let story = self.files.get(file.0)?;
                Some(format!("{name}: {}", story.wrong_with(contents, cut)?))
            });
            match wrong {
                None => return None,
                Some(wrong) => finding = Some(wrong),
            }
        }
        finding.or_else(|| Some(self.wrong_names(seen, least, most)))
    }

    fn wrong_names(&self, seen: &Tree, least: usize, most: usize) -> String {
        let wanted = self.names_after(least);
        let names = |of: BTreeSet<&String>| {
            of.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ")
        };
        let (seen, wanted): (BTreeSet<_>, BTreeSet<_>) =
            (seen.keys().collect(), wanted.keys().collect());
        format!(
            "the names are not those after any of the changes {least} (acknowledged) to {most}: \
             more than after the first of these: {}; less: {}",
            names(&seen - &wanted),
            names(&wanted - &seen)
        )
    }
}

fn apply(names: &mut BTreeMap<String, FileId>, change: &Change) {
    match change {
        Change::Make(name, file) => {
            names.insert(name.clone(), *file);
        }
        Change::Rename { from, to } => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Change::Remove(name) => {
            names.remove(name);
        }
    }
}

/// The last of these ascending numbers up to a moment; 0 before the first.
fn last_until(noted: &[(Moment, usize)], moment: Moment) -> usize {
    let until = noted.iter().take_while(|(when, _)| *when <= moment);
    until.map(|(_, number)| *number).max().unwrap_or(0)
}

impl Story {
    /// The error in the contents left by a power cut.
    fn wrong_with(&self, seen: &[u8], cut: Moment) -> Option<String> {
        if self.unknown_since.is_some_and(|since| since <= cut) {
            return None;
        }
        let first = last_until(&self.durable, cut);
        let begun = self.versions.iter().take_while(|version| version.begun <= cut).count();
        let possible = self.versions.get(first..begun.max(first + 1)).unwrap_or_default();
        if possible.iter().any(|version| *version.contents == *seen) {
            return None;
        }
        let lengths = || possible.iter().map(|version| version.contents.len());
        let (shortest, longest) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
        let is_of_any = |(at, byte): (usize, &u8)| {
            possible.iter().any(|version| version.contents.get(at) == Some(byte))
        };
        let foreign = seen.iter().enumerate().position(|byte| !is_of_any(byte));
        if foreign.is_none() && (shortest..=longest).contains(&seen.len()) {
            return None;
        }
        let (versions, len) = (self.versions.len(), seen.len());
        let place = foreign.map_or(String::new(), |at| {
            let acknowledged = possible.first().and_then(|version| version.contents.get(at));
            format!(", and byte {at} is {:?} in place of {acknowledged:?}", seen.get(at))
        });
        Some(format!(
            "its {len} bytes are none of its versions {first} (acknowledged) to {} of {versions}, \
             which have {shortest} to {longest}{place}",
            begun.saturating_sub(1)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> Tree {
        files.iter().map(|(name, contents)| ((*name).to_owned(), contents.to_vec())).collect()
    }

    /// Makes `a` with "one", acknowledged at 10; from 20 on "two!" is written, acknowledged at 30.
    fn written_twice() -> Journal {
        let mut journal = Journal::default();
        let file = journal.make(0, "a");
        journal.write(1, file, b"one".to_vec());
        journal.acknowledge(10, journal.promise(Some(file)));
        journal.write(20, file, b"two!".to_vec());
        journal.acknowledge(30, journal.promise(Some(file)));
        journal
    }

    #[test]
    fn contents_are_those_of_the_last_acknowledged_version_or_a_later_one() {
        let journal = written_twice();
        let is_right =
            |contents: &[u8], cut| journal.wrong_with(&tree(&[("a", contents)]), cut).is_none();
        for (contents, cut, expected) in [
            (&b"one"[..], 10, true),
            (b"two!", 10, false),
            (b"", 10, false),
            (b"one", 25, true),
            (b"two!", 25, true),
            (b"twe", 25, true),
            (b"xne", 25, false),
            (b"on", 25, false),
            (b"two!", 30, true),
            (b"one", 30, false),
            (b"two", 30, false),
        ] {
            assert_eq!(is_right(contents, cut), expected, "{contents:?} at {cut}");
        }
    }

    #[test]
    fn names_are_those_after_one_of_the_changes_that_may_be_there() {
        let mut journal = written_twice();
        journal.rename(40, "a", "b");
        let b = || tree(&[("b", b"two!")]);
        assert!(journal.wrong_with(&b(), 35).is_some());
        assert!(journal.wrong_with(&b(), 40).is_none());
        assert!(journal.wrong_with(&tree(&[("a", b"two!")]), 40).is_none());
        assert!(journal.wrong_with(&Tree::new(), 40).is_some(), "neither name");
        let both = tree(&[("a", b"two!"), ("b", b"two!")]);
        assert!(journal.wrong_with(&both, 40).is_some(), "both names");
        journal.acknowledge(50, journal.promise(None));
        assert!(journal.wrong_with(&tree(&[("a", b"two!")]), 50).is_some());
        journal.remove(60, "b");
        assert!(journal.wrong_with(&Tree::new(), 59).is_some());
        assert!(journal.wrong_with(&Tree::new(), 60).is_none());
        journal.take_back();
        assert!(journal.wrong_with(&Tree::new(), 60).is_some());
    }

    #[test]
    fn nothing_is_expected_of_a_file_whose_write_has_failed() {
        let mut journal = written_twice();
        let file = journal.find("a").unwrap();
        journal.lose_track(40, file);
        assert_eq!(journal.contents(file), None);
        assert!(journal.wrong_with(&tree(&[("a", b"?")]), 39).is_some());
        assert!(journal.wrong_with(&tree(&[("a", b"?")]), 40).is_none());
    }
}
