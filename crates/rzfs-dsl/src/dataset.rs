//! The datasets of a pool: file systems, volumes, snapshots and clones by name.
//!
//! ```text
//! directory "pool"  ── head ──> dataset ── previous ──> snapshot ── previous ──> ... $ORIGIN
//!   └─ children ZAP: "home" ──> directory ── head ──> dataset ...
//! ```
//! A directory has the name and the properties; its head dataset and the snapshots before it have
//! the contents (spec 04, sections 1 to 3). A [`Dataset`] is one head or one snapshot together
//! with its directory.

mod ancestry;
mod bookmark;
mod counters;
mod error;
mod hold;
mod keyring;
mod keys;
pub(crate) mod limits;
mod name;
pub mod property;
mod readers;
mod root_key;
mod surroundings;
mod written;

pub use bookmark::Bookmark;
pub use counters::{ObjsetCounters, ObjsetStats};
pub use error::DatasetError;
pub use hold::Hold;
pub use keys::{KeyStatus, SealedKeys};
pub use name::DatasetName;
pub use rzfs_format::property::DatasetKind;

use crate::mos::error::MosError;
use crate::mos::extensible::field;
use crate::mos::names;
use crate::mos::record::record_of;
use crate::mos::resume;
pub(crate) use keyring::{Keyring, NewKeys};
use limits::MAX_DEPTH;
pub use readers::KeptSnapshot;
pub(crate) use readers::{Readers, SnapshotIdentity};
pub use root_key::{DEFAULT_ITERATIONS, MIN_ITERATIONS, RootKey, is_key_location};
use rzfs_codec::crypto::DatasetKey;
use rzfs_dmu::{Existence, Object, Objset};
use rzfs_format::block_pointer::BlockPointer;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::objset::ObjsetType;
use rzfs_format::{FormatError, Guid, ObjectId, ObjsetId, Txg};
use rzfs_stream::ResumeToken;
use std::collections::BTreeSet;
use std::sync::Arc;
pub(crate) use surroundings::{SharedState, UsableSpace};

/// All datasets of a pool.
///
/// A handle: cheap to clone and share. Loaded keys are shared too.
#[derive(Clone, Debug)]
pub struct DatasetTree {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    mos: Objset,
    pool: String,
    root: ObjectId,
    usable_space: UsableSpace,
    surroundings: SharedState,
}

impl DatasetTree {
    /// The datasets of the pool called `pool`, with root directory `root`; `usable_space` returns
    /// the bytes that its vdevs have for datasets, used or not.
    #[must_use]
    pub fn new(
        mos: Objset,
        pool: String,
        root: ObjectId,
        usable_space: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let usable_space = UsableSpace::new(usable_space);
        Self::within(mos, (pool, root), usable_space, SharedState::default())
    }

    /// The same, sharing keys and snapshot lifetimes with other users of the pool.
    pub(crate) fn within(
        mos: Objset,
        (pool, root): (String, ObjectId),
        usable_space: UsableSpace,
        surroundings: SharedState,
    ) -> Self {
        Self { inner: Arc::new(Inner { mos, pool, root, usable_space, surroundings }) }
    }

    /// Bytes in the pool for datasets, used or not (spec 04, section 12.5).
    #[must_use]
    pub fn usable_space(&self) -> u64 {
        self.inner.usable_space.get()
    }

    /// The meta object set.
    #[must_use]
    pub fn mos(&self) -> &Objset {
        &self.inner.mos
    }

    pub(crate) fn keyring(&self) -> &Arc<Keyring> {
        &self.inner.surroundings.keyring
    }

    /// The root file system.
    pub fn root(&self) -> Result<Dataset, DatasetError> {
        self.head(self.inner.pool.clone(), self.inner.root)
    }

    /// The dataset with this name.
    ///
    /// # Errors
    /// [`DatasetError::NotFound`] when there is none, or the name is not a valid dataset name.
    pub fn open(&self, name: &str) -> Result<Dataset, DatasetError> {
        let not_found = || DatasetError::NotFound { name: name.to_owned() };
        let parsed = DatasetName::parse(name).ok_or_else(not_found)?;
        let mut components = parsed.directories();
        if components.next() != Some(self.inner.pool.as_str()) {
            return Err(not_found());
        }
        let mut directory = self.inner.root;
        for component in components {
            let parent = self.directory(directory)?;
            let child = names::child(&self.inner.mos, parent.dir.children, component)?;
            directory = child.ok_or_else(not_found)?;
            self.checked_child(parent.object.id(), directory)?;
        }
        let head = self.head(parsed.head().to_owned(), directory)?;
        match parsed.snapshot() {
            None => Ok(head),
            Some(snapshot) => head.snapshot(snapshot)?.ok_or_else(not_found),
        }
    }

