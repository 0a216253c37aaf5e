//! Creating encrypted datasets, and changing the keys of encryption roots (spec 04, sections 19.4,
//! 19.5 and 19.14).

use super::place::Place;
use super::{TaskContext, TaskError};
use crate::dataset::property::DatasetProperty;
use crate::dataset::{NewKeys, RootKey, is_key_location};
use crate::live::LiveError;
use crate::live::change_error::{ChangeError, EncryptionProblem};
use crate::live::space::limits::SpaceTier;
use crate::mos::{MosSource, key_object, names, text};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::features::Feature;
use rzfs_format::{FormatError, ObjectId};
use std::collections::BTreeSet;
use std::sync::Arc;

const KEY_LOCATION: &str = DatasetProperty::KeyLocation.name();

/// How a new dataset is encrypted.
#[derive(Clone, Default, Debug)]
pub struct NewEncryption {
    /// The cipher, if any.
    pub suite: SuiteChoice,
    /// Its own key, which makes it an encryption root; else it inherits its parent's key.
    pub root: Option<NewRoot>,
}

/// The property `encryption` of a new dataset.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SuiteChoice {
    /// That of the parent.
    #[default]
    Inherited,
    /// None.
    Off,
    /// This one.
    Suite(EncryptionSuite),
}

/// What makes a dataset an encryption root.
#[derive(Clone, Debug)]
pub struct NewRoot {
    /// Its key.
    pub key: RootKey,
    /// Where the key is (property `keylocation`).
    pub location: String,
}

/// A change of a dataset's key.
#[derive(Clone, Debug)]
pub enum KeyChange {
    /// Sets its own key, which makes it an encryption root.
    New(NewRoot),
    /// Inherits the key of the parent.
    Inherit,
}

impl NewRoot {
    fn check(&self) -> Result<(), EncryptionProblem> {
        match is_key_location(&self.location) {
            true => Ok(()),
            false => Err(EncryptionProblem::KeyLocation),
        }
    }
}

impl NewEncryption {
    /// The keys of a root dataset; `None` if it is not to be encrypted.
    pub(crate) fn of_root(
        &self,
        guid: rzfs_format::Guid,
    ) -> Result<Option<NewKeys>, EncryptionProblem> {
        let suite = match (self.suite, &self.root) {
            (SuiteChoice::Suite(suite), _) => suite,
            (_, Some(_)) => return Err(EncryptionProblem::Off),
            (_, None) => return Ok(None),
        };
        let root = self.root.as_ref().ok_or(EncryptionProblem::NoKeyFormat)?;
        root.check()?;
        let key = Arc::new(DatasetKey::generate(suite)?);
        Ok(Some(NewKeys { key, guid, root_key: root.key.clone(), root: None }))
    }
}

/// Key objects that get another root or another key.
struct Rewrapping {
    /// Their current root.
    old: ObjectId,
    new: ObjectId,
    new_key: RootKey,
    /// The key objects, with their unwrapped keys.
    found: Vec<(ObjectId, DatasetKey, rzfs_format::Guid)>,
}

