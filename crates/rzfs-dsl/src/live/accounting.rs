//! Space and objects of users, groups and projects (spec 03, section 8).

use super::mos::INDIRECT_SHIFT;
use rzfs_dmu::DmuError;
use rzfs_dmu::live::{LiveObjset, NewObject, SyncTx};
use rzfs_format::ObjectId;
use rzfs_format::dnode::{Dnode, DnodeFlags};
use rzfs_format::object_type::ObjectType;
use rzfs_zap::{NewZap, ZapError};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What each object counts besides its blocks: its dnode.
const DNODE_BYTES: u64 = 512;

/// Who is charged for an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owners {
    /// The user.
    pub user: u64,
    /// The group.
    pub group: u64,
    /// The project.
    pub project: u64,
}

/// Tells whose an object is: the file system above, which knows what is in a bonus.
pub trait ObjectOwners: Send + Sync + fmt::Debug {
    /// The owners that a dnode's bonus names; `None` for objects that nobody is charged for.
    fn owners(&self, dnode: &Dnode) -> Option<Owners>;
}

/// What a set keeps accounts of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccountingScope {
    /// Nothing: volumes, and file systems of old pools.
    Nothing,
    /// Space of users and groups.
    Space,
    /// Also objects.
    SpaceAndObjects,
    /// Also those of projects.
    WithProjects,
}

impl AccountingScope {
    pub(crate) fn dnode_flags(self) -> DnodeFlags {
        DnodeFlags(match self {
            Self::Nothing => 0,
            Self::Space => DnodeFlags::USER_USED_ACCOUNTED,
            Self::SpaceAndObjects | Self::WithProjects => {
                DnodeFlags::USER_USED_ACCOUNTED | DnodeFlags::USER_OBJ_USED_ACCOUNTED
            }
        })
    }
}

/// What the objects of a txg change in a set's accounts.
#[derive(Debug)]
pub(crate) struct Accounting {
    scope: AccountingScope,
    owners: Option<Arc<dyn ObjectOwners>>,
    changes: [BTreeMap<String, i64>; 3],
}

/// The accounting objects, in the order of [`Accounting::changes`].
const OBJECTS: [ObjectId; 3] = [ObjectId::USER_USED, ObjectId::GROUP_USED, ObjectId::PROJECT_USED];

impl Accounting {
    pub(crate) fn new(scope: AccountingScope, owners: Option<Arc<dyn ObjectOwners>>) -> Self {
        Self { scope, owners, changes: Default::default() }
    }

    pub(crate) fn dnode_flags(&self) -> DnodeFlags {
        self.scope.dnode_flags()
    }

    /// Takes over that an object has changed.
    pub(crate) fn dnode_changed(&mut self, old: Option<&Dnode>, new: Option<&Dnode>) {
        for (dnode, sign) in old.map(|old| (old, -1)).into_iter().chain(new.map(|new| (new, 1))) {
            let counts = [ObjectType::SA, ObjectType::ZNODE].contains(&dnode.bonus_type);
            let owners = self.owners.as_ref().filter(|_| counts);
            let Some(owners) = owners.and_then(|owners| owners.owners(dnode)) else { continue };
            let ids = [owners.user, owners.group, owners.project];
            let projects = self.scope == AccountingScope::WithProjects;
            let accounts = if projects { 3 } else { 2 };
            for (changes, id) in self.changes.iter_mut().zip(ids).take(accounts) {
                if dnode.flags.has(DnodeFlags::USER_USED_ACCOUNTED) {
                    let bytes = dnode.used.saturating_add(DNODE_BYTES).cast_signed();
                    *changes.entry(format!("{id:x}")).or_default() += sign * bytes;
                }
                if dnode.flags.has(DnodeFlags::USER_OBJ_USED_ACCOUNTED) {
                    *changes.entry(format!("obj-{id:x}")).or_default() += sign;
                }
            }
        }
    }

    /// Writes the changes into the set's accounting objects, which are made when they are first
    /// needed; `random` gives their salts.
    pub(crate) fn write(
        &mut self,
        objset: &LiveObjset,
        tx: &SyncTx<'_>,
        random: impl Fn() -> u64,
    ) -> Result<(), DmuError> {
        for (id, changes) in OBJECTS.into_iter().zip(&mut self.changes) {
            let changes = std::mem::take(changes);
            if changes.values().all(|delta| *delta == 0) {
                continue;
            }
            let failed = |source: ZapError<DmuError>| match source {
                ZapError::Blocks(source) => source,
                source => {
                    DmuError::Zap { objset: objset.id(), object: id, source: Box::new(source) }
                }
            };
            let (object, mut zap) = match objset.object(id) {
                Ok(object) => {
                    let zap = object.zap().map_err(failed)?;
                    (object, zap)
                }
                Err(DmuError::NotAllocated { .. }) => {
                    let object = objset.create_special(tx, id, NEW_ACCOUNT);
                    let zap = object.create_zap(tx, &NewZap::new(random())).map_err(failed)?;
                    (object, zap)
                }
                Err(error) => return Err(error),
            };
            let mut writer = zap.writer(object.zap_blocks(tx));
            for (key, delta) in changes {
                writer.add_u64(&key, delta).map_err(failed)?;
            }
        }
        Ok(())
    }
}

const NEW_ACCOUNT: NewObject<'static> = NewObject {
    object_type: ObjectType::USERGROUP_USED,
    data_block_size: 512,
    indirect_shift: INDIRECT_SHIFT,
    bonus_type: ObjectType::NONE,
    bonus: &[],
    slots: 1,
};
