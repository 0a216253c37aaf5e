//! The private state of the syncing thread.

use super::amounts::SpaceDelta;
use super::datasets::dir::Directories;
use super::datasets::free_lists::FreeLists;
use super::space::clone_table::CloneTables;
use super::space::dedup::DedupTables;
use super::space::freer::Leaks;
use crate::mos::features::Features;
use crate::pool::AuxiliaryKind;
use rzfs_format::ObjectId;
use rzfs_format::config::PoolConfig;
use rzfs_format::dsl::DslDataset;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The private state of the syncing thread.
#[derive(Debug)]
pub(crate) struct SyncState {
    /// The pool's configuration in labels and the MOS.
    pub(crate) config: PoolConfig,
    pub(crate) dirs: Directories,
    pub(crate) features: Features,
    pub(crate) frees: FreeLists,
    pub(crate) clones: CloneTables,
    pub(crate) dedup: Arc<DedupTables>,
    pub(crate) config_object: ObjectId,
    pub(crate) history: Option<ObjectId>,
    /// The directory charged for the MOS itself.
    pub(crate) mos_dir: Option<ObjectId>,
    /// Growth of the MOS since its directory was last charged.
    pub(crate) mos_delta: SpaceDelta,
    /// Space that damage keeps from being freed, since it was last charged.
    pub(crate) leaks: Leaks,
    pub(crate) is_deflated: bool,
    /// The configuration has to be written.
    pub(crate) is_config_dirty: bool,
    /// The lists of auxiliary vdevs that must be written.
    pub(crate) changed_auxiliary: BTreeSet<AuxiliaryKind>,
    /// Datasets with changed properties or names in this txg, by their new names.
    pub(crate) changed: Vec<String>,
    /// Heads written in this txg, in their new state.
    pub(crate) written: BTreeMap<ObjectId, DslDataset>,
}

/// The pool-wide objects of the MOS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolObjects {
    pub(crate) config: ObjectId,
    pub(crate) history: Option<ObjectId>,
    /// The directory charged for the MOS itself.
    pub(crate) mos_dir: Option<ObjectId>,
}

impl SyncState {
    /// The state of a pool whose configuration is to be written with the next txg.
    pub(crate) fn new(
        objects: PoolObjects,
        config: PoolConfig,
        features: Features,
        frees: FreeLists,
        dedup: &Arc<DedupTables>,
    ) -> Self {
        Self {
            config,
            dirs: Directories::default(),
            features,
            frees,
            clones: CloneTables::default(),
            dedup: Arc::clone(dedup),
            config_object: objects.config,
            history: objects.history,
            mos_dir: objects.mos_dir,
            mos_delta: SpaceDelta::default(),
            leaks: Leaks::default(),
            is_deflated: false,
            is_config_dirty: true,
            changed_auxiliary: BTreeSet::new(),
            changed: Vec::new(),
            written: BTreeMap::new(),
        }
    }
}
