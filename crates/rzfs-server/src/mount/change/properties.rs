//! Changes of the properties of datasets.

use super::super::mounter::{Nesting, OPEN_PROPERTY};
use super::super::table::MountTable;
use super::mounts::{NowPossible, end, mount_again, settle, taken_back};
use super::problem::{Problem, reason};
use crate::mount::dataset_mount::DatasetMount;
use crate::mount::open::Open;
use crate::mount::refusal::{refusal, unopened};
use crate::protocol::{Pair, Refusal, Temporary};
use rzfs::setting::{DatasetSetting, Occasion, OwnerProperty, SettingError};
use rzfs::zap::ZapValue;
use rzfs::{Pool, WritablePool};
use rzfs_dsl::dataset::property::{DatasetProperty, PropertySource, StoredProperties};
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind};
use rzfs_dsl::live::{ChangeError, EarlierValues, Inherit, PropertyRecord, ReceivedProperties};
use rzfs_fuse::InUse;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// OpenZFS's message for a property that is stored but not in effect.
const NOT_REMOUNTED: &str = "property may be set but unable to remount filesystem";

/// `zfs set`.
pub(super) fn set(
    open: &Open,
    name: &str,
    properties: &[Pair],
    leave_mounted: bool,
) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot set property for '{name}'"), error)
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let view = pool.view().map_err(|error| cannot(&error))?;
    let dataset = view.datasets().open(name);
    let dataset = dataset.map_err(|error| unopened(name, reason(&error)))?;
    let (quotas, others) = quotas(&dataset, properties).map_err(|error| cannot(&error))?;
    let settings = settings(&view, &dataset, &others).map_err(|error| cannot(&error))?;
    set_quotas(pool, name, &quotas).map_err(|error| cannot(&error))?;
    if settings.is_empty() {
        return Ok(Vec::new());
    }
    let pairs = others.iter().map(|(name, word)| (name.as_str(), word.as_str()));
    let effect = match (leave_mounted, Effect::of(pairs)) {
        (true, Effect { lists, settled, .. }) => Effect { lists, settled, ..Effect::default() },
        (false, effect) => effect,
    };
    let action = || pool.live().set_properties(name, &settings);
    changed(open, name, effect, action, &cannot)
}

/// A property with its value in stored form.
type Setting = (String, ZapValue);

/// A quota with its owner; `None` for no quota.
type Quota = (OwnerProperty, Option<u64>);

/// Separates the quotas of users, groups and projects from other properties.
fn quotas(dataset: &Dataset, properties: &[Pair]) -> Result<(Vec<Quota>, Vec<Pair>), Problem> {
    let (mut quotas, mut others) = (Vec::new(), Vec::new());
    for (name, word) in properties {
        match OwnerProperty::parse(name)? {
            Some(_) if dataset.kind()? != DatasetKind::FileSystem => {
                return Err(SettingError::NotApplicable(name.clone()).into());
            }
            Some(property) => quotas.push((property, property.parse_quota(name, word)?)),
            None => others.push((name.clone(), word.clone())),
        }
    }
    Ok((quotas, others))
}

/// Sets quotas; they are on disk when this returns.
fn set_quotas(
    pool: &WritablePool,
    name: &str,
    quotas: &[Quota],
) -> Result<(), Box<dyn std::error::Error>> {
    if quotas.is_empty() {
        return Ok(());
    }
    let file_system = pool.file_system(name)?;
    for (property, quota) in quotas {
        file_system.set_quota(property.owner, property.unit, property.id, *quota)?;
    }
    Ok(pool.sync()?)
}

fn settings(pool: &Pool, dataset: &Dataset, properties: &[Pair]) -> Result<Vec<Setting>, Problem> {
    let kind = dataset.kind()?;
    let mut settings = Vec::with_capacity(properties.len());
    for (name, word) in properties {
        let setting = DatasetSetting::parse(name, word, kind, Occasion::Change)?;
        if setting.feature().is_some_and(|feature| !pool.features().state(feature).is_enabled()) {
            return Err(SettingError::NeedsUpgrade.into());
        }
        settings.push((setting.name, setting.value));
    }
    Ok(settings)
}

/// Whether changes of properties may start, end or move mounts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mounts {
    /// Mounts follow the properties.
    Move,
    /// Mounts stay where they are, and no others are made.
    Stay,
}

