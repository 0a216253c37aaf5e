//! The quota tables, and usage as of the last synced group (spec 05, section 6.3).

use super::tables::Table;
use crate::error::ZplError;
use crate::master::MASTER_NODE;
use crate::quota::{QuotaOwner, QuotaUnit, entry_name, usage_key};
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

pub(super) const fn slot(owner: QuotaOwner, unit: QuotaUnit) -> usize {
    2 * index(owner) + matches!(unit, QuotaUnit::Objects) as usize
}

/// The owners to charge.
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

/// The quotas of a file system, and the usage.
#[derive(Debug)]
pub(super) struct Quotas {
    pub(super) limits: RwLock<Limits>,
    used: Mutex<Option<Used>>,
}

/// The quota tables.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) master: Table,
    pub(super) tables: [Option<Table>; 6],
}

/// The usage in one state on disk.
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
    pub(super) fn limit(
        &self,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<Option<u64>, ZplError> {
        let limits = self.limits.read();
        let Some(Some(table)) = limits.tables.get(slot(owner, unit)) else { return Ok(None) };
        Ok(table.number(&Fuid(id).accounting_key())?.filter(|limit| *limit != 0))
    }

    /// The usage of an owner, as far as it is on disk.
    pub(super) fn used(
        &self,
        objset: &LiveObjset,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<u64, ZplError> {
        loop {
            let synced = objset.synced();
            match self.used_as_of(&synced, owner, unit, id) {
                // It was replaced by a sync meanwhile, and its blocks may have been reused.
                Err(_) if *objset.synced().root() != *synced.root() => {}
                used => return used,
            }
        }
    }

    fn used_as_of(
        &self,
        synced: &Objset,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<u64, ZplError> {
        let mut used = self.used.lock();
        if used.as_ref().is_none_or(|used| used.root != *synced.root()) {
            *used = Some(Used::open(synced)?);
        }
        let zap = used.as_ref().and_then(|used| used.zaps.get(index(owner))?.as_ref());
        let Some(zap) = zap else { return Ok(0) };
        let value =
            zap.lookup(usage_key(unit, id)).map_err(|source| zap.blocks().zap_error(source))?;
        Ok(value.and_then(|value| value.first_u64()).unwrap_or(0))
    }

    /// Whether one owner has reached a limit.
    pub(super) fn is_owner_at_limit(
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

    /// Whether an owner has reached a limit.
    pub(super) fn is_used_up(
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
}
