//! Making a pool that is on disk writable (spec 01, section 9.9).

use crate::accounting::AccountingScope;
use crate::dataset::{Dataset, DatasetError};
use crate::import::HostIdentity;
use crate::live::LiveDataset;
use crate::live::LiveOptions;
use crate::live::background::heartbeat::Heart;
use crate::live::background::sweep::Sweeps;
use crate::live::background::trim::TrimSignal;
use crate::live::datasets::dir::Directories;
use crate::live::datasets::policy;
use crate::live::devices::writer::VdevWriter;
use crate::live::environment::Environment;
use crate::live::log::claim::LogClaims;
use crate::live::mos::LiveMos;
use crate::live::mos::features::Features;
use crate::live::mos::history::Event;
use crate::live::mos::vital;
use crate::live::not_writable::NotWritable;
use crate::live::pool::{Committed, Found, Inner, LivePool};
use crate::live::space::SpaceDelta;
use crate::live::space::allocation;
use crate::live::space::budget;
use crate::live::space::clone_table::CloneTables;
use crate::live::space::dedup::DedupTables;
use crate::live::space::frees::{FreeLists, Leaks};
use crate::live::space::sharing::Sharing;
use crate::live::sync::state::SyncState;
use crate::live::sync::suspension::Suspension;
use crate::pool::{Attributes, FeatureNeed, Pool, PoolError};
use parking_lot::{Mutex, RwLock};
use rzfs_codec::crypto::CryptoVersion;
use rzfs_dmu::Objset;
use rzfs_dmu::live::LiveObjset;
use rzfs_dmu::txg::TxgEngine;
use rzfs_dmu::write::{DedupIndex, DeviceWriter, ObjsetPolicy};
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::dsl::DslDir;
use rzfs_format::features::Feature;
use rzfs_format::objset::{ObjsetBlock, ObjsetType};
use rzfs_format::pool_state::PoolState;
use rzfs_format::{ByteOrder, ObjectId, Txg};
use rzfs_metaslab::allocator::Autotrim;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Txgs after which a head that nobody uses is closed: its log may need some.
pub(crate) const SYNCS_TO_CLOSE: usize = 3;

/// Features whose structures are not kept up yet: a pool that uses one is read only.
const NOT_WRITTEN: [Feature; 1] = [Feature::RedactedDatasets];

impl LivePool {
    /// Takes over a pool that was opened for reading, with devices that can be written, and writes
    /// a first txg: from then on the pool is this host's.
    ///
    /// # Errors
    /// [`NotWritable`]; nothing has been written then, unless writing itself failed.
    pub fn open(
        pool: &Pool,
        environment: Arc<dyn Environment>,
        options: &LiveOptions,
    ) -> Result<Self, NotWritable> {
        check(pool)?;
        let claims = LogClaims::plan(pool, options.missing_logs)?;
        let mut inner = Inner::of_pool(pool, environment, options, claims.last_birth())?;
        inner.found.given_up_logs = claims.given_up().to_vec();
        inner.claim_logs(claims)?;
        let live = Self::start(Arc::new(inner), None)?;
        live.inner().heart.follow(pool.properties()?.multihost.value);
        let operation = "open";
        live.inner().resume_sweeps();
        let text = format!("pool version {}; software rzfs", pool.version());
        let event = Event::Internal { operation, text, dataset: None };
        live.log(event).map_err(|_| live.why_stopped())?;
        Ok(live)
    }

    /// Opens a head for changes.
    ///
    /// # Errors
    /// [`DatasetError`]: it cannot be read, or is a snapshot.
    pub fn open_dataset(&self, dataset: &Dataset) -> Result<Arc<LiveDataset>, DatasetError> {
        let inner = self.inner();
        self.close_locked(dataset.object());
        let mut heads = inner.heads.lock();
        match heads.get(dataset.object()) {
            Some(open) if open.objset().is_locked() => {
                return Err(DatasetError::KeyNotLoaded { root: dataset.name().to_owned() });
            }
            Some(open) => return Ok(Arc::clone(open)),
            None => {}
        }
        // What the caller saw may have been changed and closed since.
        let current = inner.dataset_tree()?.open(dataset.name())?;
        if current.object() != dataset.object() || heads.is_destroyed(dataset.object()) {
            return Err(DatasetError::NotFound { name: dataset.name().to_owned() });
        }
        let objset = current.open_objset()?;
        if objset.key().is_some_and(|key| key.version() == CryptoVersion::Zero) {
            return Err(DatasetError::OldEncryption { name: dataset.name().to_owned() });
        }
        let open = Self::open_head(&current, objset, inner.has_lz4)?;
        inner.open_account(&current)?;
        Ok(heads.insert(open))
    }

