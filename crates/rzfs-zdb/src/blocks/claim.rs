//! Claims space: every block removes its bytes from the space allocated in the space maps.
//!
//! A failure means a block on free space, or one that overlaps another. The remainder at the end is
//! leaked: allocated, but part of no block.

use rzfs_dmu::threads::start_up_to;
use rzfs_dmu::{BlockError, BlockPipeline, MAX_GANG_DEPTH};
use rzfs_dsl::pool::{MosStore, Pool};
use rzfs_format::{BlockPointer, Dva, VdevId};
use rzfs_metaslab::{MetaslabError, RangeError, RangeTree, VdevGeometry};
use rzfs_vdev::VdevTree;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Chains of removed vdevs deeper than this are damage.
const MAX_DEPTH: u32 = 64;

/// Why the space of a block cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    /// It is not allocated, or already claimed.
    #[error("vdev {vdev}: {source}")]
    Range { vdev: VdevId, source: RangeError },
    /// The address is invalid in the pool.
    #[error("address {0} is not in this pool")]
    Address(Dva),
    /// A gang header cannot be read.
    #[error(transparent)]
    Gang(#[from] BlockError),
    /// The sizes in a gang tree contradict each other, or it is too deep.
    #[error("the gang tree at {0} contradicts itself")]
    GangTree(Dva),
    /// The mapping of a removed vdev lacks the range.
    #[error("the mapping of the removed vdev {0} has a gap")]
    Mapping(VdevId),
}

/// The unclaimed space of one vdev, by metaslab.
struct VdevClaims {
    geometry: VdevGeometry,
    metaslabs: Vec<RangeTree>,
}

/// The allocated but unclaimed space of a pool.
pub(super) struct Claims<'a> {
    pipeline: &'a BlockPipeline,
    vdevs: BTreeMap<VdevId, VdevClaims>,
}

/// An unclaimed part of a vdev.
pub(super) struct Leak {
    pub(super) vdev: VdevId,
    pub(super) range: Range<u64>,
}

impl<'a> Claims<'a> {
    /// Loads the allocated space from the space maps of a pool, several metaslabs at a time.
    ///
    /// `progress` is called with the next vdev and metaslab.
    pub(super) fn load(
        pool: &'a Pool,
        progress: &mut dyn FnMut(VdevId, usize, usize),
    ) -> Result<Self, LoadError> {
        let metaslabs = pool.metaslabs()?;
        let store = MosStore::new(pool.mos().clone());
        let mut vdevs = BTreeMap::new();
        for vdev in metaslabs.vdevs() {
            let geometry = *vdev.geometry();
            let count = vdev.metaslabs().len();
            for index in 0..count {
                progress(geometry.vdev, index, count);
            }
            let loaded = load_all(count, |index| match vdev.metaslabs().get(index) {
                Some(metaslab) => metaslab.load_allocated(&store),
                None => Ok(RangeTree::new(0..0, geometry.ashift)),
            })?;
            vdevs.insert(geometry.vdev, VdevClaims { geometry, metaslabs: loaded });
        }
        Ok(Self { pipeline: pool.pipeline(), vdevs })
    }

    fn tree(&self) -> Arc<VdevTree> {
        self.pipeline.vdevs()
    }

    /// Claims allocated bytes of a vdev that belong to no block of the walk.
    pub(super) fn take(&mut self, vdev: VdevId, range: Range<u64>) -> Result<(), ClaimError> {
        self.concrete(vdev, range)
    }

    /// Claims all copies of a block.
    pub(super) fn claim(&mut self, pointer: &BlockPointer) -> Result<(), ClaimError> {
        self.claim_below(pointer, MAX_GANG_DEPTH)
    }

