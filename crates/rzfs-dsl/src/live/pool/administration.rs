//! What administrators ask a running pool for. A change is on disk when a method returns.

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
    /// Makes a file system or volume, which is open for changes then.
    ///
    /// Limits on the number of file systems are not enforced: they do not hold for those who may
    /// change them.
    ///
    /// # Errors
    /// [`ChangeError`]: the name is taken or impossible, what is above it is no file system, or a
    /// property cannot have its value.
    pub fn create_dataset(
        &self,
        name: &str,
        new: NewDataset,
    ) -> Result<Arc<LiveDataset>, ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.create_dataset(&name, &new))
    }

    /// Gives a file system or volume, and all below it, another name.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, the new name is taken or impossible, or what is
    /// above it is no file system or has no room.
    pub fn rename_dataset(&self, from: &str, to: &str) -> Result<(), ChangeError> {
        let (from, to) = (from.to_owned(), to.to_owned());
        self.tasks.administer(move |context| context.rename_dataset(&from, &to))
    }

    /// Destroys a file system, volume or clone that has no snapshots and nothing below it. Its
    /// space comes back in the background, but for what damage hides.
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
            // Whoever has it may write to it in every txg.
            let is_used = |dataset: Dataset| self.heads.is_used(dataset.object());
            if attempts > SYNCS_TO_CLOSE && is_used(self.dataset_tree()?.open(name)?) {
                return Err(ChangeError::Busy { name: name.to_owned() });
            }
        }
    }

    /// Gives a file system or volume the contents of its last snapshot, also while it is in use: what
    /// was changed since is gone. Whoever names that (`pool/file system@snapshot`) can be sure that it
    /// is this one. Its file system has to be [opened](LivePool::open_dataset) anew;
    /// one that was opened before fails with
    /// [`DmuError::Superseded`](rzfs_dmu::DmuError::Superseded).
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, it has no snapshot, or a younger one than the one that
    /// is named, or a younger bookmark, its key
    /// is not loaded, or there is no room for what it reserves.
    pub fn roll_back(&self, name: &str) -> Result<(), ChangeError> {
        loop {
            let head = name.split('@').next().unwrap_or_default();
            let head = self.dataset_tree()?.open(head)?;
            // It stays open until it is done.
            let _head = self.heads.open(&head)?;
            let name = name.to_owned();
            match self.tasks.administer(move |context| context.roll_back(&name))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Takes snapshots: all of them, with what everybody has written when this is called, or none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: a name is taken or impossible, or what it is of does not exist, is
    /// being received, or has no room for what it reserves.
    pub fn take_snapshots(&self, new: &NewSnapshots) -> Result<(), ChangeError> {
        loop {
            let new = new.clone();
            match self.tasks.administer(move |context| context.take_snapshots(&new))? {
                Outcome::Done => return Ok(()),
                Outcome::Later => {}
            }
        }
    }

    /// Makes a file system or volume that begins with what a snapshot has, and shares its blocks.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such snapshot, the name is taken or impossible, the key of an
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

    /// Has a clone and what it is a clone of change places: the snapshots up to the clone's origin
    /// are the clone's from then on, and the other one is a clone.
    ///
    /// # Errors
    /// [`ChangeError`]: it is no clone, snapshots would have the same names, or there is no room
    /// for what it gets.
    pub fn promote(&self, name: &str) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.promote(&name))
    }

    /// Makes bookmarks: all of them, or none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: a name is taken or impossible, there is no such source, or it is not
    /// in the past of the file system.
    pub fn create_bookmarks(&self, new: &[NewBookmark]) -> Result<(), ChangeError> {
        let new = new.to_vec();
        self.tasks.administer(move |context| context.create_bookmarks(&new))
    }

    /// Removes bookmarks: all of them, or none. Those that do not exist are passed over.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: a name is impossible.
    pub fn destroy_bookmarks(&self, names: &[String]) -> Result<(), ChangeError> {
        let names = names.to_vec();
        self.tasks.administer(move |context| context.destroy_bookmarks_named(&names))
    }

    /// Destroys snapshots: all of them, or none. Those that do not exist are passed over. Their space
    /// comes back in the background.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: one is held, or clones have come of it, unless it may wait for these.
    pub fn destroy_snapshots(
        &self,
        snapshots: &[String],
        destruction: Destruction,
    ) -> Result<(), ChangeError> {
        let snapshots = snapshots.to_vec();
        self.tasks.administer(move |context| context.destroy_snapshots(&snapshots, destruction))
    }

    /// Gives snapshots another name, the same for those of all heads: all of them, or none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: there is no such snapshot, or the name is taken or impossible.
    pub fn rename_snapshots(&self, snapshots: &[String], new: &str) -> Result<(), ChangeError> {
        let (snapshots, new) = (snapshots.to_vec(), new.to_owned());
        self.tasks.administer(move |context| context.rename_snapshots(&snapshots, &new))
    }

    /// Keeps snapshots from being destroyed until each of their tags is given up: all of them, or
    /// none.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: there is no such snapshot, or it has the tag already.
    pub fn hold_snapshots(&self, snapshots: &[String], tag: &str) -> Result<(), ChangeError> {
        let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
        self.tasks.administer(move |context| context.hold(&snapshots, &tag))
    }

    /// Gives the tags of snapshots up. What was to be destroyed then is.
    ///
    /// # Errors
    /// [`ChangeError::Each`]: there is no such snapshot, or it does not have the tag.
    pub fn release_snapshots(&self, snapshots: &[String], tag: &str) -> Result<(), ChangeError> {
        let (snapshots, tag) = (snapshots.to_vec(), tag.to_owned());
        self.tasks.administer(move |context| context.release(&snapshots, &tag))
    }

    /// Sets properties of a file system, volume or snapshot: all of them, or none. What is open is
    /// written accordingly when this returns.
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

    /// Gives a file system, volume or snapshot the properties that a send stream brings; answers those that
    /// it cannot have, and why.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such dataset, or nothing can be changed of it.
    pub fn receive_properties(
        &self,
        name: &str,
        brought: &ReceivedProperties,
    ) -> Result<Vec<(String, ChangeError)>, ChangeError> {
        let (name, brought) = (name.to_owned(), brought.clone());
        self.tasks.administer(move |context| context.receive_properties(&name, &brought))
    }

    /// The same of a file system or volume, and tells what that has changed.
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

    /// Takes a change of properties back, but for what was changed since then.
    ///
    /// # Errors
    /// [`ChangeError`]: the dataset was destroyed, or nothing can be changed of it.
    pub fn take_back_properties(&self, record: &PropertyRecord) -> Result<(), ChangeError> {
        let record = record.clone();
        self.tasks.administer(move |context| context.take_back_properties(&record))
    }

    /// Takes a property's own value away.
    ///
    /// # Errors
    /// [`ChangeError`]: the property does not exist, does not apply or is not inherited.
    pub fn inherit_property(
        &self,
        name: &str,
        property: &str,
        inherit: Inherit,
    ) -> Result<(), ChangeError> {
        let (name, property) = (name.to_owned(), property.to_owned());
        self.tasks.administer(move |context| context.inherit_property(&name, &property, inherit))
    }

    /// Gives an encrypted dataset another key: the keys of its blocks are wrapped anew, here and
    /// in all datasets below that have their key from it. Their contents stay as they are.
    ///
    /// # Errors
    /// [`ChangeError`]: the dataset is not encrypted or a clone, a key that is needed is not
    /// loaded, or there is none to inherit.
    pub fn change_key(&self, name: &str, change: KeyChange) -> Result<(), ChangeError> {
        let name = name.to_owned();
        self.tasks.administer(move |context| context.change_key(&name, &change))
    }

    /// Forgets the key of an encryption root. Nothing that was encrypted with it may be in use.
    ///
    /// # Errors
    /// [`ChangeError`]: it is no encryption root, its key is not loaded, or is in use.
    pub fn unload_key(&self, name: &str) -> Result<(), ChangeError> {
        let root = self.dataset_tree()?.open(name)?;
        unload_key(&root, &self.heads, || self.sync_or_refuse())
    }
}

