//! The objects of a new file system (spec 05, section 1.4).

use super::salts::Salts;
use super::schema::SchemaTables;
use super::seed::{NodeSeed, keeps_projects};
use super::tables::Table;
use super::values::bonus_capacity;
use crate::error::{Place, ZplError};
use crate::master::{CASE, CaseSensitivity, MASTER_NODE, NORMALIZATION, UTF8_ONLY, VERSION};
use crate::object::FileObject;
use rzfs_dmu::live::{LiveObjset, NewObject, Transaction};
use rzfs_dsl::live::{ContentsError, NameLookup, NewContents};
use rzfs_format::dirent::FileKind;
use rzfs_format::fuid::Fuid;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::sa::Schema;
use rzfs_format::znode::{FileFlags, Timestamp, ZplVersion};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{NewZap, Normalization};

/// The numbers used by OpenZFS; nothing relies on them.
const SA_MASTER: ObjectId = ObjectId(32);
const DELETE_QUEUE: ObjectId = ObjectId(33);
const ROOT: ObjectId = ObjectId(34);
const ROOT_PERMISSIONS: u32 = 0o755;

/// The parameters of a new file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFileSystem {
    /// Property `casesensitivity`.
    pub case: CaseSensitivity,
    /// Property `normalization`; the case is that of [`NewFileSystem::case`].
    pub normalization: Normalization,
    /// Property `utf8only`; normalisation implies it.
    pub utf8_only: bool,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// The creation time.
    pub now: Timestamp,
    /// A random number, from which the salts of its tables are derived.
    pub seed: u64,
}

impl NewContents for NewFileSystem {
    fn objset_type(&self) -> ObjsetType {
        ObjsetType::Zfs
    }

    fn names(&self) -> NameLookup {
        match self.case {
            CaseSensitivity::Sensitive => NameLookup::CaseSensitive,
            CaseSensitivity::Insensitive | CaseSensitivity::Mixed => NameLookup::CaseInsensitive,
        }
    }

    fn populate(&self, objset: &LiveObjset, tx: &dyn Transaction) -> Result<(), ContentsError> {
        Ok(self.create(objset, tx)?)
    }
}

impl NewFileSystem {
    /// An ordinary one owned by the superuser.
    #[must_use]
    pub const fn new(now: Timestamp, seed: u64) -> Self {
        Self {
            case: CaseSensitivity::Sensitive,
            normalization: Normalization::NONE,
            utf8_only: false,
            uid: 0,
            gid: 0,
            now,
            seed,
        }
    }

    /// Creates the objects of a file system of version 5 in an empty set. Whether files have
    /// project ids depends on the flags of the set.
    ///
    /// # Errors
    /// The set already has objects or cannot be read.
    pub fn create(&self, objset: &LiveObjset, tx: &dyn Transaction) -> Result<(), ZplError> {
        let mut salts = Salts::new(self.seed);
        let place = Place { objset: objset.id(), object: MASTER_NODE };
        let kind = ObjectType::MASTER_NODE;
        let mut master = Table::create(objset, tx, kind, Some(MASTER_NODE), salts.next())?;
        if master.object().id() != MASTER_NODE {
            let source = FormatError::invalid("objset", "it has a master node already");
            return Err(ZplError::Corrupt { place, source });
        }
        let normalization = Normalization { fold_case: false, ..self.normalization };
        let utf8_only = self.utf8_only || !normalization.is_none();
        master.set(tx, UTF8_ONLY, u64::from(utf8_only))?;
        master.set(tx, NORMALIZATION, normalization.flags())?;
        master.set(tx, CASE, self.case.number())?;
        master.set(tx, VERSION, ZplVersion::SA.number())?;

        let kind = ObjectType::SA_MASTER_NODE;
        let sa_master = Table::create(objset, tx, kind, Some(SA_MASTER), salts.next())?;
        master.set(tx, "SA_ATTRS", sa_master.object().id().0)?;
        let kind = ObjectType::UNLINKED_SET;
        let queue = Table::create(objset, tx, kind, Some(DELETE_QUEUE), salts.next())?;
        master.set(tx, "DELETE_QUEUE", queue.object().id().0)?;

        let directories = self.case.normalization(normalization);
        let mut tables = SchemaTables::new(sa_master, salts.next());
        let root = self.create_root(objset, tx, &mut tables, &mut salts, directories)?;
        master.set(tx, "ROOT", root.0)
    }

    fn create_root(
        &self,
        objset: &LiveObjset,
        tx: &dyn Transaction,
        tables: &mut SchemaTables,
        salts: &mut Salts,
        normalization: Normalization,
    ) -> Result<ObjectId, ZplError> {
        let blank = NewObject {
            object_type: ObjectType::DIRECTORY_CONTENTS,
            data_block_size: super::tables::FIRST_BLOCK_SIZE,
            indirect_shift: super::tables::INDIRECT_SHIFT,
            bonus_type: ObjectType::SA,
            bonus: &[],
            slots: 1,
        };
        let object = match objset.claim(tx, ROOT, blank)? {
            Some(object) => object,
            None => objset.allocate(tx, blank)?,
        };
        let place = FileObject::place(&object);
        let corrupt = |source| ZplError::Corrupt { place, source };
        let mut schema = Schema::empty().map_err(corrupt)?;
        tables.register(objset, tx, &mut schema)?;
        let seed = NodeSeed {
            kind: FileKind::Directory,
            permissions: ROOT_PERMISSIONS,
            uid: Fuid::posix(self.uid),
            gid: Fuid::posix(self.gid),
            parent: object.id(),
            project: keeps_projects(objset).then_some(0),
            flags: FileFlags::default(),
            device: None,
            target: None,
            links: 2,
            now: self.now,
            logged: None,
        };
        let values = seed.values(&schema, tx.txg());
        let split = values.split(&schema.registry, bonus_capacity(1));
        let split = split.ok_or(ZplError::TooBig { place })?;
        tables.add_layout(objset, tx, &mut schema, &values.lists(split).0)?;
        let encoded = values.encode(&schema, split).map_err(corrupt)?;
        object.set_bonus(tx, ObjectType::SA, &encoded.bonus)?;
        let new = NewZap::new(salts.next()).normalization(normalization);
        object.create_zap(tx, &new).map_err(|source| object.zap_failure(source))?;
        Ok(object.id())
    }
}
