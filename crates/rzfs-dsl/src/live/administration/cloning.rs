//! Cloning snapshots (spec 04, section 11.1).

use super::counts::{Counted, is_counted};
use super::destruction::Outcome;
use super::place::{Place, check_new_name};
use super::property::PropertyChange;
use super::snapshots::SnapshotPlace;
use super::{TaskContext, TaskError};
use crate::dataset::DatasetKind;
use crate::live::LiveDataset;
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::datasets::creation::NameLookup;
use crate::live::datasets::generation::Generation;
use crate::live::datasets::livelist;
use crate::live::datasets::values::policy_of_dir;
use crate::live::space::limits::SpaceTier;
use crate::mos::key_object;
use rzfs_codec::crypto::DatasetKey;
use rzfs_dmu::Objset;
use rzfs_dmu::live::Transaction;
use rzfs_format::dsl::DslDataset;
use rzfs_format::objset::ObjsetType;
use rzfs_format::zil::ZilHeader;
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_zap::ZapValue;
use std::sync::Arc;

/// A clone to create.
#[derive(Clone, Debug)]
pub struct NewClone {
    /// The snapshot to clone.
    pub origin: String,
    /// Its own properties, in stored form.
    pub properties: Vec<(String, ZapValue)>,
}

/// A checked clone.
struct Plan {
    parent: Place,
    origin: SnapshotPlace,
    snapshot: DslDataset,
    changes: Vec<PropertyChange>,
    /// The key object of its origin.
    key_object: Option<ObjectId>,
}

impl TaskContext<'_> {
    /// Creates a file system or volume with the contents of a snapshot; `key` is that of its
    /// blocks.
    pub(crate) fn clone_snapshot(
        &mut self,
        name: &str,
        new: &NewClone,
        key: Option<Arc<DatasetKey>>,
    ) -> Result<Outcome, TaskError> {
        self.clone_below(check_new_name(name)?, new, key)
    }

    /// The same for a valid name, split into its parts.
    pub(super) fn clone_below(
        &mut self,
        (parent, last): (&str, &str),
        new: &NewClone,
        key: Option<Arc<DatasetKey>>,
    ) -> Result<Outcome, TaskError> {
        let name = &format!("{parent}/{last}");
        self.require_space(SpaceTier::Normal)?;
        let Plan { parent, origin, snapshot, changes, key_object } =
            self.check(|this| this.check_clone(name, (parent, last), new))?;
        if snapshot.creation_txg == self.mos.tx().txg() {
            return Ok(Outcome::Later);
        }
        let (mos, now) = (self.mos, self.now());
        let dir = self.state.dirs.create(&mos, Some((parent.dir, last)), now)?;
        if is_counted(last) {
            self.add_to_counts(Some(parent.dir), Counted::FileSystems, 1)?;
        }
        // Name lookup is inherited from its origin.
        let names = NameLookup::CaseSensitive;
        let head = self.maker().create_head(dir, Some(origin.id), names)?;
        self.copy_features(origin.id, head)?;
        if let Some(object) = key_object {
            key_object::share(&mos, &mut self.state.features, object, dir)?;
        }
        livelist::create(&mos, &mut self.state.features, dir)?;
        self.start_counting_new(dir)?;
        let text = format!("origin={} ({})", origin.full_name(), origin.id);
        self.log_dataset("clone", (name, head), text)?;
        let place = Place { name: name.clone(), dir, head };
        for change in &changes {
            self.change_property(&place, change)?;
        }
        let pipeline = mos.objset().pipeline();
        let objset = Objset::open(pipeline, ObjsetId(head.get()), &snapshot.root, key);
        let contents = Generation::open(objset.map_err(LiveError::from)?);
        // The intent log belongs to the origin: the clone is written without one in this txg.
        contents.objset().set_log_header(mos.tx(), ZilHeader::default());
        let policy = policy_of_dir(&mos, &mut self.state.dirs, dir, self.pool.has_lz4)?;
        self.pool.heads.insert(LiveDataset::new((name, head), contents, policy));
        self.state.changed.push(name.clone());
        Ok(Outcome::Done)
    }

    fn check_clone(
        &mut self,
        name: &str,
        (parent, last): (&str, &str),
        new: &NewClone,
    ) -> Result<Plan, TaskError> {
        let mos = self.mos;
        let parent = self.parent_of_new(name, parent)?;
        if self.child_dir(parent.dir, last)?.is_some() {
            return Err(ChangeError::Exists { name: name.to_owned() }.into());
        }
        let origin = self.snapshot(&new.origin)?;
        let snapshot = self.dataset(origin.id)?;
        let pipeline = mos.objset().pipeline();
        let objset = Objset::open(pipeline, ObjsetId(origin.id.get()), &snapshot.root, None);
        let kind = match objset.map_err(LiveError::from)?.objset_type() {
            ObjsetType::Zvol => DatasetKind::Volume,
            _ => DatasetKind::FileSystem,
        };
        let changes = PropertyChange::of_new(kind, &new.properties)?;
        for change in &changes {
            self.check_new_value(parent.dir, change)?;
        }
        PropertyChange::check_limits(&changes, self.available(parent.dir)?)?;
        self.check_around_new(parent.dir, Some(origin.id))?;
        let key_object = key_object::of_dir(&mos, origin.of.dir)?;
        key_object.map_or(Ok(()), |object| key_object::references(&mos, object).map(drop))?;
        Ok(Plan { parent, origin, snapshot, changes, key_object })
    }
}
