//! Dead lists: blocks of a dataset's previous snapshot that it no longer has (spec 04, section 5).
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
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Blocks of a single list that are sorted into keys together.
const BATCH: usize = 4096;

/// Whether a dead list is a single list, as in pools before version 26.
pub(crate) fn is_old<M: MosSource>(mos: &M, id: ObjectId) -> Result<bool, M::Error> {
    let object = mos.object(id)?;
    match object.bonus_type().map_err(MosError::from)? {
        ObjectType::BPOBJ_HDR => Ok(true),
        ObjectType::DEADLIST_HDR => Ok(false),
        found => Err(MosError::from(object.is_not(found, "a dead list")).into()),
    }
}

/// The lists by key: the blocks on each were born after its key, and no later than the next one.
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

/// Visits the blocks on a dead list that is a single list.
fn visit_single<M: MosSource>(
    mos: &M,
    id: ObjectId,
    mut visit: impl FnMut(BlockPointer) -> Result<(), M::Error>,
) -> Result<(), M::Error> {
    for list in PointerList::with_sublists(mos.object(id)?) {
        for pointer in list.map_err(MosError::from)?.entries_from(0) {
            visit(pointer.map_err(MosError::from)?)?;
        }
    }
    Ok(())
}

/// Checks that a dead list supports every operation: everything these read can be read and is
/// valid.
pub(crate) fn check(mos: &MosTx<'_>, id: ObjectId) -> Result<(), LiveError> {
    sums(mos, id)?;
    if is_old(mos, id)? {
        return visit_single(mos, id, |_| Ok(()));
    }
    mos.check_zap(id)?;
    let lists: BTreeSet<ObjectId> = keys(mos, id)?.into_values().collect();
    lists.into_iter().try_for_each(|list| bpobj::check(mos, list))
}

/// Checks that two dead lists, both [checked](check), can be merged up to `since`: that of a
/// snapshot, `own`, and that of its successor.
pub(crate) fn check_merge(
    mos: &MosTx<'_>,
    (list, own): (ObjectId, ObjectId),
    since: Txg,
) -> Result<(), LiveError> {
    let is_single = is_old(mos, list)?;
    let (from, into) = if is_single { (list, own) } else { (own, list) };
    if is_old(mos, into)? {
        return Ok(());
    }
    // The successor's later keys are removed first.
    let end = if is_single { END } else { since };
    let first = keys(mos, into)?.into_keys().next().filter(|first| *first < end);
    let misplaced = || LiveError::corrupt(into)(older_than_all());
    if !is_old(mos, from)? {
        let lowest = keys(mos, from)?.into_keys().next();
        let has_places = lowest.is_none_or(|lowest| first.is_some_and(|first| first <= lowest));
        return if has_places { Ok(()) } else { Err(misplaced()) };
    }
    visit_single(mos, from, |pointer| {
        let birth = pointer.logical_birth();
        let is_freed = is_single && birth > since;
        let has_place = is_freed || first.is_some_and(|first| first < birth);
        if has_place { Ok(()) } else { Err(misplaced()) }
    })
}

fn older_than_all() -> FormatError {
    FormatError::invalid("dead list", "a block is older than all its keys")
}

/// The sums over all blocks on a dead list.
pub(crate) fn sums<M: MosSource>(mos: &M, id: ObjectId) -> Result<DeadlistHeader, M::Error> {
    if !is_old(mos, id)? {
        return mos.record(id);
    }
    let BpobjHeader { bytes, compressed, uncompressed, .. } = mos.record(id)?;
    Ok(DeadlistHeader { used: bytes, compressed, uncompressed })
}

