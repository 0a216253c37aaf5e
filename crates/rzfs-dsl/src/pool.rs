//! An open pool: its configuration, vdevs, features and the meta object set.
//!
//! ```text
//! Pool ── VdevTree, BlockPipeline
//!   └── MOS ── object 1, the object directory
//!                ├ config, spares, l2cache       name-value lists
//!                ├ root_dataset                  the tree of datasets (see `dataset`)
//!                ├ features_for_read, ..._write  feature flags with reference counts
//!                ├ pool_props, history, errlog_*
//!                └ ...
//! ```
//! [`Pool<ReadOnly>`] never writes, and needs no threads.

mod attributes;
mod auxiliary;
pub mod compatibility;
mod dedup_prefetch;
mod erratum;
mod error;
mod intent_logs;
mod pending_frees;
mod properties;
mod rewind;
mod scan;
mod sharing;
mod space;
mod space_store;
mod status;
mod sweep;

pub use crate::mos::error_log::{ErrorLog, ErrorLogEntry};
pub use crate::mos::features::{
    FeatureNeed, FeatureState, FeatureStates, UnknownFeature, is_supported,
};
pub use crate::mos::history::{History, HistoryEvent, HistoryRecord};
pub use crate::mos::pointer_list::PointerList;
pub use attributes::Attributes;
pub use auxiliary::{AuxiliaryKind, AuxiliaryState, AuxiliaryVdev};
pub use erratum::Erratum;
pub use error::PoolError;
pub use pending_frees::PendingFrees;
pub use properties::{FailMode, PoolProperties, PropertySource, Stored};
pub use rewind::RewindInfo;
pub use scan::{ExpansionState, ScanFunction, ScanState, ScanStatus};
pub use sharing::{CloneSavings, DedupTable};
pub use space::VdevSpace;
pub use space_store::MosStore;
pub use status::PoolStatus;
pub use sweep::{LeafSweep, SweepKind, SweepRecord, SweepState};

pub(crate) use auxiliary::read_configs as read_auxiliary_configs;
pub(crate) use sharing::entry_statistics;
pub(crate) use space::{geometry, top_attributes};
pub(crate) use status::Symptoms;
pub(crate) use sweep::{TRIM_PARTIAL, TRIM_RATE, TRIM_SECURE, columns, leaf_zap};

use crate::dataset::{DatasetTree, SharedState, UsableSpace};
use crate::mos::{MosSource, error_log};
use rzfs_codec::checksum::Salt;
use rzfs_dmu::{BlockPipeline, Objset};
use rzfs_format::bpobj::BpobjHeader;
use rzfs_format::config::PoolConfig;
use rzfs_format::features::Feature;
use rzfs_format::indirect::RemovalState;
use rzfs_format::nvlist::NvList;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, ObjectId, Txg};
use rzfs_metaslab::PoolMetaslabs;
use rzfs_vdev::{Health, Vdev, VdevTree};
use space::Adjustments;
use std::marker::PhantomData;
use std::sync::Arc;

/// A pool open for reading: nothing is ever written.
#[derive(Clone, Copy, Debug)]
pub struct ReadOnly;

/// An open pool.
///
/// A handle: cheap to clone and share. Its contents are those of one uberblock; writes of another
/// host to the devices are not noticed until blocks are gone.
#[derive(Debug)]
pub struct Pool<Mode = ReadOnly> {
    inner: Arc<Parts>,
    datasets: DatasetTree,
    mode: PhantomData<Mode>,
}

impl<Mode> Clone for Pool<Mode> {
    fn clone(&self) -> Self {
        let inner = Arc::clone(&self.inner);
        Self { inner, datasets: self.datasets.clone(), mode: PhantomData }
    }
}

/// The parts assembled by an import.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) name: String,
    pub(crate) uberblock: Uberblock,
    pub(crate) config: PoolConfig,
    pub(crate) config_list: NvList,
    pub(crate) vdevs: Arc<VdevTree>,
    pub(crate) pipeline: Arc<BlockPipeline>,
    pub(crate) mos: Objset,
    pub(crate) directory: Attributes,
    pub(crate) root_dataset: ObjectId,
    pub(crate) features: FeatureStates,
    pub(crate) salt: Option<Salt>,
    pub(crate) checkpoint: Option<Uberblock>,
    pub(crate) auxiliary: Vec<AuxiliaryVdev>,
    pub(crate) removal: Option<RemovalState>,
    pub(crate) rewound: Option<RewindInfo>,
}

