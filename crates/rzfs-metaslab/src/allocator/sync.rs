//! The tokens of a txg's sync, and recording the changes of its passes (spec 06, sections 19.3 and
//! 19.6).

use super::Allocator;
use super::books::SyncBooks;
use super::metaslab::LiveMetaslab;
use super::record::{PassTrees, Recorded};
use super::topology::Topology;
use super::tunables::{LARGE_BLOCK_SIZE, SpaceFeatures};
use crate::MetaslabError;
use crate::space_map::SpaceMap;
use crate::space_map::append::{Part, Stamp};
use crate::store::{CountChange, CountedFeature, SyncStore};
use rzfs_format::space_map::{Action, Geometry};
use rzfs_format::{BlockPointer, Dva, Txg};
use std::sync::Arc;

/// Whether a txg changes anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Activity {
    /// The MOS is dirty or was written in this txg.
    Busy,
    /// Nothing is written so far: the txg may stay empty.
    Idle,
}

/// A sync pass of a txg: the time to free blocks, and then to record what the pass changed.
#[derive(Debug)]
#[must_use = "a pass that is dropped means that the txg failed"]
pub struct SyncPass<'a> {
    pub(crate) allocator: &'a Allocator,
    pub(crate) books: Box<SyncBooks>,
    pub(crate) stamp: Stamp,
    pub(crate) features: SpaceFeatures,
}

/// A txg whose passes are done, before its uberblock is written.
#[derive(Debug)]
#[must_use = "a txg that is not committed failed"]
pub struct FinishedTxg<'a> {
    allocator: &'a Allocator,
    books: Box<SyncBooks>,
    txg: Txg,
}

impl Allocator {
    /// Begins to sync a txg, with pass 1.
    ///
    /// # Errors
    /// [`MetaslabError::OutOfOrder`]: another one is being synced, or failed.
    pub fn begin_sync(&self, txg: Txg) -> Result<SyncPass<'_>, MetaslabError> {
        let books = self.books.lock().take().ok_or(MetaslabError::OutOfOrder { txg })?;
        let features = self.features();
        Ok(SyncPass { allocator: self, books, stamp: Stamp { txg, pass: 1 }, features })
    }
}

impl<'a> SyncPass<'a> {
    /// The txg.
    #[must_use]
    pub const fn txg(&self) -> Txg {
        self.stamp.txg
    }