impl TaskContext<'_> {
    /// Finds the keys for a new dataset; `None` if it is not to be encrypted.
    pub(super) fn keys_of_new(
        &mut self,
        parent: ObjectId,
        new: &NewEncryption,
    ) -> Result<Option<NewKeys>, TaskError> {
        let above = key_object::of_dir(&self.mos, parent)?;
        let inherited = match above {
            Some(key) => Some(key_object::suite(&self.mos, key)?),
            None => None,
        };
        let suite = match new.suite {
            SuiteChoice::Inherited => inherited,
            SuiteChoice::Off => None,
            SuiteChoice::Suite(suite) => Some(suite),
        };
        let Some(suite) = suite else {
            return match new.root {
                Some(_) => Err(EncryptionProblem::Off.into()),
                None => Ok(None),
            };
        };
        for feature in [Feature::Encryption, Feature::BookmarkV2] {
            if !self.state.features.is_enabled(feature) {
                return Err(EncryptionProblem::Feature.into());
            }
        }
        let (root, root_key) = match (&new.root, above) {
            (Some(root), _) => {
                root.check()?;
                (None, root.key.clone())
            }
            (None, Some(key)) => {
                let root = key_object::root(&self.mos, key)?;
                let key = self.pool.keyring.root_key(root);
                (Some(root), key.ok_or(EncryptionProblem::KeyNotLoaded)?)
            }
            (None, None) => return Err(EncryptionProblem::NoKeyFormat.into()),
        };
        let key = DatasetKey::generate(suite).map_err(EncryptionProblem::Key)?;
        let guid = self.pool.environment.guid();
        Ok(Some(NewKeys { key: Arc::new(key), guid, root_key, root }))
    }

    /// Stores the key location of a new encryption root.
    pub(super) fn set_key_location(
        &mut self,
        place: &Place,
        location: Option<&str>,
    ) -> Result<(), TaskError> {
        let properties = self.dir(place.dir)?.properties;
        let missing = || FormatError::invalid("DSL directory", "it has no properties");
        let zap = properties.ok_or_else(missing).map_err(LiveError::corrupt(place.dir))?;
        match location {
            Some(location) => {
                self.mos.set(zap, KEY_LOCATION, location)?;
                let text = format!("{KEY_LOCATION}={location}");
                self.log_dataset("set", (&place.name, place.head), text)?;
            }
            None => {
                self.mos.remove(zap, KEY_LOCATION)?;
            }
        }
        Ok(())
    }

    /// Checks the key location of a dataset; only encryption roots have one.
    pub(super) fn check_key_location(
        &mut self,
        place: &Place,
        location: Option<&str>,
    ) -> Result<(), TaskError> {
        let location = location.unwrap_or_default();
        let is_root = match key_object::of_dir(&self.mos, place.dir)? {
            Some(key) => key_object::root(&self.mos, key)? == place.dir,
            None if location == "none" => return Ok(()),
            None => false,
        };
        match (is_root, is_key_location(location)) {
            (false, _) => Err(EncryptionProblem::LocationOfNoRoot.into()),
            (true, false) => Err(EncryptionProblem::KeyLocation.into()),
            (true, true) => Ok(()),
        }
    }

    /// Checks that the key of a directory allows a move to another parent.
    pub(super) fn check_key_of_moved(
        &mut self,
        name: &str,
        dir: ObjectId,
        new_parent: ObjectId,
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        let Some(key) = key_object::of_dir(&mos, dir)? else { return Ok(()) };
        let root = key_object::root(&mos, key)?;
        if root == dir {
            return Ok(());
        }
        let above = match key_object::of_dir(&mos, new_parent)? {
            Some(key) => Some(key_object::root(&mos, key)?),
            None => None,
        };
        match above == Some(root) {
            true => Ok(()),
            false => Err(ChangeError::OtherEncryptionRoot { name: name.to_owned() }.into()),
        }
    }

    pub(crate) fn change_key(&mut self, name: &str, change: &KeyChange) -> Result<(), TaskError> {
        let (place, rewrapping) = self.check(|this| this.check_key_change(name, change))?;
        self.require_space(SpaceTier::Reserved)?;
        let Rewrapping { old, new, new_key, found, .. } = rewrapping;
        for (object, key, guid) in &found {
            let wrapped = key.wrap_anew(&new_key.wrapping, *guid).map_err(LiveError::from)?;
            key_object::store(&self.mos, *object, &wrapped, (new, &new_key))?;
        }
        match change {
            KeyChange::New(root) => self.set_key_location(&place, Some(&root.location))?,
            KeyChange::Inherit => self.set_key_location(&place, None)?,
        }
        if old == place.dir && new != place.dir {
            self.pool.keyring.forget_root(old);
        }
        self.pool.keyring.insert_root(new, new_key);
        self.state.changed.push(name.to_owned());
        let operation = match change {
            KeyChange::New(_) => "change key",
            KeyChange::Inherit => "inherit key",
        };
        Ok(self.log_dataset(operation, (name, place.head), " ".to_owned())?)
    }

    fn check_key_change(
        &mut self,
        name: &str,
        change: &KeyChange,
    ) -> Result<(Place, Rewrapping), TaskError> {
        let mos = self.mos;
        let place = self.head(name)?;
        let key = key_object::of_dir(&mos, place.dir)?.ok_or(EncryptionProblem::NotEncrypted)?;
        if self.is_clone(place.dir)? {
            return Err(EncryptionProblem::Clone.into());
        }
        let old = key_object::root(&mos, key)?;
        let loaded = |root| self.pool.keyring.root_key(root);
        let old_key = loaded(old).ok_or(EncryptionProblem::OldKeyNotLoaded)?;
        let (new, new_key) = match change {
            KeyChange::New(root) => {
                root.check()?;
                (place.dir, root.key.clone())
            }
            KeyChange::Inherit => {
                if old != place.dir {
                    return Err(EncryptionProblem::NotRoot.into());
                }
                let above = match self.state.dirs.get(&mos, place.dir)?.parent {
                    Some(parent) => key_object::of_dir(&mos, parent)?,
                    None => None,
                };
                let above = above.ok_or(EncryptionProblem::ParentNotEncrypted)?;
                let root = key_object::root(&mos, above)?;
                (root, loaded(root).ok_or(EncryptionProblem::ParentKeyNotLoaded)?)
            }
        };
        let mut found = Vec::new();
        for key in self.keys_below(place.dir, old)? {
            let wrapped = key_object::wrapped(&mos, key)?;
            let unwrapped = DatasetKey::unwrap(&old_key.wrapping, &wrapped);
            found.push((key, unwrapped.map_err(EncryptionProblem::Key)?, wrapped.guid));
        }
        let properties = self.dir(place.dir)?.properties;
        let changed = found.iter().map(|(object, ..)| *object).chain(properties);
        changed.into_iter().try_for_each(|zap| mos.check_zap(zap))?;
        Ok((place, Rewrapping { old, new, new_key, found }))
    }

    /// The key objects of a directory and of its descendants, as far down as they share one
    /// encryption root. Descendants of clones belong to it, wherever the clones are.
    pub(super) fn keys_below(
        &mut self,
        dir: ObjectId,
        root: ObjectId,
    ) -> Result<BTreeSet<ObjectId>, LiveError> {
        let mos = self.mos;
        let mut keys = BTreeSet::new();
        // A clone may lie below its origin, and in a damaged pool a directory below itself.
        let mut seen = BTreeSet::from([dir]);
        let mut next = vec![dir];
        while let Some(dir) = next.pop() {
            let Some(key) = key_object::of_dir(&mos, dir)? else { continue };
            if key_object::root(&mos, key)? != root {
                continue;
            }
            keys.insert(key);
            let mut around: Vec<_> = self.children(dir)?.into_iter().map(|(_, dir)| dir).collect();
            for (_, head) in names::all(&mos, self.dir(dir)?.clones)? {
                around.push(self.dataset(head)?.dir);
            }
            next.extend(around.into_iter().filter(|dir| seen.insert(*dir)));
        }
        Ok(keys)
    }

    /// Moves the key location property to another directory.
    pub(super) fn move_key_location(&mut self, from: &Place, to: &Place) -> Result<(), TaskError> {
        let Some(zap) = self.dir(from.dir)?.properties else { return Ok(()) };
        let location = self.mos.lookup(zap, KEY_LOCATION)?;
        let location = location.as_ref().and_then(|value| value.as_bytes()).map(text);
        self.set_key_location(to, location.as_deref())?;
        self.set_key_location(from, None)
    }

    /// Whether a directory is a clone of a user's snapshot.
    fn is_clone(&mut self, dir: ObjectId) -> Result<bool, TaskError> {
        let origin = self.dir(dir)?.origin;
        Ok(origin.is_some() && origin != self.empty_origin()?)
    }

    /// Drops the keys of a directory that is destroyed.
    pub(super) fn release_key(&mut self, dir: ObjectId) -> Result<(), TaskError> {
        self.pool.keyring.forget_root(dir);
        if let Some(key) = key_object::of_dir(&self.mos, dir)? {
            if key_object::references(&self.mos, key)? <= 1 {
                self.pool.keyring.forget_key(key);
            }
            key_object::release(&self.mos, key)?;
        }
        Ok(())
    }
}
