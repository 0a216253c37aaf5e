//! Removing a vdev's metaslabs: it was a log vdev, or its contents were copied elsewhere (spec 06,
//! sections 13.12 and 13.13).

use super::sync::SyncPass;
use super::topology::LiveVdev;
use crate::MetaslabError;
use crate::space_map::SpaceMap;
use crate::store::SyncStore;
use parking_lot::Mutex;
use rzfs_format::space_map::Geometry;
use rzfs_format::{Txg, VdevId};
use std::sync::Arc;

impl SyncPass<'_> {
    /// Removes the metaslabs of a vdev with their maps and arrays. Entries of logs about it no
    /// longer count, and its number is not reused. What was allocated on it must have been freed,
    /// or be where [`Devices::copies`](super::Devices::copies) says.
    ///
    /// # Errors
    /// There is no such vdev, it has changes that are not recorded, or the store fails.
    pub fn remove_vdev(
        &mut self,
        store: &mut dyn SyncStore,
        vdev: VdevId,
    ) -> Result<(), MetaslabError> {
        let live = {
            let mut topology = self.allocator.topology.write();
            let live = topology.vdevs.get(&vdev).ok_or(MetaslabError::Vdev { vdev })?;
            let txg = self.stamp.txg;
            if live.metaslabs.iter().any(|metaslab| metaslab.has_records(txg)) {
                return Err(MetaslabError::Unrecorded { txg });
            }
            let topology = Arc::make_mut(&mut topology);
            let live = topology.remove(vdev).ok_or(MetaslabError::Vdev { vdev })?;
            topology.removed.insert(vdev, Arc::new(Mutex::default()));
            live
        };
        for metaslab in &live.metaslabs {
            let mut state = metaslab.state.lock();
            metaslab.wait_settled(&mut state);
            if state.unflushed_txg != Txg(0) {
                self.books.book.remove(state.unflushed_txg, metaslab.id, state.freshness);
            }
            self.books.unflushed_memory =
                self.books.unflushed_memory.saturating_sub(state.unflushed_memory());
            let map = state.map.take();
            drop(state);
            self.allocator.context.loaded.lock().remove(&metaslab.id);
            if let Some(map) = map {
                map.destroy(store)?;
            }
        }
        self.books.touched.retain(|id| id.vdev != vdev);
        self.books.draining.retain(|id| id.vdev != vdev);
        remove_objects(store, &live)
    }
}

fn remove_objects(store: &mut dyn SyncStore, live: &LiveVdev) -> Result<(), MetaslabError> {
    let vdev = live.geometry.vdev;
    let objects = std::mem::take(&mut *live.objects.lock());
    if let Some(array) = objects.metaslab_array {
        store.free_object(array).map_err(MetaslabError::store(array))?;
        store.set_metaslab_array(vdev, None).map_err(MetaslabError::in_directory)?;
    }
    if let Some(array) = objects.unflushed_array {
        store.free_object(array).map_err(MetaslabError::store(array))?;
        store.set_unflushed_array(vdev, None).map_err(MetaslabError::in_directory)?;
    }
    if let Some(object) = objects.checkpoint_map {
        let area = Geometry::checkpoint(live.geometry.asize, live.geometry.ashift);
        SpaceMap::open(store, object, area)?.destroy(store)?;
        store.set_checkpoint_map(vdev, None).map_err(MetaslabError::in_directory)?;
    }
    Ok(())
}