    /// Has a head closed that was opened without its key, for its intent log.
    fn close_locked(&self, id: ObjectId) {
        for _ in 0..SYNCS_TO_CLOSE {
            let open = self.inner().heads.lock().get(id).map(|open| open.objset().is_locked());
            // What cannot be synced stays open.
            if open != Some(true) || self.sync().is_err() {
                return;
            }
        }
    }

    pub(crate) fn open_head(
        dataset: &Dataset,
        objset: Objset,
        has_lz4: bool,
    ) -> Result<LiveDataset, DatasetError> {
        let flags = objset.block().flags;
        let scope = match objset.objset_type() {
            ObjsetType::Zfs if flags & ObjsetBlock::FLAG_PROJECT_QUOTA != 0 => {
                AccountingScope::WithProjects
            }
            ObjsetType::Zfs if flags & ObjsetBlock::FLAG_OBJECT_ACCOUNTING != 0 => {
                AccountingScope::SpaceAndObjects
            }
            ObjsetType::Zfs if flags & ObjsetBlock::FLAG_USER_ACCOUNTING != 0 => {
                AccountingScope::Space
            }
            _ => AccountingScope::Nothing,
        };
        let policy = policy::of_dataset(dataset, has_lz4)?;
        let place = (dataset.name(), dataset.object());
        let open = LiveDataset::new(place, LiveObjset::open(objset), policy, scope);
        open.follow(dataset, has_lz4)?;
        Ok(open)
    }
}

/// Refuses pools whose structures would not be kept up, or are not there in full.
fn check(pool: &Pool) -> Result<(), NotWritable> {
    if pool.mos().block().order != ByteOrder::NATIVE {
        return Err(NotWritable::ByteOrder);
    }
    let features = pool.features();
    let mut names: Vec<String> =
        features.unsupported(FeatureNeed::Writing).map(|feature| feature.guid).collect();
    let active = NOT_WRITTEN.iter().filter(|feature| features.is_active(**feature));
    names.extend(active.map(|feature| feature.name().to_owned()));
    let is_removing = pool.removal().is_some_and(|removal| removal.end_time == 0);
    if is_removing || pool.directory().words("com.delphix:condensing_indirect")?.is_some() {
        names.push(format!("{} (under way)", Feature::DeviceRemoval.name()));
    }
    if features.is_active(Feature::PoolCheckpoint) && pool.checkpoint().is_none() {
        names.push(format!("{} (being discarded)", Feature::PoolCheckpoint.name()));
    }
    if !names.is_empty() {
        return Err(NotWritable::Features { names });
    }
    let missed = pool.vdevs().missed_leaves();
    if !missed.is_empty() {
        let devices = missed.into_iter().map(|leaf| leaf.name().to_owned()).collect();
        return Err(NotWritable::MissingNewer { devices });
    }
    Ok(())
}