    /// The head or snapshot with this object number in the MOS.
    pub fn by_object(&self, object: ObjectId) -> Result<Dataset, DatasetError> {
        let (_, dataset) = self.dataset_object(object)?;
        let name = self.directory_name(dataset.dir)?;
        let head = self.head(name, dataset.dir)?;
        if head.object == object {
            return Ok(head);
        }
        let snapshots = head.snapshots()?;
        let missing =
            || self.corrupt(object, FormatError::invalid("DSL dataset", "no name leads to it"));
        snapshots.into_iter().find(|snapshot| snapshot.object == object).ok_or_else(missing)
    }

    /// The full name of a directory, found by walking up to the root.
    pub fn directory_name(&self, directory: ObjectId) -> Result<String, DatasetError> {
        let mut components = Vec::new();
        let mut current = self.directory(directory)?;
        while let Some(parent) = current.dir.parent {
            if components.len() == MAX_DEPTH {
                let problem = FormatError::invalid("DSL directory", "the tree is too deep");
                return Err(self.corrupt(directory, problem));
            }
            let parent = self.directory(parent)?;
            components.push(self.name_of_child(&parent, current.object.id())?);
            current = parent;
        }
        let mut name = self.inner.pool.clone();
        for component in components.iter().rev() {
            name.push('/');
            name.push_str(component);
        }
        Ok(name)
    }

    fn name_of_child(&self, parent: &Directory, child: ObjectId) -> Result<String, DatasetError> {
        for (name, object) in self.checked_names(parent.dir.children)? {
            if object == child {
                return Ok(name);
            }
        }
        Err(self
            .corrupt(child, FormatError::invalid("DSL directory", "its parent does not know it")))
    }

    fn corrupt(&self, object: ObjectId, source: FormatError) -> DatasetError {
        MosError::Corrupt { object, source }.into()
    }

    fn directory(&self, id: ObjectId) -> Result<Directory, DatasetError> {
        let object = self.inner.mos.object(id)?;
        Ok(Directory { dir: record_of(&object)?, object })
    }

    fn dataset_object(&self, id: ObjectId) -> Result<(Object, DslDataset), DatasetError> {
        let object = self.inner.mos.object(id)?;
        let dataset = record_of(&object)?;
        Ok((object, dataset))
    }

    /// The head dataset of a directory.
    fn head(&self, name: String, directory: ObjectId) -> Result<Dataset, DatasetError> {
        let directory = self.directory(directory)?;
        let place = (directory.object.id(), &directory.dir);
        let Some((head, dataset)) = names::head(&self.inner.mos, place)? else {
            return Err(DatasetError::NotFound { name });
        };
        Ok(Dataset { tree: self.clone(), name, directory, object: head, dataset })
    }

    fn checked_child(&self, parent: ObjectId, child: ObjectId) -> Result<(), DatasetError> {
        if self.directory(child)?.dir.parent == Some(parent) {
            return Ok(());
        }
        let problem = FormatError::invalid("DSL directory", "its parent is another directory");
        Err(self.corrupt(child, problem))
    }

    /// The names of directories or snapshots. Invalid names are refused, since paths are built from
    /// them.
    fn checked_names(
        &self,
        zap: Option<ObjectId>,
    ) -> Result<Vec<(String, ObjectId)>, DatasetError> {
        let names = names::all(&self.inner.mos, zap)?;
        names.iter().try_for_each(|(name, object)| check_name(name, *object))?;
        Ok(names)
    }

    /// The directory `$ORIGIN`; datasets whose origin is its snapshot are not clones.
    fn origin_directory(&self) -> Result<Option<ObjectId>, DatasetError> {
        let root = self.directory(self.inner.root)?;
        Ok(names::child(&self.inner.mos, root.dir.children, "$ORIGIN")?)
    }
}

/// Refuses the name of a directory or snapshot that no dataset can have, as paths are made of it.
fn check_name(name: &str, object: ObjectId) -> Result<(), DatasetError> {
    // What ZFS calls `$...` is its own and in no path.
    match name::is_component(name.strip_prefix('$').unwrap_or(name)) {
        true => Ok(()),
        false => Err(DatasetError::ImpossibleName { name: name.to_owned(), object }),
    }
}

/// A directory with its object.
#[derive(Clone, Debug)]
struct Directory {
    object: Object,
    dir: DslDir,
}

/// A file system, volume or snapshot.
#[derive(Clone, Debug)]
pub struct Dataset {
    tree: DatasetTree,
    name: String,
    directory: Directory,
    object: ObjectId,
    dataset: DslDataset,
}

impl Dataset {
    /// The full name: `pool/a/b`, `pool/a/b@snapshot`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of its dataset object in the MOS, which is also the number of its objset.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// The number of its directory object in the MOS.
    #[must_use]
    pub fn directory_object(&self) -> ObjectId {
        self.directory.object.id()
    }

