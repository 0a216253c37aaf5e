//! Quotas of users, groups and projects (spec 05, section 6.3).
//!
//! What somebody uses is added up when a group is synced, so a quota can be overrun by what a few
//! groups write.

use super::file_system::LiveFileSystem;
use super::options::SpaceDemand;
use super::tables::Table;
use crate::error::ZplError;
use crate::master::MASTER_NODE;
use crate::quota::{QuotaOwner, QuotaUnit, entry_name, usage_key};
use crate::space::ProjectQuota;
use crate::sync::{Mutex, RwLock};
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::{DmuError, Object, Objset};
use rzfs_format::fuid::Fuid;
use rzfs_format::object_type::ObjectType;
use rzfs_format::znode::Znode;
use rzfs_format::{BlockPointer, ObjectId};
use rzfs_zap::Zap;

const OWNERS: [QuotaOwner; 3] = [QuotaOwner::User, QuotaOwner::Group, QuotaOwner::Project];
const UNITS: [QuotaUnit; 2] = [QuotaUnit::Bytes, QuotaUnit::Objects];

const fn index(owner: QuotaOwner) -> usize {
    match owner {
        QuotaOwner::User => 0,
        QuotaOwner::Group => 1,
        QuotaOwner::Project => 2,
    }
}

const fn slot(owner: QuotaOwner, unit: QuotaUnit) -> usize {
    2 * index(owner) + matches!(unit, QuotaUnit::Objects) as usize
}

/// Who is to be charged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Charged {
    pub(super) uid: Fuid,
    pub(super) gid: Fuid,
    pub(super) project: u64,
}

impl Charged {
    /// The owners of a file.
    pub(super) const fn of(znode: &Znode) -> Self {
        Self { uid: znode.uid, gid: znode.gid, project: znode.project }
    }

    const fn id(&self, owner: QuotaOwner) -> u64 {
        match owner {
            QuotaOwner::User => self.uid.0,
            QuotaOwner::Group => self.gid.0,
            QuotaOwner::Project => self.project,
        }
    }
}

/// The quotas of a file system, and what is used.
#[derive(Debug)]
pub(super) struct Quotas {
    limits: RwLock<Limits>,
    used: Mutex<Option<Used>>,
}

#[derive(Debug)]
struct Limits {
    master: Table,
    tables: [Option<Table>; 6],
}

/// What is used, as of one state on disk.
#[derive(Debug)]
struct Used {
    root: BlockPointer,
    zaps: [Option<Zap<Object>>; 3],
}

impl Used {
    fn open(objset: &Objset) -> Result<Self, ZplError> {
        let mut zaps = [None, None, None];
        for (owner, zap) in OWNERS.into_iter().zip(&mut zaps) {
            *zap = match objset.object(owner.used()) {
                Ok(object) => Some(object.zap()?),
                Err(DmuError::NotAllocated { .. }) => None,
                Err(error) => return Err(error.into()),
            };
        }
        Ok(Self { root: *objset.root(), zaps })
    }
}

impl Quotas {
    pub(super) fn open(objset: &LiveObjset) -> Result<Self, ZplError> {
        let master = Table::open(objset, MASTER_NODE, ObjectType::MASTER_NODE)?;
        let mut tables = [const { None }; 6];
        for owner in OWNERS {
            for unit in UNITS {
                let id = master.number(entry_name(owner, unit))?.map(ObjectId);
                if let (Some(id), Some(table)) =
                    (id.and_then(ObjectId::non_zero), tables.get_mut(slot(owner, unit)))
                {
                    *table = Some(Table::open(objset, id, ObjectType::USERGROUP_QUOTA)?);
                }
            }
        }
        Ok(Self { limits: RwLock::new(Limits { master, tables }), used: Mutex::new(None) })
    }

    /// A quota; 0 counts as none.
    fn limit(&self, owner: QuotaOwner, unit: QuotaUnit, id: u64) -> Result<Option<u64>, ZplError> {
        let limits = self.limits.read();
        let Some(Some(table)) = limits.tables.get(slot(owner, unit)) else { return Ok(None) };
        Ok(table.number(&Fuid(id).accounting_key())?.filter(|limit| *limit != 0))
    }

