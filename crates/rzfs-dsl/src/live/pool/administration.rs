//! Administrative operations on a live pool. A change is on disk when a method returns.

use super::LivePool;
use crate::dataset::Dataset;
use crate::live::administration::{
    Destruction, Inherit, KeyChange, NewBookmark, NewClone, NewDataset, NewSnapshots, Outcome,
    PropertyRecord, PruneLimit, ReceivedProperties, prune_dedup, unload_key,
};
use crate::live::change_error::ChangeError;
use crate::live::datasets::head::LiveDataset;
use crate::live::datasets::heads::SYNCS_TO_CLOSE;
use crate::live::devices::growth::AddedVdevs;
use rzfs_format::Guid;
use rzfs_format::features::Feature;
use rzfs_zap::ZapValue;
use std::sync::Arc;

/// Administration of datasets.
impl LivePool {
    /// Creates a file system or volume and opens it for changes.
    ///
    /// Limits on the number of file systems are not enforced here: they do not apply to users who
    /// may change them.
    ///
    /// # Errors
    /// [`ChangeError`]: the name is taken or invalid, the parent is not a file system, or a
    /// property cannot have its value.
    pub fn create_dataset(
        &self,
        name: &str,
        new: NewDataset,
    ) -> Result<Arc<LiveDataset>, ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.create_dataset(&name, &new))
    }

    /// Renames a file system or volume, and everything below it.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, the new name is taken or invalid, or the new
    /// parent is not a file system or has no room.
    pub fn rename_dataset(&self, from: &str, to: &str) -> Result<(), ChangeError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.tasks.administer(move |context| context.rename_dataset(&from, &to))
    }

    /// Destroys a file system, volume or clone without snapshots and children. Its space is freed
    /// in the background, except for what damage hides.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, it is in use, or it has children or snapshots.
    pub fn destroy_dataset(&self, name: &str) -> Result<(), ChangeError> {
        let mut attempts = 0;
        loop {
            let of_task = name.to_owned();
            match self.tasks.administer(move |context| context.destroy_dataset(&of_task))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => attempts += 1,
            }
            // An open dataset may be written in every txg.
            let is_used = |dataset: Dataset| self.heads.is_used(dataset.object());
            if attempts > SYNCS_TO_CLOSE && is_used(self.dataset_tree()?.open(name)?) {
                return Err(ChangeError::Busy { name: name.to_owned() });
            }
        }
    }

    /// Rolls a file system or volume back to its last snapshot, even while it is in use: later
    /// changes are lost. Given a snapshot name (`pool/file system@snapshot`), it fails unless that
    /// is the last one. The file system must be [opened](LivePool::open_dataset) again; one opened
    /// before fails with [`DmuError::Superseded`](rzfs_dmu::DmuError::Superseded).
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, it has no snapshot, it has a snapshot or bookmark
    /// younger than the named one, its key is not loaded, or there is no room for its reservation.
    pub fn roll_back(&self, name: &str) -> Result<(), ChangeError> {
        loop {
            let head = name.split('@').next().unwrap_or_default();
            let head = self.dataset_tree()?.open(head)?;
            // It stays open until the rollback is done.
            let _head = self.heads.open(&head)?;
            let name = name.to_owned();
            match self.tasks.administer(move |context| context.roll_back(&name))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Takes snapshots of everything written before the call: all of them, or none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: a name is taken or invalid, or its dataset does not exist, is being
    /// received, or has no room for its reservation.
    pub fn take_snapshots(&self, new: &NewSnapshots) -> Result<(), ChangeError> {
        loop {
            let new = new.clone();
            match self.tasks.administer(move |context| context.take_snapshots(&new))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Creates a file system or volume with the contents of a snapshot, sharing its blocks.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such snapshot, the name is taken or invalid, the key of an
    /// encrypted one is not loaded, or a property cannot have its value.
    pub fn clone_snapshot(&self, name: &str, new: &NewClone) -> Result<(), ChangeError> {
        let key = self.dataset_tree()?.open(&new.origin)?.loaded_key()?;
        loop {
            let (name, new, key) = (name.to_owned(), new.clone(), key.clone());
            match self.tasks.administer(move |context| context.clone_snapshot(&name, &new, key))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Promotes a clone: the snapshots up to its origin become its own, and the other dataset
    /// becomes a clone.
    ///
    /// # Errors
    /// [`ChangeError`]: it is not a clone, snapshot names would collide, or there is no room for
    /// what it gets.
    pub fn promote(&self, name: &str) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.promote(&name))
    }

    /// Creates bookmarks: all of them, or none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: a name is taken or invalid, there is no such source, or it is not in
    /// the past of the file system.
    pub fn create_bookmarks(&self, new: &[NewBookmark]) -> Result<(), ChangeError> {
        let new = new.to_vec();
        self.tasks.administer(move |context| context.create_bookmarks(&new))
    }

    /// Removes bookmarks: all of them, or none. Missing ones are skipped.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: a name is invalid.
    pub fn destroy_bookmarks(&self, names: &[String]) -> Result<(), ChangeError> {
        let names = names.to_vec();
        self.tasks.administer(move |context| context.destroy_bookmarks_named(&names))
    }

    /// Destroys snapshots: all of them, or none. Missing ones are skipped. Their space is freed in
    /// the background.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: one has holds or clones, unless destruction may be deferred.
    pub fn destroy_snapshots(
        &self,
        snapshots: &[String],
        destruction: Destruction,
    ) -> Result<(), ChangeError> {
        let snapshots = snapshots.to_vec();
        self.tasks.administer(move |context| context.destroy_snapshots(&snapshots, destruction))
    }

    /// Renames snapshots of all heads to one name: all of them, or none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: there is no such snapshot, or the name is taken or invalid.
    pub fn rename_snapshots(&self, snapshots: &[String], new: &str) -> Result<(), ChangeError> {
        let (snapshots, new) = (snapshots.to_vec(), new.to_owned());
        self.tasks.administer(move |context| context.rename_snapshots(&snapshots, &new))
    }

    /// Holds snapshots with a tag, which prevents their destruction until it is released: all of
    /// them, or none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: there is no such snapshot, or it already has the tag.
    pub fn hold_snapshots(&self, snapshots: &[String], tag: &str) -> Result<(), ChangeError> {
        let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
        self.tasks.administer(move |context| context.hold(&snapshots, &tag))
    }

    /// Releases the tag of snapshots. Those with deferred destruction are then destroyed.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: there is no such snapshot, or it does not have the tag.
    pub fn release_snapshots(&self, snapshots: &[String], tag: &str) -> Result<(), ChangeError> {
        let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
        self.tasks.administer(move |context| context.release(&snapshots, &tag))
    }

    /// Sets properties of a file system, volume or snapshot: all of them, or none. They apply to
    /// open datasets when this returns.
    ///
    /// # Errors
    /// [`ChangeError`]: a property does not exist, does not apply or cannot have the value.
    pub fn set_properties(
        &self,
        name: &str,
        properties: &[(String, ZapValue)],
    ) -> Result<(), ChangeError> {
        let (name, properties) = (name.to_owned(), properties.to_vec());
        self.tasks.administer(move |context| context.set_properties(&name, &properties))
    }

    /// Sets one property, as [`LivePool::set_properties`] does.
    ///
    /// # Errors
    /// As there.
    pub fn set_property(
        &self,
        name: &str,
        property: &str,
        value: ZapValue,
    ) -> Result<(), ChangeError> {
        self.set_properties(name, &[(property.to_owned(), value)])
    }

    /// Applies received properties to a file system, volume or snapshot; returns the rejected ones
    /// with reasons.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, or it cannot be changed.
    pub fn receive_properties(
        &self,
        name: &str,
        brought: &ReceivedProperties,
    ) -> Result<Vec<(String, ChangeError)>, ChangeError> {
        let (name, brought) = (name.to_owned(), brought.clone());
        self.tasks.administer(move |context| context.receive_properties(&name, &brought))
    }

    /// The same for a file system or volume; returns a record of the changes.
    ///
    /// # Errors
    /// As there.
    pub fn receive_properties_recorded(
        &self,
        name: &str,
        brought: &ReceivedProperties,
    ) -> Result<(Vec<(String, ChangeError)>, PropertyRecord), ChangeError> {
        let (name, brought) = (name.to_owned(), brought.clone());
        self.tasks.administer(move |context| context.receive_properties_recorded(&name, &brought))
    }

    /// Reverts a change of properties, except for what was changed since.
    ///
    /// # Errors
    /// [`ChangeError`]: the dataset was destroyed, or it cannot be changed.
    pub fn revert_properties(&self, record: &PropertyRecord) -> Result<(), ChangeError> {
        let record = record.clone();
        self.tasks.administer(move |context| context.revert_properties(&record))
    }

    /// Removes a property's own value.
    ///
    /// # Errors
    /// [`ChangeError`]: the property does not exist, does not apply or cannot be inherited.
    pub fn inherit_property(
        &self,
        name: &str,
        property: &str,
        inherit: Inherit,
    ) -> Result<(), ChangeError> {
        let (name, property) = (name.to_owned(), property.to_owned());
        self.tasks.administer(move |context| context.inherit_property(&name, &property, inherit))
    }

    /// Changes the key of an encrypted dataset: rewraps the keys of its blocks, here and in all
    /// descendants that share it. Their contents stay as they are.
    ///
    /// # Errors
    /// [`ChangeError`]: the dataset is not encrypted or is a clone, a required key is not loaded,
    /// or there is none to inherit.
    pub fn change_key(&self, name: &str, change: KeyChange) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.change_key(&name, &change))
    }

    /// Unloads the key of an encryption root. Nothing encrypted with it may be in use.
    ///
    /// # Errors
    /// [`ChangeError`]: it is not an encryption root, its key is not loaded, or is in use.
    pub fn unload_key(&self, name: &str) -> Result<(), ChangeError> {
        let root = self.dataset_tree()?.open(name)?;
        unload_key(&root, &self.heads, || self.sync_or_refuse())
    }
}

/// Administration of the pool.
impl LivePool {
    /// Sets a property of the pool: a number or text in stored form; `bootfs` by the name of the
    /// dataset.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such property, or it cannot have the value.
    pub fn set_pool_property(&self, property: &str, value: ZapValue) -> Result<(), ChangeError> {
        let property = property.to_owned();
        self.tasks.administer(move |context| context.set_pool_property(&property, &value))
    }

    /// Enables features and their dependencies. Those already enabled stay so.
    ///
    /// Compression that a new feature allows, such as lz4 for metadata, is used from the next
    /// import on.
    ///
    /// # Errors
    /// [`ChangeError`]: the pool's version has no features, or one of them is not supported.
    pub fn enable_features(&self, features: &[Feature]) -> Result<(), ChangeError> {
        let features = features.to_vec();
        self.tasks.administer(move |context| context.enable_features(&features))
    }

    /// Raises the pool's version; 5000 is the version with features, none of which is enabled.
    ///
    /// # Errors
    /// [`ChangeError`]: the version does not exist or is not later than the pool's, or the pool is
    /// older than version 26.
    pub fn upgrade_version(&self, version: u64) -> Result<(), ChangeError> {
        self.tasks.administer(move |context| context.upgrade_version(version))
    }

    /// Gives the pool a new guid, to distinguish it from a copy of its devices; returns the new
    /// guid.
    ///
    /// # Errors
    /// [`ChangeError`]: a device is missing: it would no longer belong to the pool.
    pub fn change_guid(&self) -> Result<Guid, ChangeError> {
        self.tasks.administer(|context| context.change_guid())
    }

    /// Prunes blocks with a single reference from flat dedup tables. Returns their number.
    ///
    /// # Errors
    /// [`ChangeError`]: a table cannot be read, or the pool is suspended.
    pub fn prune_dedup(&self, limit: PruneLimit) -> Result<u64, ChangeError> {
        prune_dedup(&self.tasks, &self.view()?, limit, self.environment.now())
    }

    /// Adds vdevs; they are part of the pool when this returns.
    ///
    /// # Errors
    /// [`ChangeError`]: they do not fit, cannot be written, or the pool is suspended.
    pub fn add_vdevs(&self, added: AddedVdevs) -> Result<(), ChangeError> {
        self.growth.add(added)
    }
}