impl Inner {
    fn of_pool(
        pool: &Pool,
        environment: Arc<dyn Environment>,
        options: &LiveOptions,
        last_txg: Txg,
    ) -> Result<Self, NotWritable> {
        let (vdevs, pipeline) = (pool.vdevs(), pool.pipeline());
        let features = Features::open(pool.directory(), pool.version(), pool.features())?;
        let mos = LiveObjset::open(pool.mos().clone());
        let space_features = allocation::space_features(&features);
        let allocator = allocation::of_pool(pool, &mos, space_features, options.space)?;
        if pool.properties()?.autotrim.value {
            allocator.set_autotrim(Autotrim::On);
        }
        allocator.set_checkpoint(pool.checkpoint().map(|uberblock| uberblock.txg));
        let mos = Arc::new(LiveMos::new(mos));
        vital::hold(&mos, pool);
        let dedup =
            Arc::new(DedupTables::new(&mos, pipeline.current_vdevs(), &environment, &allocator));
        dedup.load(pool)?;
        let writer = options.writer(pipeline, &allocator, |feature| features.is_enabled(feature));
        let writer = writer
            .with_dedup(Arc::clone(&dedup) as Arc<dyn DedupIndex>)
            .with_injector(environment.write_injector());
        let devices: Arc<dyn DeviceWriter> =
            Arc::new(VdevWriter(Arc::clone(pipeline.current_vdevs())));
        let has_lz4 = features.is_active(Feature::Lz4Compress);
        let inflation = AtomicU64::new(budget::inflation(vdevs));
        let name = "config";
        let config_object = pool.directory().object(name)?.ok_or(PoolError::NoEntry { name })?;
        let config = active_config(pool, environment.host());
        vdevs.mark_all_configs_dirty();
        let state = SyncState {
            config,
            dirs: Directories::default(),
            frees: FreeLists::open(pool.directory(), special_dir(pool, "$FREE")?)?,
            clones: CloneTables::open(pool.mos(), pool.directory(), vdevs)?,
            dedup,
            features,
            config_object,
            history: pool.directory().object("history")?,
            mos_dir: special_dir(pool, "$MOS")?,
            mos_delta: SpaceDelta::default(),
            leaks: Leaks::default(),
            is_deflated: pool.directory().number("deflate")?.is_some_and(|deflate| deflate != 0),
            is_config_dirty: true,
            changed_auxiliary: BTreeSet::new(),
            changed: Vec::new(),
            written: BTreeMap::new(),
        };
        let committed = Committed { uberblock: pool.uberblock().clone(), mos: pool.mos().clone() };
        Ok(Self {
            name: pool.name().to_owned(),
            environment,
            auxiliary: RwLock::new(pool.auxiliary().to_vec()),
            found: Found {
                removal: pool.removal().cloned(),
                checkpoint: pool.checkpoint().cloned(),
                missing_logs: options.missing_logs,
                given_up_logs: Vec::new(),
            },
            devices,
            allocator,
            writer,
            sharing: Arc::new(Sharing::of_state(&mos, &state)),
            mos,
            mos_policy: ObjsetPolicy::mos(policy::default_compression(has_lz4)),
            has_lz4,
            keyring: Arc::clone(pool.datasets().keyring()),
            engine: TxgEngine::new(last_txg, options.txg),
            committed: RwLock::new(committed),
            async_free_blocks: options.async_free_blocks,
            heart: Heart::new(options.heartbeat),
            inflation,
            ledger: Mutex::default(),
            trim_signal: TrimSignal::default(),
            sweeps: Sweeps::open(pool.mos(), vdevs)?,
            heads: Mutex::default(),
            tasks: Mutex::default(),
            growths: Mutex::default(),
            state: Mutex::new(state),
            failure: Mutex::default(),
            suspension: Suspension::new(pool.properties()?.failmode.value),
        })
    }
}

/// The configuration of a pool that this host opens.
fn active_config(pool: &Pool, host: &HostIdentity) -> PoolConfig {
    PoolConfig {
        name: pool.name().to_owned(),
        state: PoolState::Active,
        host: LastHost { id: host.id.into(), name: host.name.clone() },
        ..pool.pool_config().clone()
    }
}

/// The directory of a dataset that no user has, such as `$MOS`; old pools lack some.
fn special_dir(pool: &Pool, name: &str) -> Result<Option<ObjectId>, NotWritable> {
    let root = pool.mos().object(pool.root_dataset_dir()).map_err(PoolError::from)?;
    let corrupt = PoolError::corrupt(root.id());
    let root = DslDir::decode(root.bonus(), root.order()).map_err(corrupt)?;
    let Some(children) = root.children else { return Ok(None) };
    Ok(Attributes::open(pool.mos(), children)?.object(name)?)
}
