//! What a ZAP of properties says about one of them (spec 04, sections 13.1 to 13.3).
//!
//! ```text
//! P          its own value
//! P$iuv      its own value, where software that does not know that one finds another under P
//! P$recvd    the value that a send stream brought, in force where there is none of its own
//! P$inherit  there is: that the value of the directory above is in force
//! ```

use super::MosSource;
use super::live::MosTx;
use crate::live::LiveError;
use rzfs_format::ObjectId;
use rzfs_format::property::DatasetProperty;
use rzfs_zap::ZapValue;
use std::collections::{BTreeMap, BTreeSet};

/// The mark of a ZAP of which a send stream has said what is in it.
const HAS_RECEIVED: &str = "$hasrecvd";

/// Most bytes of a name in a ZAP.
const MAX_NAME: usize = 255;

/// Whose properties a ZAP has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    Directory,
    Snapshot,
}

/// What a ZAP says about a property.
#[derive(Debug, Default)]
pub(crate) struct StoredValue {
    own: Option<ZapValue>,
    pub(crate) received: Option<ZapValue>,
    hides_received: bool,
}

/// What a file system or volume stores for its properties, with the marks of where they come from.
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

    /// What is stored under a name: a property's, with `$recvd` behind it for what a stream has brought.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&ZapValue> {
        self.0.get(name)
    }

    /// All of it, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ZapValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }
}

/// Which of the values of a property is in force.
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

    /// Whether it has a value of its own.
    pub(crate) const fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether a value that a stream brought is in force, or would be.
    pub(crate) const fn lets_received(&self) -> bool {
        self.own.is_none() && !self.hides_received
    }

    /// The value in force here; `None` where that of the directory above is.
    pub(crate) fn in_force(&self) -> Option<(&ZapValue, Origin)> {
        let received = self.received.as_ref().filter(|_| !self.hides_received);
        let own = self.own.as_ref().map(|value| (value, Origin::Own));
        own.or_else(|| received.map(|value| (value, Origin::Received)))
    }
}

/// Gives a property a value of its own; `shown`: what older software is to find in its place.
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

/// What takes the place of a property's own value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fallback {
    /// The value of the directory above, even if there is a received one.
    Parent,
    /// The same in pools that do not tell received values from others.
    ParentInOldPool,
    /// The received value, if there is one.
    Received,
}

/// Takes a property's own value away.
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
        // No stream can have brought a value whose name is so long.
        Fallback::Parent if has_received(mos, zap)? && hidden.len() <= MAX_NAME => {
            mos.set(zap, hidden.as_str(), 0_u64)
        }
        Fallback::Parent | Fallback::ParentInOldPool => Ok(()),
        Fallback::Received => mos.remove(zap, hidden.as_str()).map(drop),
    }
}

/// Whether a stream has said what a ZAP's properties are: it may have values that streams brought.
pub(crate) fn has_received<M: MosSource>(mos: &M, zap: ObjectId) -> Result<bool, M::Error> {
    mos.with_zap(zap, |open| Ok(open.lookup(HAS_RECEIVED)?.is_some()))
}

/// Gives a property the value that a stream brings.
pub(crate) fn receive(
    mos: &MosTx<'_>,
    zap: ObjectId,
    property: &str,
    value: &ZapValue,
) -> Result<(), LiveError> {
    note_received(mos, zap)?;
    mos.set(zap, format!("{property}$recvd").as_str(), value.clone())
}

/// Takes away what streams have brought, but for these properties; and where no stream has brought
/// anything, all values.
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
            // Where the key is says nothing but what is so here.
            (_, false) => name != DatasetProperty::KeyLocation.stored_name(),
        };
        if goes {
            mos.remove(zap, name)?;
        }
    }
    note_received(mos, zap)
}

/// Notes that streams say what a ZAP's properties are, even if they have brought none: its own values stay
/// from then on, whatever comes.
pub(crate) fn note_received(mos: &MosTx<'_>, zap: ObjectId) -> Result<(), LiveError> {
    mos.set(zap, HAS_RECEIVED, 0_u64)
}

/// Takes a change of a ZAP back, but for what others have changed since.
pub(crate) fn take_back(
    mos: &MosTx<'_>,
    zap: ObjectId,
    (before, after): (&StoredProperties, &StoredProperties),
) -> Result<(), LiveError> {
    let now = StoredProperties::read(mos, zap)?;
    let keys: BTreeSet<_> = before.iter().chain(after.iter()).map(|(key, _)| key).collect();
    for key in keys {
        // The key may have another place by now.
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

/// The keys that say the same of a property as this one: what somebody sets changes all of them.
fn set_together(key: &str) -> Vec<String> {
    if key.ends_with("$recvd") {
        return vec![key.to_owned()];
    }
    let own = ["$iuv", "$inherit"].iter().find_map(|suffix| key.strip_suffix(suffix));
    ["", "$iuv", "$inherit"].map(|suffix| format!("{}{suffix}", own.unwrap_or(key))).into()
}
