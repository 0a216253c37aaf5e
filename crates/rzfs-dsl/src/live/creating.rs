//! Making a pool (spec 01, section 11).

use crate::dataset::Keyring;
use crate::live::LiveError;
use crate::live::LiveOptions;
use crate::live::administration::{
    ChangeError, EncryptionProblem, NewEncryption, PropertyChange, TaskContext, TaskError,
};
use crate::live::background::heartbeat::Heart;
use crate::live::background::sweep::Sweeps;
use crate::live::background::trim::TrimSignal;
use crate::live::datasets::creation::{
    FIRST_TXG, Foundation, Maker, NewContents, create_directory,
};
use crate::live::datasets::dir::Directories;
use crate::live::datasets::policy;
use crate::live::devices::writer::VdevWriter;
use crate::live::environment::Environment;
use crate::live::mos::LiveMos;
use crate::live::mos::config;
use crate::live::mos::features::Features;
use crate::live::mos::history::{self, Event};
use crate::live::mos::vital;
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
use crate::pool::{AuxiliaryKind, AuxiliaryVdev, FailMode, OBJECT_DIRECTORY as DIRECTORY};
use parking_lot::{Mutex, RwLock};
use rzfs_codec::checksum::Salt;
use rzfs_codec::crypto::DatasetKey;
use rzfs_dmu::live::{LiveObjset, SyncTx};
use rzfs_dmu::txg::{QuiescedTxg, Stopped, TxgEngine};
use rzfs_dmu::write::{DedupIndex, DeviceWriter, ObjsetPolicy, WriteStream};
use rzfs_dmu::{BlockPipeline, PipelineOptions};
use rzfs_format::config::PoolConfig;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_format::{ObjsetId, Txg};
use rzfs_metaslab::allocator::Autotrim;
use rzfs_metaslab::layout::slop;
use rzfs_vdev::VdevTree;
use rzfs_zap::{IntegerSize, ZapValue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The pool's version from which on RAID-Z counts as what data takes on it without parity.
const DEFLATE_VERSION: u64 = 3;

/// What a new pool is to be.
pub struct NewPool<'a> {
    /// Name, guid, version, and the properties that configurations keep.
    pub config: PoolConfig,
    /// The features that it has from the start, besides those that they depend on.
    pub features: Vec<Feature>,
    /// Its vdevs, whose leaves have their first labels.
    pub vdevs: Arc<VdevTree>,
    /// Hot spares and cache devices beside the tree, which have their labels.
    pub auxiliary: Vec<AuxiliaryVdev>,
    /// Pool properties that its MOS keeps, by name.
    pub properties: Vec<(String, ZapValue)>,
    /// Properties of the root file system, as its directory keeps them.
    pub root_properties: Vec<(String, ZapValue)>,
    /// What the root file system holds.
    pub root: &'a dyn NewContents,
    /// How it is encrypted.
    pub encryption: NewEncryption,
    /// The command that is remembered as the one that made the pool, and who gave it.
    pub command: (String, u64),
}

impl std::fmt::Debug for NewPool<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewPool").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why a pool was not made.
#[derive(Debug, thiserror::Error)]
pub enum NotCreated {
    /// It cannot be encrypted as it should be.
    #[error(transparent)]
    Encryption(#[from] EncryptionProblem),
    /// Its root file system cannot have its properties; the pool is destroyed.
    #[error(transparent)]
    RootProperties(Box<ChangeError>),
    /// It cannot be written.
    #[error(transparent)]
    Live(#[from] LiveError),
}

impl NotCreated {
    /// The errno that a caller of ZFS expects.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        match self {
            Self::Encryption(_) => EIO,
            Self::RootProperties(source) => source.errno(),
            Self::Live(source) => source.errno(),
        }
    }
}

