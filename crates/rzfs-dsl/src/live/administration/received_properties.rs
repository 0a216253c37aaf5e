//! Properties received with a send stream (spec 08, section 9.7).
//!
//! Received values are kept apart from a dataset's own values, which take precedence. A stream with
//! properties removes the values received earlier; on a dataset that never received any, it removes
//! the own values.

use super::place::Place;
use super::property::{Inherit, Limit, PropertyChange};
use super::{TaskContext, TaskError};
use crate::dataset::property::{DatasetProperty, Inheritance};
use crate::dataset::{DatasetKind, DatasetName};
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::datasets::values::in_force;
use crate::live::space::limits::SpaceTier;
use crate::mos::names;
use crate::mos::property_values::{self, Fallback, Owner, StoredValue};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_zap::ZapValue;

/// What happens to values received earlier.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum EarlierValues {
    /// They stay, unless they are overridden.
    #[default]
    Kept,
    /// They are removed.
    Replaced,
    /// There are none: the dataset is new. Values set by its user stay.
    Absent,
}

/// Received properties, and further changes with them.
#[derive(Clone, Default, Debug)]
pub struct ReceivedProperties {
    /// Values in stored form.
    pub values: Vec<(String, ZapValue)>,
    /// What happens to earlier ones.
    pub earlier: EarlierValues,
    /// Properties whose received value is to have no effect.
    pub hidden: Vec<String>,
    /// The same, and the dataset's own values are removed.
    pub inherited: Vec<String>,
    /// Local values set together with them, in stored form: all of these, or nothing is changed.
    pub own: Vec<(String, ZapValue)>,
}

impl ReceivedProperties {
    /// Whether only the values of the stream apply.
    const fn is_empty_request(&self) -> bool {
        self.hidden.is_empty() && self.inherited.is_empty() && self.own.is_empty()
    }
}

/// Properties that limit each other.
const LIMITS: [DatasetProperty; 4] = [
    DatasetProperty::Quota,
    DatasetProperty::Reservation,
    DatasetProperty::RefQuota,
    DatasetProperty::RefReservation,
];

/// The received properties that are valid.
struct ValidatedProperties {
    place: Place,
    changes: Vec<PropertyChange>,
    /// Properties whose received value is to have no effect.
    hidden: Vec<String>,
    /// The same, and the dataset's own values are removed.
    inherited: Vec<String>,
    /// Local values.
    own: Vec<PropertyChange>,
    refused: Vec<(String, ChangeError)>,
}