/// The sums over the blocks on a dead list that were born after the start of `births` and no later
/// than its end. Both must be keys, or the ends of time.
pub(crate) fn sums_of<M: MosSource>(
    mos: &M,
    id: ObjectId,
    births: Range<Txg>,
    deflation: Deflation<'_>,
) -> Result<SpaceDelta, M::Error> {
    let mut sums = SpaceDelta::default();
    if is_old(mos, id)? {
        visit_single(mos, id, |pointer| {
            let birth = pointer.logical_birth();
            if births.start < birth && birth <= births.end {
                sums += deflation.of(&pointer);
            }
            Ok(())
        })?;
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

/// Creates an empty dead list: one without keys, or a single list in older pools.
pub(crate) fn create(mos: &MosTx<'_>, features: &Features) -> Result<ObjectId, LiveError> {
    if !features.has_deadlists() {
        return bpobj::create(mos, features.list_version(), LIST_BLOCK);
    }
    let bonus = DeadlistHeader::default().encode(ByteOrder::NATIVE);
    let new = NewZap::new(mos.random());
    mos.create_zap_with(ObjectType::DEADLIST, ObjectType::DEADLIST_HDR, &bonus, &new)
}

/// Adds a key with an empty list, unless the key exists.
pub(crate) fn add_key(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
    key: Txg,
) -> Result<(), LiveError> {
    let name = number_key(key.get());
    if mos.lookup(id, name.as_str())?.is_some() {
        return Ok(());
    }
    let list = features.empty_list(mos)?;
    mos.insert(id, &name, list.get())
}

/// Creates a dead list with keys, all with empty lists.
pub(crate) fn with_keys(
    mos: &MosTx<'_>,
    features: &mut Features,
    keys: &BTreeSet<Txg>,
) -> Result<ObjectId, LiveError> {
    let id = create(mos, features)?;
    keys.iter().try_for_each(|key| add_key(mos, features, id, *key))?;
    Ok(id)
}

/// The keys of a dead list for a dataset derived from this one; `of` is the dead list to copy them
/// from: those below `end`, or for a single list those that the chain of snapshots needs.
pub(crate) fn keys_behind(
    mos: &MosTx<'_>,
    of: ObjectId,
    dataset: &DslDataset,
    end: Txg,
) -> Result<BTreeSet<Txg>, LiveError> {
    if is_old(mos, of)? {
        return keys_of_chain(mos, dataset);
    }
    Ok(keys(mos, of)?.into_keys().filter(|key| *key < end).collect())
}

fn keys_of_chain(mos: &MosTx<'_>, dataset: &DslDataset) -> Result<BTreeSet<Txg>, LiveError> {
    let mut keys = BTreeSet::new();
    let mut current = dataset.clone();
    loop {
        keys.insert(current.previous_snapshot_txg);
        let Some(previous) = current.previous_snapshot else { return Ok(keys) };
        let earlier: DslDataset = mos.record(previous)?;
        if earlier.previous_snapshot_txg >= current.previous_snapshot_txg {
            let problem = FormatError::invalid("DSL dataset", "snapshots are not in order");
            return Err(LiveError::corrupt(previous)(problem));
        }
        current = earlier;
    }
}

/// Frees a dead list, as far as it can be read; its blocks belong to others.
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

/// Adds blocks that died, and that the previous snapshot has, to a dead list; or births and deaths
/// to a livelist. If the list of a key is damaged, the others still get theirs.
///
/// # Errors
/// Among others the first damage: the blocks of that key are on no list.
pub(crate) fn insert(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
    (pointers, mark): (&[BlockPointer], ListMark),
    deflation: Deflation<'_>,
) -> Result<(), LiveError> {
    if is_old(mos, id)? {
        // A pool older than version 26: the dead list is a single list.
        return bpobj::append(mos, id, (pointers, mark), deflation);
    }
    let mut header: DeadlistHeader = mos.record(id)?;
    let keys = keys(mos, id)?;
    let mut by_key: BTreeMap<Txg, Vec<BlockPointer>> = BTreeMap::new();
    for pointer in pointers {
        let birth = pointer.logical_birth();
        let Some((key, _)) = keys.range(..birth).next_back() else {
            return Err(LiveError::corrupt(id)(older_than_all()));
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

/// Removes a key: its blocks move to the key before it.
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

/// Moves all blocks from another dead list, which is then destroyed. They are sorted by the keys
/// there, of which there may be more; or by their births, if it is a single list from before the
/// pool was upgraded. Both were [checked](check_merge).
pub(crate) fn merge(
    mos: &MosTx<'_>,
    features: &mut Features,
    (id, other): (ObjectId, ObjectId),
    deflation: Deflation<'_>,
) -> Result<(), LiveError> {
    if is_old(mos, other)? {
        let mut batch = Vec::with_capacity(BATCH);
        visit_single(mos, other, |pointer| {
            batch.push(pointer);
            if batch.len() < BATCH {
                return Ok(());
            }
            let full = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            insert(mos, features, id, (&full, ListMark::Allocated), deflation)
        })?;
        insert(mos, features, id, (&batch, ListMark::Allocated), deflation)?;
        return bpobj::destroy(mos, other);
    }
    let mut header: DeadlistHeader = mos.record(id)?;
    let mut own = keys(mos, id)?;
    for (key, list) in keys(mos, other)? {
        let Some(sums) = mos.record(list).unless_damaged(leaked)? else { continue };
        add(&mut header, bpobj::sums(&sums));
        let Some((key, into)) = own.range(..=key).next_back().map(|(key, list)| (*key, *list))
        else {
            return Err(LiveError::corrupt(id)(older_than_all()));
        };
        if features.is_empty_list(into) {
            own.insert(key, list);
        }
        join(mos, features, (id, key, into), list)?;
    }
    mos.set_record(id, &header)?;
    mos.destroy_or_leak(other)
}

/// Moves the blocks born after `births` to a list, with their keys; returns their sums.
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

/// Adds the blocks on `list` to the list of a key.
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

/// Adds the blocks on `list` to another one. The shared empty list stays as it is.
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

/// Appends pointers to the list of a key, which is created if it is the shared empty one.
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
