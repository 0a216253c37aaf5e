//! Recursive walks of directories.

use super::entries::Entries;
use super::node::FileNode;
use crate::{FileError, FileProblem};
use rzfs_format::dirent::FileKind;
use rzfs_format::{ObjectId, ObjsetId};
use std::collections::HashSet;

/// A file visited by a walk.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// Number of directories between it and the start of the walk: 0 for the start itself.
    pub depth: usize,
    /// Its name; empty at depth 0.
    pub name: Vec<u8>,
    /// The kind of file.
    pub kind: FileKind,
    /// The file.
    pub node: FileNode,
}

/// Iterates over a file and everything below it, directories before their contents.
///
/// Symbolic links are not followed. `.zfs` is not entered, unless the walk starts inside it. An
/// error concerns one file or directory; the walk continues after it. Every directory is entered
/// once, however often a damaged file system names it, so a walk always ends.
///
/// ```no_run
/// # use rzfs::OpenFiles;
/// # let pool = rzfs::PoolOptions::new().device_paths(["garden.img"]).open()?;
/// for file in pool.file_system("garden/notes")?.root().walk() {
///     println!("{}", rzfs::ShownPath(file?.node.path()));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Walk {
    start: Option<FileNode>,
    /// The directories being read, the deepest last.
    levels: Vec<Entries>,
    /// The last directory returned: its contents come next.
    pending: Option<FileNode>,
    entered: HashSet<(ObjsetId, ObjectId)>,
    enters_control: bool,
    prefetches: bool,
}

impl FileNode {
    /// Walks over it and everything below it.
    #[must_use]
    pub fn walk(&self) -> Walk {
        Walk::new(self.clone())
    }
}

impl Walk {
    pub(super) fn new(start: FileNode) -> Self {
        Self {
            enters_control: start.is_control(),
            start: Some(start),
            levels: Vec::new(),
            pending: None,
            entered: HashSet::new(),
            prefetches: false,
        }
    }

    /// Reads the attributes of many files together, since the caller is going to ask for them.
    #[must_use]
    pub fn with_attributes(self) -> Self {
        Self { prefetches: true, ..self }
    }

    /// Skips the contents of the last directory.
    pub fn skip_contents(&mut self) {
        self.pending = None;
    }

    fn begin(&mut self, start: FileNode) -> Result<WalkEntry, FileError> {
        let node = start.entered()?;
        let kind = node.kind()?;
        if kind == FileKind::Directory {
            self.pending = Some(node.clone());
        }
        Ok(WalkEntry { depth: 0, name: Vec::new(), kind, node })
    }

    /// Descends into a directory.
    fn enter(&mut self, directory: &FileNode) -> Result<(), FileError> {
        if directory.is_control() && !self.enters_control {
            return Ok(());
        }
        let directory = directory.entered()?;
        if !self.entered.insert(directory.identity()) {
            return Err(directory.problem(FileProblem::DirectoryLoop));
        }
        let entries = directory.entries()?;
        self.levels.push(if self.prefetches { entries.with_attributes() } else { entries });
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(self.begin(start));
        }
        if let Some(directory) = self.pending.take()
            && let Err(error) = self.enter(&directory)
        {
            return Some(Err(error));
        }
        loop {
            let depth = self.levels.len();
            let entry = match self.levels.last_mut()?.next() {
                None => {
                    self.levels.pop();
                    continue;
                }
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(entry)) => entry,
            };
            if entry.kind == FileKind::Directory {
                self.pending = Some(entry.node.clone());
            }
            let (name, kind, node) = (entry.name, entry.kind, entry.node);
            return Some(Ok(WalkEntry { depth, name, kind, node }));
        }
    }
}