/// Sets the properties that a stream brings for an existing file system, and its own new ones, in
/// one change: conflicting values of the stream never take effect. Returns the rejected properties
/// with reasons, and adds the changes to `records`. Mounts in use stay in place, unless its own
/// properties move them: no received property makes a receive fail.
pub(super) fn receive(
    open: &Open,
    name: &str,
    (brought, own): (&ReceivedProperties, &[Pair]),
    mounts: Mounts,
    records: &mut Vec<PropertyRecord>,
) -> Result<Vec<(String, ChangeError)>, Refusal> {
    let what = if own.is_empty() { "receive properties of" } else { "set property for" };
    let cannot =
        |error: &dyn std::fmt::Display| refusal(format_args!("cannot {what} '{name}'"), error);
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let view = pool.view().map_err(|error| cannot(&error))?;
    let dataset = view.datasets().open(name);
    let dataset = dataset.map_err(|error| unopened(name, reason(&error)))?;
    let (quotas, own) = quotas(&dataset, own).map_err(|error| cannot(&error))?;
    let settings = settings(&view, &dataset, &own).map_err(|error| cannot(&error))?;
    set_quotas(pool, name, &quotas).map_err(|error| cannot(&error))?;
    let all = ReceivedProperties { own: settings, ..brought.clone() };
    let former = dataset.stored_properties().map_err(|error| cannot(&error))?;
    let changes = brought_changes(&former, &all);
    let effect_of = |pairs: &[&Pair]| {
        Effect::of(pairs.iter().map(|(name, word)| (name.as_str(), word.as_str())))
    };
    let effect = effect_of(&changes.iter().chain(&own).collect::<Vec<_>>());
    let must_move = effect_of(&own.iter().collect::<Vec<_>>()).ends();
    let mut refused = None;
    let mut action = || {
        let (more, record) = pool.live().receive_properties_recorded(name, &all)?;
        records.push(record);
        refused = Some(more);
        Ok(())
    };
    let changed = match mounts {
        Mounts::Stay => changed(open, name, effect.in_place(), action, &cannot),
        Mounts::Move => match changed(open, name, effect.clone(), &mut action, &cannot) {
            Err(_) if !must_move => changed(open, name, effect.in_place(), action, &cannot),
            changed => changed,
        },
    };
    match (changed, refused) {
        (_, Some(refused)) => Ok(refused),
        (Err(refusal), None) => Err(refusal),
        (Ok(_), None) => Ok(Vec::new()),
    }
}

/// The properties that a stream has changed, with their values, if any.
fn brought_changes(former: &StoredProperties, brought: &ReceivedProperties) -> Vec<Pair> {
    let is_own = |name: &str| former.get(name).is_some();
    let gets_own = |name: &str| brought.own.iter().any(|(own, _)| own == name);
    let knows_received = former.get("$hasrecvd").is_some();
    let mut changes = Vec::new();
    for (name, value) in &brought.values {
        let is_same = former.get(&format!("{name}$recvd")) == Some(value);
        if gets_own(name) || knows_received && (is_same || is_own(name)) {
            continue;
        }
        let native = DatasetProperty::from_name(name);
        let word = match (native, value.first_u64()) {
            (Some(native), Some(number)) if !native.values().is_text() => {
                native.values().word(number).map(Cow::into_owned)
            }
            _ => value.as_bytes().map(|text| {
                String::from_utf8_lossy(text.strip_suffix(&[0]).unwrap_or(text)).into_owned()
            }),
        };
        changes.push((name.clone(), word.unwrap_or_default()));
    }
    let stay: BTreeSet<_> = brought.values.iter().map(|(name, _)| name.as_str()).collect();
    let stays = |name: &str| stay.contains(name);
    let gone = former.iter().filter_map(|(name, _)| match name.strip_suffix("$recvd") {
        Some(property) if knows_received => Some(property),
        None if !knows_received => Some(name),
        _ => None,
    });
    let gone = gone.filter(|name| brought.earlier == EarlierValues::Replaced && !stays(name));
    let is_hidden = |name: &&String| former.get(&format!("{name}$inherit")).is_some();
    let hidden = brought.hidden.iter().chain(&brought.inherited).filter(|name| !is_hidden(name));
    let more = gone.chain(hidden.map(String::as_str)).filter(|name| !gets_own(name));
    let more: Vec<_> = more.map(str::to_owned).collect();
    changes.extend(more.into_iter().map(|name| (name, String::new())));
    changes
}