impl TaskContext<'_> {
    /// Applies received properties to a file system, volume or snapshot; returns the rejected ones
    /// with reasons.
    pub(crate) fn receive_properties(
        &mut self,
        name: &str,
        brought: &ReceivedProperties,
    ) -> Result<Vec<(String, ChangeError)>, TaskError> {
        let parsed = DatasetName::parse(name);
        if let Some(snapshot) = parsed.and_then(|name| name.snapshot()) {
            let head = parsed.map(|name| name.head()).unwrap_or_default();
            return self.receive_snapshot_properties((name, head, snapshot), &brought.values);
        }
        let judged = self.check(|this| this.judge(name, brought))?;
        let ValidatedProperties { place, changes, hidden, inherited, own, refused } = judged;
        self.require_space(SpaceTier::Reserved)?;
        let zap = self.properties_of(place.dir)?;
        let reserved = self.own_number(place.dir, DatasetProperty::RefReservation)?;
        match brought.earlier {
            EarlierValues::Kept if brought.is_empty_request() => {}
            // Values requested by the user must survive the next stream.
            EarlierValues::Kept => property_values::note_received(&self.mos, zap)?,
            EarlierValues::Replaced => {
                let stay = changes.iter().map(|change| change.name.as_str()).collect();
                property_values::clear_received(&self.mos, zap, &stay)?;
            }
            EarlierValues::Absent => property_values::note_received(&self.mos, zap)?,
        }
        for change in &changes {
            if let Some(value) = &change.value {
                property_values::receive(&self.mos, zap, &change.name, value)?;
            }
        }
        for name in &hidden {
            let stored = StoredValue::read(&self.mos, (zap, Owner::Directory), name)?;
            if !stored.is_own() {
                property_values::unset(&self.mos, zap, name, Fallback::Parent)?;
            }
        }
        for name in &inherited {
            property_values::unset(&self.mos, zap, name, Fallback::Parent)?;
        }
        for change in &own {
            self.store(zap, change)?;
        }
        self.settle_limits(&place, reserved)?;
        for change in changes.iter().chain(&own) {
            self.log_change(&place, change)?;
        }
        Ok(refused)
    }

    fn judge(
        &mut self,
        name: &str,
        brought: &ReceivedProperties,
    ) -> Result<ValidatedProperties, TaskError> {
        let place = self.head(name)?;
        let kind = match self.objset_type(place.head)? {
            ObjsetType::Zvol => DatasetKind::Volume,
            _ => DatasetKind::FileSystem,
        };
        let (possible, mut refused) = judge_values(kind, &brought.values);
        let mut names_of = |names: &[String]| {
            let mut possible = Vec::new();
            for name in names {
                match PropertyChange::check_received_name(kind, name) {
                    Ok(()) => possible.push(name.clone()),
                    Err(error) => refused.push((name.clone(), error)),
                }
            }
            possible
        };
        let (hidden, inherited) = (names_of(&brought.hidden), names_of(&brought.inherited));
        let own = PropertyChange::of_new(kind, &brought.own)?;
        let properties = self.dir(place.dir)?.properties;
        properties.map_or(Ok(()), |zap| self.mos.check_zap(zap))?;
        // A value without effect need not be consistent with the rest.
        let (mut effective, mut changes) = (Vec::new(), Vec::new());
        for change in possible {
            let own_stay = |zap| match brought.earlier {
                EarlierValues::Replaced => property_values::has_received(&self.mos, zap),
                EarlierValues::Kept | EarlierValues::Absent => Ok(true),
            };
            let allows_received = match properties {
                Some(zap) if own_stay(zap)? => {
                    let stored =
                        StoredValue::read(&self.mos, (zap, Owner::Directory), &change.name)?;
                    stored.allows_received()
                }
                Some(_) | None => true,
            };
            let is_effective = allows_received && own.iter().all(|own| own.name != change.name);
            if is_effective { effective.push(change) } else { changes.push(change) }
        }
        let gone = match properties {
            Some(zap) => self.dropped_limits(zap, kind, brought)?,
            None => Vec::new(),
        };
        let together: Vec<_> = effective.iter().chain(&own).chain(&gone).cloned().collect();
        let mut had: Vec<_> = own.iter().chain(&gone).cloned().collect();
        for change in &effective {
            match self.check_value(&place, change, &together) {
                Ok(()) => had.push(change.clone()),
                Err(TaskError::Refused(error)) => refused.push((change.name.clone(), error)),
                Err(error) => return Err(error),
            }
        }
        for change in &own {
            self.check_value(&place, change, &had)?;
        }
        changes
            .extend(effective.into_iter().filter(|one| had.iter().any(|it| it.name == one.name)));
        if had.iter().any(|change| change.limit() == Some(Limit::Count)) {
            self.check_counting(place.dir)?;
        }
        Ok(ValidatedProperties { place, changes, hidden, inherited, own, refused })
    }

    /// Limits that are dropped as others are received, without a replacement.
    fn dropped_limits(
        &self,
        zap: ObjectId,
        kind: DatasetKind,
        brought: &ReceivedProperties,
    ) -> Result<Vec<PropertyChange>, TaskError> {
        let knows_received = property_values::has_received(&self.mos, zap)?;
        let mut gone = Vec::new();
        for limit in LIMITS.map(DatasetProperty::name) {
            let stored = StoredValue::read(&self.mos, (zap, Owner::Directory), limit)?;
            let goes = match knows_received {
                true => stored.allows_received() && stored.received.is_some(),
                false => stored.is_own(),
            };
            let comes = brought.values.iter().chain(&brought.own).any(|(name, _)| name == limit);
            if goes && !comes && brought.earlier == EarlierValues::Replaced {
                gone.extend(PropertyChange::inherit(kind, limit, Inherit::Received).ok());
            }
        }
        Ok(gone)
    }

    /// The ZAP of a directory's properties.
    pub(super) fn properties_of(&mut self, dir: ObjectId) -> Result<ObjectId, LiveError> {
        if let Some(zap) = self.dir(dir)?.properties {
            return Ok(zap);
        }
        let zap = self.mos.create_zap(ObjectType::DSL_PROPS)?;
        self.state.dirs.change(&self.mos, dir, |dir| dir.properties = Some(zap))?;
        Ok(zap)
    }

    /// Applies all limits of the properties now in effect; `reserved` is the space previously
    /// reserved for the head.
    pub(super) fn settle_limits(&mut self, place: &Place, reserved: u64) -> Result<(), TaskError> {
        let quota = self.own_number(place.dir, DatasetProperty::Quota)?;
        self.state.dirs.change(&self.mos, place.dir, |dir| dir.quota = quota)?;
        let reservation = self.own_number(place.dir, DatasetProperty::Reservation)?;
        self.state.dirs.set_reservation(&self.mos, place.dir, reservation)?;
        let now = self.own_number(place.dir, DatasetProperty::RefReservation)?;
        self.charge_refreservation(place, reserved, now)?;
        for limit in [DatasetProperty::FilesystemLimit, DatasetProperty::SnapshotLimit] {
            let dirs = &mut self.state.dirs;
            let own = Inheritance::Own;
            let value = in_force(&self.mos, dirs, place.dir, limit.name(), own)?;
            if value.and_then(|value| value.first_u64()).is_some_and(|limit| limit != u64::MAX) {
                self.start_counting(place.dir)?;
            }
        }
        self.state.changed.push(place.name.clone());
        Ok(())
    }

    fn receive_snapshot_properties(
        &mut self,
        (name, head, snapshot): (&str, &str, &str),
        values: &[(String, ZapValue)],
    ) -> Result<Vec<(String, ChangeError)>, TaskError> {
        let (place, id, mut phys) = self.check(|this| {
            let not_found = || ChangeError::NotFound { name: name.to_owned() };
            let place = this.head(head)?;
            let found = names::snapshot(&this.mos, &this.dataset(place.head)?, snapshot)?;
            let (_, id) = found.ok_or_else(not_found)?;
            let phys = this.dataset(id)?;
            phys.properties.map_or(Ok(()), |zap| this.mos.check_zap(zap))?;
            Ok((place, id, phys))
        })?;
        let (changes, refused) = judge_values(DatasetKind::Snapshot, values);
        if changes.is_empty() {
            return Ok(refused);
        }
        self.require_space(SpaceTier::Reserved)?;
        let zap = self.snapshot_properties(id, &mut phys)?;
        for change in &changes {
            if let Some(value) = &change.value {
                property_values::receive(&self.mos, zap, &change.name, value)?;
            }
            let place = Place { name: name.to_owned(), head: id, ..place.clone() };
            self.log_change(&place, change)?;
        }
        Ok(refused)
    }
}

/// Sorts values into those that a dataset of this kind can have and rejected ones.
fn judge_values(
    kind: DatasetKind,
    values: &[(String, ZapValue)],
) -> (Vec<PropertyChange>, Vec<(String, ChangeError)>) {
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    for (name, value) in values {
        match PropertyChange::received(kind, name, value) {
            Ok(change) => changes.push(change),
            Err(error) => refused.push((name.clone(), error)),
        }
    }
    (changes, refused)
}
