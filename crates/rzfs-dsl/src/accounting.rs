//! What users, groups and projects use (spec 03, section 8; spec 05, section 2.5).
//!
//! The syncer of an object set reports every dnode that changes; the sums go into the set's
//! accounting objects at the end:
//!
//! ```text
//! object -1 users, -2 groups, -3 projects:  "3e8" -> bytes   "obj-3e8" -> objects
//! ```
//! Ids are at fixed places in the bonus for all file systems, whatever its layout.

use rzfs_dmu::DmuError;
use rzfs_dmu::live::{LiveObject, LiveObjset, NewObject, SyncTx, Transaction};
use rzfs_format::dnode::{Dnode, DnodeFlags, SLOT_SIZE};
use rzfs_format::endian::Fields;
use rzfs_format::fuid::Fuid;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::MAGIC;
use rzfs_format::znode::{FileFlags, LEGACY_SIZE};
use rzfs_format::{ByteOrder, FormatError, ObjectId};
use rzfs_zap::{NewZap, ZapError};
use std::collections::BTreeMap;

const WHAT: &str = "accounting";

/// Who owns an object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Owners {
    /// The user.
    pub user: Fuid,
    /// The group.
    pub group: Fuid,
    /// The project.
    pub project: u64,
}

impl Owners {
    /// The owners of the object with this dnode; `None` when it is not a file, or its attributes
    /// have not been written yet.
    pub fn of(dnode: &Dnode) -> Result<Option<Self>, FormatError> {
        match dnode.bonus_type {
            ObjectType::ZNODE if dnode.bonus.len() >= LEGACY_SIZE => {
                let fields = Fields::new(WHAT, &dnode.bonus, dnode.order);
                let (user, group) = (Fuid(fields.u64(128)?), Fuid(fields.u64(136)?));
                Ok(Some(Self { user, group, project: 0 }))
            }
            ObjectType::SA => Self::of_attributes(&dnode.bonus),
            _ => Ok(None),
        }
    }

    fn of_attributes(bonus: &[u8]) -> Result<Option<Self>, FormatError> {
        let magic = Fields::new(WHAT, bonus, ByteOrder::Little);
        let order = match bonus.len() {
            0 => return Ok(None),
            _ => match magic.u32(0)? {
                0 => return Ok(None),
                MAGIC => ByteOrder::Little,
                _ => ByteOrder::Big,
            },
        };
        let fields = Fields::new(WHAT, bonus, order);
        let data = usize::from(fields.u16(4)? >> 10) * 8;
        let flags = FileFlags(fields.u64(data + 48)?);
        let has_project = flags.contains(FileFlags::PROJID);
        Ok(Some(Self {
            user: Fuid(fields.u64(data + 24)?),
            group: Fuid(fields.u64(data + 32)?),
            project: if has_project { fields.u64(data + 128)? } else { 0 },
        }))
    }

    /// The accounting objects and the ids in them.
    const fn ids(&self) -> [(ObjectId, u64); 3] {
        [
            (ObjectId::USER_USED, self.user.0),
            (ObjectId::GROUP_USED, self.group.0),
            (ObjectId::PROJECT_USED, self.project),
        ]
    }
}

/// A change in space and objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Delta {
    bytes: i64,
    objects: i64,
}

/// What an object set accounts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccountingScope {
    /// Nothing: volumes, and file systems of old pools.
    Nothing,
    /// Space of users and groups.
    Space,
    /// Also objects.
    SpaceAndObjects,
    /// Also space and objects of projects.
    #[default]
    WithProjects,
}

/// The accumulated changes of one object set in one txg.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageChanges {
    scope: AccountingScope,
    deltas: BTreeMap<(ObjectId, u64), Delta>,
}

impl UsageChanges {
    /// No changes yet.
    #[must_use]
    pub const fn new(scope: AccountingScope) -> Self {
        Self { scope, deltas: BTreeMap::new() }
    }

    /// The flags set on dnodes that are accounted.
    #[must_use]
    pub const fn dnode_flags(&self) -> DnodeFlags {
        DnodeFlags(match self.scope {
            AccountingScope::Nothing => 0,
            AccountingScope::Space => DnodeFlags::USER_USED_ACCOUNTED,
            AccountingScope::SpaceAndObjects | AccountingScope::WithProjects => {
                DnodeFlags::USER_USED_ACCOUNTED | DnodeFlags::USER_OBJ_USED_ACCOUNTED
            }
        })
    }

    /// Records a change of an object from `old` to `new`. An unreadable owner counts as none.
    pub fn note(&mut self, old: Option<&Dnode>, new: Option<&Dnode>) {
        if let Some(old) = old {
            self.add(old, -1);
        }
        if let Some(new) = new {
            self.add(new, 1);
        }
    }

    fn add(&mut self, dnode: &Dnode, sign: i64) {
        let Ok(Some(owners)) = Owners::of(dnode) else { return };
        let counted = |flag| i64::from(dnode.flags.has(flag)) * sign;
        let used = i64::try_from(dnode.used.saturating_add(SLOT_SIZE as u64)).unwrap_or(i64::MAX);
        let bytes = used.saturating_mul(counted(DnodeFlags::USER_USED_ACCOUNTED));
        let objects = counted(DnodeFlags::USER_OBJ_USED_ACCOUNTED);
        let kinds = match self.scope {
            AccountingScope::Nothing => 0,
            AccountingScope::Space | AccountingScope::SpaceAndObjects => 2,
            AccountingScope::WithProjects => 3,
        };
        for key in owners.ids().into_iter().take(kinds) {
            let delta = self.deltas.entry(key).or_default();
            delta.bytes = delta.bytes.saturating_add(bytes);
            delta.objects = delta.objects.saturating_add(objects);
        }
    }