/// Reverts a change of properties, as another operation was refused. The file system may have been
/// renamed, and concurrent changes stay.
pub(super) fn take_back(
    open: &Open,
    record: &PropertyRecord,
    mounts: Mounts,
) -> Result<(), Refusal> {
    let cannot = |error: &dyn std::fmt::Display| refusal("cannot restore properties", error);
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let tree = pool.live().dataset_tree().map_err(|error| cannot(&error))?;
    let dataset = record.dataset(&tree).map_err(|error| cannot(&error))?;
    let Some(dataset) = dataset else { return Ok(()) };
    let (name, former) = (dataset.name(), record.before());
    let text = |name: &str| {
        let value = former.get(name).or_else(|| former.get(&format!("{name}$recvd")));
        let bytes = value.and_then(|value| value.as_bytes()).unwrap_or_default();
        String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned()
    };
    let pairs: Vec<_> = record.properties().iter().map(|name| (*name, text(name))).collect();
    let pairs = pairs.iter().map(|(name, word)| (*name, word.as_str()));
    let action = || pool.live().revert_properties(record);
    let effect = Effect::of(pairs);
    let taken_back = match mounts {
        Mounts::Stay => changed(open, name, effect.in_place(), action, &cannot),
        // Mounts in use stay in place.
        Mounts::Move => changed(open, name, effect.clone(), action, &cannot)
            .or_else(|_| changed(open, name, effect.in_place(), action, &cannot)),
    };
    taken_back.map(drop)
}

/// `zfs inherit`.
pub(super) fn inherit(
    open: &Open,
    name: &str,
    property: &str,
    received: bool,
) -> Result<Vec<String>, Refusal> {
    let cannot = |error: &dyn std::fmt::Display| {
        refusal(format_args!("cannot inherit {property} for '{name}'"), error)
    };
    let pool = open.writable().map_err(|error| cannot(&error))?;
    let inherit = if received { Inherit::Received } else { Inherit::Parent };
    let action = || pool.live().inherit_property(name, property, inherit);
    let mut effect = Effect::of([(property, "")]);
    if effect.moves {
        effect.place = inherited_mount_point(open, name);
    }
    changed(open, name, effect, action, &cannot)
}

/// The mount point that a file system inherits from its parent.
fn inherited_mount_point(open: &Open, name: &str) -> Option<String> {
    let (above, own) = name.rsplit_once('/')?;
    let above = open.view().ok()?.datasets().open(above).ok()?;
    let mountpoint = above.text(DatasetProperty::MountPoint).ok()?;
    mountpoint.starts_with('/').then(|| format!("{mountpoint}/{own}"))
}

/// The consequences of a change of properties for mounts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Effect {
    /// The inherited mount point may change.
    moves: bool,
    /// Its own new mount point.
    place: Option<String>,
    /// The file system may no longer be mounted.
    goes: bool,
    /// Mounts must be remade.
    anew: bool,
    /// Mounts can follow, or must be remade.
    follows: bool,
    /// The mount must show a setting that the file system implements.
    shows: bool,
    /// The visibility of `.zfs` in root directories may change.
    lists: bool,
    /// Temporary options of mounts that applied to the previous values of these.
    settled: Vec<DatasetProperty>,
}

impl Effect {
    /// The effect of setting these properties to these values.
    fn of<'a>(changes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut effect = Self::default();
        for (name, value) in changes {
            let property = DatasetProperty::from_name(name);
            match property {
                Some(DatasetProperty::MountPoint) => {
                    effect.moves = true;
                    effect.place = value.starts_with('/').then(|| value.to_owned());
                }
                Some(DatasetProperty::CanMount) if value == "off" => effect.goes = true,
                Some(DatasetProperty::AclType) => effect.anew = true,
                None if name == OPEN_PROPERTY => effect.anew = true,
                Some(
                    DatasetProperty::ReadOnly
                    | DatasetProperty::Devices
                    | DatasetProperty::Exec
                    | DatasetProperty::SetUid,
                ) => effect.follows = true,
                Some(DatasetProperty::Atime | DatasetProperty::Relatime) => effect.shows = true,
                Some(DatasetProperty::SnapDir) => effect.lists = true,
                _ => {}
            }
            let settled = property.filter(|property| Temporary::PROPERTIES.contains(property));
            effect.settled.extend(settled);
        }
        effect
    }

    /// Whether it requires ending mounts.
    const fn ends(&self) -> bool {
        self.moves || self.goes
    }

    /// The same without moving mounts: only changes that mounts can adopt in place.
    fn in_place(self) -> Self {
        Self { moves: false, place: None, goes: false, anew: false, ..self }
    }
}

