//! Differences between two states of a file system.

use crate::protocol::{
    DiffChange, DiffEntry, DiffPart, DiffPath, DiffQuery, MountReport, Refusal, UnnamedFile,
};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zpl::{DiffState, Difference, FileChange, FileSystem, TooDeep};
use std::fmt::Display;

/// Answers a query for a part of the differences.
pub(super) fn part(
    pool: &Pool,
    query: &DiffQuery,
    mounts: &[MountReport],
) -> Result<DiffPart, Refusal> {
    let cannot = |why: &dyn Display| Refusal::new(format!("Unable to obtain diffs: {why}"));
    let unread = |error: DatasetError| match error {
        DatasetError::NotFound { .. } => cannot(&"No such file or directory"),
        error => cannot(&error),
    };
    let open = |name: &str| pool.datasets().open(name).map_err(unread);
    let (from, to) = (open(&query.from)?, open(&query.to)?);
    if !to.descends_from(&from).map_err(unread)? {
        return Err(cannot(&"\n   Not an earlier snapshot from the same fs"));
    }
    let files =
        |of: &Dataset| FileSystem::of_dataset(of, pool.version()).map_err(|error| cannot(&error));
    let found = files(&to)?.differences_since(&files(&from)?, ObjectId(query.first));
    let found = found.map_err(|error| cannot(&error))?;
    let head = query.to.split('@').next().unwrap_or_default();
    let mount = mounts.iter().find(|mount| mount.dataset == head);
    Ok(DiffPart {
        mountpoint: mount.map(|mount| mount.mountpoint.clone()),
        entries: found.files.iter().map(entry).collect(),
        too_deep: found.too_deep.map(|TooDeep { object, state }| UnnamedFile {
            object: object.get(),
            dataset: match state {
                DiffState::Before => query.from.clone(),
                DiffState::After => query.to.clone(),
            },
        }),
        next: found.next.map(ObjectId::get),
    })
}

fn entry(file: &Difference) -> DiffEntry {
    let path = |path: &Vec<u8>| DiffPath::new(path);
    DiffEntry {
        kind: letter(file.kind),
        changed: (file.changed.seconds, file.changed.nanoseconds),
        change: match &file.change {
            FileChange::Removed(gone) => DiffChange::Removed(path(gone)),
            FileChange::Added(new) => DiffChange::Added(path(new)),
            FileChange::Modified { path: same, links } => {
                DiffChange::Modified { path: path(same), links: *links }
            }
            FileChange::Renamed { from, to } => {
                DiffChange::Renamed { from: path(from), to: path(to) }
            }
        },
    }
}

/// The character for a kind of file.
const fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::BlockDevice => 'B',
        FileKind::CharDevice => 'C',
        FileKind::Directory => '/',
        FileKind::Fifo => '|',
        FileKind::Symlink => '@',
        FileKind::Socket => '=',
        FileKind::Regular => 'F',
    }
}
