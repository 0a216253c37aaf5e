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
use rzfs_zap::ZapValue;

/// The mark of a ZAP with values that send streams brought.
const HAS_RECEIVED: &str = "$hasrecvd";

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
        Fallback::Parent if mos.lookup(zap, HAS_RECEIVED)?.is_some() => {
            mos.set(zap, hidden.as_str(), 0_u64)
        }
        Fallback::Parent | Fallback::ParentInOldPool => Ok(()),
        Fallback::Received => mos.remove(zap, hidden.as_str()).map(drop),
    }
}
