//! Extended attributes: from the system attribute and from the directory (spec 05, section 8).

use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::node::Node;
use crate::options::{AclType, XattrUse};
use crate::sync::Arc;
use rzfs_format::FormatError;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::xattr::{Namespace, stored_names, visible_name};
use rzfs_format::znode::FileFlags;
use std::collections::BTreeSet;

/// Longest value: what Linux can hand to a process.
pub(crate) const MAX_VALUE: u64 = 64 << 10;
/// Names that a listing has at most; a listing of more would be too long for Linux.
pub(crate) const MAX_NAMES: usize = 64 << 10;

/// Which attributes a file system has, by its properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supported {
    /// Property `acltype`.
    pub(crate) acls: AclType,
    /// Property `xattr`.
    pub(crate) users: XattrUse,
}

impl Supported {
    /// Whether there are attributes of a namespace.
    pub(crate) fn includes(self, namespace: Option<Namespace>) -> bool {
        match namespace {
            None => false,
            Some(Namespace::User) => self.users == XattrUse::On,
            Some(Namespace::PosixAcl) => self.acls == AclType::Posix,
            Some(Namespace::Trusted | Namespace::Security) => true,
        }
    }
}

/// Adds the full name of a stored attribute, if users see it.
pub(crate) fn add_visible(supported: Supported, stored: &[u8], names: &mut BTreeSet<Vec<u8>>) {
    if let Some(name) = visible_name(stored).filter(|name| supported.includes(Namespace::of(name)))
    {
        names.insert(name.into_owned());
    }
}

impl FileSystem {
    /// The value of an extended attribute, by its full name.
    ///
    /// # Errors
    /// The file has no such attribute, ZFS does not store attributes of its namespace, or the
    /// attributes are damaged.
    pub fn xattr(&self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>, ZplError> {
        let node = self.node(object)?;
        if !self.supported().includes(Namespace::of(name)) {
            return Err(ZplError::XattrNamespace { place: node.place() });
        }
        for stored in stored_names(name) {
            if let Some(value) = self.stored_xattr(&node, stored)? {
                return Ok(value);
            }
        }
        Err(ZplError::NoXattr { place: node.place() })
    }

    /// The full names of a file's extended attributes, sorted.
    ///
    /// # Errors
    /// The attributes are damaged.
    pub fn xattr_names(&self, object: ObjectId) -> Result<Vec<Vec<u8>>, ZplError> {
        let node = self.node(object)?;
        let mut names = BTreeSet::new();
        for (stored, _) in node.xattr_list(&self.schema)?.iter() {
            add_visible(self.supported(), stored, &mut names);
        }
        if let Some(directory) = self.xattr_directory(&node)? {
            let zap = self.directory_zap(&directory)?;
            for entry in zap.entries() {
                let entry = entry.map_err(|source| directory.object().zap_error(source))?;
                add_visible(self.supported(), entry.name(), &mut names);
                if names.len() > MAX_NAMES {
                    let problem = FormatError::invalid("xattr directory", "too many entries");
                    return Err(directory.corrupt(problem));
                }
            }
        }
        Ok(names.into_iter().collect())
    }

    fn supported(&self) -> Supported {
        Supported { acls: self.options.acl_type, users: self.options.xattrs }
    }

    /// The value of the attribute that is stored under exactly this name.
    fn stored_xattr(&self, node: &Node, stored: &[u8]) -> Result<Option<Vec<u8>>, ZplError> {
        if let Some(value) = node.xattr_list(&self.schema)?.get(stored) {
            return Ok(Some(value.to_vec()));
        }
        let Some(directory) = self.xattr_directory(node)? else { return Ok(None) };
        let Some(entry) = self.lookup_entry(&directory, stored)? else { return Ok(None) };
        let value = self.node(entry.object)?;
        let problem = |problem| value.corrupt(FormatError::invalid("xattr", problem));
        if !value.znode().flags.contains(FileFlags::XATTR) {
            return Err(problem("its file is not marked as one"));
        }
        if !matches!(value.znode().kind, FileKind::Regular) {
            return Err(problem("it is no regular file"));
        }
        let size = value.znode().size;
        if size > MAX_VALUE {
            return Err(problem("it is too long"));
        }
        Ok(Some(value.object().read_bytes(0, size as usize)?.to_vec()))
    }

    /// The directory of a file's extended attributes.
    fn xattr_directory(&self, node: &Node) -> Result<Option<Arc<Node>>, ZplError> {
        let Some(id) = node.xattr_directory(&self.schema)? else { return Ok(None) };
        let directory = self.node(id)?;
        if directory.znode().is_directory() && directory.znode().flags.contains(FileFlags::XATTR) {
            return Ok(Some(directory));
        }
        Err(directory.corrupt(FormatError::invalid("xattr directory", "it is not marked as one")))
    }
}
