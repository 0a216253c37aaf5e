//! The properties and holds that a package brings (spec 08, section 9.7).
//!
//! They are untrusted: a property must be valid for the kind of dataset, and so must its value.
//! Others are reported, and do not make the receive fail.

use crate::protocol::{Pair, ReceiveRequest};
use rzfs::WritablePool;
use rzfs::setting::{DatasetSetting, Occasion, SettingError};
use rzfs::zap::ZapValue;
use rzfs_dsl::dataset::DatasetKind;
use rzfs_dsl::dataset::property::{DatasetProperty, Inheritance};
use rzfs_dsl::live::{ChangeError, EarlierValues, ReceivedProperties};
use rzfs_stream::{PackagedDataset, PackagedSnapshot, SentValue};
use std::fmt::Display;

/// Maximum number of rejected properties that are reported individually.
const MOST_WARNINGS: usize = 20;
/// Maximum number of hold tags that are taken over from a snapshot.
const MOST_HOLDS: usize = 1000;

/// The treatment of a dataset's properties in a receive.
#[derive(Debug, Default)]
pub(super) struct Brought {
    /// The received properties, if the package has any.
    pub(super) received: Option<ReceivedProperties>,
    /// Properties that are set only after the contents, which may exceed them.
    pub(super) delayed: Vec<(String, ZapValue)>,
    /// The user's properties for it.
    pub(super) own: Vec<Pair>,
    /// The rejected properties.
    pub(super) refused: Vec<(String, String)>,
}

impl Brought {
    /// Combines the metadata of a package with the user's properties.
    pub(super) fn new(
        told: Option<&PackagedDataset>,
        kind: DatasetKind,
        request: &ReceiveRequest,
        asked: Asked,
    ) -> Self {
        let mut brought = Self::default();
        let said = told.and_then(|told| told.properties.as_ref());
        let mut received = ReceivedProperties {
            earlier: match said {
                Some(_) => EarlierValues::Replaced,
                None => EarlierValues::Kept,
            },
            ..ReceivedProperties::default()
        };
        for (name, value) in said.into_iter().flatten() {
            let native = DatasetProperty::from_name(name);
            let is_left_out = request.excluded.contains(name) && !is_inherited(name);
            // The key location concerns encrypted streams.
            if is_left_out || native == Some(DatasetProperty::KeyLocation) {
                continue;
            }
            let values = match native {
                Some(DatasetProperty::RefQuota) => &mut brought.delayed,
                _ => &mut received.values,
            };
            match setting(name, value, kind) {
                Ok(setting) => values.push((setting.name, setting.value)),
                Err(error) => brought.refused.push((name.clone(), error.to_string())),
            }
        }
        let hidden = request.excluded.iter().filter(|name| is_inherited(name));
        received.hidden = hidden.cloned().collect();
        (brought.own, received.inherited) = asked_for(request, kind, asked);
        let says_something =
            said.is_some() || !received.hidden.is_empty() || !received.inherited.is_empty();
        brought.received = says_something.then_some(received);
        brought
    }
}

/// How a dataset gets the user's properties.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asked {
    /// It is the named target: they are its own.
    Own,
    /// It inherits them.
    Inherited,
    /// Nothing above has them: its own are those that it would inherit, except the mount point,
    /// which belongs to the named target.
    Apart,
}

/// The user's properties that a dataset gets as its own, and those that it inherits.
pub(super) fn asked_for(
    request: &ReceiveRequest,
    kind: DatasetKind,
    asked: Asked,
) -> (Vec<Pair>, Vec<String>) {
    let is_possible = |(name, word): &Pair| {
        let setting = DatasetSetting::parse(name, word, kind, Occasion::Change);
        !matches!(setting, Err(SettingError::NotApplicable(_)))
    };
    let is_own = |pair: &Pair| match asked {
        Asked::Own => true,
        Asked::Inherited => false,
        Asked::Apart => {
            let is_place = pair.0 == DatasetProperty::MountPoint.name();
            is_inherited(&pair.0) && !is_place && is_possible(pair)
        }
    };
    let (own, others): (Vec<_>, Vec<_>) = request.properties.iter().cloned().partition(is_own);
    let names = others.into_iter().map(|(name, _)| name);
    (own, names.filter(|name| is_inherited(name)).collect())
}

fn is_inherited(name: &str) -> bool {
    let native = DatasetProperty::from_name(name);
    native.is_none_or(|native| native.inheritance() == Inheritance::Inherited)
}

/// Parses a value from a stream.
fn setting(
    name: &str,
    value: &SentValue,
    kind: DatasetKind,
) -> Result<DatasetSetting, SettingError> {
    let wrong = |problem| SettingError::Value { name: name.to_owned(), problem };
    match value {
        SentValue::Number(number) if !name.contains(':') => {
            DatasetSetting::of_number(name, *number, kind)
        }
        SentValue::Number(_) => Err(wrong("must be a string")),
        SentValue::Text(text) => {
            let text = std::str::from_utf8(text).map_err(|_| wrong("must be text"))?;
            let native = DatasetProperty::from_name(name);
            if native.is_some_and(|native| !native.values().is_text()) {
                return Err(wrong("must be a number"));
            }
            let climbs = text.split('/').any(|part| matches!(part, "." | ".."));
            if native == Some(DatasetProperty::MountPoint) && climbs {
                return Err(SettingError::MountPoint(name.to_owned()));
            }
            DatasetSetting::parse(name, text, kind, Occasion::Change)
        }
    }
}

