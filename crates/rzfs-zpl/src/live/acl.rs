//! POSIX access control lists: their inheritance by new files, and their relation to modes (spec
//! 05, section 7.4).

use super::access_list::Inherited;
use super::file_system::LiveFileSystem;
use super::node::NodeState;
use crate::error::ZplError;
use crate::options::AclType;
use rzfs_format::FormatError;
use rzfs_format::acl::PosixAcl;
use rzfs_format::dirent::FileKind;

/// The attribute with the effective list.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the list inherited by new files in a directory.
pub(super) const DEFAULT: &[u8] = b"system.posix_acl_default";

impl LiveFileSystem {
    /// The permissions and lists of a new file created with `permissions`.
    pub(super) fn inherited_acl(
        &self,
        parent: &NodeState,
        kind: FileKind,
        permissions: u32,
        umask: u32,
    ) -> Result<Inherited, ZplError> {
        let mut inherited = Inherited { permissions, xattrs: Vec::new(), list: None };
        if kind == FileKind::Symlink {
            return Ok(inherited);
        }
        let default = match self.options().reading.acl_type {
            AclType::Posix => self.stored_xattr(parent, DEFAULT)?,
            AclType::Off | AclType::Nfsv4 => None,
        };
        let Some(default) = default else {
            inherited.permissions = permissions & !umask;
            return Ok(inherited);
        };
        let mut list = PosixAcl::decode(&default).map_err(|source| parent.corrupt(source))?;
        if kind == FileKind::Directory {
            inherited.xattrs.push((DEFAULT, default));
        }
        list.restrict_to_mode(permissions);
        inherited.permissions = permissions & !0o777 | list.mode();
        if list.is_extended() {
            inherited.xattrs.push((ACCESS, list.encode()));
        }
        Ok(inherited)
    }

    /// A list that a user wants a file to have.
    pub(super) fn parse_acl(&self, state: &NodeState, value: &[u8]) -> Result<PosixAcl, ZplError> {
        let list = PosixAcl::decode(value).and_then(|list| list.validate().map(|()| list));
        let place = state.place();
        list.map_err(|_: FormatError| ZplError::Invalid { place, problem: "no such list" })
    }

    /// The access list of a file after a change of its mode; `None` without a list.
    pub(super) fn acl_of_mode(
        &self,
        state: &NodeState,
        permissions: u32,
    ) -> Result<Option<Vec<u8>>, ZplError> {
        if self.options().reading.acl_type != AclType::Posix {
            return Ok(None);
        }
        let Some(value) = self.stored_xattr(state, ACCESS)? else { return Ok(None) };
        let mut list = PosixAcl::decode(&value).map_err(|source| state.corrupt(source))?;
        list.set_mode(permissions);
        Ok(Some(list.encode()))
    }
}