impl LivePool {
    /// Makes a pool, which is open for writing then.
    ///
    /// # Errors
    /// [`NotCreated`]: the devices hold no pool, although their labels may have been overwritten;
    /// or one that is destroyed, where its root file system cannot have its properties; or one
    /// without properties, where they fail after its first txg.
    pub fn create(
        new: NewPool<'_>,
        environment: Arc<dyn Environment>,
        options: &LiveOptions,
    ) -> Result<Self, NotCreated> {
        let (inner, first) = Inner::of_new_pool(&new, environment, options)?;
        let pool = Self::start(Arc::new(inner), Some(first))?;
        pool.engine().wait_synced(FIRST_TXG).map_err(|Stopped| pool.why_stopped())?;
        let multihost = |(name, value): &(String, ZapValue)| {
            name == "multihost" && value.first_u64() == Some(1)
        };
        pool.inner().heart.follow(new.properties.iter().any(multihost));
        let NewPool { properties, root_properties, command: (line, user), .. } = new;
        let task = move |context: &mut TaskContext<'_>| {
            context.set_first_properties(&properties, &root_properties)?;
            Ok(context.log(&Event::Command { line, user })?)
        };
        match pool.administer(task) {
            Ok(()) => {
                pool.inner().suspension.begin();
                Ok(pool)
            }
            Err(ChangeError::Suspended { .. }) => Err(pool.why_stopped().into()),
            Err(refused) => {
                if let Err(error) = pool.destroy() {
                    tracing::warn!(%error, "a pool that is not wanted stays on its devices");
                }
                Err(NotCreated::RootProperties(Box::new(refused)))
            }
        }
    }
}

/// Refuses properties that the root file system of a new pool on these vdevs can never have. Whether
/// it can have the others only [`LivePool::create`] knows, which writes.
///
/// # Errors
/// [`ChangeError`].
pub fn check_root_properties(
    vdevs: &VdevTree,
    properties: &[(String, ZapValue)],
) -> Result<(), ChangeError> {
    let space = normal_space(vdevs);
    // As if all of it was kept for intent logs, which counts for what is held back.
    PropertyChange::check_of_root(properties, space.saturating_sub(slop(space, u64::MAX)))
}

