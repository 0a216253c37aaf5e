//! The stored entries of a property in a ZAP (spec 04, sections 13.1 to 13.3).
//!
//! ```text
//! P          its own value
//! P$iuv      its own value, where software that does not know it finds another under P
//! P$recvd    the received value, in effect where there is no own value
//! P$inherit  if present: the value of the parent directory is in effect
//! ```

use super::MosSource;
use super::live::MosTx;
use crate::live::LiveError;
use rzfs_format::ObjectId;
use rzfs_format::property::DatasetProperty;
use rzfs_zap::ZapValue;
use std::collections::{BTreeMap, BTreeSet};

/// Marks a ZAP whose contents a send stream has set.
const HAS_RECEIVED: &str = "$hasrecvd";

/// Maximum length of a name in a ZAP in bytes.
const MAX_NAME: usize = 255;

/// The owner of the properties in a ZAP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Directory,
    Snapshot,
}

/// The stored entries of a property.
#[derive(Debug, Default)]
pub(crate) struct StoredValue {
    own: Option<ZapValue>,
    pub(crate) received: Option<ZapValue>,
    hides_received: bool,
}

/// The stored properties of a file system or volume, with the marks of their sources.
#[derive(Clone, Default, Debug)]
pub struct StoredProperties(BTreeMap<String, ZapValue>);

impl StoredProperties {
    /// Reads a ZAP.
    pub(crate) fn read<M: MosSource>(mos: &M, zap: ObjectId) -> Result<Self, M::Error> {
        let entries = mos.entries(zap)?.into_iter().filter_map(|entry| {
            let name = entry.key.as_name().and_then(|name| std::str::from_utf8(name).ok());
            name.map(str::to_owned).map(|name| (name, entry.value))
        });
        Ok(Self(entries.collect()))
    }

    /// The entry under a name: a property's, with suffix `$recvd` for the received value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ZapValue> {
        self.0.get(name)
    }

    /// All entries, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ZapValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// Which value of a property is in effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    Own,
    Received,
}

impl StoredValue {
    /// Looks a property up.
    pub(crate) fn read<M: MosSource>(
        mos: &M,
        (zap, owner): (ObjectId, Owner),
        property: &str,
    ) -> Result<Self, M::Error> {
        mos.with_zap(zap, |open| {
            let get = |suffix: &str| open.lookup(format!("{property}{suffix}"));
            let unknown = if owner == Owner::Directory { get("$iuv")? } else { None };
            Ok(Self {
                own: unknown.map_or_else(|| get(""), |value| Ok(Some(value)))?,
                received: get("$recvd")?,
                hides_received: get("$inherit")?.is_some(),
            })
        })
    }

    /// Whether it has its own value.
    pub(crate) const fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether a received value is in effect, or would be.
    pub(crate) const fn allows_received(&self) -> bool {
        self.own.is_none() && !self.hides_received
    }

    /// The value in effect here; `None` where the parent's is inherited.
    pub(crate) fn in_force(&self) -> Option<(&ZapValue, Origin)> {
        let received = self.received.as_ref().filter(|_| !self.hides_received);
        let own = self.own.as_ref().map(|value| (value, Origin::Own));
        own.or_else(|| received.map(|value| (value, Origin::Received)))
    }
}

/// Sets a property's own value; `shown`: the value for older software.
pub(crate) fn set(
    mos: &MosTx<'_>,
    zap: ObjectId,
    property: &str,
    (value, shown): (&ZapValue, Option<u64>),
) -> Result<(), LiveError> {
    let unknown = format!("{property}$iuv");
    mos.remove(zap, unknown.as_str())?;
    mos.remove(zap, format!("{property}$inherit").as_str())?;
    match shown {
        Some(shown) => {
            mos.set(zap, property, shown)?;
            mos.set(zap, unknown.as_str(), value.clone())
        }
        None => mos.set(zap, property, value.clone()),
    }
}

/// What replaces a property's own value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fallback {
    /// The value of the parent directory, even if there is a received one.
    Parent,
    /// The same in pools that do not distinguish received values.
    ParentInOldPool,
    /// The received value, if there is one.
    Received,
}