impl Parts {
    fn metaslabs(&self) -> Result<PoolMetaslabs, PoolError> {
        space::metaslabs(&self.mos, &self.directory, &self.features, &self.vdevs)
    }

    fn deflate(&self) -> Result<bool, PoolError> {
        Ok(self.directory.number("deflate")?.is_some_and(|deflate| deflate != 0))
    }

    fn usable_space(&self) -> Result<u64, PoolError> {
        let Self { mos, directory, vdevs, .. } = self;
        let dedup = sharing::total(&sharing::dedup_tables(mos, directory, vdevs)?);
        let clones = sharing::clone_savings(mos, directory, vdevs)?;
        let adjustments = Adjustments {
            saved: dedup.ref_dsize.saturating_sub(dedup.dsize).saturating_add(clones.saved),
            deferred: match directory.object("sync_bplist")? {
                Some(object) => mos.record::<BpobjHeader>(object)?.bytes,
                None => 0,
            },
            deflate: self.deflate()?,
        };
        space::usable(mos, vdevs, &self.metaslabs()?, adjustments)
    }
}

impl<Mode> Pool<Mode> {
    pub(crate) fn new(parts: Parts) -> Self {
        let inner = Arc::new(parts);
        let shared = Arc::clone(&inner);
        let usable_space = move || {
            let space = shared.usable_space();
            space.inspect_err(|error| tracing::warn!(%error, "no space can be told")).unwrap_or(0)
        };
        Self::of_shared(inner, UsableSpace::new(usable_space), SharedState::default())
    }

    /// A pool that is also open elsewhere, with a shared space computation.
    pub(crate) fn within(
        parts: Parts,
        usable_space: UsableSpace,
        surroundings: SharedState,
    ) -> Self {
        Self::of_shared(Arc::new(parts), usable_space, surroundings)
    }

    fn of_shared(inner: Arc<Parts>, usable_space: UsableSpace, surroundings: SharedState) -> Self {
        let (mos, name) = (inner.mos.clone(), inner.name.clone());
        let place = (name, inner.root_dataset);
        let datasets = DatasetTree::within(mos, place, usable_space, surroundings);
        Self { inner, datasets, mode: PhantomData }
    }