impl Inner {
    /// Writes the first objects. With the txg that is answered they become a pool.
    fn of_new_pool(
        new: &NewPool<'_>,
        environment: Arc<dyn Environment>,
        options: &LiveOptions,
    ) -> Result<(Self, QuiescedTxg), NotCreated> {
        let vdevs = &new.vdevs;
        let mut salt = [0; Salt::SIZE];
        for word in salt.as_chunks_mut::<8>().0 {
            *word = environment.random().to_ne_bytes();
        }
        let has = |feature| new.features.contains(&feature);
        let pipeline = BlockPipeline::new(
            Arc::clone(vdevs),
            PipelineOptions {
                salt: Salt::new(salt),
                dynamic_gang_headers: false,
                arc_max: options.arc_max,
                injector: None,
            },
        );
        let synced = Txg(FIRST_TXG.get() - 1);
        let engine = TxgEngine::new(synced, options.txg);
        let mos = LiveObjset::create(&pipeline, ObjsetId::MOS, (ObjsetType::Meta, 0), None);
        let allocator = allocation::of_new_pool(&mos, options.space).map_err(LiveError::from)?;
        let mos = Arc::new(LiveMos::new(mos));
        vital::hold_new(&mos);
        let keyring: Arc<Keyring> = Arc::default();
        let dedup =
            Arc::new(DedupTables::new(&mos, pipeline.current_vdevs(), &environment, &allocator));
        let writer = options.writer(&pipeline, &allocator, has);
        let writer = writer
            .with_dedup(Arc::clone(&dedup) as Arc<dyn DedupIndex>)
            .with_injector(environment.write_injector());
        let devices: Arc<dyn DeviceWriter> =
            Arc::new(VdevWriter(Arc::clone(pipeline.current_vdevs())));
        let metadata = policy::default_compression(has(Feature::Lz4Compress));
        let txg = engine.quiesce();
        let (state, root) = {
            let stream = WriteStream::start(&devices);
            let tx = SyncTx::new(&txg, 1, &writer, &stream);
            let founded = found(new, (&mos, &dedup, &keyring), &tx, &*environment, &salt, metadata);
            let failed = stream.finish();
            let founded = founded?;
            if let Some(first) = failed.into_iter().next() {
                return Err(LiveError::from(first.error).into());
            }
            founded
        };
        allocator.set_features(allocation::space_features(&state.features));
        let trims =
            |(name, value): &(String, ZapValue)| name == "autotrim" && value.first_u64() == Some(1);
        if new.properties.iter().any(trims) {
            allocator.set_autotrim(Autotrim::On);
        }
        let fail_mode = new.properties.iter().find(|(name, _)| name == "failmode");
        let fail_mode = fail_mode.and_then(|(_, value)| FailMode::from_number(value.first_u64()?));
        let fail_mode = fail_mode.unwrap_or_default();
        let committed = Committed::nothing(&mos, new.config.version, synced);
        let inner = Self {
            name: new.config.name.clone(),
            environment,
            found: Found::default(),
            auxiliary: RwLock::new(new.auxiliary.clone()),
            devices,
            allocator,
            writer,
            sharing: Arc::new(Sharing::new(&mos, &dedup)),
            mos,
            mos_policy: ObjsetPolicy::mos(metadata),
            has_lz4: has(Feature::Lz4Compress),
            keyring,
            engine,
            committed: RwLock::new(committed),
            async_free_blocks: options.async_free_blocks,
            heart: Heart::new(options.heartbeat),
            inflation: AtomicU64::new(budget::inflation(vdevs)),
            ledger: Mutex::default(),
            trim_signal: TrimSignal::default(),
            sweeps: Sweeps::default(),
            heads: Mutex::default(),
            tasks: Mutex::default(),
            growths: Mutex::default(),
            state: Mutex::new(state),
            failure: Mutex::default(),
            suspension: Suspension::of_new_pool(fail_mode),
        };
        inner.add_dataset(root);
        Ok((inner, txg))
    }
}