    fn claim_below(&mut self, pointer: &BlockPointer, depth: u32) -> Result<(), ClaimError> {
        if !pointer.is_gang() {
            for dva in pointer.dvas() {
                self.range(dva.vdev(), dva.offset(), dva.asize(), MAX_DEPTH)?;
            }
            return Ok(());
        }
        let first = pointer.dvas().next().unwrap_or_default();
        let depth = depth.checked_sub(1).ok_or(ClaimError::GangTree(first))?;
        let members = self.pipeline.gang_members(pointer)?;
        for (copy, dva) in pointer.dvas().enumerate() {
            // The leader's size includes the header and everything below it.
            let below = members.iter().filter_map(|member| member.dvas().nth(copy));
            let below: u64 = below.map(Dva::asize).sum();
            let header = dva.asize().checked_sub(below).filter(|size| *size > 0);
            let header = header.ok_or(ClaimError::GangTree(dva))?;
            self.range(dva.vdev(), dva.offset(), header, MAX_DEPTH)?;
        }
        members.iter().try_for_each(|member| self.claim_below(member, depth))
    }

    /// Claims a range; for a removed vdev, at its new location.
    fn range(
        &mut self,
        vdev: VdevId,
        offset: u64,
        size: u64,
        depth: u32,
    ) -> Result<(), ClaimError> {
        let end = offset.saturating_add(size);
        let mapping_error = ClaimError::Mapping(vdev);
        let Some(depth) = depth.checked_sub(1) else { return Err(mapping_error) };
        if self.vdevs.contains_key(&vdev) {
            return self.concrete(vdev, offset..end);
        }
        let mut at = offset;
        while at < end {
            let (dva, available) = self
                .tree()
                .top_level(vdev)
                .and_then(|top| top.mapping())
                .and_then(|mapping| mapping.lookup(at))
                .ok_or(ClaimError::Mapping(vdev))?;
            let len = available.min(end - at);
            self.range(dva.vdev(), dva.offset(), len, depth)?;
            at += len;
        }
        Ok(())
    }

    fn concrete(&mut self, vdev: VdevId, range: Range<u64>) -> Result<(), ClaimError> {
        let address = Dva::new(vdev, range.start, range.end - range.start, false);
        let claims = self.vdevs.get_mut(&vdev).ok_or(ClaimError::Address(address))?;
        let index = usize::try_from(range.start >> claims.geometry.metaslab_shift.min(63));
        let tree = index.ok().and_then(|index| claims.metaslabs.get_mut(index));
        let tree = tree.ok_or(ClaimError::Address(address))?;
        tree.remove(range).map_err(|source| ClaimError::Range { vdev, source })
    }

    /// The unclaimed parts of a vdev.
    pub(super) fn unclaimed(&self, vdev: VdevId) -> impl Iterator<Item = Range<u64>> + '_ {
        let vdev = self.vdevs.get(&vdev);
        vdev.into_iter().flat_map(|claims| claims.metaslabs.iter().flat_map(RangeTree::iter))
    }

    /// All unclaimed space.
    pub(super) fn leaks(&self) -> impl Iterator<Item = Leak> + '_ {
        self.vdevs
            .keys()
            .flat_map(|&vdev| self.unclaimed(vdev).map(move |range| Leak { vdev, range }))
    }
}

/// Why the space maps of a pool cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Pool(#[from] rzfs_dsl::pool::PoolError),
    #[error(transparent)]
    Metaslab(#[from] MetaslabError),
}

/// Loads `count` trees on all processors, in order.
fn load_all(
    count: usize,
    load: impl Fn(usize) -> Result<RangeTree, MetaslabError> + Sync,
) -> Result<Vec<RangeTree>, MetaslabError> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(count.max(1));
    let next = AtomicUsize::new(0);
    let loaded = Mutex::new(Vec::with_capacity(count));
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= count {
                return;
            }
            let tree = load(index);
            loaded.lock().unwrap_or_else(PoisonError::into_inner).push((index, tree));
        }
    };
    std::thread::scope(|scope| {
        start_up_to(workers - 1, |_| std::thread::Builder::new().spawn_scoped(scope, work));
        work();
    });
    let mut loaded = loaded.into_inner().unwrap_or_else(PoisonError::into_inner);
    loaded.sort_unstable_by_key(|(index, _)| *index);
    loaded.into_iter().map(|(_, tree)| tree).collect()
}