/// The messages for properties that a dataset rejects.
pub(super) fn warnings(of: &str, refused: Vec<(String, String)>) -> Vec<String> {
    let more = refused.len().saturating_sub(MOST_WARNINGS);
    let mut lines: Vec<_> = refused
        .into_iter()
        .take(MOST_WARNINGS)
        .map(|(name, reason)| match name.len() {
            0..=255 => plain(&format!("cannot receive {name} property on {of}: {reason}")),
            _ => format!("cannot receive a property on {of}: its name is too long"),
        })
        .collect();
    if more > 0 {
        lines.push(format!("{more} more properties could not be set"));
    }
    lines
}

/// Removes control characters for the terminal: parts of the line are untrusted.
fn plain(line: &str) -> String {
    line.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// The messages for rejections by the engine.
pub(super) fn engine_refused(refused: &[(String, ChangeError)]) -> Vec<(String, String)> {
    refused.iter().map(|(name, error)| (name.clone(), error.to_string())).collect()
}

/// Sets the properties that had to wait for the contents; returns the rejected ones.
pub(super) fn give_delayed(
    pool: &WritablePool,
    target: &str,
    values: Vec<(String, ZapValue)>,
) -> Vec<(String, String)> {
    let names: Vec<_> = values.iter().map(|(name, _)| name.clone()).collect();
    let received = ReceivedProperties { values, ..ReceivedProperties::default() };
    match pool.live().receive_properties(target, &received) {
        Ok(refused) => engine_refused(&refused),
        Err(error) => names.into_iter().map(|name| (name, error.to_string())).collect(),
    }
}

/// Applies a package's metadata to a snapshot; returns complaints.
pub(super) fn give_snapshot(
    pool: &WritablePool,
    snapshot: &str,
    told: &PackagedSnapshot,
    request: &ReceiveRequest,
) -> Vec<String> {
    let (mut values, mut refused) = (Vec::new(), Vec::new());
    for (name, value) in told.properties.iter().flatten() {
        match setting(name, value, DatasetKind::Snapshot) {
            Ok(setting) => values.push((setting.name, setting.value)),
            Err(error) => refused.push((name.clone(), error.to_string())),
        }
    }
    if !values.is_empty() {
        refused.extend(give_delayed(pool, snapshot, values));
    }
    let mut lines = warnings(snapshot, refused);
    let holds = told.holds.iter().flatten().filter(|_| !request.skip_holds);
    for (tag, _) in holds.take(MOST_HOLDS) {
        let cannot =
            |error: &dyn Display| plain(&format!("cannot hold snapshot '{snapshot}': {error}"));
        match pool.live().hold_snapshots(&[snapshot.to_owned()], tag) {
            Ok(()) => {}
            Err(ChangeError::Each(each)) => {
                lines.extend(each.iter().take(1).map(|(_, error)| cannot(error)));
            }
            Err(error) => lines.push(cannot(&error)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::nvlist::NvString;

    fn text(text: &str) -> SentValue {
        SentValue::Text(NvString::new(text).unwrap())
    }

    fn is_taken(name: &str, value: &SentValue) -> bool {
        setting(name, value, DatasetKind::FileSystem).is_ok()
    }

    #[test]
    fn only_what_a_dataset_can_have_is_taken_from_others() {
        for (name, value) in [
            ("compression", SentValue::Number(15)),
            ("quota", SentValue::Number(1 << 30)),
            ("canmount", SentValue::Number(2)),
            ("mountpoint", text("/srv/data")),
            ("mountpoint", text("none")),
            ("com.example:note", text("any words")),
        ] {
            assert!(is_taken(name, &value), "{name} {value:?}");
        }
        for (name, value) in [
            ("used", SentValue::Number(1)),
            ("guid", SentValue::Number(1)),
            ("encryption", SentValue::Number(8)),
            ("version", SentValue::Number(5)),
            ("volsize", SentValue::Number(1 << 30)),
            ("casesensitivity", SentValue::Number(1)),
            ("compression", SentValue::Number(99)),
            ("compression", text("lz4")),
            ("recordsize", SentValue::Number(3000)),
            ("mountpoint", SentValue::Number(1)),
            ("mountpoint", text("relative")),
            ("mountpoint", text("/srv/../etc")),
            ("com.example:note", SentValue::Number(1)),
            ("com.example:Note$recvd", text("x")),
            ("$hasrecvd", SentValue::Number(0)),
            ("nonsense", SentValue::Number(0)),
            ("userquota@0", SentValue::Number(1)),
            ("", text("")),
        ] {
            assert!(!is_taken(name, &value), "{name} {value:?}");
        }
    }

    #[test]
    fn no_package_fills_the_screen() {
        let refused = vec![("x".repeat(4000), "reason".to_owned()); 1000];
        let lines = warnings("tank/a", refused);
        let told = warnings("tank/a", vec![("\u{1b}[2J".to_owned(), "reason\n".to_owned())]);
        assert_eq!(told, ["cannot receive ?[2J property on tank/a: reason?"]);
        assert_eq!(lines.len(), MOST_WARNINGS + 1);
        assert!(lines.iter().all(|line| line.len() < 100), "{lines:?}");
        assert_eq!(lines[MOST_WARNINGS], "980 more properties could not be set");
    }
}
