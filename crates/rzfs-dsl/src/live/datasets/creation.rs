//! Creating datasets, and the first objects of a pool (spec 04, sections 1.3, 6 and 7; spec 01,
//! section 11.2).

use crate::dataset::NewKeys;

use crate::accounting::AccountingScope;
use crate::live::LiveError;
use crate::live::datasets::dir::Directories;
use crate::live::datasets::generation::Generation;
use crate::live::datasets::head::LiveDataset;
use crate::live::environment::Environment;
use crate::live::error::ContentsError;
use crate::mos::bpobj::{self, LIST_BLOCK};
use crate::mos::deadlist;
use crate::mos::error::MosError;
use crate::mos::extensible::{activate, zapify};
use crate::mos::features::Features;
use crate::mos::key_object;
use crate::mos::live::{INDIRECT_SHIFT, MosTx};
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY, number_key};
use rzfs_codec::crypto::DatasetKey;
use rzfs_dmu::live::{LiveObjset, NewObject, Transaction};
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_format::dsl::DslDataset;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::{ObjsetBlock, ObjsetType};
use rzfs_format::{FormatError, Guid, ObjectId, ObjsetId, Txg};
use rzfs_zap::{NewZap, Normalization};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The first txg of a pool; objects made in it are recorded as made in txg 1.
pub(crate) const FIRST_TXG: Txg = Txg(4);
const ORIGIN: &str = "$ORIGIN";
/// Bits of the fsid, a dataset's identity among open ones.
const FSID_MASK: u64 = (1 << 56) - 1;
/// Block size of the list of deferred frees, in bytes.
const DEFERRED_BLOCK: u32 = 16 << 10;

/// How file names are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameLookup {
    /// Exact match only.
    CaseSensitive,
    /// Also ignoring case.
    CaseInsensitive,
}

/// The contents of a new object set.
pub trait NewContents {
    /// Its type.
    fn objset_type(&self) -> ObjsetType;

    /// How names in it, and those of its snapshots, are looked up.
    fn names(&self) -> NameLookup {
        NameLookup::CaseSensitive
    }

    /// Creates the objects that every set of this type has.
    ///
    /// # Errors
    /// They cannot be created.
    fn populate(&self, objset: &LiveObjset, tx: &dyn Transaction) -> Result<(), ContentsError>;
}

/// Creates datasets.
pub(crate) struct Maker<'a> {
    pub(crate) mos: MosTx<'a>,
    pub(crate) dirs: &'a mut Directories,
    pub(crate) features: &'a mut Features,
    pub(crate) environment: &'a dyn Environment,
}

/// The objects of a new pool that others refer to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Foundation {
    pub(crate) root_dir: ObjectId,
    pub(crate) root_head: ObjectId,
    /// The directories charged for the MOS and for blocks to be freed.
    pub(crate) mos_dir: ObjectId,
    pub(crate) free_dir: ObjectId,
    /// The list of blocks of destroyed snapshots.
    pub(crate) free_list: ObjectId,
}

