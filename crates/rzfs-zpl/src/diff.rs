//! What differs between two states of a file system (spec 09, section 3.4).
//!
//! ```text
//! two trees of dnodes -> objects whose dnodes differ -> files of both -> their paths in both
//! ```

use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::node::Attributes;
use crate::path::{FilePath, Paths};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::Timestamp;

/// Objects whose files are looked up together: how many directories are searched for names, and how
/// much is held in memory, goes by it.
const BATCH: usize = 2048;

/// A file that is not what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What kind of file it is.
    pub kind: FileKind,
    /// When it was changed; of a file that is gone, when that was changed last.
    pub changed: Timestamp,
    /// What has become of it.
    pub change: FileChange,
}

/// What has become of a file. Paths begin with a `/`, at the root of the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileChange {
    /// It is gone.
    Removed(Vec<u8>),
    /// It is new.
    Added(Vec<u8>),
    /// Contents or attributes are others.
    Modified {
        /// Its path.
        path: Vec<u8>,
        /// How many links more it has; 0 for directories.
        links: i64,
    },
    /// It has another name or place; maybe other contents, too.
    Renamed {
        /// Its path before.
        from: Vec<u8>,
        /// Its path now.
        to: Vec<u8>,
    },
}

/// A file with a path that is too long ([`FilePath::TooLong`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooDeep {
    /// Its number.
    pub object: ObjectId,
    /// In which of the states.
    pub state: DiffState,
}

/// One of two states that are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiffState {
    /// The older one.
    Before,
    /// The younger one.
    After,
}

/// A part of what differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Differences {
    /// The files, in the order of their numbers.
    pub files: Vec<Difference>,
    /// The first of those that are not among them, as their paths are too long.
    pub too_deep: Option<TooDeep>,
    /// From which object on there may be more.
    pub next: Option<ObjectId>,
}

/// A file as one of the two states has it.
struct Found {
    attributes: Attributes,
    path: Vec<u8>,
}

/// What a state has with a number.
enum Searched {
    /// Nothing, or no file that is in a directory.
    Nothing,
    File(Found),
    /// A file whose path is too long.
    TooDeep,
}

impl FileSystem {
    /// Files that are not what they were in an older state of the same file system, or of one that
    /// this is a clone of; from object `first` on, some thousand objects at a time. A file of which
    /// nothing but the time of the last access is another is the same. Extended attributes show in
    /// the file that has them.
    ///
    /// # Errors
    /// Something that differs cannot be read.
    pub fn differences_since(
        &self,
        older: &Self,
        first: ObjectId,
    ) -> Result<Differences, ZplError> {
        let mut objects = Vec::new();
        let mut next = None;
        for object in self.objset().changes_since(older.objset(), first) {
            let object = object?;
            if objects.len() == BATCH {
                next = Some(object);
                break;
            }
            objects.push(object);
        }
        let (before, known) = older.found(&objects, &Paths::default())?;
        let (after, _) = self.found(&objects, &known)?;
        let mut differences = Differences { files: Vec::new(), too_deep: None, next };
        for ((before, after), object) in before.into_iter().zip(after).zip(objects) {
            let mut lack = |state| {
                differences.too_deep.get_or_insert(TooDeep { object, state });
            };
            let (before, after) = match (before, after) {
                (_, Searched::TooDeep) => {
                    lack(DiffState::After);
                    continue;
                }
                (Searched::TooDeep, _) => {
                    lack(DiffState::Before);
                    continue;
                }
                (before, after) => (before.file(), after.file()),
            };
            differ(before, after, &mut differences.files);
        }
        Ok(differences)
    }

    /// What these objects are, and where they are; `before` is where they were.
    fn found(
        &self,
        objects: &[ObjectId],
        before: &Paths,
    ) -> Result<(Vec<Searched>, Paths), ZplError> {
        self.prefetch_attributes(objects);
        let mut attributes = Vec::with_capacity(objects.len());
        for object in objects {
            attributes.push(match self.attributes(*object) {
                Ok(attributes) => Some(attributes),
                // Nothing, or no file.
                Err(error) if error.is_missing() => None,
                Err(error) => return Err(error),
            });
        }
        let files = attributes.iter().flatten().map(|file| file.object);
        let paths = Paths::of(self, files, before)?;
        let found = attributes.into_iter().map(|file| {
            let Some(attributes) = file else { return Searched::Nothing };
            match paths.path(attributes.object) {
                FilePath::At(path) => Searched::File(Found { attributes, path }),
                FilePath::Nowhere => Searched::Nothing,
                FilePath::TooLong => Searched::TooDeep,
            }
        });
        Ok((found.collect(), paths))
    }
}

impl Searched {
    fn file(self) -> Option<Found> {
        match self {
            Self::File(found) => Some(found),
            Self::Nothing | Self::TooDeep => None,
        }
    }
}

/// Notes what has become of the file with a number.
fn differ(before: Option<Found>, after: Option<Found>, files: &mut Vec<Difference>) {
    let mut note = |of: Attributes, change| {
        files.push(Difference { kind: of.kind, changed: of.ctime, change });
    };
    match (before, after) {
        (None, None) => {}
        (Some(before), Some(after))
            if before.attributes.generation == after.attributes.generation =>
        {
            let (old, new) = (before.attributes, after.attributes);
            if before.path != after.path {
                note(new, FileChange::Renamed { from: before.path, to: after.path });
            } else if old.ctime != new.ctime {
                let links = match new.kind {
                    FileKind::Directory => 0,
                    _ => new.links.wrapping_sub(old.links).cast_signed(),
                };
                note(new, FileChange::Modified { path: after.path, links });
            }
        }
        // Another file may have got the number.
        (before, after) => {
            if let Some(before) = before {
                note(before.attributes, FileChange::Removed(before.path));
            }
            if let Some(after) = after {
                note(after.attributes, FileChange::Added(after.path));
            }
        }
    }
}