    /// The number of the pass, from 1 on.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.stamp.pass
    }

    /// Frees the copies of a block: of a gang only its headers, so the caller must free the members
    /// too. Holes and embedded blocks have no space.
    ///
    /// # Errors
    /// The space is already free, or not part of any metaslab: the pool is damaged.
    pub fn free_block(&self, pointer: &BlockPointer) -> Result<(), MetaslabError> {
        if pointer.is_hole() || pointer.is_embedded() {
            return Ok(());
        }
        pointer.dvas().try_for_each(|dva| self.free(dva, pointer.physical_birth()))
    }

    /// Frees the space at one address, of a block that was born (physically) in `birth`.
    ///
    /// # Errors
    /// As for [`SyncPass::free_block`].
    pub fn free(&self, dva: Dva, birth: Txg) -> Result<(), MetaslabError> {
        let txg = self.stamp.txg;
        self.allocator.free_dva(dva, txg, self.allocator.need(birth, txg))
    }

    /// Records the allocations and frees of this pass, and in pass 1 flushes what is due: steps 11
    /// and 12 of a pass (spec 06, section 19.3). The store becomes dirty; the next pass writes it.
    /// Without changes nothing is stored.
    ///
    /// `activity` counts in pass 1 only.
    ///
    /// # Errors
    /// The store fails, or the pool is damaged. The txg must not be committed.
    pub fn sync(
        mut self,
        store: &mut dyn SyncStore,
        activity: Activity,
    ) -> Result<Self, MetaslabError> {
        let topology = self.allocator.topology();
        if self.stamp.pass == 1 {
            self.flush_due(&topology, store, activity)?;
        }
        self.record_obsolete(&topology, store)?;
        self.record_metaslabs(&topology, store)?;
        for (vdev, live) in &topology.vdevs {
            if live.objects.lock().metaslab_array.is_none() {
                self.books.map_changes.entry(*vdev).or_default();
            }
        }
        self.write_arrays(&topology, store)?;
        self.destroy_obsolete_logs(store)?;
        self.stamp.pass += 1;
        Ok(self)
    }

    /// Ends the passes, if the last one left nothing dirty.
    ///
    /// # Errors
    /// [`MetaslabError::Unrecorded`] if something was allocated or freed since.
    pub fn finish(self) -> Result<FinishedTxg<'a>, MetaslabError> {
        let Self { allocator, books, stamp, .. } = self;
        let topology = allocator.topology();
        let dirty = allocator.context.take_dirty(stamp.txg);
        let mut left = dirty.iter().filter_map(|id| topology.metaslab(*id));
        if left.any(|metaslab| metaslab.has_records(stamp.txg)) || allocator.has_obsolete() {
            return Err(MetaslabError::Unrecorded { txg: stamp.txg });
        }
        Ok(FinishedTxg { allocator, books, txg: stamp.txg })
    }

    /// Records the changes of the metaslabs dirty in this txg.
    fn record_metaslabs(
        &mut self,
        topology: &Topology,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        let mut batch: Vec<(Arc<LiveMetaslab>, PassTrees)> = Vec::new();
        for id in self.allocator.context.take_dirty(self.stamp.txg) {
            let Some(metaslab) = topology.metaslab(id) else { continue };
            if !metaslab.has_records(self.stamp.txg) {
                continue;
            }
            self.open_log(store)?;
            self.open_map(metaslab, store)?;
            self.books.touched.insert(id);
            if self.stamp.pass == 1 {
                self.condense(metaslab, store)?;
            }
            self.book_records(metaslab)?;
            batch.push((Arc::clone(metaslab), metaslab.take_pass(self.stamp.txg)));
        }
        if let Some(mut log) = self.books.log.take() {
            let parts = batch.iter().flat_map(|(metaslab, trees)| {
                parts_of(trees).map(|part| (Some(metaslab.id.vdev), part))
            });
            let version = self.features.maps.version;
            let appended = log.append_all(store, self.stamp, version, parts);
            self.books.log = Some(log);
            appended?;
        }
        for (metaslab, trees) in &batch {
            self.record(metaslab, trees, store)?;
        }
        self.record_checkpointed(&batch, store)
    }

    /// Reports to a metaslab that its records are stored: in the log, or in its own map.
    fn record(
        &mut self,
        metaslab: &LiveMetaslab,
        trees: &PassTrees,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        let (before, map) = {
            let state = metaslab.state.lock();
            (state.unflushed_memory(), state.map.clone())
        };
        let Some(mut map) = map else { return Ok(()) };
        let recorded = if self.books.log.is_some() {
            Recorded::Log
        } else {
            let version = self.features.maps.version;
            match map.append(store, self.stamp, version, None, &parts_of(trees)) {
                Err(error) if error.is_damage(store) => {
                    tracing::error!(%error, "a space map is damaged");
                    map = self.replace_damaged(metaslab, trees, store)?;
                    map.append(store, self.stamp, version, None, &parts_of(trees))?;
                }
                appended => {
                    appended?;
                }
            }
            Recorded::Own(Box::new(map.clone()))
        };
        let histogram = metaslab.recorded(trees, recorded)?;
        match map.set_histogram(store, &histogram) {
            // It is for choosing metaslabs; the map is written anew when it is appended to.
            Err(error) if error.is_damage(store) => {
                tracing::warn!(%error, "the histogram of a space map is old");
            }
            stored => stored?,
        }
        metaslab.replace_map(map);
        let after = metaslab.state.lock().unflushed_memory();
        self.books.unflushed_memory = (self.books.unflushed_memory + after).saturating_sub(before);
        Ok(())
    }

    /// Rewrites the own map of a metaslab, as a damaged one cannot be appended to.
    fn replace_damaged(
        &mut self,
        metaslab: &LiveMetaslab,
        trees: &PassTrees,
        store: &mut dyn SyncStore,
    ) -> Result<SpaceMap, MetaslabError> {
        let object = metaslab.replace_damaged(store, &self.features, self.stamp, Some(trees))?;
        self.note_map(metaslab, object);
        let map = metaslab.state.lock().map.clone();
        map.ok_or(MetaslabError::OutOfOrder { txg: self.stamp.txg })
    }

    /// Appends newly obsolete ranges of removed vdevs to their obsolete maps.
    fn record_obsolete(
        &self,
        topology: &Topology,
        store: &mut dyn SyncStore,
    ) -> Result<(), MetaslabError> {
        let pending = std::mem::take(&mut *self.allocator.obsolete.lock());
        for (vdev, segments) in pending {
            let Some(objects) = topology.removed.get(&vdev) else { continue };
            // The unit is a byte; an offset of 63 bits is the largest that an entry can have.
            let area = Geometry { start: 0, size: i64::MAX as u64, shift: 0 };
            let there = objects.lock().obsolete_map;
            let mut map = match there {
                Some(object) => SpaceMap::open(store, object, area)?,
                None => {
                    let maps = self.features.maps;
                    let map = SpaceMap::create(store, area, LARGE_BLOCK_SIZE, maps.header)?;
                    let object = Some(map.object());
                    store.set_obsolete_map(vdev, object).map_err(MetaslabError::in_directory)?;
                    store
                        .count_feature(CountedFeature::ObsoleteCounts, CountChange::Increment)
                        .map_err(MetaslabError::in_directory)?;
                    objects.lock().obsolete_map = object;
                    map
                }
            };
            let part = Part { action: Action::Allocate, segments: &segments };
            map.append(store, self.stamp, self.features.maps.version, None, &[part])?;
        }
        Ok(())
    }
}

