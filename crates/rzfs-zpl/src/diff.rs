//! Differences between two states of a file system (spec 09, section 3.4).
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

/// Objects whose files are looked up together: determines the number of directory searches and the
/// memory used.
const BATCH: usize = 2048;

/// A changed file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What kind of file it is.
    pub kind: FileKind,
    /// When it was changed; for a removed file, its last change.
    pub changed: Timestamp,
    /// The change.
    pub change: FileChange,
}

/// A change of a file. Paths begin with a `/`, at the root of the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileChange {
    /// It was removed.
    Removed(Vec<u8>),
    /// It was added.
    Added(Vec<u8>),
    /// Its contents or attributes changed.
    Modified {
        /// Its path.
        path: Vec<u8>,
        /// The change of its link count; 0 for directories.
        links: i64,
    },
    /// It was renamed or moved; its contents may have changed, too.
    Renamed {
        /// Its old path.
        from: Vec<u8>,
        /// Its new path.
        to: Vec<u8>,
    },
}

/// A file with a path that is too long ([`FilePath::TooLong`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooDeep {
    /// Its number.
    pub object: ObjectId,
    /// The state in which it is too long.
    pub state: DiffState,
}

/// One of the two compared states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiffState {
    /// The older one.
    Before,
    /// The younger one.
    After,
}

/// A part of the differences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Differences {
    /// The files, in numeric order.
    pub files: Vec<Difference>,
    /// The first file left out because its path is too long.
    pub too_deep: Option<TooDeep>,
    /// The object from which there may be more.
    pub next: Option<ObjectId>,
}

/// A file in one of the two states.
struct Found {
    attributes: Attributes,
    path: Vec<u8>,
}

/// The result of looking up a number in a state.
enum Searched {
    /// Nothing, or a file that is in no directory.
    Nothing,
    File(Found),
    /// A file whose path is too long.
    TooDeep,
}

impl FileSystem {
    /// Files that differ from an older state of the same file system, or of its origin, from object
    /// `first` on, some thousand objects at a time. Files that differ only in access time are left
    /// out. Changes of extended attributes count for the file that has them.
    ///
    /// # Errors
    /// An object that differs cannot be read.
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

    /// The kinds and paths of these objects; `before` is where they were.
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
                // It does not exist, or is not a file.
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

/// Records the change of the file with a number.
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
        // The number may have been reused by another file.
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
