//! The files in the error log.

use crate::protocol::{DamagedFile, MountReport};
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::pool::ErrorLogEntry;
use rzfs_dsl::{Pool, PoolError};
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zpl::{FilePath, FileSystem};
use std::collections::{BTreeMap, BTreeSet};

/// Names of the files in the error log, as `zpool status -v` shows them.
pub(super) fn files(pool: &Pool, mounts: &[MountReport]) -> Result<Vec<DamagedFile>, PoolError> {
    let mut heads: BTreeMap<ObjsetId, Vec<Place<'_>>> = BTreeMap::new();
    let mut names = BTreeSet::new();
    for entry in pool.known_errors()? {
        let objset = entry.bookmark.objset;
        let places = heads.entry(objset).or_insert_with(|| Place::all(pool, objset, mounts));
        if places.is_empty() {
            let dataset = match objset {
                ObjsetId::MOS => "<metadata>".to_owned(),
                objset => format!("<{:#x}>", objset.get()),
            };
            names.insert(format!("{dataset}:{}", number(&entry)));
        }
        names.extend(places.iter().filter(|place| place.has(&entry)).map(|it| it.name(&entry)));
    }
    Ok(names.into_iter().map(|name| DamagedFile { name }).collect())
}

fn number(entry: &ErrorLogEntry) -> String {
    format!("<{:#x}>", entry.bookmark.object.get())
}

/// A dataset that may have a damaged block.
struct Place<'a> {
    dataset: Dataset,
    /// `None` if there are no files, or they cannot be read.
    files: Option<FileSystem>,
    mount: Option<&'a MountReport>,
}

impl<'a> Place<'a> {
    /// The dataset of this number and its snapshots; none if it does not exist.
    fn all(pool: &Pool, objset: ObjsetId, mounts: &'a [MountReport]) -> Vec<Self> {
        let dataset = match objset {
            ObjsetId::MOS => return Vec::new(),
            objset => pool.datasets().by_object(ObjectId(objset.get())),
        };
        let Ok(dataset) = dataset else { return Vec::new() };
        let snapshots = dataset.snapshots().unwrap_or_default();
        let place = |dataset: Dataset| Self {
            files: FileSystem::of_dataset(&dataset, pool.version()).ok(),
            mount: mounts.iter().find(|mount| mount.dataset == dataset.name()),
            dataset,
        };
        std::iter::once(dataset).chain(snapshots).map(place).collect()
    }

    /// Whether the dataset has the block, as far as known.
    fn has(&self, entry: &ErrorLogEntry) -> bool {
        let (Some(birth), Ok(objset)) = (entry.birth, self.dataset.open_locked()) else {
            return !self.dataset.is_snapshot();
        };
        let pointer = objset.pointer_at(&entry.bookmark);
        pointer.is_ok_and(|pointer| !pointer.is_hole() && pointer.physical_birth() == birth)
    }

    fn name(&self, entry: &ErrorLogEntry) -> String {
        let path = self.files.as_ref().and_then(|it| it.path(entry.bookmark.object).ok());
        let Some(FilePath::At(path)) = path else {
            return format!("{}:{}", self.dataset.name(), number(entry));
        };
        let path = String::from_utf8_lossy(&path);
        match self.mount {
            Some(mount) => format!("{}{path}", mount.mountpoint.trim_end_matches('/')),
            None => format!("{}:{path}", self.dataset.name()),
        }
    }
}
