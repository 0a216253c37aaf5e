//! Creating a pool (spec 01, section 11).

use super::administration::{NewEncryption, PropertyChange, TaskContext, TaskError};
use super::background::sweep::SweepRecords;
use super::building::{Building, Parts, PoolCore};
use super::change_error::{ChangeError, EncryptionProblem};
use super::datasets::creation::{FIRST_TXG, Foundation, Maker, NewContents, create_directory};
use super::datasets::dir::Directories;
use super::datasets::free_lists::FreeLists;
use super::durable::Committed;
use super::environment::Environment;
use super::pool::LivePool;
use super::space::allocation;
use super::sync_state::{PoolObjects, SyncState};
use super::view::PriorState;
use super::vital;
use super::{Attendance, LiveDataset, LiveError, LiveOptions};
use crate::dataset::Keyring;
use crate::dataset::property::DatasetProperty;
use crate::memory;
use crate::mos::features::Features;
use crate::mos::history::{self, Event};
use crate::mos::packed_list;
use crate::mos::{OBJECT_DIRECTORY as DIRECTORY, config};
use crate::pool::{AuxiliaryKind, AuxiliaryVdev, FailMode};
use rzfs_codec::checksum::Salt;
use rzfs_codec::crypto::DatasetKey;
use rzfs_dmu::live::{LiveObjset, SyncTx};
use rzfs_dmu::txg::{QuiescedTxg, Stopped, TxgEngine};
use rzfs_dmu::write::{ObjsetPolicy, WriteStream};
use rzfs_dmu::{BlockPipeline, PipelineOptions};
use rzfs_format::config::PoolConfig;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::property::PoolProperty;
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_format::{ObjsetId, Txg};
use rzfs_metaslab::allocator::Autotrim;
use rzfs_metaslab::layout::slop;
use rzfs_vdev::VdevTree;
use rzfs_zap::{IntegerSize, ZapValue};
use std::sync::Arc;

/// The first pool version that counts RAID-Z space without parity.
const DEFLATE_VERSION: u64 = 3;

/// The description of a new pool.
pub struct NewPool<'a> {
    /// Name, guid, version, and the properties stored in configurations.
    pub config: PoolConfig,
    /// The features enabled from the start, besides their dependencies.
    pub features: Vec<Feature>,
    /// Its vdevs, whose leaves have their initial labels.
    pub vdevs: Arc<VdevTree>,
    /// Hot spares and cache devices outside the tree, already labelled.
    pub auxiliary: Vec<AuxiliaryVdev>,
    /// Pool properties stored in the MOS, by name.
    pub properties: Vec<(String, ZapValue)>,
    /// Properties of the root file system, in stored form.
    pub root_properties: Vec<(String, ZapValue)>,
    /// The contents of the root file system.
    pub root: &'a dyn NewContents,
    /// How it is encrypted.
    pub encryption: NewEncryption,
    /// The command recorded as the one that created the pool, and the user who gave it.
    pub command: (String, u64),
}

impl std::fmt::Debug for NewPool<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewPool").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why a pool was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreatePoolError {
    /// The requested encryption is impossible.
    #[error(transparent)]
    Encryption(#[from] EncryptionProblem),
    /// The root file system cannot have its properties; the pool is destroyed.
    #[error(transparent)]
    RootProperties(Box<ChangeError>),
    /// It cannot be written.
    #[error(transparent)]
    Live(#[from] LiveError),
}

impl CreatePoolError {
    /// The errno that callers of ZFS expect.
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
    /// Creates a pool and opens it for writing.
    ///
    /// # Errors
    /// [`CreatePoolError`]: the devices hold no pool, although their labels may have been overwritten;
    /// or a destroyed pool, when its root file system cannot have its properties; or a pool without
    /// properties, when they fail after its first txg.
    pub fn create(
        new: NewPool<'_>,
        environment: Arc<dyn Environment>,
        options: &LiveOptions,
    ) -> Result<Self, CreatePoolError> {
        let (building, first) = build(&new, environment, options)?;
        let pool = building.start(Some(first))?;
        pool.engine().wait_synced(FIRST_TXG).map_err(|Stopped| pool.why_stopped())?;
        let multihost = |(name, value): &(String, ZapValue)| {
            name == PoolProperty::Multihost.name() && value.first_u64() == Some(1)
        };
        pool.heart.follow(new.properties.iter().any(multihost));
        let NewPool { properties, root_properties, command: (line, user), .. } = new;
        let task = move |context: &mut TaskContext<'_>| {
            context.set_first_properties(&properties, &root_properties)?;
            Ok(context.log(&Event::Command { line, user })?)
        };
        match pool.tasks.administer(task) {
            Ok(()) => {
                if options.attendance == Attendance::WhenOpen {
                    pool.attend();
                }
                Ok(pool)
            }
            Err(ChangeError::Suspended { .. }) => Err(pool.why_stopped().into()),
            Err(refused) => {
                if let Err(error) = pool.destroy() {
                    tracing::warn!(%error, "a pool that is not wanted stays on its devices");
                }
                Err(CreatePoolError::RootProperties(Box::new(refused)))
            }
        }
    }
}

/// Refuses properties that the root file system of a new pool on these vdevs can never have.
/// Whether the others are possible is only known to [`LivePool::create`], which writes.
///
/// # Errors
/// [`ChangeError`].
pub fn check_root_properties(
    vdevs: &VdevTree,
    properties: &[(String, ZapValue)],
) -> Result<(), ChangeError> {
    let space = normal_space(vdevs);
    // As if all of it was used by intent logs, which affects the slop space.
    PropertyChange::check_of_root(properties, space.saturating_sub(slop(space, u64::MAX)))
}