/// Removes a property's own value.
pub(crate) fn unset(
    mos: &MosTx<'_>,
    zap: ObjectId,
    property: &str,
    successor: Fallback,
) -> Result<(), LiveError> {
    let hidden = format!("{property}$inherit");
    mos.remove(zap, format!("{property}$iuv").as_str())?;
    mos.remove(zap, property)?;
    match successor {
        // A received value cannot have such a long name.
        Fallback::Parent if has_received(mos, zap)? && hidden.len() <= MAX_NAME => {
            mos.set(zap, hidden.as_str(), 0_u64)
        }
        Fallback::Parent | Fallback::ParentInOldPool => Ok(()),
        Fallback::Received => mos.remove(zap, hidden.as_str()).map(drop),
    }
}

/// Whether a stream has set the properties of a ZAP: it may have received values.
pub(crate) fn has_received<M: MosSource>(mos: &M, zap: ObjectId) -> Result<bool, M::Error> {
    mos.with_zap(zap, |open| Ok(open.lookup(HAS_RECEIVED)?.is_some()))
}

/// Sets the received value of a property.
pub(crate) fn receive(
    mos: &MosTx<'_>,
    zap: ObjectId,
    property: &str,
    value: &ZapValue,
) -> Result<(), LiveError> {
    note_received(mos, zap)?;
    mos.set(zap, format!("{property}$recvd").as_str(), value.clone())
}

/// Removes received values, except for these properties; if nothing was ever received, all values.
pub(crate) fn clear_received(
    mos: &MosTx<'_>,
    zap: ObjectId,
    stay: &BTreeSet<&str>,
) -> Result<(), LiveError> {
    let knows_received = has_received(mos, zap)?;
    for (name, _) in StoredProperties::read(mos, zap)?.iter() {
        let goes = match (name.strip_suffix("$recvd"), knows_received) {
            (Some(property), true) => !stay.contains(property),
            (None, true) => false,
            // The key location is never inherited from a stream.
            (_, false) => name != DatasetProperty::KeyLocation.stored_name(),
        };
        if goes {
            mos.remove(zap, name)?;
        }
    }
    note_received(mos, zap)
}

/// Marks a ZAP as set by streams, even if they brought no properties: its own values are kept from
/// then on, whatever is received.
pub(crate) fn note_received(mos: &MosTx<'_>, zap: ObjectId) -> Result<(), LiveError> {
    mos.set(zap, HAS_RECEIVED, 0_u64)
}

/// Reverts a change of a ZAP, except for what was changed since.
pub(crate) fn take_back(
    mos: &MosTx<'_>,
    zap: ObjectId,
    (before, after): (&StoredProperties, &StoredProperties),
) -> Result<(), LiveError> {
    let now = StoredProperties::read(mos, zap)?;
    let keys: BTreeSet<_> = before.iter().chain(after.iter()).map(|(key, _)| key).collect();
    for key in keys {
        // The key may have another location by now.
        let is_ours = key != DatasetProperty::KeyLocation.stored_name()
            && key != HAS_RECEIVED
            && before.get(key) != after.get(key)
            && set_together(key).iter().all(|key| now.get(key) == after.get(key));
        match before.get(key) {
            _ if !is_ours => {}
            Some(value) => mos.set(zap, key, value.clone())?,
            None => mos.remove(zap, key).map(drop)?,
        }
    }
    let left = StoredProperties::read(mos, zap)?;
    let needs_mark = |(key, _): (&str, _)| key.ends_with("$recvd") || key.ends_with("$inherit");
    if before.get(HAS_RECEIVED).is_none() && !left.iter().any(needs_mark) {
        mos.remove(zap, HAS_RECEIVED)?;
    }
    Ok(())
}

/// The keys of the same property: setting it changes all of them.
fn set_together(key: &str) -> Vec<String> {
    if key.ends_with("$recvd") {
        return vec![key.to_owned()];
    }
    let own = ["$iuv", "$inherit"].iter().find_map(|suffix| key.strip_suffix(suffix));
    ["", "$iuv", "$inherit"].map(|suffix| format!("{}{suffix}", own.unwrap_or(key))).into()
}