/// Administration of the pool.
impl LivePool {
    /// Sets a property of the pool: a number or text, as it is stored; `bootfs` by the name of the
    /// dataset.
    ///
    /// # Errors
    /// [`ChangeError`]: there is no such property, or it cannot have the value.
    pub fn set_pool_property(&self, property: &str, value: ZapValue) -> Result<(), ChangeError> {
        let property = property.to_owned();
        self.tasks.administer(move |context| context.set_pool_property(&property, &value))
    }

    /// Enables features, and those that they depend on. Those that are enabled already stay so.
    ///
    /// Compression that follows from a new feature, as that of metadata with lz4, is used when the
    /// pool is opened the next time.
    ///
    /// # Errors
    /// [`ChangeError`]: the pool's version has no features, or this software does not have one of
    /// them.
    pub fn enable_features(&self, features: &[Feature]) -> Result<(), ChangeError> {
        let features = features.to_vec();
        self.tasks.administer(move |context| context.enable_features(&features))
    }

    /// Raises the pool's version; with 5000 it has features, none of which is enabled.
    ///
    /// # Errors
    /// [`ChangeError`]: the version does not exist or is not later than the pool's, or the pool is
    /// older than version 26.
    pub fn upgrade_version(&self, version: u64) -> Result<(), ChangeError> {
        self.tasks.administer(move |context| context.upgrade_version(version))
    }

    /// Gives the pool another guid, so that it can be told from a copy of its devices; answers
    /// with the new one.
    ///
    /// # Errors
    /// [`ChangeError`]: a device is missing: it would not be the pool's any more.
    pub fn change_guid(&self) -> Result<Guid, ChangeError> {
        self.tasks.administer(|context| context.change_guid())
    }

    /// Forgets blocks of flat dedup tables that there are once only. Returns how many.
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