    /// The tree it belongs to.
    #[must_use]
    pub fn tree(&self) -> &DatasetTree {
        &self.tree
    }

    /// The stored record of its directory.
    #[must_use]
    pub fn dsl_dir(&self) -> &DslDir {
        &self.directory.dir
    }

    /// The stored record of the dataset itself.
    #[must_use]
    pub fn dsl_dataset(&self) -> &DslDataset {
        &self.dataset
    }

    /// Whether it is a snapshot.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.dataset.is_snapshot()
    }

    /// Whether it is being received, or a receive of it did not finish: it is neither mounted nor
    /// changed.
    #[must_use]
    pub const fn is_inconsistent(&self) -> bool {
        self.dataset.is_inconsistent()
    }

    /// Its kind; reads its objset.
    pub fn kind(&self) -> Result<DatasetKind, DatasetError> {
        if self.is_snapshot() {
            return Ok(DatasetKind::Snapshot);
        }
        Ok(match self.open_locked()?.objset_type() {
            ObjsetType::Zvol => DatasetKind::Volume,
            _ => DatasetKind::FileSystem,
        })
    }

    /// The file systems and volumes right below it, by name. Snapshots have none.
    pub fn children(&self) -> Result<Vec<Dataset>, DatasetError> {
        if self.is_snapshot() {
            return Ok(Vec::new());
        }
        let mut names = self.tree.checked_names(self.directory.dir.children)?;
        names.retain(|(name, _)| !name.starts_with(['$', '%']));
        names.sort();
        let mut children = Vec::with_capacity(names.len());
        for (name, directory) in names {
            self.tree.checked_child(self.directory_object(), directory)?;
            children.push(self.tree.head(format!("{}/{name}", self.name), directory)?);
        }
        Ok(children)
    }

    /// The dataset of an unfinished receive into this one, in progress or interrupted.
    pub fn received_into(&self) -> Result<Option<Dataset>, DatasetError> {
        let name = "%recv";
        let child = names::child(self.tree.mos(), self.directory.dir.children, name)?;
        let Some(directory) = child.filter(|_| !self.is_snapshot()) else { return Ok(None) };
        self.tree.checked_child(self.directory_object(), directory)?;
        self.tree.head(format!("{}/{name}", self.name), directory).map(Some)
    }

    /// This dataset and everything below it except snapshots, parents before children, by name. A
    /// directory with several names is visited once.
    pub fn descendants(&self) -> Result<Vec<Dataset>, DatasetError> {
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        let mut pending = vec![(0, self.clone())];
        while let Some((depth, dataset)) = pending.pop() {
            if depth == MAX_DEPTH {
                let problem = FormatError::invalid("DSL directory", "the tree is too deep");
                return Err(self.tree.corrupt(dataset.directory_object(), problem));
            }
            let is_first = seen.insert(dataset.directory_object());
            let children = if is_first { dataset.children()? } else { Vec::new() };
            pending.extend(children.into_iter().rev().map(|child| (depth + 1, child)));
            found.push(dataset);
        }
        Ok(found)
    }

    /// Its snapshots, oldest first. Snapshots have none.
    pub fn snapshots(&self) -> Result<Vec<Dataset>, DatasetError> {
        let mut snapshots = Vec::new();
        for (name, object) in self.tree.checked_names(self.dataset.snapshot_names)? {
            snapshots.push(self.snapshot_object(&name, object)?);
        }
        snapshots.sort_by(|a, b| {
            let key = |snapshot: &Self| snapshot.dataset.creation_txg;
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        Ok(snapshots)
    }

    /// The txg in which a name among its snapshots was changed last; 0 for a dataset that has no
    /// list of them.
    pub fn snapshot_names_changed(&self) -> Result<Txg, DatasetError> {
        let Some(names) = self.dataset.snapshot_names else { return Ok(Txg(0)) };
        let object = self.tree.mos().object(names)?;
        let births = object.dnode().pointers.iter().map(BlockPointer::logical_birth);
        Ok(births.max().unwrap_or(Txg(0)))
    }

    /// Its snapshot with this name (the part after the `@`).
    pub fn snapshot(&self, name: &str) -> Result<Option<Dataset>, DatasetError> {
        let found = names::snapshot(self.tree.mos(), &self.dataset, name)?;
        let Some((name, object)) = found else { return Ok(None) };
        check_name(&name, object)?;
        self.snapshot_object(&name, object).map(Some)
    }

    fn snapshot_object(&self, name: &str, object: ObjectId) -> Result<Dataset, DatasetError> {
        let (_, dataset) = self.tree.dataset_object(object)?;
        if !dataset.is_snapshot() || dataset.dir != self.directory_object() {
            let problem = FormatError::invalid("DSL dataset", "it is not a snapshot of its head");
            return Err(self.tree.corrupt(object, problem));
        }
        Ok(Dataset {
            tree: self.tree.clone(),
            name: format!("{}@{name}", self.name),
            directory: self.directory.clone(),
            object,
            dataset,
        })
    }

    /// The head that this is a snapshot of; a head returns itself.
    pub fn head(&self) -> Result<Dataset, DatasetError> {
        let name = self.name.split('@').next().unwrap_or_default();
        self.tree.head(name.to_owned(), self.directory_object())
    }

    /// The snapshot it was cloned from; `None` when it is not a clone.
    pub fn origin(&self) -> Result<Option<Dataset>, DatasetError> {
        let Some(origin) = self.directory.dir.origin else { return Ok(None) };
        let (_, dataset) = self.tree.dataset_object(origin)?;
        if Some(dataset.dir) == self.tree.origin_directory()? {
            return Ok(None);
        }
        self.tree.by_object(origin).map(Some)
    }

    /// The contents.
    ///
    /// # Errors
    /// [`DatasetError::KeyNotLoaded`] when it is encrypted and its key is not loaded.
    pub fn open_objset(&self) -> Result<Objset, DatasetError> {
        self.open_with(self.loaded_key()?)
    }

    /// Fails when a receive into it has not finished: it must not be used.
    ///
    /// # Errors
    /// [`DatasetError::Inconsistent`].
    pub fn require_consistent(&self) -> Result<(), DatasetError> {
        if self.is_inconsistent() {
            return Err(DatasetError::Inconsistent { name: self.name.clone() });
        }
        Ok(())
    }

    /// Whether an unfinished receive into it can be resumed (spec 08, section 8.1).
    pub fn is_resumable(&self) -> Result<bool, DatasetError> {
        Ok(resume::is_there(self.tree.mos(), self.object)?)
    }

    /// The token that resumes the receive into it or beside it; `None` when there is nothing to
    /// resume, or the stored state cannot be decoded.
    pub fn resume_token(&self) -> Result<Option<ResumeToken>, DatasetError> {
        let mos = self.tree.mos();
        if self.is_snapshot() {
            return Ok(None);
        }
        let object = match resume::is_there(mos, self.object)? {
            true => Some(self.object),
            false => self.received_into()?.map(|received| received.object),
        };
        match object.map(|object| resume::read(mos, object)).transpose() {
            Ok(token) => Ok(token.flatten()),
            Err(error @ MosError::Entry { .. }) => {
                tracing::warn!(%error, dataset = self.name, "nothing can be resumed");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The contents as far as no key is needed: encrypted blocks stay unreadable.
    pub fn open_locked(&self) -> Result<Objset, DatasetError> {
        self.open_with(None)
    }

    fn open_with(&self, key: Option<Arc<DatasetKey>>) -> Result<Objset, DatasetError> {
        let (id, root) = (ObjsetId(self.object.0), &self.dataset.root);
        let existence = match self.is_snapshot() {
            true => self.tree.inner.surroundings.view.enter(self.snapshot_identity()),
            false => Existence::default(),
        };
        Ok(Objset::open_while(self.tree.mos().pipeline(), id, root, key, existence)?)
    }

    /// Protects this snapshot from destruction, unless that has begun; no effect on other datasets.
    #[must_use]
    pub fn keep(&self) -> KeptSnapshot {
        self.tree.inner.surroundings.view.keep(self.snapshot_identity())
    }

    fn snapshot_identity(&self) -> SnapshotIdentity {
        SnapshotIdentity::of(self.object, &self.dataset)
    }

    /// A field of its directory's ZAP, like `com.joyent:snapshot_count`; `None` when the
    /// directory has no such field.
    pub fn directory_field(&self, name: &str) -> Result<Option<u64>, DatasetError> {
        Ok(field(self.tree.mos(), self.directory_object(), name)?)
    }

    /// Guids of the snapshots whose blocks a redacted send left out of this dataset; `None` when
    /// it was not received from one.
    pub fn redaction_snapshots(&self) -> Result<Option<Vec<Guid>>, DatasetError> {
        let (object, _) = self.tree.dataset_object(self.object)?;
        if !object.object_type().is_zap() {
            return Ok(None);
        }
        let guids = object.zap()?.lookup("com.delphix:redacted_datasets");
        let guids = guids.map_err(|source| object.zap_error(source))?;
        Ok(guids.map(|guids| guids.integers().map(Guid).collect()))
    }

    /// A field of its dataset's ZAP, like `com.delphix:bookmarks`; `None` when the dataset has no
    /// such field.
    pub fn dataset_field(&self, name: &str) -> Result<Option<u64>, DatasetError> {
        Ok(field(self.tree.mos(), self.object, name)?)
    }
}
