//! A file system as seen by a mount: read-only or live.

use crate::entry::{DirCookie, DirEntry, NameTarget};
use crate::error::{Place, ZplError};
use crate::file_system::FileSystem;
use crate::live::LiveFileSystem;
use crate::master::MasterNode;
use crate::node::Attributes;
use crate::options::AclType;
use crate::space::Statistics;
use crate::sync::Arc;
use bytes::Bytes;
use rzfs_format::znode::FileFlags;
use rzfs_format::{ObjectId, ObjsetId};
use std::ops::ControlFlow;

/// A file system of either kind, for readers. Results and errors are documented at the methods of
/// the same names of [`FileSystem`] and [`LiveFileSystem`].
#[derive(Clone, Debug)]
pub enum Files {
    /// Read-only: a snapshot, or a pool not imported for writing.
    Fixed(Arc<FileSystem>),
    /// Live.
    Live(Arc<LiveFileSystem>),
}

impl From<Arc<FileSystem>> for Files {
    fn from(fixed: Arc<FileSystem>) -> Self {
        Self::Fixed(fixed)
    }
}

impl From<Arc<LiveFileSystem>> for Files {
    fn from(live: Arc<LiveFileSystem>) -> Self {
        Self::Live(live)
    }
}

macro_rules! delegate {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => {
        impl Files {
            $($(#[$doc])*
            pub fn $name(&self, $($argument: $kind),*) -> $answer {
                match self {
                    Self::Fixed(fixed) => fixed.$name($($argument),*),
                    Self::Live(live) => live.$name($($argument),*),
                }
            })*
        }
    };
}

delegate! {
    /// The access control lists visible to users.
    #[must_use]
    fn acl_type() -> AclType;
    /// The master node.
    #[must_use]
    fn master() -> &MasterNode;
    /// The root directory.
    #[must_use]
    fn root() -> ObjectId;
    /// Whether its root has the directory `.zfs`.
    #[must_use]
    fn has_control_directory() -> bool;
    /// The attributes of a file.
    ///
    /// # Errors
    /// The number is not that of a file, or its attributes are damaged.
    fn attributes(object: ObjectId) -> Result<Attributes, ZplError>;
    /// Reads what [`Files::attributes`] of these files needs, all at once.
    fn prefetch_attributes(objects: &[ObjectId]) -> ();
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// The file is not a symbolic link, or is damaged.
    fn read_link(object: ObjectId) -> Result<Vec<u8>, ZplError>;
    /// The target of a name in a directory, including `.` and `..`.
    ///
    /// # Errors
    /// There is no such entry, the name is invalid, `directory` is not a directory, or the target
    /// cannot be opened.
    fn lookup(directory: ObjectId, name: &[u8]) -> Result<NameTarget, ZplError>;
    /// Checks that a file can be opened for reading.
    ///
    /// # Errors
    /// It is not a regular file, or is quarantined.
    fn open_for_reading(object: ObjectId) -> Result<(), ZplError>;
    /// The contents from `offset` on as parts of blocks, without a copy: `len` bytes, less at the
    /// end of the file and beyond 32 MiB.
    ///
    /// # Errors
    /// It is not a regular file, or a block cannot be read.
    fn read_segments(object: ObjectId, offset: u64, len: u64) -> Result<Vec<Bytes>, ZplError>;
    /// The first byte at or after `offset` that is not in a hole.
    ///
    /// # Errors
    /// ENXIO when the file ends before, or has nothing but holes from there on.
    fn seek_data(object: ObjectId, offset: u64) -> Result<u64, ZplError>;
    /// The first byte at or after `offset` that is in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// ENXIO when the file ends before.
    fn seek_hole(object: ObjectId, offset: u64) -> Result<u64, ZplError>;
    /// The value of an extended attribute, by its full name.
    ///
    /// # Errors
    /// The file has no such attribute, ZFS does not store attributes of its namespace, or the
    /// attributes are damaged.
    fn xattr(object: ObjectId, name: &[u8]) -> Result<Vec<u8>, ZplError>;
    /// The full names of a file's extended attributes, sorted.
    ///
    /// # Errors
    /// The attributes are damaged.
    fn xattr_names(object: ObjectId) -> Result<Vec<Vec<u8>>, ZplError>;
    /// Space and object counts.
    ///
    /// # Errors
    /// The file or its project's quota cannot be read.
    fn statistics(object: ObjectId) -> Result<Statistics, ZplError>;
}

impl Files {
    /// Passes the entries of a directory from a position on to `visit`, until it stops or there are
    /// no more. `visit` must not call back.
    ///
    /// # Errors
    /// `directory` is not a directory, or an entry cannot be read; those before it were visited.
    pub fn read_dir(
        &self,
        directory: ObjectId,
        from: DirCookie,
        visit: impl FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<(), ZplError> {
        match self {
            Self::Fixed(fixed) => fixed.read_dir(directory, from, visit),
            Self::Live(live) => live.read_dir(directory, from, visit),
        }
    }

    /// Checks that a number is still that of a linked file: for file handles, which outlive all
    /// other state.
    ///
    /// # Errors
    /// It is not, or the file is damaged.
    pub fn require_named(&self, object: ObjectId) -> Result<(), ZplError> {
        let attributes = self.attributes(object)?;
        if attributes.links == 0 || attributes.flags.contains(FileFlags::XATTR) {
            return Err(ZplError::NotFound { place: self.place(object) });
        }
        Ok(())
    }

    /// The object set of the file system.
    #[must_use]
    pub fn objset(&self) -> ObjsetId {
        self.place(self.root()).objset
    }

    /// The file system, if it is live.
    #[must_use]
    pub const fn live(&self) -> Option<&Arc<LiveFileSystem>> {
        match self {
            Self::Fixed(_) => None,
            Self::Live(live) => Some(live),
        }
    }

    pub(crate) fn place(&self, object: ObjectId) -> Place {
        match self {
            Self::Fixed(fixed) => fixed.place(object),
            Self::Live(live) => live.place(object),
        }
    }
}
