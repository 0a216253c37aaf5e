//! Quotas of users, groups and projects (spec 05, section 6.3).
//!
//! Usage is added up when a group is synced, so a quota can be exceeded by what a few groups write.

use super::admission::DNODE_BYTES;
use super::file_system::LiveFileSystem;
use super::quotas::{Charged, Limits, slot};
use super::tables::Table;
use crate::error::ZplError;
use crate::quota::{QuotaOwner, QuotaUnit, entry_name};
use rzfs_dsl::live::SpaceDemand;
use rzfs_format::fuid::Fuid;
use rzfs_format::object_type::ObjectType;

impl LiveFileSystem {
    /// Refuses further bytes for these owners.
    pub(super) fn check_bytes(&self, charged: &Charged) -> Result<(), ZplError> {
        if self.source.replay.is_on() {
            return Ok(());
        }
        if self.source.quotas.is_used_up(self.objset(), charged, QuotaUnit::Bytes)? {
            return Err(ZplError::Quota { objset: self.objset().id() });
        }
        Ok(())
    }

    /// Refuses further bytes or objects for these owners.
    pub(super) fn check_objects(&self, charged: &Charged) -> Result<(), ZplError> {
        self.check_bytes(charged)?;
        if !self.source.replay.is_on()
            && self.source.quotas.is_used_up(self.objset(), charged, QuotaUnit::Objects)?
        {
            return Err(ZplError::Quota { objset: self.objset().id() });
        }
        Ok(())
    }

    /// Refuses further usage of an owner.
    pub(super) fn check_owner(
        &self,
        owner: QuotaOwner,
        unit: QuotaUnit,
        id: u64,
    ) -> Result<(), ZplError> {
        if !self.source.replay.is_on()
            && self.source.quotas.is_owner_at_limit(self.objset(), owner, unit, id)?
        {
            return Err(ZplError::Quota { objset: self.objset().id() });
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
        self.source.quotas.limit(owner, unit, id)
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
        let mut limits = self.source.quotas.limits.write();
        let Limits { master, tables } = &mut *limits;
        let Some(table) = tables.get_mut(slot(owner, unit)) else { return Ok(()) };
        let key = Fuid(id).accounting_key();
        let objects = [Some(&*master), table.as_ref()];
        let objects: Vec<_> = objects.into_iter().flatten().map(Table::object).collect();
        let tx = self.begin_administration(&objects, SpaceDemand::Frees(DNODE_BYTES))?;
        let table = match (table, limit) {
            (Some(table), _) => table,
            (None, None) => return Ok(()),
            (empty, Some(_)) => {
                let kind = ObjectType::USERGROUP_QUOTA;
                let made = Table::create(self.objset(), &tx, kind, None, self.salt())?;
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