    /// Adds the sums to the accounting objects, which are made if need be; nothing is left then. Where
    /// one is damaged the others get theirs.
    ///
    /// # Errors
    /// The first one why an accounting object cannot be read or changed.
    pub fn write(&mut self, objset: &LiveObjset, tx: &SyncTx<'_>) -> Result<(), DmuError> {
        let changes = std::mem::take(&mut self.deltas);
        let mut failure = None;
        for kind in ObjectId::ACCOUNTING {
            let of_kind = changes.iter().filter(|((found, _), _)| *found == kind);
            let of_kind = of_kind.map(|((_, id), delta)| (*id, *delta));
            let of_kind: Vec<_> = of_kind.filter(|(_, delta)| *delta != Delta::default()).collect();
            match add_up(objset, tx, kind, &of_kind) {
                Err(error) if error.may_come_back() => return Err(error),
                Err(error) => _ = failure.get_or_insert(error),
                Ok(()) => {}
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Adds sums to one accounting object.
fn add_up(
    objset: &LiveObjset,
    tx: &SyncTx<'_>,
    kind: ObjectId,
    deltas: &[(u64, Delta)],
) -> Result<(), DmuError> {
    if deltas.is_empty() {
        return Ok(());
    }
    let object = accounting_object(objset, tx, kind)?;
    let failed = |source: ZapError<DmuError>| {
        let (objset, object) = (objset.id(), kind);
        DmuError::Zap { objset, object, source: Box::new(source) }
    };
    let mut zap = object.zap().map_err(failed)?;
    let mut writer = zap.writer(object.zap_blocks(tx));
    for (id, delta) in deltas {
        let key = Fuid(*id).accounting_key();
        writer.add_u64(&key, delta.bytes).map_err(failed)?;
        writer.add_u64(&format!("obj-{key}"), delta.objects).map_err(failed)?;
    }
    Ok(())
}

/// The accounting object of users, groups or projects.
fn accounting_object(
    objset: &LiveObjset,
    tx: &SyncTx<'_>,
    id: ObjectId,
) -> Result<LiveObject, DmuError> {
    match objset.object(id) {
        Err(DmuError::NotAllocated { .. }) => {}
        found => return found,
    }
    let new = NewObject {
        object_type: ObjectType::USERGROUP_USED,
        data_block_size: 512,
        indirect_shift: 17,
        bonus_type: ObjectType::NONE,
        bonus: &[],
        slots: 1,
    };
    let object = objset.create_special(tx, id, new);
    // The salt has to differ between file systems, not to be secret.
    let salt = tx.txg().get().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ objset.id().get() << 8 ^ id.0;
    object.create_zap(tx, &NewZap::new(salt)).map_err(|source| DmuError::Zap {
        objset: objset.id(),
        object: id,
        source: Box::new(source),
    })?;
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::BlockId;

    fn dnode(used: u64, user: u64, flags: DnodeFlags) -> Dnode {
        let mut bonus = vec![0; 176];
        bonus[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bonus[4..6].copy_from_slice(&0x0802_u16.to_le_bytes());
        bonus.resize(8 * 2 + 168, 0);
        bonus[16 + 24..16 + 32].copy_from_slice(&user.to_le_bytes());
        bonus[16 + 32..16 + 40].copy_from_slice(&7_u64.to_le_bytes());
        bonus[16 + 48..16 + 56].copy_from_slice(&FileFlags::PROJID.0.to_le_bytes());
        bonus[16 + 128..16 + 136].copy_from_slice(&77_u64.to_le_bytes());
        Dnode {
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            bonus_type: ObjectType::SA,
            indirect_shift: 17,
            levels: 1,
            checksum: 0,
            compress: 0,
            flags,
            data_block_size: 512,
            slots: 1,
            max_block_id: BlockId(0),
            used,
            pointers: Vec::new(),
            bonus,
            spill: None,
            order: ByteOrder::Little,
        }
    }

    #[test]
    fn owners_are_read_from_their_fixed_places() {
        let owners = Owners::of(&dnode(0, 1000, DnodeFlags::default())).unwrap().unwrap();
        let expected = Owners { user: Fuid(1000), group: Fuid(7), project: 77 };
        assert_eq!(owners, expected);
        let mut unwritten = dnode(0, 1, DnodeFlags::default());
        unwritten.bonus.fill(0);
        assert_eq!(Owners::of(&unwritten), Ok(None));
        unwritten.bonus.clear();
        assert_eq!(Owners::of(&unwritten), Ok(None));
        let mut short = dnode(0, 1, DnodeFlags::default());
        short.bonus.truncate(40);
        assert!(Owners::of(&short).is_err());
    }

    #[test]
    fn what_moves_between_users_adds_up() {
        let flags = UsageChanges::default().dnode_flags();
        let mut changes = UsageChanges::default();
        changes.note(None, Some(&dnode(4096, 1, flags)));
        changes.note(Some(&dnode(4096, 1, flags)), Some(&dnode(8192, 2, flags)));
        let of = |id| changes.deltas[&(ObjectId::USER_USED, id)];
        assert_eq!(of(1), Delta::default());
        assert_eq!(of(2), Delta { bytes: 8192 + 512, objects: 1 });
        // What was never accounted is not subtracted.
        changes.note(Some(&dnode(100, 3, DnodeFlags::default())), None);
        assert_eq!(changes.deltas[&(ObjectId::USER_USED, 3)], Delta::default());
        assert_eq!(changes.deltas[&(ObjectId::PROJECT_USED, 77)].objects, 1);
    }
}
