//! Dead lists that grow (spec 04, section 5).

use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta, apply};
use crate::live::error::UnlessDamaged;
use crate::live::mos::bpobj::{self, LIST_BLOCK};
use crate::live::mos::features::Features;
use crate::live::mos::{BonusRecord, MosTx, number_key};
use rzfs_format::bpobj::ListMark;
use rzfs_format::deadlist::{DeadlistHeader, parse_key};
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, FormatError, ObjectId, Txg};
use rzfs_zap::NewZap;
use std::collections::BTreeMap;

impl BonusRecord for DeadlistHeader {
    const BONUS_TYPE: ObjectType = ObjectType::DEADLIST_HDR;

    fn decode(bonus: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        Self::decode(bonus, order)
    }

    fn encode(&self) -> Vec<u8> {
        Self::encode(self, ByteOrder::NATIVE).to_vec()
    }
}

/// Makes an empty dead list: one without keys, or a single list in older pools.
pub(crate) fn create(mos: &MosTx<'_>, features: &Features) -> Result<ObjectId, LiveError> {
    if !features.has_deadlists() {
        return bpobj::create(mos, features.list_version(), LIST_BLOCK);
    }
    let bonus = DeadlistHeader::default().encode(ByteOrder::NATIVE);
    let new = NewZap::new(mos.random());
    mos.create_zap_with(ObjectType::DEADLIST, ObjectType::DEADLIST_HDR, &bonus, &new)
}

/// Adds a key with an empty list.
pub(crate) fn add_key(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
    key: Txg,
) -> Result<(), LiveError> {
    let list = features.empty_list(mos)?;
    mos.insert(id, &number_key(key.get()), list.get())
}

/// Makes a dead list with the keys of another that are below `end`, all with empty lists.
pub(crate) fn clone_keys(
    mos: &MosTx<'_>,
    features: &mut Features,
    of: ObjectId,
    end: Txg,
) -> Result<ObjectId, LiveError> {
    let id = create(mos, features)?;
    for key in keys(mos, of)?.into_keys().filter(|key| *key < end) {
        add_key(mos, features, id, key)?;
    }
    Ok(id)
}

/// Makes a dead list for what follows a snapshot, with the keys that its chain of snapshots asks
/// for: where the dead lists before it are single lists.
pub(crate) fn of_snapshots(
    mos: &MosTx<'_>,
    features: &mut Features,
    snapshot: &DslDataset,
) -> Result<ObjectId, LiveError> {
    let id = create(mos, features)?;
    let mut current = snapshot.clone();
    loop {
        add_key(mos, features, id, current.previous_snapshot_txg)?;
        let Some(previous) = current.previous_snapshot else { return Ok(id) };
        let earlier: DslDataset = mos.record(previous)?;
        if earlier.previous_snapshot_txg >= current.previous_snapshot_txg {
            let problem = FormatError::invalid("DSL dataset", "snapshots are not in order");
            return Err(LiveError::corrupt(previous)(problem));
        }
        current = earlier;
    }
}

/// Whether a dead list is a single list, as in pools before version 26.
pub(crate) fn is_old(mos: &MosTx<'_>, id: ObjectId) -> Result<bool, LiveError> {
    Ok(mos.object(id)?.bonus_type()? == ObjectType::BPOBJ_HDR)
}

/// Frees a dead list, as far as it can be read; the blocks on it belong to others.
pub(crate) fn destroy(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
) -> Result<(), LiveError> {
    let lost = |error: &LiveError| tracing::warn!(%error, "lists of blocks are leaked");
    if is_old(mos, id).unless_damaged(lost)? == Some(true) {
        return bpobj::destroy(mos, id);
    }
    for list in keys(mos, id).unless_damaged(lost)?.unwrap_or_default().into_values() {
        if features.is_empty_list(list) {
            features.release_empty_list(mos)?;
        } else {
            bpobj::destroy(mos, list)?;
        }
    }
    mos.destroy_or_leak(id)
}

pub(crate) fn keys(mos: &MosTx<'_>, id: ObjectId) -> Result<BTreeMap<Txg, ObjectId>, LiveError> {
    let mut keys = BTreeMap::new();
    for entry in mos.entries(id)? {
        let key = parse_key(entry.name()).map_err(LiveError::corrupt(id))?;
        keys.insert(key, ObjectId(entry.value.first_u64().unwrap_or_default()));
    }
    Ok(keys)
}

/// Puts blocks that died, and that the snapshot before has, on a dead list; or those that were
/// born or died on a livelist. Where a list behind a key is damaged the others get theirs.
///
/// # Errors
/// Among others the first damage: what belongs behind it is on no list.
pub(crate) fn insert(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
    (pointers, mark): (&[BlockPointer], ListMark),
    deflation: Deflation<'_>,
) -> Result<(), LiveError> {
    if is_old(mos, id)? {
        // A pool from before version 26: the dead list is one list.
        return bpobj::append(mos, id, (pointers, mark), deflation);
    }
    let mut header: DeadlistHeader = mos.record(id)?;
    let keys = keys(mos, id)?;
    let mut by_key: BTreeMap<Txg, Vec<BlockPointer>> = BTreeMap::new();
    for pointer in pointers {
        let birth = pointer.logical_birth();
        let Some((key, _)) = keys.range(..birth).next_back() else {
            let problem = FormatError::invalid("dead list", "a block is older than all its keys");
            return Err(LiveError::corrupt(id)(problem));
        };
        by_key.entry(*key).or_default().push(*pointer);
    }
    let mut damage = None;
    for (key, pointers) in by_key {
        let Some(list) = keys.get(&key).copied() else { continue };
        match append(mos, features, (id, key, list), (&pointers, mark), deflation) {
            Ok(()) => {}
            Err(error) if error.is_damage() => {
                damage.get_or_insert(error);
                continue;
            }
            error => return error,
        }
        for pointer in &pointers {
            let delta = deflation.of(pointer);
            let delta = if mark == ListMark::Freed { -delta } else { delta };
            let SpaceDelta { used, compressed, uncompressed } = delta;
            apply(&mut header.used, used);
            apply(&mut header.compressed, compressed);
            apply(&mut header.uncompressed, uncompressed);
        }
    }
    mos.set_record(id, &header)?;
    damage.map_or(Ok(()), Err)
}

/// Appends pointers to the list behind a key, which is made if there is only the empty one.
fn append(
    mos: &MosTx<'_>,
    features: &mut Features,
    (id, key, mut list): (ObjectId, Txg, ObjectId),
    pointers: (&[BlockPointer], ListMark),
    deflation: Deflation<'_>,
) -> Result<(), LiveError> {
    if features.is_empty_list(list) {
        list = bpobj::create(mos, features.list_version(), LIST_BLOCK)?;
        mos.set(id, &number_key(key.get()), list.get())?;
        features.release_empty_list(mos)?;
    }
    bpobj::append(mos, list, pointers, deflation)
}
