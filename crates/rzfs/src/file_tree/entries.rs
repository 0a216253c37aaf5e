//! The entries of a directory.

use super::node::{FileNode, Target};
use crate::{FileError, FileProblem};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zpl::DirCookie;
use std::collections::VecDeque;
use std::ops::ControlFlow;

/// Number of entries that are read at once.
const BATCH: usize = 256;

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name. Callers that create files from names must handle damaged or hostile pools, where
    /// it can be `..` or contain a slash.
    pub name: Vec<u8>,
    /// The kind of file that it claims to be.
    pub kind: FileKind,
    /// The file.
    pub node: FileNode,
}

/// Iterates over the entries of a directory in on-disk order, without the `.` and `..` that every
/// directory has. After an error there are no more.
#[derive(Debug)]
pub struct Entries {
    directory: FileNode,
    next: DirCookie,
    batch: VecDeque<Entry>,
    prefetches: bool,
    is_done: bool,
}

impl FileNode {
    /// The entries of a directory, without `.` and `..`, in on-disk order.
    ///
    /// # Errors
    /// It is not a directory, or a snapshot that cannot be opened.
    pub fn entries(&self) -> Result<Entries, FileError> {
        let directory = self.entered()?;
        if directory.kind()? != FileKind::Directory {
            return Err(self.problem(FileProblem::NotDirectory));
        }
        Ok(Entries::new(directory))
    }
}

impl Entries {
    pub(super) fn new(directory: FileNode) -> Self {
        let (next, batch) = (DirCookie::START, VecDeque::new());
        Self { directory, next, batch, prefetches: false, is_done: false }
    }

    /// Reads the attributes of many entries together before they are returned, since the caller is
    /// going to ask for them.
    #[must_use]
    pub fn with_attributes(self) -> Self {
        Self { prefetches: true, ..self }
    }

    /// Reads the next entries. Those before damage are good, and come first.
    fn fill(&mut self) -> Result<(), FileError> {
        let from = self.next;
        let Self { directory, next, batch, is_done, .. } = self;
        *is_done = true;
        let visit = |entry: rzfs_zpl::DirEntry<'_>| {
            *next = entry.next;
            if entry.is_link_to_directory() {
                return ControlFlow::Continue(());
            }
            let node = directory.entry(entry.name, entry.object);
            batch.push_back(Entry { name: entry.name.to_vec(), kind: entry.kind, node });
            if batch.len() < BATCH {
                return ControlFlow::Continue(());
            }
            *is_done = false;
            ControlFlow::Break(())
        };
        let listed = match (&directory.target, directory.tree.control()) {
            (Target::File(file_system, object), _) => file_system.read_dir(*object, from, visit),
            (Target::Control(node), Some(control)) => control.read_dir(*node, from, visit),
            (Target::Control(_), None) => return Err(directory.problem(FileProblem::NotFound)),
        };
        match listed {
            // The error recurs when the good ones have been returned.
            Err(_) if !batch.is_empty() => *is_done = false,
            listed => listed.map_err(|error| directory.problem(error))?,
        }
        if let (true, Some(file_system)) = (self.prefetches, self.directory.file_system()) {
            let objects: Vec<ObjectId> =
                self.batch.iter().map(|entry| entry.node.object()).collect();
            file_system.prefetch_attributes(&objects);
        }
        Ok(())
    }
}

impl Iterator for Entries {
    type Item = Result<Entry, FileError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty()
            && !self.is_done
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        self.batch.pop_front().map(Ok)
    }
}
