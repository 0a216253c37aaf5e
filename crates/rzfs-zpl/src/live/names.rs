//! Several changes of names that succeed or fail together.

use super::change::{Prepared, Touch};
use super::file_system::LiveFileSystem;
use super::node::{Locked, NodeState};
use crate::error::ZplError;
use crate::object::FileObject;
use rzfs_dmu::live::Transaction;
use rzfs_format::ObjectId;
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::sa::Attribute;
use rzfs_zap::Matching;

/// Entries added to and removed from directories.
#[derive(Debug, Default)]
pub(super) struct NameChanges(Vec<(ObjectId, i64, i64)>);

impl NameChanges {
    fn change(&mut self, directory: ObjectId, names: i64, subdirectories: i64) {
        match self.0.iter_mut().find(|(found, ..)| *found == directory) {
            Some(entry) => {
                entry.1 += names;
                entry.2 += subdirectories;
            }
            None => self.0.push((directory, names, subdirectories)),
        }
    }

    /// An entry is added.
    pub(super) fn add(&mut self, directory: ObjectId, kind: FileKind) {
        self.change(directory, 1, i64::from(kind == FileKind::Directory));
    }

    /// An entry is removed.
    pub(super) fn remove(&mut self, directory: ObjectId, kind: FileKind) {
        self.change(directory, -1, -i64::from(kind == FileKind::Directory));
    }

    /// A name changes.
    pub(super) fn touch(&mut self, directory: ObjectId) {
        self.change(directory, 0, 0);
    }
}

/// One change of an entry.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// An entry is added.
    Add { directory: ObjectId, name: Vec<u8>, entry: DirectoryEntry },
    /// An entry is removed; the name is the stored one.
    Remove { directory: ObjectId, name: Vec<u8>, entry: DirectoryEntry },
}

impl Step {
    /// The change that reverts it.
    fn inverse(&self) -> Self {
        match self.clone() {
            Self::Add { directory, name, entry } => Self::Remove { directory, name, entry },
            Self::Remove { directory, name, entry } => Self::Add { directory, name, entry },
        }
    }
}

impl LiveFileSystem {
    /// The stored name of the entry that a name matches.
    pub(super) fn stored_name(
        &self,
        directory: &NodeState,
        name: &[u8],
    ) -> Result<Vec<u8>, ZplError> {
        let zap = directory.names()?;
        let matching = self.name_rules.matching_in(&zap);
        if matching == Matching::Exact {
            return Ok(name.to_vec());
        }
        let found = zap.lookup_matching(name, matching);
        let found = found.map_err(|source| directory.object().zap_failure(source))?;
        let place = directory.place();
        found.map(|entry| entry.name().to_vec()).ok_or(ZplError::NotFound { place })
    }

    /// The new attributes of directories whose names change.
    pub(super) fn prepare_names(
        &self,
        locked: &Locked<'_>,
        changes: &NameChanges,
    ) -> Result<Vec<(ObjectId, Prepared)>, ZplError> {
        let prepare = |&(id, names, subdirectories): &(ObjectId, i64, i64)| {
            let place = self.place(id);
            let state = locked.get(id).ok_or(ZplError::NotFound { place })?;
            let (size, links) = (state.znode().size, state.znode().links);
            let prepared = self.prepare(state, |values, schema| {
                values.set_u64(schema, Attribute::Size, size.saturating_add_signed(names));
                let links = links.saturating_add_signed(subdirectories);
                values.set_u64(schema, Attribute::Links, links);
                self.touch(values, schema, Touch::Contents);
            })?;
            Ok((id, prepared))
        };
        changes.0.iter().map(prepare).collect()
    }

    /// Changes entries; if one fails, those before it are reverted.
    pub(super) fn change_entries(
        &self,
        tx: &dyn Transaction,
        locked: &mut Locked<'_>,
        steps: &[Step],
    ) -> Result<(), ZplError> {
        for (index, step) in steps.iter().enumerate() {
            if let Err(error) = self.change_entry(tx, locked, step) {
                for done in steps.iter().take(index).rev() {
                    self.change_entry(tx, locked, &done.inverse())?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn change_entry(
        &self,
        tx: &dyn Transaction,
        locked: &mut Locked<'_>,
        step: &Step,
    ) -> Result<(), ZplError> {
        let (Step::Add { directory, .. } | Step::Remove { directory, .. }) = step;
        let place = self.place(*directory);
        let state = locked.get_mut(*directory).ok_or(ZplError::NotFound { place })?;
        match step {
            Step::Add { name, entry, .. } => self.add_name(tx, state, name, *entry),
            Step::Remove { name, .. } => {
                let object = state.object().clone();
                let removed = state.change_names(|zap| {
                    let removed = zap.writer(object.zap_blocks(tx)).remove(&name[..]);
                    removed.map_err(|source| place.zap_failure(source))
                })?;
                if removed { Ok(()) } else { Err(ZplError::NotFound { place }) }
            }
        }
    }
}
