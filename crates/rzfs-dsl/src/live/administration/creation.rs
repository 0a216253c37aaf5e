//! Creating datasets (spec 04, section 6).

use super::counts::{Counted, is_counted};
use super::place::{Place, check_new_name};
use super::property::PropertyChange;
use super::{NewEncryption, TaskContext, TaskError};
use crate::dataset::DatasetKind;
use crate::live::change_error::ChangeError;
use crate::live::datasets::creation::NewContents;
use crate::live::datasets::values::policy_of_dir;
use crate::live::space::limits::SpaceTier;
use crate::live::{LiveDataset, LiveError};
use crate::mos::extensible::check_fields;
use rzfs_format::objset::ObjsetType;
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::ZapValue;
use std::fmt;
use std::sync::Arc;

/// A dataset to create.
#[derive(Clone)]
pub struct NewDataset {
    /// What it holds.
    pub contents: Arc<dyn NewContents + Send + Sync>,
    /// Its own properties, in stored form.
    pub properties: Vec<(String, ZapValue)>,
    /// How it is encrypted.
    pub encryption: NewEncryption,
}

impl NewDataset {
    /// A dataset with the encryption of its parent.
    #[must_use]
    pub fn new(
        contents: Arc<dyn NewContents + Send + Sync>,
        properties: Vec<(String, ZapValue)>,
    ) -> Self {
        Self { contents, properties, encryption: NewEncryption::default() }
    }

    /// The same, with this encryption.
    #[must_use]
    pub fn encrypted(self, encryption: NewEncryption) -> Self {
        Self { encryption, ..self }
    }
}

impl fmt::Debug for NewDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewDataset").field("properties", &self.properties).finish_non_exhaustive()
    }
}

impl TaskContext<'_> {
    pub(crate) fn create_dataset(
        &mut self,
        name: &str,
        new: &NewDataset,
    ) -> Result<Arc<LiveDataset>, TaskError> {
        self.create_below(check_new_name(name)?, new)
    }

    /// The same for a valid name, split into its parts.
    pub(super) fn create_below(
        &mut self,
        (parent_name, last): (&str, &str),
        new: &NewDataset,
    ) -> Result<Arc<LiveDataset>, TaskError> {
        let name = &format!("{parent_name}/{last}");
        let kind = match new.contents.objset_type() {
            ObjsetType::Zvol => DatasetKind::Volume,
            _ => DatasetKind::FileSystem,
        };
        let changes = PropertyChange::of_new(kind, &new.properties)?;
        self.require_space(SpaceTier::Normal)?;
        let (parent, keys, origin) = self.check(|this| {
            let parent = this.parent_of_new(name, parent_name)?;
            if this.child_dir(parent.dir, last)?.is_some() {
                return Err(ChangeError::Exists { name: name.clone() }.into());
            }
            for change in &changes {
                this.check_new_value(parent.dir, change)?;
            }
            PropertyChange::check_limits(&changes, this.available(parent.dir)?)?;
            let keys = this.keys_of_new(parent.dir, &new.encryption)?;
            let origin = this.empty_origin()?;
            this.check_around_new(parent.dir, origin)?;
            Ok((parent, keys, origin))
        })?;
        let now = self.now();
        let dir = self.state.dirs.create(&self.mos, Some((parent.dir, last)), now)?;
        if is_counted(last) {
            self.add_to_counts(Some(parent.dir), Counted::FileSystems, 1)?;
        }
        let mut maker = self.maker();
        let head = maker.create_head(dir, origin, new.contents.names())?;
        let key_object = match &keys {
            Some(keys) => Some(maker.encrypt((dir, head), keys)?),
            None => None,
        };
        let place = Place { name: name.clone(), dir, head };
        self.start_counting_new(dir)?;
        self.log_dataset("create", (name, head), " ".to_owned())?;
        if let Some(root) = new.encryption.root.as_ref().filter(|_| keys.is_some()) {
            self.set_key_location(&place, Some(&root.location))?;
        }
        for change in &changes {
            self.change_property(&place, change)?;
        }
        let policy = policy_of_dir(&self.mos, &mut self.state.dirs, dir, self.pool.has_lz4)?;
        let mut maker = self.maker();
        let key = keys.as_ref().map(|keys| Arc::clone(&keys.key));
        let live = maker.create_objset((name, head), new.contents.as_ref(), policy, key)?;
        if let Some((keys, object)) = keys.zip(key_object) {
            self.pool.keyring.insert_new(dir, object, &keys);
        }
        self.state.changed.push(name.clone());
        Ok(self.pool.heads.insert(live))
    }

    /// Checks that everything around a new clone of `origin` in `parent` that it refers to, or is
    /// entered in, can be read.
    pub(super) fn check_around_new(
        &mut self,
        parent: ObjectId,
        origin: Option<ObjectId>,
    ) -> Result<(), TaskError> {
        let mos = self.mos;
        self.check_counts(parent)?;
        policy_of_dir(&mos, &mut self.state.dirs, parent, self.pool.has_lz4)?;
        let missing = || FormatError::invalid("DSL directory", "it has no map of children");
        let children = self.dir(parent)?.children.ok_or_else(missing);
        let mut tables = vec![Some(children.map_err(LiveError::corrupt(parent))?)];
        if let Some(id) = origin {
            let origin = self.dataset(id)?;
            tables.extend([origin.next_clones, self.clones_of(id)?]);
            check_fields(&mos, id)?;
            self.maker().keys_of_clone(&origin)?;
        }
        Ok(tables.into_iter().flatten().try_for_each(|table| mos.check_zap(table))?)
    }
}
