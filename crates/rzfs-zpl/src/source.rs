//! What a file system is read from: a set of objects that is only read, or one that changes.

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

/// The set of objects of a file system, and its files as far as they are known.
pub trait Source {
    /// The set.
    type Objset: ObjectSource;
    /// A file that does not change while somebody looks at it.
    type File: Deref<Target = Node<<Self::Objset as ObjectSource>::Object>>;
    /// The names in a directory.
    type Names<'a>: Deref<Target = Zap<<Self::Objset as ObjectSource>::Object>>
    where
        Self: 'a;

    /// The set.
    fn objset(&self) -> &Self::Objset;

    /// Asks for options as they are at this moment.
    fn option<R>(&self, ask: impl FnOnce(&FileSystemOptions) -> R) -> R;

    /// The registry and the layouts of the system attributes.
    fn schema(&self) -> Arc<Schema>;

    /// Looks at a file, which does not change meanwhile: `look` must not look at another one.
    fn with_file<R>(
        &self,
        id: ObjectId,
        look: impl FnOnce(&Self::File) -> Result<R, ZplError>,
    ) -> Result<R, ZplError>;

    /// The kind of a file, which never changes: nobody waits for those who change the file.
    fn kind(&self, id: ObjectId) -> Result<FileKind, ZplError>;

    /// A directory or a file of the extended attributes of a file that is being looked at.
    fn xattr_part(&self, id: ObjectId) -> Result<Self::File, ZplError>;

    /// The names in a directory.
    fn names<'a>(&'a self, directory: &'a Self::File) -> Result<Self::Names<'a>, ZplError>;

    /// What `stat` shows.
    fn attributes(&self, file: &Self::File) -> Result<Attributes, ZplError>;

    /// Opens those of these files that are not known, with one read for all. What cannot be
    /// opened is left to whoever asks for it.
    fn prefetch(&self, ids: &[ObjectId]);

    /// Space as `statfs` shows it.
    fn space(&self) -> SpaceUse;

    /// The quota of a user, group or project; `None` without one.
    fn quota(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<Option<u64>, ZplError>;

    /// What a user, group or project uses on disk.
    fn usage(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<u64, ZplError>;
}
