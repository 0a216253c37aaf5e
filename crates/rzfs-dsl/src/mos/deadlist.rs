//! Dead lists: what the snapshot before a dataset had and it has not (spec 04, section 5).
//!
//! ```text
//! from version 26     sums, and a ZAP: txg -> list of blocks that were born after it
//! before              one list
//! ```

use super::bpobj::{self, LIST_BLOCK};
use super::error::MosError;
use super::features::Features;
use super::live::MosTx;
use super::pointer_list::PointerList;
use super::{MosSource, number_key, one_number};
use crate::live::LiveError;
use crate::live::amounts::{Deflation, SpaceDelta, apply};
use crate::live::error::UnlessDamaged;
use rzfs_dmu::SourceObject;
use rzfs_format::bpobj::{BpobjHeader, ListMark};
use rzfs_format::deadlist::{DeadlistHeader, parse_key};
use rzfs_format::dsl::DslDataset;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, FormatError, ObjectId, Txg};
use rzfs_zap::NewZap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Whether a dead list is a single list, as in pools before version 26.
pub(crate) fn is_old<M: MosSource>(mos: &M, id: ObjectId) -> Result<bool, M::Error> {
    let object = mos.object(id)?;
    match object.bonus_type().map_err(MosError::from)? {
        ObjectType::BPOBJ_HDR => Ok(true),
        ObjectType::DEADLIST_HDR => Ok(false),
        found => Err(MosError::from(object.is_not(found, "a dead list")).into()),
    }
}

/// The lists by their keys: the blocks on each were born after its key, and no later than the next
/// one.
pub(crate) fn keys<M: MosSource>(
    mos: &M,
    id: ObjectId,
) -> Result<BTreeMap<Txg, ObjectId>, M::Error> {
    let mut keys = BTreeMap::new();
    for entry in mos.entries(id)? {
        let key = parse_key(entry.name()).map_err(MosError::corrupt(id))?;
        let list = one_number(id, &number_key(key.get()), &entry.value)?;
        keys.insert(key, ObjectId(list));
    }
    Ok(keys)
}

/// Sums over all blocks on a dead list.
pub(crate) fn sums<M: MosSource>(mos: &M, id: ObjectId) -> Result<DeadlistHeader, M::Error> {
    if !is_old(mos, id)? {
        return mos.record(id);
    }
    let BpobjHeader { bytes, compressed, uncompressed, .. } = mos.record(id)?;
    Ok(DeadlistHeader { used: bytes, compressed, uncompressed })
}

/// Sums over the blocks on a dead list that were born after the start of `births` and no later than
/// its end. Both have to be keys, or the ends of time.
pub(crate) fn sums_of<M: MosSource>(
    mos: &M,
    id: ObjectId,
    births: Range<Txg>,
    deflation: Deflation<'_>,
) -> Result<SpaceDelta, M::Error> {
    let mut sums = SpaceDelta::default();
    if is_old(mos, id)? {
        for list in PointerList::with_sublists(mos.object(id)?) {
            for pointer in list.map_err(MosError::from)?.entries_from(0) {
                let pointer = pointer.map_err(MosError::from)?;
                let birth = pointer.logical_birth();
                if births.start < birth && birth <= births.end {
                    sums += deflation.of(&pointer);
                }
            }
        }
        return Ok(sums);
    }
    if births.is_empty() {
        return Ok(sums);
    }
    for list in keys(mos, id)?.range(births).map(|(_, list)| *list) {
        sums += bpobj::sums(&mos.record(list)?);
    }
    Ok(sums)
}

/// The end of time, where there is no later txg.
pub(crate) const END: Txg = Txg(u64::MAX);

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
            add(&mut header, if mark == ListMark::Freed { -delta } else { delta });
        }
    }
    mos.set_record(id, &header)?;
    damage.map_or(Ok(()), Err)
}

/// Takes a key away: the blocks behind it are behind the one before it from now on.
pub(crate) fn remove_key(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
    key: Txg,
) -> Result<(), LiveError> {
    let keys = keys(mos, id)?;
    let Some(list) = keys.get(&key).copied() else { return Ok(()) };
    let Some((before, into)) = keys.range(..key).next_back() else {
        let problem = FormatError::invalid("dead list", "its first key is not to be removed");
        return Err(LiveError::corrupt(id)(problem));
    };
    mos.remove(id, number_key(key.get()).as_str())?;
    join(mos, features, (id, *before, *into), list)
}

/// Takes over all blocks of another dead list, which is gone then. Behind which keys they were
/// there is told by the keys here, of which there may be fewer.
pub(crate) fn merge(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
    other: ObjectId,
) -> Result<(), LiveError> {
    let mut header: DeadlistHeader = mos.record(id)?;
    let mut own = keys(mos, id)?;
    for (key, list) in keys(mos, other)? {
        let Some(sums) = mos.record(list).unless_damaged(leaked)? else { continue };
        add(&mut header, bpobj::sums(&sums));
        let Some((key, into)) = own.range(..=key).next_back().map(|(key, list)| (*key, *list))
        else {
            let problem = FormatError::invalid("dead list", "a block is older than all its keys");
            return Err(LiveError::corrupt(id)(problem));
        };
        if features.is_empty_list(into) {
            own.insert(key, list);
        }
        join(mos, features, (id, key, into), list)?;
    }
    mos.set_record(id, &header)?;
    mos.destroy_or_leak(other)
}

/// Moves the blocks that were born after `births` to a list, with their keys; answers with their
/// sums.
pub(crate) fn move_to_list(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
    births: Txg,
    target: ObjectId,
) -> Result<SpaceDelta, LiveError> {
    let mut header: DeadlistHeader = mos.record(id)?;
    let mut moved = SpaceDelta::default();
    for (key, list) in keys(mos, id)?.range(births..) {
        mos.remove(id, number_key(key.get()).as_str())?;
        let Some(sums) = mos.record(*list).unless_damaged(leaked)? else { continue };
        moved += bpobj::sums(&sums);
        enqueue(mos, features, target, *list)?;
    }
    add(&mut header, -moved);
    mos.set_record(id, &header)?;
    Ok(moved)
}

fn leaked(error: &LiveError) {
    tracing::warn!(%error, "blocks of a dead list are leaked");
}

/// Has what is on `list` be behind a key, together with what is on the list there.
fn join(
    mos: &MosTx<'_>,
    features: &mut Features,
    (id, key, into): (ObjectId, Txg, ObjectId),
    list: ObjectId,
) -> Result<(), LiveError> {
    if features.is_empty_list(into) {
        mos.set(id, &number_key(key.get()), list.get())?;
        return features.release_empty_list(mos);
    }
    enqueue(mos, features, into, list)
}

/// Has what is on `list` be on another one. The shared empty list stays as it is.
fn enqueue(
    mos: &MosTx<'_>,
    features: &mut Features,
    into: ObjectId,
    list: ObjectId,
) -> Result<(), LiveError> {
    match features.is_empty_list(list) {
        true => features.release_empty_list(mos),
        false => bpobj::enqueue(mos, into, list).unless_damaged(leaked).map(drop),
    }
}

fn add(header: &mut DeadlistHeader, delta: SpaceDelta) {
    apply(&mut header.used, delta.used);
    apply(&mut header.compressed, delta.compressed);
    apply(&mut header.uncompressed, delta.uncompressed);
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