impl Maker<'_> {
    /// The recorded creation txg.
    fn creation_txg(&self) -> Txg {
        let txg = self.mos.tx().txg();
        if txg == FIRST_TXG { Txg(1) } else { txg }
    }

    /// Creates the directories and datasets that every pool has.
    pub(crate) fn create_foundation(&mut self, root: NameLookup) -> Result<Foundation, LiveError> {
        let mos = self.mos;
        let now = self.environment.now();
        let root_dir = self.dirs.create(&mos, None, now)?;
        mos.insert(DIRECTORY, "root_dataset", root_dir.get())?;
        let mos_dir = self.dirs.create(&mos, Some((root_dir, "$MOS")), now)?;
        let free_dir = self.dirs.create(&mos, Some((root_dir, "$FREE")), now)?;
        let free_list = bpobj::create(&mos, self.features.list_version(), LIST_BLOCK)?;
        mos.insert(DIRECTORY, "free_bpobj", free_list.get())?;
        let origin_dir = self.dirs.create(&mos, Some((root_dir, ORIGIN)), now)?;
        let origin_head = self.create_head(origin_dir, None, NameLookup::CaseSensitive)?;
        let origin = self.snapshot_origin(origin_head)?;
        let root_head = self.create_head(root_dir, Some(origin), root)?;
        Ok(Foundation { root_dir, root_head, mos_dir, free_dir, free_list })
    }

    /// Creates the list of deferred frees, uncompressed.
    pub(crate) fn create_deferred_list(&self) -> Result<ObjectId, LiveError> {
        let version = self.features.list_version();
        let id = bpobj::create(&self.mos, version, DEFERRED_BLOCK)?;
        self.mos.insert(DIRECTORY, "sync_bplist", id.get())?;
        Ok(id)
    }

    /// A new fsid and a new guid.
    pub(crate) fn identities(&self) -> (u64, Guid) {
        let fsid = std::iter::repeat_with(|| self.environment.random() & FSID_MASK);
        (fsid.into_iter().find(|fsid| *fsid != 0).unwrap_or(1), self.environment.guid())
    }

    /// Creates the head of a directory, without an object set.
    pub(crate) fn create_head(
        &mut self,
        dir: ObjectId,
        origin: Option<ObjectId>,
        names: NameLookup,
    ) -> Result<ObjectId, LiveError> {
        const TAKEN_OVER: u64 = DslDataset::FLAG_INCONSISTENT | DslDataset::FLAG_CASE_INSENSITIVE;
        let mos = self.mos;
        let (fsid, guid) = self.identities();
        let mut head = DslDataset {
            dir,
            creation_time: self.environment.now(),
            creation_txg: self.creation_txg(),
            fsid,
            guid,
            flags: match names {
                NameLookup::CaseSensitive => DslDataset::FLAG_UNIQUE_ACCURATE,
                NameLookup::CaseInsensitive => {
                    DslDataset::FLAG_UNIQUE_ACCURATE | DslDataset::FLAG_CASE_INSENSITIVE
                }
            },
            ..DslDataset::default()
        };
        let id = mos.create_record(ObjectType::DSL_DATASET, 512, &head)?;
        let new = NewZap::new(mos.random()).normalization(Normalization::FOLD_CASE);
        let names =
            mos.create_zap_with(ObjectType::DSL_DS_SNAP_MAP, ObjectType::NONE, &[], &new)?;
        head.snapshot_names = Some(names);
        match origin {
            None => head.deadlist = Some(deadlist::create(&mos, self.features)?),
            Some(origin) => {
                let mut from: DslDataset = mos.record(origin)?;
                head.previous_snapshot = Some(origin);
                head.previous_snapshot_txg = from.creation_txg;
                head.referenced = from.referenced;
                head.compressed = from.compressed;
                head.uncompressed = from.uncompressed;
                head.root = from.root;
                head.flags |= from.flags & TAKEN_OVER;
                head.deadlist = Some(self.clone_deadlist(&from)?);
                from.child_count += 1;
                self.add_clone(&mut from, id)?;
                mos.set_record(origin, &from)?;
                self.dirs.change(&mos, dir, |dir| dir.origin = Some(origin))?;
            }
        }
        mos.set_record(id, &head)?;
        self.dirs.change(&mos, dir, |dir| dir.head_dataset = Some(id))?;
        Ok(id)
    }

    /// The dead list of a clone.
    pub(crate) fn clone_deadlist(&mut self, origin: &DslDataset) -> Result<ObjectId, LiveError> {
        let keys = self.keys_of_clone(origin)?;
        deadlist::with_keys(&self.mos, self.features, &keys)
    }

    /// The keys of that: those of the dead list of its origin's head, as far as they are older;
    /// none where dead lists have no keys.
    pub(crate) fn keys_of_clone(
        &mut self,
        origin: &DslDataset,
    ) -> Result<BTreeSet<Txg>, LiveError> {
        let mos = self.mos;
        if !self.features.has_deadlists() {
            return Ok(BTreeSet::new());
        }
        let head = self.dirs.get(&mos, origin.dir)?.head_dataset;
        let list = match head {
            Some(head) => mos.record::<DslDataset>(head)?.deadlist,
            None => None,
        };
        let missing = || FormatError::invalid("DSL dataset", "it has no dead list");
        let list = list.ok_or_else(missing).map_err(LiveError::corrupt(origin.dir))?;
        deadlist::keys_behind(&mos, list, origin, origin.creation_txg)
    }

    /// Adds a clone to its origin and to the origin's directory.
    fn add_clone(&mut self, origin: &mut DslDataset, clone: ObjectId) -> Result<(), LiveError> {
        let mos = self.mos;
        let next_clones = match origin.next_clones {
            Some(zap) => zap,
            None => mos.create_zap(ObjectType::NEXT_CLONES)?,
        };
        origin.next_clones = Some(next_clones);
        mos.set(next_clones, &number_key(clone.get()), clone.get())?;
        if !self.features.has_deadlists() {
            // Directories of older pools do not list clones.
            return Ok(());
        }
        let clones = match self.dirs.get(&mos, origin.dir)?.clones {
            Some(zap) => zap,
            None => mos.create_zap(ObjectType::DSL_CLONES)?,
        };
        self.dirs.change(&mos, origin.dir, |dir| dir.clones = Some(clones))?;
        mos.set(clones, &number_key(clone.get()), clone.get())
    }

    /// Creates the key object of a new directory and its head, and returns it.
    pub(crate) fn encrypt(
        &mut self,
        (dir, head): (ObjectId, ObjectId),
        new: &NewKeys,
    ) -> Result<ObjectId, LiveError> {
        let mos = self.mos;
        let wrapped = new.key.wrap_anew(&new.root_key.wrapping, new.guid)?;
        let root = (new.root.unwrap_or(dir), &new.root_key);
        let object = key_object::create(&mos, &wrapped, root)?;
        zapify(&mos, self.features, dir)?;
        mos.insert(dir, key_object::KEY_OBJECT_FIELD, object.get())?;
        activate(&mos, self.features, head, Feature::Encryption)?;
        Ok(object)
    }

    /// Creates `$ORIGIN@$ORIGIN`, the empty snapshot from which all datasets descend.
    fn snapshot_origin(&mut self, head: ObjectId) -> Result<ObjectId, LiveError> {
        let mos = self.mos;
        let mut phys: DslDataset = mos.record(head)?;
        let (fsid, guid) = self.identities();
        let snapshot = DslDataset {
            next_snapshot: Some(head),
            snapshot_names: None,
            child_count: 1,
            fsid,
            guid,
            unique: 0,
            ..phys.clone()
        };
        let id = mos.create_record(ObjectType::DSL_DATASET, 512, &snapshot)?;
        let deadlist = deadlist::create(&mos, self.features)?;
        if self.features.has_deadlists() {
            deadlist::add_key(&mos, self.features, deadlist, phys.previous_snapshot_txg)?;
        }
        phys.deadlist = Some(deadlist);
        phys.previous_snapshot = Some(id);
        phys.previous_snapshot_txg = snapshot.creation_txg;
        mos.set_record(head, &phys)?;
        if let Some(names) = phys.snapshot_names {
            mos.insert(names, ORIGIN, id.get())?;
        }
        Ok(id)
    }

    /// Creates the object set of a new head, encrypted if there is a key.
    pub(crate) fn create_objset(
        &mut self,
        (name, head): (&str, ObjectId),
        contents: &dyn NewContents,
        policy: ObjsetPolicy,
        key: Option<Arc<DatasetKey>>,
    ) -> Result<LiveDataset, LiveError> {
        let mos = self.mos;
        let scope = self.accounting_scope(contents.objset_type());
        let flags = match scope {
            AccountingScope::Nothing => 0,
            AccountingScope::Space => ObjsetBlock::FLAG_USER_ACCOUNTING,
            AccountingScope::SpaceAndObjects => {
                ObjsetBlock::FLAG_USER_ACCOUNTING | ObjsetBlock::FLAG_OBJECT_ACCOUNTING
            }
            AccountingScope::WithProjects => {
                ObjsetBlock::FLAG_USER_ACCOUNTING
                    | ObjsetBlock::FLAG_OBJECT_ACCOUNTING
                    | ObjsetBlock::FLAG_PROJECT_QUOTA
            }
        };
        let pipeline = mos.objset().pipeline();
        let id = ObjsetId(head.get());
        let objset = LiveObjset::create(pipeline, id, (contents.objset_type(), flags), key);
        contents.populate(&objset, mos.tx()).map_err(LiveError::Contents)?;
        for (feature, flag) in [
            (Feature::UserObjAccounting, ObjsetBlock::FLAG_OBJECT_ACCOUNTING),
            (Feature::ProjectQuota, ObjsetBlock::FLAG_PROJECT_QUOTA),
        ] {
            if flags & flag != 0 {
                activate(&mos, self.features, head, feature)?;
            }
        }
        Ok(LiveDataset::new((name, head), Generation::new(objset, scope), policy))
    }

    fn accounting_scope(&self, objset_type: ObjsetType) -> AccountingScope {
        if objset_type != ObjsetType::Zfs {
            AccountingScope::Nothing
        } else if !self.features.is_enabled(Feature::UserObjAccounting) {
            AccountingScope::Space
        } else if !self.features.is_enabled(Feature::ProjectQuota) {
            AccountingScope::SpaceAndObjects
        } else {
            AccountingScope::WithProjects
        }
    }
}

/// The object directory of a new pool: object 1.
pub(crate) fn create_directory(mos: &MosTx<'_>) -> Result<(), LiveError> {
    let new = NewObject {
        object_type: ObjectType::OBJECT_DIRECTORY,
        data_block_size: 512,
        indirect_shift: INDIRECT_SHIFT,
        bonus_type: ObjectType::NONE,
        bonus: &[],
        slots: 1,
    };
    let taken = || FormatError::invalid("object directory", "its number is taken");
    let object = mos.objset().claim(mos.tx(), DIRECTORY, new)?;
    let object = object.ok_or_else(taken).map_err(LiveError::corrupt(DIRECTORY))?;
    let zap = NewZap::new(mos.random());
    object.create_zap(mos.tx(), &zap).map_err(MosError::zap(DIRECTORY))?;
    Ok(())
}
