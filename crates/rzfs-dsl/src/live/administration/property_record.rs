//! Changes of properties that are reverted if a later step fails.
//!
//! Meanwhile other callers may change properties and rename the dataset: their changes are kept,
//! and a new owner of the name is left alone.

use super::place::Place;
use super::{ReceivedProperties, TaskContext, TaskError};
use crate::dataset::property::{DatasetProperty, StoredProperties};
use crate::dataset::{Dataset, DatasetError, DatasetTree};
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::space::limits::SpaceTier;
use crate::mos::property_values;
use rzfs_format::{Guid, ObjectId};
use std::collections::BTreeSet;

/// A change of what a file system or volume stores for its properties.
#[derive(Clone, Debug)]
pub struct PropertyRecord {
    /// Its name at the time.
    name: String,
    head: ObjectId,
    guid: Guid,
    before: StoredProperties,
    after: StoredProperties,
}

impl PropertyRecord {
    /// The properties stored before.
    #[must_use]
    pub const fn before(&self) -> &StoredProperties {
        &self.before
    }

    /// The dataset under its current name; `None` if it was destroyed.
    ///
    /// # Errors
    /// [`DatasetError`]: it cannot be read.
    pub fn dataset(&self, tree: &DatasetTree) -> Result<Option<Dataset>, DatasetError> {
        // Another object may have its number.
        let all = tree.root()?.descendants()?.into_iter();
        let mut own = all.filter(|one| one.object() == self.head);
        Ok(own.find(|one| one.dsl_dataset().guid == self.guid))
    }

    /// The properties it changed.
    #[must_use]
    pub fn properties(&self) -> BTreeSet<&str> {
        let keys = self.before.iter().chain(self.after.iter()).map(|(key, _)| key);
        let changed = keys.filter(|key| self.before.get(key) != self.after.get(key));
        changed.map(|key| key.split('$').next().unwrap_or_default()).collect()
    }
}

impl TaskContext<'_> {
    /// Applies received properties to a file system or volume, and records what that changed.
    pub(crate) fn receive_properties_recorded(
        &mut self,
        name: &str,
        brought: &ReceivedProperties,
    ) -> Result<(Vec<(String, ChangeError)>, PropertyRecord), TaskError> {
        let (place, guid, before) = self.check(|this| {
            let place = this.head(name)?;
            let guid = this.dataset(place.head)?.guid;
            let before = this.stored_properties(&place)?;
            Ok((place, guid, before))
        })?;
        let refused = self.receive_properties(name, brought)?;
        let after = self.stored_properties(&place)?;
        Ok((refused, PropertyRecord { name: place.name, head: place.head, guid, before, after }))
    }

    fn stored_properties(&mut self, place: &Place) -> Result<StoredProperties, LiveError> {
        match self.dir(place.dir)?.properties {
            Some(zap) => StoredProperties::read(&self.mos, zap),
            None => Ok(StoredProperties::default()),
        }
    }

    /// Reverts a change of properties.
    pub(crate) fn revert_properties(&mut self, record: &PropertyRecord) -> Result<(), TaskError> {
        let place = self.check(|this| {
            let place = this.place_of(record)?;
            let zap = this.dir(place.dir)?.properties;
            zap.map_or(Ok(()), |zap| this.mos.check_zap(zap))?;
            Ok(place)
        })?;
        self.require_space(SpaceTier::Reserved)?;
        let zap = self.properties_of(place.dir)?;
        let reserved = self.own_number(place.dir, DatasetProperty::RefReservation)?;
        property_values::take_back(&self.mos, zap, (&record.before, &record.after))?;
        self.settle_limits(&place, reserved)
    }

    /// The current place of the dataset of a record.
    fn place_of(&mut self, record: &PropertyRecord) -> Result<Place, TaskError> {
        let not_found = || TaskError::from(ChangeError::NotFound { name: record.name.clone() });
        // The object that has its number now may not be a dataset.
        let head = self.dataset(record.head).ok().filter(|head| head.guid == record.guid);
        let dir = head.ok_or_else(not_found)?.dir;
        if self.dir(dir)?.head_dataset != Some(record.head) {
            return Err(not_found());
        }
        Ok(Place { name: self.name_of(dir)?, dir, head: record.head })
    }
}
