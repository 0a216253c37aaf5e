//! Extended attributes of live files (spec 05, section 8).
//!
//! They are protected by the lock of their file, as is its extended attribute directory, which
//! holds those that do not fit in a system attribute.

use super::acl::{ACCESS, DEFAULT};
use super::admission::DNODE_BYTES;
use super::change::Touch;
use super::creation::SET_GROUP_ID;
use super::file_system::LiveFileSystem;
use super::node::NodeState;
use super::values::ModeChange;
use super::xattr_change::XattrChange;
use crate::error::ZplError;
use crate::xattr::MAX_VALUE;
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::xattr::{Namespace, stored_names};
use rzfs_format::znode::FileFlags;

/// Maximum length of an attribute name.
const MAX_NAME: usize = 255;

/// What happens to set-group-id when an access list determines the mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetGroupId {
    /// It stays.
    Kept,
    /// It is cleared: the caller is not in the file's group.
    Dropped,
}

/// Whether an attribute must exist when it is set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum XattrMode {
    /// It may or may not be.
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

impl LiveFileSystem {
    /// Refuses attributes that a file cannot have.
    fn check_xattr(&self, state: &NodeState, name: &[u8]) -> Result<(), ZplError> {
        let place = state.place();
        let namespace = Namespace::of(name);
        if !self.supported_xattrs().includes(namespace) {
            return Err(ZplError::XattrNamespace { place });
        }
        if name.len() > MAX_NAME {
            return Err(ZplError::NameTooLong { directory: place, length: name.len() });
        }
        let kind = state.znode().kind;
        let may_have_users = matches!(kind, FileKind::Regular | FileKind::Directory);
        let fixed = [FileFlags::IMMUTABLE, FileFlags::APPENDONLY];
        let is_fixed = fixed.into_iter().any(|flag| state.znode().flags.contains(flag));
        if is_fixed || namespace == Some(Namespace::User) && !may_have_users {
            return Err(ZplError::NotPermitted { place });
        }
        if namespace == Some(Namespace::PosixAcl) && kind == FileKind::Symlink {
            return Err(ZplError::XattrNamespace { place });
        }
        Ok(())
    }

    /// Clears the capabilities of a program, as Linux does on every change.
    pub(super) fn drop_capabilities(&self, state: &mut NodeState) -> Result<(), ZplError> {
        const CAPABILITIES: &[u8] = b"security.capability";
        let has_them = match state.has_capabilities.get() {
            Some(has_them) => *has_them,
            None => {
                // A program with damaged attributes never runs with additional capabilities.
                let found = self.has_xattr(state, CAPABILITIES).unwrap_or(false);
                *state.has_capabilities.get_or_init(|| found)
            }
        };
        if has_them {
            self.change_xattr(state, XattrChange::remove(CAPABILITIES), None)?;
        }
        Ok(())
    }

    fn has_xattr(&self, state: &NodeState, name: &[u8]) -> Result<bool, ZplError> {
        for stored in stored_names(name) {
            if self.stored_xattr(state, stored)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sets an extended attribute. An access control list also changes the mode.
    ///
    /// # Errors
    /// It exists or is missing against `mode`, the file cannot have such an attribute, the value is
    /// too long or not a list, a quota or the space is exceeded.
    pub fn set_xattr(
        &self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), ZplError> {
        let node = self.node(object)?;
        self.set_xattr_locked(&mut node.write(), name, value, (mode, SetGroupId::Kept))?;
        self.commit_always(object)
    }

    /// Sets the access list of a file, and its mode.
    ///
    /// # Errors
    /// As for [`LiveFileSystem::set_xattr`].
    pub fn set_access_list(
        &self,
        object: ObjectId,
        value: &[u8],
        mode: XattrMode,
        set_group_id: SetGroupId,
    ) -> Result<(), ZplError> {
        let node = self.node(object)?;
        self.set_xattr_locked(&mut node.write(), ACCESS, value, (mode, set_group_id))?;
        self.commit_always(object)
    }

    fn set_xattr_locked(
        &self,
        state: &mut NodeState,
        name: &[u8],
        value: &[u8],
        (mode, set_group_id): (XattrMode, SetGroupId),
    ) -> Result<(), ZplError> {
        let place = state.place();
        self.check_xattr(state, name)?;
        if value.len() as u64 > MAX_VALUE {
            return Err(ZplError::TooBig { place });
        }
        match (mode, self.has_xattr(state, name)?) {
            (XattrMode::Create, true) => return Err(ZplError::Exists { place }),
            (XattrMode::Replace, false) => return Err(ZplError::NoXattr { place }),
            _ => {}
        }
        match name {
            ACCESS | DEFAULT => self.set_acl(state, name, value, set_group_id),
            _ => self.change_xattr(state, XattrChange::set(name, value), None),
        }
    }

    fn set_acl(
        &self,
        state: &mut NodeState,
        name: &[u8],
        value: &[u8],
        set_group_id: SetGroupId,
    ) -> Result<(), ZplError> {
        let place = state.place();
        let list = self.parse_acl(state, value)?;
        let kept = match set_group_id {
            SetGroupId::Kept => 0o7000,
            SetGroupId::Dropped => 0o7000 & !SET_GROUP_ID,
        };
        if name == DEFAULT {
            if !state.znode().is_directory() {
                return Err(ZplError::NotPermitted { place });
            }
            return self.change_xattr(state, XattrChange::set(name, value), None);
        }
        let mode = ModeChange::Follows(state.znode().mode & kept | list.mode());
        if list.is_extended() {
            return self.change_xattr(state, XattrChange::set(name, value), Some(mode));
        }
        if self.has_xattr(state, name)? {
            return self.change_xattr(state, XattrChange::remove(name), Some(mode));
        }
        let kind = state.znode().kind;
        let changed = self.prepare(state, |values, schema| {
            self.touch(values, schema, Touch::Attributes);
            values.change_mode(schema, kind, mode);
        })?;
        let object = state.object().clone();
        let tx = self.begin(&[&object], SpaceDemand::Takes(DNODE_BYTES))?;
        changed.apply(&tx, state)?;
        self.log_mode(&tx, state);
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// The file has no such attribute, or is immutable.
    pub fn remove_xattr(&self, object: ObjectId, name: &[u8]) -> Result<(), ZplError> {
        let node = self.node(object)?;
        let mut state = node.write();
        self.check_xattr(&state, name)?;
        if !self.has_xattr(&state, name)? {
            return match Namespace::of(name) {
                // Removing a missing list is not an error.
                Some(Namespace::PosixAcl) => Ok(()),
                _ => Err(ZplError::NoXattr { place: state.place() }),
            };
        }
        self.change_xattr(&mut state, XattrChange::remove(name), None)?;
        drop(state);
        self.commit_always(object)
    }
}