/// Writes the first objects. The returned txg makes them a pool.
fn build(
    new: &NewPool<'_>,
    environment: Arc<dyn Environment>,
    options: &LiveOptions,
) -> Result<(Building, QuiescedTxg), CreatePoolError> {
    let mut salt = [0; Salt::SIZE];
    for word in salt.as_chunks_mut::<8>().0 {
        *word = environment.random().to_ne_bytes();
    }
    let pipeline = BlockPipeline::new(
        Arc::clone(&new.vdevs),
        PipelineOptions {
            salt: Salt::new(salt),
            dynamic_gang_headers: false,
            arc_max: memory::cache(&options.tunables),
            tunables: options.tunables,
            injector: None,
        },
    );
    let synced = Txg(FIRST_TXG.get() - 1);
    let engine = TxgEngine::new(synced, options.txg(), environment.clock());
    let mos = LiveObjset::create(&pipeline, ObjsetId::MOS, (ObjsetType::Meta, 0), None);
    let allocator = allocation::of_new_pool(&mos, options.space()).map_err(LiveError::from)?;
    let has = |feature| new.features.contains(&feature);
    let has_lz4 = has(Feature::Lz4Compress);
    let given = (environment, options);
    let auxiliary = new.auxiliary.clone();
    let core = PoolCore::new(mos, allocator, auxiliary, given, has, has_lz4);
    vital::hold_new(&core.mos);
    let keyring: Arc<Keyring> = Arc::default();
    let txg = engine.quiesce().map_err(LiveError::from)?;
    let (state, root) = {
        let stream = WriteStream::start(core.devices.writer());
        let tx = SyncTx::new(&txg, 1, &core.writer, &stream);
        let founded = found(new, &core, &keyring, &tx, &salt);
        let failed = stream.finish();
        let founded = founded?;
        if let Some(first) = failed.into_iter().next() {
            return Err(LiveError::from(first.error).into());
        }
        founded
    };
    core.allocator.set_features(allocation::space_features(&state.features));
    let property = |property: PoolProperty| {
        let found = new.properties.iter().find(|(name, _)| name == property.name());
        found.and_then(|(_, value)| value.first_u64())
    };
    if property(PoolProperty::Autotrim) == Some(1) {
        core.allocator.set_autotrim(Autotrim::On);
    }
    let parts = Parts {
        name: new.config.name.clone(),
        found: PriorState::default(),
        keyring,
        engine,
        committed: Committed::nothing(&core.mos, new.config.version, synced),
        sweeps: SweepRecords::default(),
        fail_mode: property(PoolProperty::FailMode)
            .and_then(FailMode::from_number)
            .unwrap_or_default(),
    };
    let building = core.build(parts, state, options);
    building.pool.heads.insert(root);
    Ok((building, txg))
}

/// Creates the first objects (spec 01, section 11.2).
fn found(
    new: &NewPool<'_>,
    core: &PoolCore,
    keyring: &Keyring,
    tx: &SyncTx<'_>,
    salt: &[u8; Salt::SIZE],
) -> Result<(SyncState, LiveDataset), CreatePoolError> {
    let environment = &*core.environment;
    let random = || environment.random();
    let mos = core.mos.in_pass(tx, &random);
    create_directory(&mos)?;
    let version = new.config.version;
    let mut dirs = Directories::default();
    let mut features = Features::new(version);
    let mut maker = Maker { mos, dirs: &mut dirs, features: &mut features, environment };
    let foundation = maker.create_foundation(new.root.names())?;
    features.create_tables(&mos)?;
    for feature in &new.features {
        features.enable(&mos, *feature, FIRST_TXG)?;
    }
    let mut maker = Maker { mos, dirs: &mut dirs, features: &mut features, environment };
    let key = encrypt_root(&mut maker, &foundation, &new.encryption, keyring)?;
    let policy = ObjsetPolicy { copies: 1, ..core.mos_policy() };
    let place = (new.config.name.as_str(), foundation.root_head);
    let root = maker.create_objset(place, new.root, policy, key)?;
    let deferred = maker.create_deferred_list()?;
    let history = history::create(&mos, normal_space(&new.vdevs))?;
    let config_object = packed_list::create(&mos, "config")?;
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
    let Foundation { mos_dir, free_dir, free_list, .. } = foundation;
    let objects =
        PoolObjects { config: config_object, history: Some(history), mos_dir: Some(mos_dir) };
    let frees = FreeLists::new(deferred, Some(free_list), Some(free_dir));
    let state = SyncState {
        dirs,
        is_deflated: version >= DEFLATE_VERSION,
        ..SyncState::new(objects, new.config.clone(), features, frees, &core.dedup)
    };
    Ok((state, root))
}

/// Creates the keys of the root file system, if it is to be encrypted.
fn encrypt_root(
    maker: &mut Maker<'_>,
    foundation: &Foundation,
    encryption: &NewEncryption,
    keyring: &Keyring,
) -> Result<Option<Arc<DatasetKey>>, CreatePoolError> {
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
        maker.mos.set(zap, DatasetProperty::KeyLocation.name(), root.location.as_str())?;
    }
    Ok(Some(keys.key))
}

/// Bytes of the vdevs that hold data, deflated.
fn normal_space(vdevs: &VdevTree) -> u64 {
    let normal = vdevs.top_levels().filter(|top| top.allocation_bias().is_none());
    normal
        .filter_map(|top| vdevs.deflated(top.vdev_id()?, top.asize()?))
        .fold(0, u64::saturating_add)
}

impl TaskContext<'_> {
    /// Stores the initial properties of a pool and its root file system.
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