/// Makes the first objects (spec 01, section 11.2).
fn found(
    new: &NewPool<'_>,
    (mos, dedup, keyring): (&LiveMos, &Arc<DedupTables>, &Keyring),
    tx: &SyncTx<'_>,
    environment: &dyn Environment,
    salt: &[u8; Salt::SIZE],
    metadata: rzfs_format::compression::CompressionFunction,
) -> Result<(SyncState, crate::live::LiveDataset), NotCreated> {
    let random = || environment.random();
    let mos = mos.in_pass(tx, &random);
    create_directory(&mos)?;
    let version = new.config.version;
    let mut dirs = Directories::default();
    let mut features = Features::new(version);
    let mut maker = Maker { mos, dirs: &mut dirs, features: &mut features, environment };
    let foundation = maker.found_pool(new.root.names())?;
    features.create_tables(&mos)?;
    for feature in &new.features {
        features.enable(&mos, *feature, FIRST_TXG)?;
    }
    let mut maker = Maker { mos, dirs: &mut dirs, features: &mut features, environment };
    let key = encrypt_root(&mut maker, &foundation, &new.encryption, keyring)?;
    let policy = ObjsetPolicy { copies: 1, ..ObjsetPolicy::mos(metadata) };
    let place = (new.config.name.as_str(), foundation.root_head);
    let root = maker.create_objset(place, new.root, policy, key)?;
    let deferred = maker.create_deferred_list()?;
    let history = history::create(&mos, normal_space(&new.vdevs))?;
    let config_object = config::create(&mos)?;
    for kind in [AuxiliaryKind::Spare, AuxiliaryKind::Cache] {
        let vdevs = new.auxiliary.iter().filter(|vdev| vdev.kind == kind);
        config::write_auxiliary(&mos, kind, vdevs.map(|vdev| &vdev.config))?;
    }
    mos.insert(DIRECTORY, "creation_version", version)?;
    if version >= DEFLATE_VERSION {
        mos.insert(DIRECTORY, "deflate", 1_u64)?;
    }
    if version >= FEATURES_VERSION {
        let bytes: Vec<u64> = salt.iter().map(|byte| u64::from(*byte)).collect();
        let salt = ZapValue::new(IntegerSize::One, &bytes);
        mos.insert(DIRECTORY, "org.illumos:checksum_salt", salt)?;
    }
    let about = Event::Internal {
        operation: "create",
        text: format!(
            "pool version {version}; software version rzfs/{}",
            env!("CARGO_PKG_VERSION")
        ),
        dataset: None,
    };
    let host = environment.host().name.as_deref().unwrap_or("(none)");
    let occasion = history::Occasion { txg: FIRST_TXG, time: environment.now(), host };
    history::append(&mos, history, &about, occasion)?;
    let state = SyncState {
        config: new.config.clone(),
        frees: FreeLists::new(deferred, Some(foundation.free_list), Some(foundation.free_dir)),
        clones: CloneTables::default(),
        dedup: Arc::clone(dedup),
        dirs,
        features,
        config_object,
        history: Some(history),
        mos_dir: Some(foundation.mos_dir),
        mos_delta: SpaceDelta::default(),
        leaks: Leaks::default(),
        is_deflated: version >= DEFLATE_VERSION,
        is_config_dirty: true,
        changed_auxiliary: BTreeSet::new(),
        changed: Vec::new(),
        written: BTreeMap::new(),
    };
    Ok((state, root))
}

/// Gives the root file system its keys, if it is to be encrypted.
fn encrypt_root(
    maker: &mut Maker<'_>,
    foundation: &Foundation,
    encryption: &NewEncryption,
    keyring: &Keyring,
) -> Result<Option<Arc<DatasetKey>>, NotCreated> {
    let Some(keys) = encryption.of_root(maker.environment.guid())? else { return Ok(None) };
    for feature in [Feature::Encryption, Feature::BookmarkV2] {
        if !maker.features.is_enabled(feature) {
            return Err(EncryptionProblem::Feature.into());
        }
    }
    let dir = foundation.root_dir;
    let object = maker.encrypt((dir, foundation.root_head), &keys)?;
    keyring.insert_new(dir, object, &keys);
    if let (Some(zap), Some(root)) = (maker.dirs.get(&maker.mos, dir)?.properties, &encryption.root)
    {
        maker.mos.set(zap, "keylocation", root.location.as_str())?;
    }
    Ok(Some(keys.key))
}

/// Bytes of the vdevs that hold data, without what RAID-Z takes of them.
fn normal_space(vdevs: &VdevTree) -> u64 {
    let normal = vdevs.top_levels().filter(|top| top.allocation_bias().is_none());
    normal
        .filter_map(|top| {
            let ratio = vdevs.deflate_ratio(top.vdev_id()?)?;
            Some((top.asize()? >> 9).saturating_mul(ratio))
        })
        .fold(0, u64::saturating_add)
}

impl TaskContext<'_> {
    /// Stores the properties that a pool and its root file system are made with.
    fn set_first_properties(
        &mut self,
        properties: &[(String, ZapValue)],
        root_properties: &[(String, ZapValue)],
    ) -> Result<(), TaskError> {
        self.set_root_properties(root_properties)?;
        let mos = self.mos;
        if !properties.is_empty() {
            let zap = mos.create_zap(ObjectType::POOL_PROPS)?;
            mos.insert(DIRECTORY, "pool_props", zap.get())?;
            for (name, value) in properties {
                mos.insert(zap, name, value.clone())?;
            }
        }
        Ok(())
    }
}
