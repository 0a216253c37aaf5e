//! Dirty time logs as objects of the MOS (spec 07, section 5.3).

use crate::live::LiveError;
use crate::live::space::store::LiveStore;
use rzfs_dmu::live::Transaction;
use rzfs_format::ObjectId;
use rzfs_format::space_map::{Action, Geometry};
use rzfs_metaslab::space_map::SpaceMap;
use rzfs_metaslab::space_map::append::{MapFeatures, Part, Stamp};
use rzfs_metaslab::{MetaslabError, RangeTree};
use rzfs_vdev::{DtlStore, TxgSet};

/// Block size of a log in bytes.
const LOG_BLOCK: u32 = 4 << 10;

/// The logs in a sync pass.
pub(crate) struct DirtyTimeStore<'s, 'a> {
    store: &'s mut LiveStore<'a>,
    stamp: Stamp,
    maps: MapFeatures,
}

impl<'s, 'a> DirtyTimeStore<'s, 'a> {
    /// `maps` is what the pool's features allow for space maps.
    pub(crate) fn new(store: &'s mut LiveStore<'a>, maps: MapFeatures) -> Self {
        let tx = store.mos.tx();
        let stamp = Stamp { txg: tx.txg(), pass: tx.pass() };
        Self { store, stamp, maps }
    }

    /// An empty map in the object, or in a new one.
    fn begin(&mut self, object: Option<ObjectId>) -> Result<SpaceMap, MetaslabError> {
        let header = self.maps.header;
        match object {
            None => SpaceMap::create(self.store, Geometry::DTL, LOG_BLOCK, header),
            Some(object) => {
                let mut map = SpaceMap::open(self.store, object, Geometry::DTL)?;
                map.truncate(self.store, LOG_BLOCK, header)?;
                Ok(map)
            }
        }
    }
}

impl DtlStore for DirtyTimeStore<'_, '_> {
    type Error = LiveError;

    fn replace(&mut self, object: Option<ObjectId>, txgs: &TxgSet) -> Result<ObjectId, LiveError> {
        let mut map = self.begin(object)?;
        let mut segments = RangeTree::new(0..u64::MAX, 0);
        for (start, end) in txgs.ranges() {
            segments.add(start.get()..end.get()).map_err(|error| MetaslabError::Store {
                object: map.object(),
                source: error.into(),
            })?;
        }
        let all = Part { action: Action::Allocate, segments: &segments };
        map.append(self.store, self.stamp, self.maps.version, None, &[all])?;
        Ok(map.object())
    }
}
