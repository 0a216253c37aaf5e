//! The source of a file system: a set of objects, read-only or live.

use crate::error::ZplError;
use crate::node::{Attributes, Node};
use crate::options::FileSystemOptions;
use crate::quota::{QuotaOwner, QuotaUnit};
use crate::sync::Arc;
use rzfs_dmu::ObjectSource;
use rzfs_dsl::live::SpaceUse;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::sa::Schema;
use rzfs_zap::Zap;
use std::ops::Deref;

/// The object set of a file system, and its cached files.
pub trait Source {
    /// The set.
    type Objset: ObjectSource;
    /// A file that does not change while it is accessed.
    type File: Deref<Target = Node<<Self::Objset as ObjectSource>::Object>>;
    /// The names in a directory.
    type Names<'a>: Deref<Target = Zap<<Self::Objset as ObjectSource>::Object>>
    where
        Self: 'a;

    /// The set.
    fn objset(&self) -> &Self::Objset;

    /// Reads a current option.
    fn option<R>(&self, ask: impl FnOnce(&FileSystemOptions) -> R) -> R;

    /// The registry and the layouts of the system attributes.
    fn schema(&self) -> Arc<Schema>;

    /// Accesses a file, which does not change meanwhile: `look` must not access another one.
    fn with_file<R>(
        &self,
        id: ObjectId,
        look: impl FnOnce(&Self::File) -> Result<R, ZplError>,
    ) -> Result<R, ZplError>;

    /// The kind of a file, which never changes: does not wait for writers of the file.
    fn kind(&self, id: ObjectId) -> Result<FileKind, ZplError>;

    /// An extended attribute directory, or a file in one, of the accessed file.
    fn xattr_part(&self, id: ObjectId) -> Result<Self::File, ZplError>;

    /// The names in a directory.
    fn names<'a>(&'a self, directory: &'a Self::File) -> Result<Self::Names<'a>, ZplError>;

    /// The attributes shown by `stat`.
    fn attributes(&self, file: &Self::File) -> Result<Attributes, ZplError>;

    /// Opens those of these files that are not cached, with one read for all. Errors are left to
    /// later accesses.
    fn prefetch(&self, ids: &[ObjectId]);

    /// Space as `statfs` shows it.
    fn space(&self) -> SpaceUse;

    /// The quota of a user, group or project; `None` without one.
    fn quota(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<Option<u64>, ZplError>;

    /// The usage of a user, group or project on disk.
    fn usage(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<u64, ZplError>;
}