/// What a pass records of a metaslab, in order.
const fn parts_of(trees: &PassTrees) -> [Part<'_>; 2] {
    [
        Part { action: Action::Allocate, segments: &trees.allocated },
        Part { action: Action::Free, segments: &trees.freed },
    ]
}

impl FinishedTxg<'_> {
    /// The txg.
    #[must_use]
    pub const fn txg(&self) -> Txg {
        self.txg
    }

    /// Ends the txg after its uberblock is durable: what was freed two txgs ago becomes usable.
    ///
    /// # Errors
    /// The trees contradict each other; nothing can be synced after that.
    pub fn committed(self) -> Result<(), MetaslabError> {
        let Self { allocator, mut books, txg } = self;
        let topology = allocator.topology();
        let deferral = allocator.deferral(&topology);
        let autotrim = *allocator.autotrim.lock();
        let mut changed = std::mem::take(&mut books.touched);
        changed.append(&mut books.draining);
        changed.append(&mut allocator.take_arrivals());
        for id in changed {
            let Some(metaslab) = topology.metaslab(id) else { continue };
            let was_available = metaslab.state.lock().available;
            let change = metaslab.committed(&allocator.context, txg, deferral, autotrim)?;
            let mut totals = metaslab.group.totals.lock();
            if !was_available {
                totals.space = totals.space.saturating_add(metaslab.size());
            }
            totals.allocated = totals.allocated.saturating_add_signed(change.allocated);
            totals.deferred = totals.deferred.saturating_add_signed(change.deferred);
            drop(totals);
            if metaslab.is_draining() {
                books.draining.insert(id);
            }
        }
        if let Some(log) = books.log.take() {
            books.book.close_log(txg, log.block_count());
        }
        allocator.context.set_committed(txg);
        allocator.assess_groups();
        allocator.unload_unused(txg);
        allocator.publish(&books);
        *allocator.books.lock() = Some(books);
        Ok(())
    }
}
