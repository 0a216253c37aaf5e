//! Paths of files given by number.

use crate::entry::{DirCookie, NameTarget};
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::source::Source;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

/// Maximum path length in bytes: many times what the system accepts.
const MAX_PATH: usize = 1 << 16;
/// Maximum number of nested directories in such a path.
const MAX_DEPTH: usize = MAX_PATH / 2;

/// The path of a file from the root, which is `/`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FilePath {
    /// This path.
    At(Vec<u8>),
    /// It is in no directory, like extended attributes and removed files.
    Nowhere,
    /// It is longer than 64 KiB.
    TooLong,
}

/// The directory of a file, and its name there.
type Entry = (ObjectId, Vec<u8>);

/// The locations of files: the paths of many, searching each directory once.
#[derive(Default)]
pub(crate) struct Paths {
    root: ObjectId,
    names: HashMap<ObjectId, Entry>,
    /// Directories whose names were not searched, as their contents are too deep.
    beyond: BTreeSet<ObjectId>,
}

impl Paths {
    /// Finds files and their ancestor directories. For a file with several names, the one it had
    /// `before` is preferred if it still exists.
    ///
    /// # Errors
    /// There is no such file, or a directory cannot be read.
    pub(crate) fn of<S: Source>(
        files: &FileSystem<S>,
        wanted: impl IntoIterator<Item = ObjectId>,
        before: &Self,
    ) -> Result<Self, ZplError> {
        let mut paths = Self { root: files.root(), ..Self::default() };
        let mut level = BTreeSet::new();
        for file in wanted {
            let links = files.source.with_file(file, |file| Ok(file.znode().links))?;
            let known = before.names.get(&file).filter(|_| links > 1);
            match known {
                Some(entry) if is_there(files, file, entry)? => {
                    level.insert(entry.0);
                    paths.names.insert(file, entry.clone());
                }
                _ => {
                    level.insert(file);
                }
            }
        }
        for _ in 0..=MAX_DEPTH {
            level.retain(|file| *file != paths.root && !paths.names.contains_key(file));
            let mut directories: BTreeMap<ObjectId, BTreeSet<ObjectId>> = BTreeMap::new();
            for file in &level {
                let parent = files.source.with_file(*file, |file| Ok(file.znode().parent))?;
                directories.entry(parent).or_default().insert(*file);
            }
            level.clear();
            if directories.is_empty() {
                break;
            }
            for (directory, children) in directories {
                if paths.search(files, directory, children)? {
                    level.insert(directory);
                }
            }
        }
        paths.beyond = level;
        Ok(paths)
    }

    /// Searches the names of files in a directory; false if there is none.
    fn search<S: Source>(
        &mut self,
        files: &FileSystem<S>,
        directory: ObjectId,
        mut children: BTreeSet<ObjectId>,
    ) -> Result<bool, ZplError> {
        if !is_directory(files, directory)? {
            return Ok(false);
        }
        let mut is_found = false;
        files.read_dir(directory, DirCookie::START, |entry| {
            let is_link_to_directory = matches!(entry.name, b"." | b"..");
            if !is_link_to_directory && children.remove(&entry.object) {
                self.names.insert(entry.object, (directory, entry.name.to_vec()));
                is_found = true;
            }
            if children.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(is_found)
    }

    /// The path of a file.
    pub(crate) fn path(&self, file: ObjectId) -> FilePath {
        let mut parts: Vec<&[u8]> = Vec::new();
        let (mut at, mut len) = (file, 0);
        while at != self.root {
            let Some((directory, name)) = self.names.get(&at) else {
                let is_beyond = self.beyond.contains(&at);
                return if is_beyond { FilePath::TooLong } else { FilePath::Nowhere };
            };
            len += name.len() + 1;
            if len > MAX_PATH {
                return FilePath::TooLong;
            }
            parts.push(name);
            at = *directory;
        }
        if parts.is_empty() {
            return FilePath::At(b"/".to_vec());
        }
        parts.push(b"");
        parts.reverse();
        FilePath::At(parts.join(&b'/'))
    }
}

/// Whether a directory with this number exists: that of a removed file may be gone, too.
fn is_directory<S: Source>(files: &FileSystem<S>, directory: ObjectId) -> Result<bool, ZplError> {
    match files.source.kind(directory) {
        Ok(kind) => Ok(kind == FileKind::Directory),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a file has this name.
fn is_there<S: Source>(
    files: &FileSystem<S>,
    file: ObjectId,
    (directory, name): &Entry,
) -> Result<bool, ZplError> {
    if !is_directory(files, *directory)? {
        return Ok(false);
    }
    match files.lookup(*directory, name) {
        Ok(found) => Ok(found == NameTarget::Object(file)),
        Err(error) if error.is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

impl<S: Source> FileSystem<S> {
    /// The path of a file, one of them if it has several names. Its directories are searched.
    ///
    /// # Errors
    /// There is no such file, or a directory cannot be read.
    pub fn path(&self, file: ObjectId) -> Result<FilePath, ZplError> {
        Ok(Paths::of(self, [file], &Paths::default())?.path(file))
    }
}