    /// What somebody uses, as far as it is on disk.
    fn used(
        &self,
        objset: &LiveObjset,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<u64, ZplError> {
        let synced = objset.synced();
        let mut used = self.used.lock();
        if used.as_ref().is_none_or(|used| used.root != *synced.root()) {
            *used = Some(Used::open(&synced)?);
        }
        let zap = used.as_ref().and_then(|used| used.zaps.get(index(owner))?.as_ref());
        let Some(zap) = zap else { return Ok(0) };
        let value =
            zap.lookup(usage_key(unit, id)).map_err(|source| zap.blocks().zap_error(source))?;
        Ok(value.and_then(|value| value.first_u64()).unwrap_or(0))
    }

    /// Whether one owner may not have any more.
    fn is_owner_at_limit(
        &self,
        objset: &LiveObjset,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<bool, ZplError> {
        if owner == QuotaOwner::Project && id == 0 {
            return Ok(false);
        }
        match self.limit(owner, unit, id)? {
            Some(limit) => Ok(self.used(objset, owner, unit, id)? >= limit),
            None => Ok(false),
        }
    }

    /// Whether somebody may not have any more.
    fn is_used_up(
        &self,
        objset: &LiveObjset,
        charged: &Charged,
        unit: QuotaUnit,
    ) -> Result<bool, ZplError> {
        for owner in OWNERS {
            if self.is_owner_at_limit(objset, owner, unit, charged.id(owner))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A project's quotas and what it uses.
    pub(super) fn of_project(
        &self,
        objset: &LiveObjset,
        project: u64,
    ) -> Result<ProjectQuota, ZplError> {
        let of = |unit| match self.limit(QuotaOwner::Project, unit, project)? {
            Some(limit) => {
                let used = self.used(objset, QuotaOwner::Project, unit, project)?;
                Ok::<_, ZplError>(Some((limit, used)))
            }
            None => Ok(None),
        };
        Ok(ProjectQuota { bytes: of(QuotaUnit::Bytes)?, objects: of(QuotaUnit::Objects)? })
    }
}

impl LiveFileSystem {
    /// Refuses to let owners have more bytes.
    pub(super) fn check_bytes(&self, charged: &Charged) -> Result<(), ZplError> {
        if self.replay.is_on() {
            return Ok(());
        }
        if self.quotas.is_used_up(&self.objset, charged, QuotaUnit::Bytes)? {
            return Err(ZplError::Quota { objset: self.objset.id() });
        }
        Ok(())
    }

    /// Refuses to let owners have more bytes or objects.
    pub(super) fn check_objects(&self, charged: &Charged) -> Result<(), ZplError> {
        self.check_bytes(charged)?;
        if !self.replay.is_on()
            && self.quotas.is_used_up(&self.objset, charged, QuotaUnit::Objects)?
        {
            return Err(ZplError::Quota { objset: self.objset.id() });
        }
        Ok(())
    }

    /// Refuses to let an owner have more.
    pub(super) fn check_owner(
        &self,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<(), ZplError> {
        if !self.replay.is_on() && self.quotas.is_owner_at_limit(&self.objset, owner, unit, id)? {
            return Err(ZplError::Quota { objset: self.objset.id() });
        }
        Ok(())
    }

    /// The quota of a user, group or project.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn quota(
        &self,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<Option<u64>, ZplError> {
        self.quotas.limit(owner, unit, id)
    }

    /// Sets the quota of a user, group or project; `None` removes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn set_quota(
        &self,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
        limit: Option<u64>,
    ) -> Result<(), ZplError> {
        let mut limits = self.quotas.limits.write();
        let Limits { master, tables } = &mut *limits;
        let Some(table) = tables.get_mut(slot(owner, unit)) else { return Ok(()) };
        let key = Fuid(id).accounting_key();
        let objects = [Some(&*master), table.as_ref()];
        let objects: Vec<_> = objects.into_iter().flatten().map(Table::object).collect();
        let tx =
            self.begin_administration(&objects, SpaceDemand::Frees(super::change::DNODE_BYTES))?;
        let table = match (table, limit) {
            (Some(table), _) => table,
            (None, None) => return Ok(()),
            (empty, Some(_)) => {
                let kind = ObjectType::USERGROUP_QUOTA;
                let made = Table::create(&self.objset, &tx, kind, None, self.salt())?;
                master.set(&tx, entry_name(owner, unit), made.object().id().0)?;
                empty.insert(made)
            }
        };
        match limit {
            Some(limit) => table.set(&tx, &key, limit),
            None => table.remove(&tx, &key).map(|_| ()),
        }
    }
}
