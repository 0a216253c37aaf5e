//! Extended attributes: from the system attribute and from the directory (spec 05, section 8).

use crate::directory::dangling_at;
use crate::error::ZplError;
use crate::file_system::FileSystem;
use crate::options::{AclType, FileSystemOptions, XattrUse};
use crate::source::Source;
use rzfs_dmu::SourceObject;
use rzfs_format::FormatError;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::xattr::{Namespace, stored_names, visible_name};
use rzfs_format::znode::FileFlags;
use std::collections::BTreeSet;

/// Maximum length of a value: what Linux can pass to a process.
pub(crate) const MAX_VALUE: u64 = 64 << 10;
/// Maximum number of names in a listing; more would be too long for Linux.
const MAX_NAMES: usize = 64 << 10;

/// The attributes a file system supports, by its properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supported {
    /// Property `acltype`.
    pub(crate) acls: AclType,
    /// Property `xattr`.
    pub(crate) users: XattrUse,
}

impl Supported {
    /// Whether attributes of a namespace are supported.
    pub(crate) fn includes(self, namespace: Option<Namespace>) -> bool {
        match namespace {
            None => false,
            Some(Namespace::User) => self.users == XattrUse::On,
            Some(Namespace::PosixAcl) => self.acls == AclType::Posix,
            Some(Namespace::Trusted | Namespace::Security) => true,
        }
    }
}

/// Adds the full name of a stored attribute, if it is visible to users.
fn add_visible(supported: Supported, stored: &[u8], names: &mut BTreeSet<Vec<u8>>) {
    if let Some(name) = visible_name(stored).filter(|name| supported.includes(Namespace::of(name)))
    {
        names.insert(name.into_owned());
    }
}

impl<S: Source> FileSystem<S> {
    /// The value of an extended attribute, by its full name.
    ///
    /// # Errors
    /// The file has no such attribute, ZFS does not store attributes of its namespace, or the
    /// attributes are damaged.
    pub fn xattr(&self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>, ZplError> {
        self.source.with_file(object, |file| {
            let place = file.place();
            if !self.supported_xattrs().includes(Namespace::of(name)) {
                return Err(ZplError::XattrNamespace { place });
            }
            for stored in stored_names(name) {
                if let Some(value) = self.stored_xattr(file, stored)? {
                    return Ok(value);
                }
            }
            Err(ZplError::NoXattr { place })
        })
    }

    /// The full names of a file's extended attributes, sorted.
    ///
    /// # Errors
    /// The attributes are damaged.
    pub fn xattr_names(&self, object: ObjectId) -> Result<Vec<Vec<u8>>, ZplError> {
        let supported = self.supported_xattrs();
        let mut names = BTreeSet::new();
        self.source.with_file(object, |file| {
            for (stored, _) in file.xattr_list(&self.source.schema())?.iter() {
                add_visible(supported, stored, &mut names);
            }
            let Some(directory) = self.xattr_directory(file)? else { return Ok(()) };
            for entry in self.source.names(&directory)?.entries() {
                let entry = entry.map_err(|source| directory.place().zap_failure(source))?;
                add_visible(supported, entry.name(), &mut names);
                if names.len() > MAX_NAMES {
                    let problem = FormatError::invalid("xattr directory", "too many entries");
                    return Err(directory.corrupt(problem));
                }
            }
            Ok(())
        })?;
        Ok(names.into_iter().collect())
    }

    pub(crate) fn supported_xattrs(&self) -> Supported {
        let supported = |options: &FileSystemOptions| Supported {
            acls: options.acl_type,
            users: options.xattrs,
        };
        self.source.option(supported)
    }

    /// The value of the attribute stored under exactly this name.
    pub(crate) fn stored_xattr(
        &self,
        file: &S::File,
        stored: &[u8],
    ) -> Result<Option<Vec<u8>>, ZplError> {
        if let Some(value) = file.xattr_list(&self.source.schema())?.get(stored) {
            return Ok(Some(value.to_vec()));
        }
        let Some(directory) = self.xattr_directory(file)? else { return Ok(None) };
        let Some(value) = self.xattr_file(&directory, stored)? else { return Ok(None) };
        let size = value.znode().size;
        if size > MAX_VALUE {
            return Err(value.corrupt(FormatError::invalid("xattr", "it is too long")));
        }
        Ok(Some(value.object().bytes_at(0, size as usize)?.to_vec()))
    }

    /// The directory of a file's extended attributes.
    pub(crate) fn xattr_directory(&self, file: &S::File) -> Result<Option<S::File>, ZplError> {
        let Some(id) = file.xattr_directory(&self.source.schema())? else { return Ok(None) };
        let directory = self.source.xattr_part(id)?;
        if directory.znode().is_directory() && directory.znode().flags.contains(FileFlags::XATTR) {
            return Ok(Some(directory));
        }
        Err(directory.corrupt(FormatError::invalid("xattr directory", "it is not marked as one")))
    }

    /// The file of the attribute stored under exactly this name.
    pub(crate) fn xattr_file(
        &self,
        directory: &S::File,
        stored: &[u8],
    ) -> Result<Option<S::File>, ZplError> {
        let Some(entry) = self.entry(directory, stored)? else { return Ok(None) };
        let file = self.source.xattr_part(entry.object);
        let file = file.map_err(|source| dangling_at(directory.place(), entry.object, source))?;
        let problem = if !file.znode().flags.contains(FileFlags::XATTR) {
            "its file is not marked as one"
        } else if file.znode().kind != FileKind::Regular {
            "it is no regular file"
        } else {
            return Ok(Some(file));
        };
        Err(file.corrupt(FormatError::invalid("xattr", problem)))
    }
}