    /// The name under which it is open.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its guid.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.inner.config.guid
    }

    /// Its version: 1 to 28, or 5000.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inner.uberblock.version
    }

    /// The entries of its configuration.
    #[must_use]
    pub fn pool_config(&self) -> &PoolConfig {
        &self.inner.config
    }

    /// Its whole configuration in the MOS.
    #[must_use]
    pub fn config(&self) -> &NvList {
        &self.inner.config_list
    }

    /// The uberblock it was opened from.
    #[must_use]
    pub fn uberblock(&self) -> &Uberblock {
        &self.inner.uberblock
    }

    /// The last transaction group that is visible.
    #[must_use]
    pub fn txg(&self) -> Txg {
        self.inner.uberblock.txg
    }

    /// The older state that was opened instead of the newest, and its cost.
    #[must_use]
    pub fn rewound(&self) -> Option<&RewindInfo> {
        self.inner.rewound.as_ref()
    }

    /// Its vdevs.
    #[must_use]
    pub fn vdevs(&self) -> &Arc<VdevTree> {
        &self.inner.vdevs
    }

    /// The state of its vdevs as a whole.
    #[must_use]
    pub fn health(&self) -> Health {
        self.inner.vdevs.health()
    }

    /// Its hot spares, then its cache devices.
    #[must_use]
    pub fn auxiliary(&self) -> &[AuxiliaryVdev] {
        &self.inner.auxiliary
    }

    /// Reads its blocks.
    #[must_use]
    pub fn pipeline(&self) -> &Arc<BlockPipeline> {
        &self.inner.pipeline
    }

    /// The meta object set.
    #[must_use]
    pub fn mos(&self) -> &Objset {
        &self.inner.mos
    }

    /// The object directory: object 1 of the MOS.
    #[must_use]
    pub fn directory(&self) -> &Attributes {
        &self.inner.directory
    }

    /// The DSL directory of the root dataset.
    #[must_use]
    pub fn root_dataset_dir(&self) -> ObjectId {
        self.inner.root_dataset
    }

    /// Its datasets; loaded keys are shared by all handles of the pool.
    #[must_use]
    pub fn datasets(&self) -> &DatasetTree {
        &self.datasets
    }

    /// Its features.
    #[must_use]
    pub fn features(&self) -> &FeatureStates {
        &self.inner.features
    }

    /// The salt of keyed checksums; pools that never used one may lack it.
    #[must_use]
    pub fn salt(&self) -> Option<&Salt> {
        self.inner.salt.as_ref()
    }

    /// The pool's checkpoint, if it has one.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Uberblock> {
        self.inner.checkpoint.as_ref()
    }

    /// The last removal of a top-level vdev, if there was one.
    #[must_use]
    pub fn removal(&self) -> Option<&RemovalState> {
        self.inner.removal.as_ref()
    }

    /// The stored properties.
    ///
    /// # Errors
    /// [`PoolError`] when they cannot be read.
    pub fn properties(&self) -> Result<PoolProperties, PoolError> {
        let Parts { mos, directory, config, .. } = &*self.inner;
        PoolProperties::read(mos, directory, config, self.version())
    }

    /// Its history; `None` for a pool without.
    ///
    /// # Errors
    /// [`PoolError`] when its start cannot be read.
    pub fn history(&self) -> Result<Option<History>, PoolError> {
        let object = self.inner.directory.object("history")?;
        Ok(object.map(|object| History::open(&self.inner.mos, object)).transpose()?)
    }

    /// The damaged blocks in both logs.
    ///
    /// # Errors
    /// [`PoolError`] when the logs cannot be read.
    pub fn errors(&self) -> Result<Vec<ErrorLogEntry>, PoolError> {
        Ok(error_log::read(&self.inner.mos, &self.inner.features)?)
    }

    /// The known damaged blocks: those in the logs, and those found by reads since the last txg.
    ///
    /// # Errors
    /// [`PoolError`] when the logs cannot be read.
    pub fn known_errors(&self) -> Result<Vec<ErrorLogEntry>, PoolError> {
        let mut errors = self.errors()?;
        let unlogged = self.inner.mos.pipeline().damage().all();
        errors.extend(unlogged.into_iter().map(|damaged| ErrorLogEntry {
            log: ErrorLog::Last,
            bookmark: damaged.bookmark,
            birth: Some(damaged.birth),
        }));
        Ok(errors)
    }

    /// The last scrub or resilver; `None` when there never was one.
    ///
    /// # Errors
    /// [`PoolError`] when its state cannot be read.
    pub fn scan(&self) -> Result<Option<ScanState>, PoolError> {
        let directory = &self.inner.directory;
        match directory.words("scan")? {
            Some(words) => {
                ScanState::from_words(&words).map_err(PoolError::corrupt(directory.id()))
            }
            None => Ok(None),
        }
    }

    /// The newest txg that was covered by a complete scrub.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read.
    pub fn last_scrubbed_txg(&self) -> Result<Option<Txg>, PoolError> {
        Ok(self.inner.directory.number("last_scrubbed_txg")?.map(Txg))
    }

    /// The last expansion of a RAID-Z vdev; `None` when there never was one.
    ///
    /// # Errors
    /// [`PoolError`] when its state cannot be read.
    pub fn expansion(&self, vdev: Vdev<'_>) -> Result<Option<ExpansionState>, PoolError> {
        let Some(zap) = self.top_attributes(vdev)? else { return Ok(None) };
        let number = |name| Ok::<_, PoolError>(zap.number(name)?.unwrap_or(0));
        let state = ExpansionState::new(
            number("org.openzfs:raidz_expand_state")?,
            number("org.openzfs:raidz_expand_start_time")?,
            number("org.openzfs:raidz_expand_end_time")?,
            number("org.openzfs:raidz_expand_bytes_copied")?,
        );
        state.map_err(PoolError::corrupt(zap.id()))
    }

    /// The most important condition of the pool, given the number of damaged blocks: some
    /// [known errors](Self::known_errors) may concern blocks that no longer exist.
    ///
    /// # Errors
    /// [`PoolError`] when the state of the last scan cannot be read.
    pub fn status(&self, damaged: usize) -> Result<PoolStatus, PoolError> {
        let scan = self.scan()?;
        let symptoms = Symptoms {
            last_used_elsewhere: false,
            health: Some(self.health()),
            vdevs: Some(&self.inner.vdevs),
            version: self.version(),
            features: Some(&self.inner.features),
            compatibility: self.inner.config.compatibility.as_deref(),
            scan: scan.as_ref(),
            damaged_blocks: damaged,
            erratum: self.erratum(),
        };
        Ok(symptoms.status())
    }

    /// The ZAP of a top-level vdev: its properties and states.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read.
    pub fn top_attributes(&self, vdev: Vdev<'_>) -> Result<Option<Attributes>, PoolError> {
        top_attributes(&self.inner.mos, vdev)
    }

    /// The ZAP of a leaf: its properties and states.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read.
    pub fn leaf_attributes(&self, vdev: Vdev<'_>) -> Result<Option<Attributes>, PoolError> {
        let object = vdev.own_config().leaf.zap.and_then(ObjectId::non_zero);
        object.map(|object| Attributes::open(&self.inner.mos, object)).transpose()
    }

    /// The ZAP of the root vdev.
    ///
    /// # Errors
    /// [`PoolError`] when it cannot be read.
    pub fn root_attributes(&self) -> Result<Option<Attributes>, PoolError> {
        let root = self.inner.vdevs.root();
        let object = root.own_config().root_zap.and_then(ObjectId::non_zero);
        object.map(|object| Attributes::open(&self.inner.mos, object)).transpose()
    }

    /// The metaslabs of all top-level vdevs, including changes only in the log space maps.
    ///
    /// # Errors
    /// [`PoolError::Space`] when space accounting is damaged.
    pub fn metaslabs(&self) -> Result<PoolMetaslabs, PoolError> {
        self.inner.metaslabs()
    }

    /// The space of all top-level vdevs that have any, by position.
    ///
    /// # Errors
    /// [`PoolError::Space`] when space accounting is damaged.
    pub fn space(&self) -> Result<Vec<VdevSpace>, PoolError> {
        let mut space = space::vdev_space(&self.inner.mos, &self.inner.vdevs, &self.metaslabs()?)?;
        if self.features().state(Feature::SpaceMapHistogram) == FeatureState::Disabled {
            // The sizes of free segments are not tracked here.
            space.iter_mut().for_each(|vdev| vdev.fragmentation = None);
        }
        Ok(space)
    }

    /// Bytes in the pool for datasets, used or not: without redundancy and without the slop space,
    /// which allows a full pool to free something.
    ///
    /// # Errors
    /// [`PoolError`] when space accounting is damaged.
    pub fn usable_space(&self) -> Result<u64, PoolError> {
        self.inner.usable_space()
    }

    /// The dedup tables.
    ///
    /// # Errors
    /// [`PoolError`] when their statistics or logs cannot be read.
    pub fn dedup_tables(&self) -> Result<Vec<DedupTable>, PoolError> {
        let Parts { mos, directory, vdevs, .. } = &*self.inner;
        sharing::dedup_tables(mos, directory, vdevs)
    }

    /// The savings of block cloning.
    ///
    /// # Errors
    /// [`PoolError`] when its tables cannot be read.
    pub fn clone_savings(&self) -> Result<CloneSavings, PoolError> {
        let Parts { mos, directory, vdevs, .. } = &*self.inner;
        sharing::clone_savings(mos, directory, vdevs)
    }

    /// Whether RAID-Z space is accounted without parity.
    ///
    /// # Errors
    /// [`PoolError`] when the object directory cannot be read.
    pub fn deflate(&self) -> Result<bool, PoolError> {
        self.inner.deflate()
    }

    /// The version that the pool was created with, if recorded.
    ///
    /// # Errors
    /// [`PoolError`] when the object directory cannot be read.
    pub fn creation_version(&self) -> Result<Option<u64>, PoolError> {
        self.inner.directory.number("creation_version")
    }

    /// The on-disk incompatibility that affects the pool, if any.
    #[must_use]
    pub fn erratum(&self) -> Option<Erratum> {
        let features = &self.inner.features;
        if features.state(Feature::Encryption).is_enabled()
            && !features.state(Feature::BookmarkV2).is_enabled()
        {
            return Some(Erratum::EncryptionIvSets);
        }
        // The fourth follows from the features alone; the configuration may be outdated.
        let remembered = self.inner.config.errata.and_then(Erratum::from_number);
        remembered.filter(|erratum| *erratum != Erratum::EncryptionIvSets)
    }
}
