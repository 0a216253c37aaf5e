//! Setting and inheriting properties of datasets (spec 04, sections 12.3 and 13.3).

use super::place::Place;
use super::property_rules::{self, Known};
use super::{TaskContext, TaskError};
use crate::dataset::property::{DatasetProperty, Inheritance};
use crate::dataset::{DatasetKind, DatasetName};
use crate::live::LiveError;
use crate::live::amounts::SpaceDelta;
use crate::live::change_error::ChangeError;
use crate::live::datasets::dir::SpaceClass;
use crate::live::datasets::head::refreservation_excess;
use crate::live::datasets::values::in_force;
use crate::live::space::limits::SpaceTier;
use crate::mos::names;
use crate::mos::property_values::{self, Fallback};
use crate::mos::{MosSource, text};
use rzfs_format::ObjectId;
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::property::DefaultValue;
use rzfs_zap::ZapValue;

/// The version that stores received values separately.
const RECEIVED_VERSION: u64 = 22;
/// The first version with snapshot properties.
const SNAPSHOT_PROPERTIES_VERSION: u64 = 12;

/// Maximum length of a received property's name in bytes: with the suffix it is stored under, it
/// still fits in a ZAP.
const MAX_RECEIVED_NAME: usize = 247;

/// What happens when a property loses its own value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inherit {
    /// It gets the parent's value, or its default.
    Parent,
    /// It gets the received value, if there is one.
    Received,
}

/// A change of one property, syntactically checked.
#[derive(Clone, Debug)]
pub(crate) struct PropertyChange {
    pub(super) name: String,
    known: Known,
    pub(super) value: Option<ZapValue>,
    inherit: Inherit,
}

/// The space limits that a change may affect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Limit {
    Quota,
    Reservation,
    RefQuota,
    RefReservation,
    Count,
}

impl PropertyChange {
    fn set(kind: DatasetKind, name: &str, value: &ZapValue) -> Result<Self, ChangeError> {
        let known = property_rules::known(kind, name)?;
        property_rules::check_value(known, name, value)?;
        let value = Some(value.clone());
        Ok(Self { name: name.to_owned(), known, value, inherit: Inherit::Parent })
    }

    /// A received value.
    pub(super) fn received(
        kind: DatasetKind,
        name: &str,
        value: &ZapValue,
    ) -> Result<Self, ChangeError> {
        Self::check_received_name(kind, name)?;
        Self::set(kind, name, value)
    }

    /// Checks that a dataset of this kind can receive a property of this name.
    pub(super) fn check_received_name(kind: DatasetKind, name: &str) -> Result<(), ChangeError> {
        match name.len() <= MAX_RECEIVED_NAME {
            true => property_rules::known(kind, name).map(drop),
            false => Err(ChangeError::PropertyNameTooLong { property: name.to_owned() }),
        }
    }

    pub(super) fn inherit(
        kind: DatasetKind,
        name: &str,
        inherit: Inherit,
    ) -> Result<Self, ChangeError> {
        let known = property_rules::known(kind, name)?;
        let change = Self { name: name.to_owned(), known, value: None, inherit };
        if inherit == Inherit::Parent && change.inheritance() != Inheritance::Inherited {
            return Err(ChangeError::NotInheritable { property: change.name });
        }
        Ok(change)
    }

    /// Properties for a new dataset of this kind.
    pub(super) fn of_new(
        kind: DatasetKind,
        properties: &[(String, ZapValue)],
    ) -> Result<Vec<Self>, ChangeError> {
        properties.iter().map(|(name, value)| Self::set(kind, name, value)).collect()
    }

    /// Refuses properties that the root file system of a new pool can never have; `room` is the
    /// most that the pool can have for datasets. The space need not exist yet.
    pub(crate) fn check_of_root(
        properties: &[(String, ZapValue)],
        room: u64,
    ) -> Result<(), ChangeError> {
        Self::check_limits(&Self::of_new(DatasetKind::FileSystem, properties)?, room)
    }

