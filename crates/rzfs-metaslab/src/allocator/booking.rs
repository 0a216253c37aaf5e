//! Bookkeeping in a sync pass: the log of the txg, and the arrays that locate space maps (spec 06,
//! sections 13.5 and 13.8).

use super::metaslab::LiveMetaslab;
use super::sync::SyncPass;
use super::topology::Topology;
use super::tunables::{LARGE_BLOCK_SIZE, LogFeature};
use crate::MetaslabError;
use crate::log::book::MetaslabId;
use crate::metaslab::Freshness;
use crate::space_map::SpaceMap;
use crate::space_map::append::HeaderForm;
use crate::store::{CountChange, CountedFeature, LogMap, NewObject, SyncStore};
use rzfs_format::object_type::ObjectType;
use rzfs_format::space_map::Geometry;
use rzfs_format::{ObjectId, Txg};
use std::collections::BTreeMap;

/// Number of the object type `DMU_OTN_UINT64_METADATA`.
const UINT64_METADATA: u8 = 0xc3;
/// Bytes of a block of an array of object numbers.
const ARRAY_BLOCK_SIZE: u32 = 512;
/// log2 of the bytes of an indirect block of an array.
const ARRAY_INDIRECT_SHIFT: u32 = 17;

impl SyncPass<'_> {
    /// Creates the log of this txg if the pool has logs and it does not exist.
    pub(crate) fn open_log(&mut self, store: &mut dyn SyncStore) -> Result<(), MetaslabError> {
        if self.books.log.is_some() || self.features.logs == LogFeature::Disabled {
            return Ok(());
        }
        if self.features.logs == LogFeature::Enabled {
            store
                .count_feature(CountedFeature::LogSpaceMap, CountChange::Increment)
                .map_err(MetaslabError::in_directory)?;
            self.features.logs = LogFeature::Active;
            self.allocator.logs_became_active();
        }
        let header = self.features.maps.header;
        let map = SpaceMap::create(store, Geometry::LOG, LARGE_BLOCK_SIZE, header)?;
        let log = LogMap { txg: self.stamp.txg, object: map.object() };
        store.add_log(log).map_err(MetaslabError::in_directory)?;
        self.books.book.open_log(log);
        self.books.log = Some(map);
        Ok(())
    }

    /// Creates the own map of a metaslab if it has none.
    pub(crate) fn open_map(
        &mut self,
        metaslab: &LiveMetaslab,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        if metaslab.state.lock().map.is_some() {
            return Ok(());
        }
        let (block_size, header) = (self.features.map_block_size(), self.features.maps.header);
        let map = SpaceMap::create(store, metaslab.geometry(), block_size, header)?;
        self.note_map(metaslab, map.object());
        metaslab.replace_map(map);
        Ok(())
    }

    /// Records the object of a metaslab's own map.
    pub(crate) fn note_map(&mut self, metaslab: &LiveMetaslab, object: ObjectId) {
        let MetaslabId { vdev, index } = metaslab.id;
        self.books.map_changes.entry(vdev).or_default().insert(index, object.0);
    }

    /// Condenses the own map of a metaslab, which is then complete.
    pub(crate) fn condense(
        &mut self,
        metaslab: &LiveMetaslab,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        let before = metaslab.state.lock().unflushed_memory();
        let context = &self.allocator.context;
        if let Some(object) = metaslab.condense(store, context, &self.features, self.stamp)? {
            self.condensed(metaslab, object, before)?;
        }
        Ok(())
    }

    /// Records that a metaslab's own map was rewritten; its unflushed changes, which took `memory`
    /// bytes, are in it.
    pub(crate) fn condensed(
        &mut self,
        metaslab: &LiveMetaslab,
        object: ObjectId,
        memory: u64,
    ) -> Result<(), MetaslabError> {
        self.note_map(metaslab, object);
        self.books.touched.insert(metaslab.id);
        self.books.unflushed_memory = self.books.unflushed_memory.saturating_sub(memory);
        let logged = metaslab.state.lock().unflushed_txg != Txg(0);
        if logged { self.bump(metaslab, Freshness::Clean) } else { Ok(()) }
    }

    /// Records that the metaslab has records in the log of this txg.
    pub(crate) fn book_records(&mut self, metaslab: &LiveMetaslab) -> Result<(), MetaslabError> {
        if self.books.log.is_none() {
            return Ok(());
        }
        let (txg, freshness) = {
            let state = metaslab.state.lock();
            (state.unflushed_txg, state.freshness)
        };
        match freshness {
            Freshness::Dirty => Ok(()),
            Freshness::Clean if txg == self.stamp.txg => {
                metaslab.state.lock().freshness = Freshness::Dirty;
                self.books.book.mark_dirty(txg);
                Ok(())
            }
            Freshness::Clean => self.bump(metaslab, Freshness::Dirty),
        }
    }

    /// Records that the own map of a metaslab is complete up to this txg.
    pub(crate) fn bump(
        &mut self,
        metaslab: &LiveMetaslab,
        freshness: Freshness,
    ) -> Result<(), MetaslabError> {
        let txg = self.stamp.txg;
        let old = {
            let mut state = metaslab.state.lock();
            let old = (state.unflushed_txg, state.freshness);
            state.unflushed_txg = txg;
            state.freshness = freshness;
            old
        };
        if old.0 != Txg(0) {
            self.books.book.remove(old.0, metaslab.id, old.1);
        }
        self.books.book.add(txg, metaslab.id, freshness)?;
        let MetaslabId { vdev, index } = metaslab.id;
        self.books.unflushed_changes.entry(vdev).or_default().insert(index, txg.0);
        Ok(())
    }

    /// Frees the logs that no metaslab needs any longer.
    pub(crate) fn destroy_obsolete_logs(
        &mut self,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        for log in self.books.book.take_obsolete() {
            let map = SpaceMap::open(store, log.object, Geometry::LOG);
            store.remove_log(log.txg).map_err(MetaslabError::in_directory)?;
            match map {
                Err(error) if error.is_damage(store) => {
                    tracing::warn!(%error, "a log space map is leaked");
                    // All logs have the header that new maps have.
                    if self.features.maps.header == HeaderForm::Histogram {
                        let (counted, less) =
                            (CountedFeature::SpaceMapHistogram, CountChange::Decrement);
                        store.count_feature(counted, less).map_err(MetaslabError::in_directory)?;
                    }
                }
                map => map?.destroy(store)?,
            }
        }
        Ok(())
    }

    /// Writes the changed elements of arrays; missing arrays are created.
    pub(crate) fn write_arrays(
        &mut self,
        topology: &Topology,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        for (vdev, changes) in std::mem::take(&mut self.books.map_changes) {
            let Some(live) = topology.vdevs.get(&vdev) else { continue };
            let there = live.objects.lock().metaslab_array;
            let array = match there {
                Some(array) => array,
                None => {
                    let array = create_array(store, ObjectType::OBJECT_ARRAY, ARRAY_BLOCK_SIZE)?;
                    store
                        .set_metaslab_array(vdev, Some(array))
                        .map_err(MetaslabError::in_directory)?;
                    live.objects.lock().metaslab_array = Some(array);
                    array
                }
            };
            write_elements(store, array, &changes)?;
        }
        for (vdev, changes) in std::mem::take(&mut self.books.unflushed_changes) {
            let Some(live) = topology.vdevs.get(&vdev) else { continue };
            let there = live.objects.lock().unflushed_array;
            let array = match there {
                Some(array) => array,
                None => {
                    let object_type = ObjectType::from_number(UINT64_METADATA)
                        .map_err(MetaslabError::format(ObjectId(0)))?;
                    let array = create_array(store, object_type, LARGE_BLOCK_SIZE)?;
                    store
                        .set_unflushed_array(vdev, Some(array))
                        .map_err(MetaslabError::in_directory)?;
                    live.objects.lock().unflushed_array = Some(array);
                    array
                }
            };
            write_elements(store, array, &changes)?;
        }
        Ok(())
    }
}

fn create_array(
    store: &mut dyn SyncStore,
    object_type: ObjectType,
    block_size: u32,
) -> Result<ObjectId, MetaslabError> {
    let shape = NewObject {
        object_type,
        block_size,
        indirect_shift: ARRAY_INDIRECT_SHIFT,
        bonus_type: ObjectType::NONE,
        bonus_size: 0,
    };
    store.create_object(&shape).map_err(MetaslabError::in_directory)
}

/// Writes elements of an array, adjacent ones together.
fn write_elements(
    store: &mut dyn SyncStore,
    array: ObjectId,
    elements: &BTreeMap<u64, u64>,
) -> Result<(), MetaslabError> {
    let mut run: Vec<u64> = Vec::new();
    let mut first = 0;
    for (&index, &value) in elements {
        if !run.is_empty() && first + run.len() as u64 != index {
            store.write_words(array, first, &run).map_err(MetaslabError::store(array))?;
            run.clear();
        }
        if run.is_empty() {
            first = index;
        }
        run.push(value);
    }
    if run.is_empty() {
        return Ok(());
    }
    store.write_words(array, first, &run).map_err(MetaslabError::store(array))
}