/// Changes properties, and the mounts with them. If a mount that must move is in use nothing is
/// changed. If one only needs other options and is in use that is reported.
fn changed(
    open: &Open,
    name: &str,
    effect: Effect,
    action: impl FnOnce() -> Result<(), ChangeError>,
    cannot: &dyn Fn(&dyn std::fmt::Display) -> Refusal,
) -> Result<Vec<String>, Refusal> {
    if effect == Effect::default() {
        return action().map(|()| Vec::new()).map_err(|error| cannot(&error));
    }
    let mut table = open.table()?;
    open.forget_finished(&mut table);
    let before = open.candidates().map_err(|error| cannot(&error))?;
    let mut moving = BTreeSet::new();
    if effect.moves {
        let mounted = mounted_below(&table, name);
        moving = inheriting(open, mounted, DatasetProperty::MountPoint, name)
            .map_err(|error| cannot(&error))?;
    }
    if let Some(mountpoint) = &effect.place {
        // Mounts below the new place must make way as well.
        moving.extend(open.below_mount_point(&table, mountpoint));
    }
    if effect.goes {
        moving.insert(name.to_owned());
    }
    let mut ended = end(open, &mut table, &moving, InUse::Refuse)?;
    let mut complaints = Vec::new();
    if effect.anew {
        let shared = |name: &String| table.of_dataset(name).map(|one| one.dataset.clone());
        let anew = mounted_below(&table, name).iter().filter_map(shared).collect();
        match end(open, &mut table, &anew, InUse::Refuse) {
            Ok(more) => ended.extend(more),
            Err(_) => complaints.push(NOT_REMOUNTED.to_owned()),
        }
    }
    if let Err(error) = action() {
        return Err(taken_back(open, &mut table, ended, cannot(&error)));
    }
    for property in effect.settled {
        let names = mounted_below(&table, name);
        let names = names.into_iter().chain(ended.iter().map(|plan| plan.dataset.clone()));
        let inheriting = inheriting(open, names.collect(), property, name);
        let names = inheriting.map_err(|error| cannot(&error))?;
        table.of_datasets_mut(&names).for_each(|mount| mount.settle(&names, property));
        for plan in ended.iter_mut().filter(|plan| names.contains(&plan.dataset)) {
            plan.temporary = plan.temporary.settled(property);
        }
    }
    if effect.moves || effect.goes || effect.anew {
        let missing =
            settle(open, &mut table, (&before, NowPossible::Mounted), ended, str::to_owned);
        if !missing.is_empty() {
            complaints.extend(missing);
            complaints.push(NOT_REMOUNTED.to_owned());
        }
    }
    if effect.lists {
        let names = mounted_below(&table, name);
        let mounts = names.iter().filter_map(|name| table.of_dataset(name));
        mounts.for_each(|one| one.mount.show_snapshot_directories());
    }
    if effect.follows || effect.shows {
        let names = mounted_below(&table, name);
        let behind = not_followed(open, &mut table, &names);
        if effect.follows && !behind.is_empty() {
            // Mounts of ordinary users are remade. Root's stay: while one is away, writers that use
            // its path would write into the directory below.
            let ended = match open.mounter().nesting() {
                Nesting::Mounts => None,
                Nesting::Grafts => end(open, &mut table, &behind, InUse::Refuse).ok(),
            };
            match ended {
                Some(ended) => complaints.extend(mount_again(open, &mut table, ended)),
                None => complaints.push(NOT_REMOUNTED.to_owned()),
            }
        }
    }
    Ok(complaints)
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The mounted file systems among this one and those below.
fn mounted_below(table: &MountTable, name: &str) -> BTreeSet<String> {
    let mounted = table.reports().into_iter().map(|one| one.dataset);
    mounted.filter(|other| is_below(other, name)).collect()
}

/// Those among them that inherit a property from `name`.
fn inheriting(
    open: &Open,
    mounted: BTreeSet<String>,
    property: DatasetProperty,
    name: &str,
) -> Result<BTreeSet<String>, Box<dyn std::error::Error>> {
    let view = open.view()?;
    let mut inheriting = BTreeSet::new();
    for mounted in mounted.into_iter().filter(|mounted| is_below(mounted, name)) {
        let dataset = view.datasets().open(&mounted)?;
        let source = dataset.native_property(property)?.map(|property| property.source);
        let is_own = match source {
            Some(PropertySource::Local | PropertySource::Received) => mounted != name,
            Some(PropertySource::Inherited(from)) => from != name && is_below(&from, name),
            _ => false,
        };
        if !is_own {
            inheriting.insert(mounted);
        }
    }
    Ok(inheriting)
}

/// Makes mounts follow the properties of their file systems; returns the outermost ones of those
/// that cannot.
fn not_followed(open: &Open, table: &mut MountTable, names: &BTreeSet<String>) -> BTreeSet<String> {
    let follow = |mount: &mut DatasetMount| -> Option<()> {
        let view = open.view().ok()?;
        let opened = |(name, temporary)| Ok((view.datasets().open(name)?, temporary));
        let all = mount.asked().map(opened).collect::<Result<Vec<_>, DatasetError>>().ok()?;
        let ((outermost, _), others) = all.split_first()?;
        open.mounter().follow(mount, (outermost, others)).ok()
    };
    let behind = table.of_datasets_mut(names).filter_map(|mount| match follow(mount) {
        Some(()) => None,
        None => Some(mount.dataset.clone()),
    });
    behind.collect()
}
