//! NFSv4 access control lists in logs (spec 05, sections 7.2 and 10.5). OpenZFS writes them on
//! systems with such lists, which Linux is not.

use super::super::access_list::AccessList;
use super::super::admission::DNODE_BYTES;
use super::super::change::Touch;
use super::super::file_system::LiveFileSystem;
use crate::error::ZplError;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::ObjectId;
use rzfs_format::acl::mode_of;
use rzfs_format::zil::AclRecord;
use rzfs_format::znode::FileFlags;

/// Set-user-id, set-group-id and sticky, which lists do not contain.
const SPECIAL_BITS: u32 = 0o7000;

impl LiveFileSystem {
    /// The list in a record about a file, or about a new file in it.
    pub(super) fn logged_list(
        &self,
        object: ObjectId,
        record: &AclRecord<'_>,
    ) -> Result<AccessList, ZplError> {
        let place = self.place(object);
        let entries = record.local_list();
        let entries = entries.map_err(|source| ZplError::Corrupt { place, source })?;
        let what = "an access control list with users of another domain";
        let entries = entries.ok_or(ZplError::Unsupported { place, what })?;
        Ok(AccessList { entries, flags: FileFlags(record.flags) })
    }

    /// Sets the list of a file, and the mode that follows from it.
    pub(super) fn replay_list(
        &self,
        object: ObjectId,
        record: &AclRecord<'_>,
    ) -> Result<(), ZplError> {
        let list = self.logged_list(object, record)?;
        let node = self.node(object)?;
        let mut state = node.write();
        let znode = state.znode();
        let kind = znode.kind;
        let permissions = znode.mode & SPECIAL_BITS | mode_of(&list.entries, znode.uid, znode.gid);
        let changed = self.prepare(&state, |values, schema| {
            values.set_list(schema, kind, permissions, &list);
            self.touch(values, schema, Touch::Attributes);
        })?;
        let object = state.object().clone();
        let tx = self.begin(&[&object], SpaceDemand::Takes(DNODE_BYTES))?;
        changed.apply(&tx, &mut state)
    }
}
