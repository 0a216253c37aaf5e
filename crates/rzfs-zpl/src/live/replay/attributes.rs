//! Changes of attributes in logs.

use super::super::attributes::{AttributeChange, FlagChange, TimeChange, settable};
use super::super::caller::Caller;
use super::super::file_system::LiveFileSystem;
use super::super::log::FLAG_BITS;
use super::super::xattr_change::XattrChange;
use crate::error::{Place, ZplError};
use rzfs_format::fuid::Fuid;
use rzfs_format::zil::{ExtendedAttributes, SetAttr, SetXattr};

/// The longest value that a record can set.
const MAX_VALUE: usize = 32768;

/// The flags that a record sets and clears. `OPAQUE` is never included: OpenZFS writes another
/// flag's value there.
pub(super) fn flag_changes(attributes: &ExtendedAttributes) -> FlagChange {
    let mut change = FlagChange::default();
    for (flag, bit) in FLAG_BITS {
        if !attributes.requested.has(bit) || !settable().contains(flag) {
            continue;
        }
        if attributes.values.has(bit) {
            change.set = change.set.with(flag);
        } else {
            change.clear = change.clear.with(flag);
        }
    }
    change
}

/// The POSIX id of an owner. Owners of other domains are only created on other systems.
pub(super) fn local_id(place: Place, id: Fuid) -> Result<u32, ZplError> {
    if id.domain() == 0 {
        return Ok(id.number());
    }
    Err(ZplError::Unsupported { place, what: "an owner of another domain" })
}

impl LiveFileSystem {
    /// Changes attributes.
    pub(super) fn replay_set_attributes(&self, record: &SetAttr<'_>) -> Result<(), ZplError> {
        let place = self.place(record.object);
        let has = |bit| record.mask & bit != 0;
        let id = |bit, id| has(bit).then(|| local_id(place, id)).transpose();
        let mut change = AttributeChange {
            permissions: has(SetAttr::MODE).then_some(record.mode as u32),
            uid: id(SetAttr::UID, record.uid)?,
            gid: id(SetAttr::GID, record.gid)?,
            size: has(SetAttr::SIZE).then_some(record.size),
            atime: has(SetAttr::ATIME).then_some(TimeChange::At(record.atime)),
            mtime: has(SetAttr::MTIME).then_some(TimeChange::At(record.mtime)),
            ..AttributeChange::default()
        };
        if let Some(attributes) = &record.attributes {
            let flags = flag_changes(attributes);
            change.flags = (flags != FlagChange::default()).then_some(flags);
            let problem = "no project has this id";
            let project = attributes.project.map(u32::try_from).transpose();
            change.project = project.map_err(|_| ZplError::Invalid { place, problem })?;
        }
        self.set_attributes(record.object, &change, Caller::SUPERUSER).map(drop)
    }

    /// Sets or removes an extended attribute. The mode of an access control list has its own
    /// record.
    pub(super) fn replay_set_xattr(&self, record: &SetXattr<'_>) -> Result<(), ZplError> {
        let node = self.node(record.object)?;
        let mut state = node.write();
        let change = match record.value {
            Some(value) if value.len() > MAX_VALUE => {
                return Err(ZplError::TooBig { place: state.place() });
            }
            Some(value) => XattrChange::set(record.name, value),
            None => XattrChange::remove(record.name),
        };
        self.change_xattr(&mut state, change, None)
    }
}