    /// Refuses reservations of a new dataset that contradict its quotas or exceed `room` bytes.
    pub(super) fn check_limits(changes: &[Self], room: u64) -> Result<(), ChangeError> {
        let quota = |limit| {
            let set = changes.iter().rfind(|change| change.limit() == Some(limit));
            set.and_then(Self::number).filter(|quota| *quota != 0).unwrap_or(room)
        };
        let most = room.min(quota(Limit::Quota));
        let is_too_large = |change: &&Self| {
            let most = match change.limit() {
                Some(Limit::Reservation) => most,
                Some(Limit::RefReservation) => most.min(quota(Limit::RefQuota)),
                _ => return false,
            };
            change.number().is_some_and(|number| number > most)
        };
        match changes.iter().find(is_too_large) {
            Some(change) => Err(ChangeError::ReservationTooLarge { property: change.name.clone() }),
            None => Ok(()),
        }
    }

    pub(super) const fn limit(&self) -> Option<Limit> {
        let Known::Native(property) = self.known else { return None };
        Some(match property {
            DatasetProperty::Quota => Limit::Quota,
            DatasetProperty::Reservation => Limit::Reservation,
            DatasetProperty::RefQuota => Limit::RefQuota,
            DatasetProperty::RefReservation => Limit::RefReservation,
            DatasetProperty::FilesystemLimit | DatasetProperty::SnapshotLimit => Limit::Count,
            _ => return None,
        })
    }

    fn is(&self, property: DatasetProperty) -> bool {
        self.known == Known::Native(property)
    }

    const fn inheritance(&self) -> Inheritance {
        match self.known {
            Known::User => Inheritance::Inherited,
            Known::Native(native) => native.inheritance(),
        }
    }

    /// The number stored under the property's own name when old software would not understand the
    /// real one.
    fn substitute(&self) -> Option<u64> {
        match self.known {
            Known::User => None,
            Known::Native(native) => self.number().and_then(|it| native.values().substitute(it)),
        }
    }

    fn number(&self) -> Option<u64> {
        self.value.as_ref().and_then(ZapValue::first_u64)
    }

    /// Checks that the pool has the features that the value needs.
    fn check_features(&self, context: &TaskContext<'_>) -> Result<(), ChangeError> {
        let feature = match self.known {
            Known::User => None,
            Known::Native(native) => self.number().and_then(|number| native.feature(number)),
        };
        match feature.filter(|feature| !context.state.features.is_enabled(*feature)) {
            Some(feature) => Err(ChangeError::FeatureDisabled { feature: feature.name() }),
            None => Ok(()),
        }
    }
}

impl TaskContext<'_> {
    /// Sets properties of a file system, volume or snapshot: all of them, or none.
    pub(crate) fn set_properties(
        &mut self,
        name: &str,
        properties: &[(String, ZapValue)],
    ) -> Result<(), TaskError> {
        self.change_properties(name, |kind| PropertyChange::of_new(kind, properties))
    }

    /// Removes a property's own value.
    pub(crate) fn inherit_property(
        &mut self,
        name: &str,
        property: &str,
        inherit: Inherit,
    ) -> Result<(), TaskError> {
        let change = |kind| Ok(vec![PropertyChange::inherit(kind, property, inherit)?]);
        self.change_properties(name, change)
    }

    fn change_properties(
        &mut self,
        name: &str,
        changes: impl FnOnce(DatasetKind) -> Result<Vec<PropertyChange>, ChangeError>,
    ) -> Result<(), TaskError> {
        let parsed = DatasetName::parse(name);
        if let Some(snapshot) = parsed.and_then(|name| name.snapshot()) {
            let head = parsed.map(|name| name.head()).unwrap_or_default();
            return self.change_snapshot_properties((name, head, snapshot), changes);
        }
        let (place, changes) = self.check(|this| {
            let place = this.head(name)?;
            let kind = match this.objset_type(place.head)? {
                ObjsetType::Zvol => DatasetKind::Volume,
                _ => DatasetKind::FileSystem,
            };
            let changes = changes(kind)?;
            this.check_changes(&place, &changes)?;
            Ok((place, changes))
        })?;
        self.require_space(SpaceTier::Reserved)?;
        for change in &changes {
            self.change_property(&place, change)?;
        }
        Ok(())
    }

    /// Gives the root file system of a new pool its properties: all of them, or none.
    pub(crate) fn set_root_properties(
        &mut self,
        properties: &[(String, ZapValue)],
    ) -> Result<(), TaskError> {
        let changes = PropertyChange::of_new(DatasetKind::FileSystem, properties)?;
        let name = self.pool.name.clone();
        let place = self.check(|this| {
            let place = this.head(&name)?;
            this.check_changes(&place, &changes)?;
            Ok(place)
        })?;
        for change in &changes {
            self.change_property(&place, change)?;
        }
        Ok(())
    }

    /// Checks a set of changes made together.
    fn check_changes(
        &mut self,
        place: &Place,
        changes: &[PropertyChange],
    ) -> Result<(), TaskError> {
        for change in changes {
            self.check_value(place, change, changes)?;
            self.check_inherited(place.dir, change)?;
            if change.limit() == Some(Limit::Count) {
                self.check_counting(place.dir)?;
            }
        }
        let properties = self.dir(place.dir)?.properties;
        Ok(properties.map_or(Ok(()), |zap| self.mos.check_zap(zap))?)
    }

    /// Checks a property of a new dataset below `parent`.
    pub(super) fn check_new_value(
        &mut self,
        parent: ObjectId,
        change: &PropertyChange,
    ) -> Result<(), TaskError> {
        change.check_features(self)?;
        let property = change.name.clone();
        let new = change.number().unwrap_or(0);
        if matches!(change.limit(), Some(Limit::Reservation | Limit::RefReservation))
            && new > self.available(parent)?
        {
            return Err(ChangeError::ReservationTooLarge { property }.into());
        }
        Ok(())
    }

    /// Checks a change of a property of an existing dataset; `together`: the changes made with it.
    pub(super) fn check_value(
        &mut self,
        place: &Place,
        change: &PropertyChange,
        together: &[PropertyChange],
    ) -> Result<(), TaskError> {
        change.check_features(self)?;
        if change.is(DatasetProperty::KeyLocation) {
            let location = change.value.as_ref().and_then(ZapValue::as_bytes).map(text);
            return self.check_key_location(place, location.as_deref());
        }
        let Some(limit) = change.limit() else { return Ok(()) };
        let new = change.number().unwrap_or(0);
        let property = change.name.clone();
        let dir = self.dir(place.dir)?;
        let with = |property, now: u64| {
            let other = together.iter().find(|other| other.is(property));
            other.map_or(now, |other| other.number().unwrap_or(0))
        };
        match limit {
            Limit::Quota => {
                if new != 0
                    && (new < with(DatasetProperty::Reservation, dir.reserved) || new < dir.used)
                {
                    return Err(ChangeError::QuotaTooSmall { property }.into());
                }
            }
            Limit::Reservation => {
                let quota = with(DatasetProperty::Quota, dir.quota);
                let more = dir.used.max(new).saturating_sub(dir.used.max(dir.reserved));
                let room = match dir.parent {
                    Some(parent) if more > 0 => self.available(parent)?,
                    _ => self.pool_space().saturating_sub(dir.used),
                };
                if more > room || (new > dir.reserved && quota != 0 && new > quota) {
                    return Err(ChangeError::ReservationTooLarge { property }.into());
                }
            }
            Limit::RefQuota => {
                let head = self.dataset(place.head)?;
                let reserved = self.own_number(place.dir, DatasetProperty::RefReservation)?;
                let reserved = with(DatasetProperty::RefReservation, reserved);
                if new != 0 && (new < head.referenced || new < reserved) {
                    return Err(ChangeError::QuotaTooSmall { property }.into());
                }
            }
            Limit::RefReservation => {
                let head = self.dataset(place.head)?;
                let old = self.own_number(place.dir, DatasetProperty::RefReservation)?;
                let refquota = self.own_number(place.dir, DatasetProperty::RefQuota)?;
                let quotas = [
                    with(DatasetProperty::Quota, dir.quota),
                    with(DatasetProperty::RefQuota, refquota),
                ];
                let more = refreservation_excess(new, head.unique)
                    .saturating_sub(refreservation_excess(old, head.unique));
                let exceeds = |quota: u64| quota != 0 && new > quota;
                if more > self.available(place.dir)?
                    || (more > 0 && quotas.into_iter().any(exceeds))
                {
                    return Err(ChangeError::ReservationTooLarge { property }.into());
                }
            }
            Limit::Count => {}
        }
        Ok(())
    }

    /// Checks that the inherited value can be read when a directory loses its own.
    fn check_inherited(&mut self, dir: ObjectId, change: &PropertyChange) -> Result<(), TaskError> {
        let parent = self.dir(dir)?.parent.filter(|_| change.value.is_none());
        let Some(parent) = parent else { return Ok(()) };
        let dirs = &mut self.state.dirs;
        in_force(&self.mos, dirs, parent, &change.name, change.inheritance())?;
        Ok(())
    }

    /// Applies a checked change and its consequences.
    pub(super) fn change_property(
        &mut self,
        place: &Place,
        change: &PropertyChange,
    ) -> Result<(), TaskError> {
        let old_refreservation = match change.limit() {
            Some(Limit::RefReservation) => {
                self.own_number(place.dir, DatasetProperty::RefReservation)?
            }
            _ => 0,
        };
        let zap = self.properties_of(place.dir)?;
        self.store(zap, change)?;
        match change.limit() {
            Some(Limit::Quota) => {
                let quota = self.own_number(place.dir, DatasetProperty::Quota)?;
                self.state.dirs.change(&self.mos, place.dir, |dir| dir.quota = quota)?;
            }
            Some(Limit::Reservation) => {
                let reserved = self.own_number(place.dir, DatasetProperty::Reservation)?;
                self.state.dirs.set_reservation(&self.mos, place.dir, reserved)?;
            }
            Some(Limit::RefReservation) => {
                let new = self.own_number(place.dir, DatasetProperty::RefReservation)?;
                self.charge_refreservation(place, old_refreservation, new)?;
            }
            Some(Limit::Count) if change.number().is_some_and(|limit| limit != u64::MAX) => {
                self.start_counting(place.dir)?;
            }
            Some(Limit::Count | Limit::RefQuota) | None => {}
        }
        self.state.changed.push(place.name.clone());
        self.log_change(place, change)
    }

    /// Charges a directory for the unused part of its head's reservation.
    pub(super) fn charge_refreservation(
        &mut self,
        place: &Place,
        old: u64,
        new: u64,
    ) -> Result<(), TaskError> {
        let unique = self.dataset(place.head)?.unique;
        let more = refreservation_excess(new, unique)
            .wrapping_sub(refreservation_excess(old, unique))
            .cast_signed();
        let delta = SpaceDelta { used: more, ..SpaceDelta::default() };
        let class = SpaceClass::RefReservation;
        Ok(self.state.dirs.charge(&self.mos, place.dir, class, delta)?)
    }

    /// Changes a ZAP of properties.
    pub(super) fn store(
        &mut self,
        zap: ObjectId,
        change: &PropertyChange,
    ) -> Result<(), LiveError> {
        let Some(value) = &change.value else {
            let successor = match change.inherit {
                Inherit::Received => Fallback::Received,
                Inherit::Parent if self.state.config.version < RECEIVED_VERSION => {
                    Fallback::ParentInOldPool
                }
                Inherit::Parent => Fallback::Parent,
            };
            return property_values::unset(&self.mos, zap, &change.name, successor);
        };
        property_values::set(&self.mos, zap, &change.name, (value, change.substitute()))
    }

    pub(super) fn log_change(
        &mut self,
        place: &Place,
        change: &PropertyChange,
    ) -> Result<(), TaskError> {
        let (operation, value) = match &change.value {
            Some(value) => ("set", Some(value.clone())),
            None => {
                let dirs = &mut self.state.dirs;
                let inheritance = change.inheritance();
                let value = in_force(&self.mos, dirs, place.dir, &change.name, inheritance)?;
                ("inherit", value)
            }
        };
        let shown = match (value, change.known) {
            (Some(value), _) => stored_text(&value),
            (None, Known::User) => String::new(),
            (None, Known::Native(native)) => default_text(native),
        };
        let text = format!("{}={shown}", change.name);
        Ok(self.log_dataset(operation, (&place.name, place.head), text)?)
    }

    /// Refuses properties that a new snapshot cannot have.
    pub(super) fn check_snapshot_properties(
        &self,
        properties: &[(String, ZapValue)],
    ) -> Result<Vec<PropertyChange>, ChangeError> {
        if let Some((property, _)) = properties.first()
            && self.state.config.version < SNAPSHOT_PROPERTIES_VERSION
        {
            return Err(ChangeError::UnknownProperty { property: property.clone() });
        }
        PropertyChange::of_new(DatasetKind::Snapshot, properties)
    }

    fn change_snapshot_properties(
        &mut self,
        (name, head, snapshot): (&str, &str, &str),
        changes: impl FnOnce(DatasetKind) -> Result<Vec<PropertyChange>, ChangeError>,
    ) -> Result<(), TaskError> {
        let (place, id, phys, changes) = self.check(|this| {
            let not_found = || ChangeError::NotFound { name: name.to_owned() };
            if this.state.config.version < SNAPSHOT_PROPERTIES_VERSION {
                return Err(ChangeError::WrongKind { name: name.to_owned() }.into());
            }
            let place = this.head(head)?;
            let found = names::snapshot(&this.mos, &this.dataset(place.head)?, snapshot)?;
            let (_, id) = found.ok_or_else(not_found)?;
            let phys = this.dataset(id)?;
            let changes = changes(DatasetKind::Snapshot)?;
            for change in changes.iter().filter(|change| change.value.is_none()) {
                let dirs = &mut this.state.dirs;
                in_force(&this.mos, dirs, place.dir, &change.name, change.inheritance())?;
            }
            phys.properties.map_or(Ok(()), |zap| this.mos.check_zap(zap))?;
            Ok((place, id, phys, changes))
        })?;
        self.require_space(SpaceTier::Reserved)?;
        self.store_snapshot_properties(name, (id, phys), &place, &changes)
    }

    /// Changes properties of a snapshot of the head at a place, after all checks.
    pub(super) fn store_snapshot_properties(
        &mut self,
        name: &str,
        (id, mut phys): (ObjectId, DslDataset),
        head: &Place,
        changes: &[PropertyChange],
    ) -> Result<(), TaskError> {
        let zap = self.snapshot_properties(id, &mut phys)?;
        let place = Place { name: name.to_owned(), head: id, ..head.clone() };
        for change in changes {
            self.store(zap, change)?;
            self.log_change(&place, change)?;
        }
        if self.mos.entries(zap)?.is_empty() {
            self.mos.destroy(zap)?;
            phys.properties = None;
            self.mos.set_record(id, &phys)?;
        }
        Ok(())
    }

    pub(super) fn snapshot_properties(
        &mut self,
        id: ObjectId,
        phys: &mut DslDataset,
    ) -> Result<ObjectId, TaskError> {
        if let Some(zap) = phys.properties {
            return Ok(zap);
        }
        let zap = self.mos.create_zap(ObjectType::DSL_PROPS)?;
        phys.properties = Some(zap);
        self.mos.set_record(id, phys)?;
        Ok(zap)
    }
}

/// A stored value as the history shows it: numbers in decimal.
fn stored_text(value: &ZapValue) -> String {
    match value.first_u64().filter(|_| value.integer_size() == rzfs_zap::IntegerSize::Eight) {
        Some(number) => number.to_string(),
        None => text(value.as_bytes().unwrap_or_default()),
    }
}

fn default_text(native: DatasetProperty) -> String {
    match native.default() {
        Some(DefaultValue::Number(number)) => number.to_string(),
        Some(DefaultValue::Text(text)) => text.to_owned(),
        None => String::new(),
    }
}
