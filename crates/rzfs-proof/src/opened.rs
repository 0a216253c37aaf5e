//! Pools created and opened for changes, with all their file systems.

use crate::view::record;
use crate::{ProofError, Shape};
use rzfs_blockdev::{Access, BlockDevice, FileIdentity, OpenOptions};
use rzfs_clock::Clock;
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::dataset::{Dataset, DatasetKind, DatasetTree, KeyStatus};
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, HostIdentity, ImportOptions};
use rzfs_dsl::live::{
    AddedVdevs, Environment, HeadBudget, LiveOptions as PoolOptions, LivePool, LocalChanges,
    NewClone, NewDataset, NewEncryption, NewPool, NewSnapshots, SectorSizes, SystemEnvironment,
};
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::nvlist::NvList;
use rzfs_format::pool_state::PoolState;
use rzfs_format::znode::Timestamp;
use rzfs_format::{BlockPointer, Txg, VdevId};
use rzfs_receive::{ReceiveOrder, Remains, Streams};
use rzfs_testkit::FileSystemManifest;
use rzfs_vdev::create::{DeviceOpener, NewDevice, PlanOptions, TopSpec, VdevSpec};
use rzfs_vdev::label::NewLabel;
use rzfs_vdev::{TreeOptions, VdevKind, VdevTree};
use rzfs_zpl::live::{
    DatasetSpace, DnodeSize, LiveFileSystem, LiveOptions, NewFileSystem, SpaceDemand, SpaceRefusal,
    UnboundedSpace, WallClock, XattrStore, replay_volume,
};
use rzfs_zpl::{FileSystem, FileSystemOptions, SpaceUse, ZplError};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The version of pools with features.
const FEATURES_VERSION: u64 = 5000;
/// Creation time of root directories of new pools.
const CREATION: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

/// The limits of a pool's files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bounds {
    /// Its devices. Changes determine the ends of groups: none waits for room.
    Devices,
    /// Quotas, reservations, and the space of the pool, as for users.
    Accounts,
}

/// How pools are opened.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The options of the pool.
    pub pool: PoolOptions,
    /// Randomness, and the pool's clock.
    pub environment: Arc<dyn Environment>,
    /// The clock of files.
    pub clock: Arc<dyn WallClock>,
    /// The limits of the files.
    pub bounds: Bounds,
    /// Keys of encrypted datasets: each is tried with all that have none loaded. The first is for
    /// new ones.
    pub keys: Vec<Vec<u8>>,
}

impl Default for Settings {
    fn default() -> Self {
        let host = HostIdentity { id: 0, name: Some("proof".to_owned()) };
        Self {
            pool: PoolOptions::default(),
            environment: Arc::new(SystemEnvironment::new(host)),
            clock: Arc::new(Clock::system()),
            bounds: Bounds::Devices,
            keys: Vec::new(),
        }
    }
}

/// A pool that is open for changes, with its file systems.
#[derive(Debug)]
pub struct OpenPool {
    /// The pool.
    pub pool: LivePool,
    /// Its file systems by name, except for those too old for changes and those with an unknown
    /// key.
    pub file_systems: BTreeMap<String, Arc<LiveFileSystem>>,
    settings: Settings,
}

impl OpenPool {
    /// Makes a pool on devices that [`Shape::devices`] names.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn create(
        shape: &Shape,
        devices: &BTreeMap<&'static str, Arc<dyn BlockDevice>>,
        settings: &Settings,
    ) -> Result<Self, ProofError> {
        let spec = VdevSpec::parse(&shape.words(str::to_owned))?;
        spec.check_new_pool()?;
        Self::of_spec(shape, with_devices(spec, devices)?, settings)
    }

    /// Adds vdevs, given as arguments of `zpool add`.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn add_vdevs(
        &self,
        words: &str,
        devices: &BTreeMap<&'static str, Arc<dyn BlockDevice>>,
    ) -> Result<(), ProofError> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let devices = with_devices(VdevSpec::parse(&words)?, devices)?;
        let (ashift, sectors) = (0, SectorSizes::Any);
        Ok(self.pool.add_vdevs(AddedVdevs { devices, ashift, sectors })?)
    }

    fn of_spec(
        shape: &Shape,
        spec: VdevSpec<NewDevice>,
        settings: &Settings,
    ) -> Result<Self, ProofError> {
        let environment = &settings.environment;
        let plan = PlanOptions { ashift: shape.ashift, ..PlanOptions::default() };
        let mut new = spec.plan(&plan, &mut || environment.random())?;
        let guid = environment.guid();
        let root = new.root(guid, Txg(4));
        let vdevs = Arc::new(VdevTree::open(root, &new.devices, TreeOptions::default())?);
        for (vdev, bias) in new.take_biases() {
            let vdev = VdevId(u32::try_from(vdev).unwrap_or(u32::MAX));
            vdevs.set_allocation_bias(vdev, bias);
        }
        let config = PoolConfig {
            version: FEATURES_VERSION,
            name: shape.name.to_owned(),
            state: PoolState::Active,
            txg: Txg(0),
            guid,
            errata: Some(0),
            comment: None,
            compatibility: None,
            host: LastHost {
                id: environment.host().id.into(),
                name: environment.host().name.clone(),
            },
            vdev_children: None,
            holes: Vec::new(),
            split_guid: None,
            features_for_read: Some(Vec::new()),
            vdev_tree: NvList::new(),
        };
        vdevs.write_new_labels(&config, vdevs.top_levels(), None, Txg(4))?;
        NewLabel::write_all(&new.auxiliary_labels(FEATURES_VERSION)?, None)?;
        let new_pool = NewPool {
            auxiliary: Vec::new(),
            config,
            features: shape.features.features(),
            vdevs,
            properties: vec![("ashift".to_owned(), shape.ashift.into())],
            root_properties: Vec::new(),
            encryption: shape.encrypted.root(settings)?,
            root: &NewFileSystem::new(CREATION, environment.random()),
            command: (format!("zpool create {} {}", shape.name, shape.vdevs), 0),
        };
        let pool = LivePool::create(new_pool, Arc::clone(environment), &settings.pool)?;
        let mut open = Self::of_live(pool, settings)?;
        shape.encrypted.fill(&mut open, settings)?;
        shape.habit.prepare(&open)?;
        Ok(open)
    }

    /// Opens a pool for changes.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn open(
        sources: &[DeviceSource],
        name: &str,
        settings: &Settings,
    ) -> Result<Self, ProofError> {
        Self::of_live(open_pool(sources, name, settings)?, settings)
    }

    /// Opens the file systems of a pool that is open.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn of_live(pool: LivePool, settings: &Settings) -> Result<Self, ProofError> {
        let root = pool.dataset_tree()?.root()?;
        let mut this = Self { pool, file_systems: BTreeMap::new(), settings: settings.clone() };
        for dataset in root.descendants()? {
            if dataset.is_inconsistent() || dataset.key_status()? == KeyStatus::Unavailable {
                continue;
            }
            match dataset.kind()? {
                DatasetKind::FileSystem => this.open_file_system(&dataset)?,
                DatasetKind::Volume => this.replay_volume(&dataset)?,
                DatasetKind::Snapshot => {}
            }
        }
        Ok(this)
    }

    fn open_file_system(&mut self, dataset: &Dataset) -> Result<(), ProofError> {
        let at = |source: ZplError| ProofError::at(dataset.name(), source);
        let mut options = options_of(dataset, &self.settings).map_err(at)?;
        if let Some(other) = self.file_systems.values().next() {
            options.reading.caches = other.options().reading.caches.clone();
        }
        let live = self.pool.open_dataset(dataset)?;
        let fs = match LiveFileSystem::open_dataset(&self.pool, &live, options) {
            // Read-only, as OpenZFS would have to upgrade it first.
            Err(ZplError::OldVersion { .. }) => return Ok(()),
            result => result.map_err(at)?,
        };
        if self.settings.bounds == Bounds::Devices {
            let space = Arc::new(AnySpace(self.pool.budget(&live)));
            fs.change_options(|options| options.space = space);
        }
        fs.drain_unlinked().map_err(at)?;
        self.file_systems.insert(dataset.name().to_owned(), fs);
        Ok(())
    }

    fn replay_volume(&self, dataset: &Dataset) -> Result<(), ProofError> {
        let live = self.pool.open_dataset(dataset)?;
        let replayed = replay_volume(&self.pool, &live);
        replayed.map_err(|source| ProofError::at(dataset.name(), source)).map(drop)
    }

    /// Creates a file system.
    ///
    /// # Errors
    /// As [`LivePool::create_dataset`].
    pub fn create_file_system(&mut self, name: &str) -> Result<(), ProofError> {
        self.create_encrypted(name, NewEncryption::default())
    }

    /// Makes a file system that is encrypted in this way.
    pub(crate) fn create_encrypted(
        &mut self,
        name: &str,
        encryption: NewEncryption,
    ) -> Result<(), ProofError> {
        let seed = self.settings.environment.random();
        let contents = Arc::new(NewFileSystem::new(CREATION, seed));
        self.pool
            .create_dataset(name, NewDataset::new(contents, Vec::new()).encrypted(encryption))?;
        let dataset = self.pool.dataset_tree()?.open(name)?;
        self.open_file_system(&dataset)
    }

    /// Destroys a file system without children.
    ///
    /// # Errors
    /// As [`LivePool::destroy_dataset`].
    pub fn destroy_file_system(&mut self, name: &str) -> Result<(), ProofError> {
        if let Some(fs) = self.file_systems.remove(name) {
            fs.pause_reclaiming();
        }
        Ok(self.pool.destroy_dataset(name)?)
    }

    /// Renames a file system and its descendants.
    ///
    /// # Errors
    /// As [`LivePool::rename_dataset`].
    pub fn rename_file_system(&mut self, from: &str, to: &str) -> Result<(), ProofError> {
        self.pool.rename_dataset(from, to)?;
        let renamed = |name: &str| match name.strip_prefix(from) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("{to}{rest}"),
            _ => name.to_owned(),
        };
        let old = std::mem::take(&mut self.file_systems);
        self.file_systems = old.into_iter().map(|(name, fs)| (renamed(&name), fs)).collect();
        Ok(())
    }

    /// The visible contents of all its file systems.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn record(&self) -> Result<BTreeMap<String, FileSystemManifest>, ProofError> {
        self.file_systems.iter().map(|(name, fs)| Ok((name.clone(), record(&**fs)?))).collect()
    }

    /// The same of all its file systems and their snapshots.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn record_all(&self) -> Result<BTreeMap<String, FileSystemManifest>, ProofError> {
        let mut all = self.record()?;
        record_snapshots(&self.pool.dataset_tree()?, &mut all)?;
        Ok(all)
    }

    /// Takes a snapshot of each of its file systems.
    ///
    /// # Errors
    /// As [`LivePool::take_snapshots`].
    pub fn take_snapshots(&self, name: &str) -> Result<(), ProofError> {
        let names = self.file_systems.keys().map(|head| format!("{head}@{name}")).collect();
        let new = NewSnapshots { names, properties: Vec::new() };
        Ok(self.pool.take_snapshots(&new)?)
    }

    /// Clones a snapshot as a file system.
    ///
    /// # Errors
    /// As [`LivePool::clone_snapshot`].
    pub fn clone_snapshot(&mut self, origin: &str, name: &str) -> Result<(), ProofError> {
        let new = NewClone { origin: origin.to_owned(), properties: Vec::new() };
        self.pool.clone_snapshot(name, &new)?;
        let dataset = self.pool.dataset_tree()?.open(name)?;
        self.open_file_system(&dataset)
    }

    /// Rolls a file system back to its last snapshot.
    ///
    /// # Errors
    /// As [`LivePool::roll_back`].
    pub fn roll_back(&mut self, name: &str) -> Result<(), ProofError> {
        if let Some(fs) = self.file_systems.remove(name) {
            fs.pause_reclaiming();
        }
        self.pool.roll_back(name)?;
        let dataset = self.pool.dataset_tree()?.open(name)?;
        self.open_file_system(&dataset)
    }

    /// Receives a stream into a file system, discarding all changes since its last snapshot.
    ///
    /// # Errors
    /// As [`Incoming::arrive`](rzfs_receive::Incoming::arrive).
    pub fn receive(
        &mut self,
        target: &str,
        stream: impl Read,
        remains: Remains,
    ) -> Result<(), ProofError> {
        let changes = LocalChanges::GivenUp;
        let order = ReceiveOrder { changes, remains, ..ReceiveOrder::for_target(target) };
        let mut streams = Streams::open(stream)?;
        while let Some(incoming) = streams.next_stream()? {
            let arrived = incoming.arrive(&self.pool, &order)?;
            if let Some(fs) = self.file_systems.remove(target) {
                fs.pause_reclaiming();
            }
            arrived.end()?;
            let dataset = self.pool.dataset_tree()?.open(target)?;
            self.open_file_system(&dataset)?;
        }
        Ok(())
    }

    /// Writes all changes and waits for that.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn sync(&self) -> Result<(), ProofError> {
        self.pool.sync().map_err(|_| ProofError::Suspended(self.pool.failure()))
    }

    /// The root file system, and its name.
    ///
    /// # Errors
    /// There is none: its head cannot be changed.
    pub fn root(&self) -> Result<(&str, &Arc<LiveFileSystem>), ProofError> {
        let first = self.file_systems.iter().find(|(name, _)| !name.contains('/'));
        let (name, fs) = first.ok_or(ProofError::NoPool("a root file system".to_owned()))?;
        Ok((name, fs))
    }

    /// Writes everything, and exports the pool.
    ///
    /// # Errors
    /// The pool is suspended.
    pub fn export(self) -> Result<(), ProofError> {
        // The devices of a suspended pool will not be repaired.
        self.pool.give_up_waiting();
        for (name, fs) in self.file_systems {
            fs.pause_reclaiming();
            fs.flush_access_times().map_err(|source| ProofError::at(&name, source))?;
        }
        Ok(self.pool.export()?)
    }
}

/// The visible contents of all snapshots of a pool.
pub(crate) fn record_snapshots(
    tree: &DatasetTree,
    seen: &mut BTreeMap<String, FileSystemManifest>,
) -> Result<(), ProofError> {
    let root = tree.root()?;
    for head in std::iter::once(root.clone()).chain(root.descendants()?) {
        for snapshot in head.snapshots()? {
            let name = snapshot.name().to_owned();
            let fs = FileSystem::of_dataset(&snapshot, FEATURES_VERSION);
            let fs = fs.map_err(|source| ProofError::at(&name, source))?;
            seen.insert(name, record(&fs)?);
        }
    }
    Ok(())
}

/// The vdevs that a specification names by the letters of their devices.
fn with_devices(
    spec: VdevSpec<String>,
    devices: &BTreeMap<&'static str, Arc<dyn BlockDevice>>,
) -> Result<VdevSpec<NewDevice>, ProofError> {
    let open = |letters: Vec<String>| -> Result<Vec<NewDevice>, ProofError> {
        let device = |letter: String| {
            let position = devices.keys().position(|known| **known == *letter);
            let device = devices.get(&*letter).ok_or(ProofError::NoPool(letter))?;
            let (path, kind) = (device.name().to_owned(), VdevKind::File);
            let inode = position.map_or(0, |position| position as u64 + 1);
            let identity = FileIdentity::RegularFile { device: 0, inode };
            Ok(NewDevice {
                path,
                kind,
                identity,
                access: Access::ReadWrite,
                device: Arc::clone(device),
            })
        };
        letters.into_iter().map(device).collect()
    };
    let mut tops = Vec::new();
    for TopSpec { layout, bias, devices } in spec.tops {
        tops.push(TopSpec { layout, bias, devices: open(devices)? });
    }
    Ok(VdevSpec { tops, spares: open(spec.spares)?, caches: open(spec.caches)? })
}

/// No limits except for the devices; blocks are shared as the dataset allows.
#[derive(Debug)]
struct AnySpace(HeadBudget);

impl DatasetSpace for AnySpace {
    fn admit(&self, txg: Txg, demand: SpaceDemand) -> Result<(), SpaceRefusal> {
        UnboundedSpace.admit(txg, demand)
    }

    fn usage(&self) -> SpaceUse {
        UnboundedSpace.usage()
    }

    fn sharing(&self) -> Option<ObjsetPolicy> {
        self.0.sharing_policy()
    }

    fn can_count(&self, pointer: &BlockPointer) -> bool {
        self.0.can_count(pointer)
    }
}

fn options_of(dataset: &Dataset, settings: &Settings) -> Result<LiveOptions, ZplError> {
    let reading = FileSystemOptions::of_dataset(dataset, FEATURES_VERSION)?;
    let mut options = LiveOptions::new(reading, settings.environment.random());
    options.xattr_store = match &*dataset.text(DatasetProperty::Xattr)? {
        "dir" | "on" => XattrStore::Directory,
        _ => XattrStore::SystemAttribute,
    };
    options.dnode_size = match &*dataset.text(DatasetProperty::DnodeSize)? {
        "legacy" => DnodeSize::LEGACY,
        "auto" => DnodeSize::AUTO,
        kib => kib
            .trim_end_matches('k')
            .parse::<u32>()
            .ok()
            .and_then(|kib| DnodeSize::of_bytes(kib.saturating_mul(1024)))
            .unwrap_or(DnodeSize::LEGACY),
    };
    options.clock = Arc::clone(&settings.clock);
    Ok(options)
}

fn import(
    sources: &[DeviceSource],
    name: &str,
    options: &OpenOptions,
    settings: &Settings,
) -> Result<Pool, ProofError> {
    let discovery = Discovery::search(sources, options);
    let found = discovery.matching(name).next().ok_or(ProofError::NoPool(name.to_owned()))?;
    let options = ImportOptions {
        host: settings.environment.host().clone(),
        host_check: HostCheck::Override,
        tunables: settings.pool.tunables,
        ..ImportOptions::default()
    };
    let pool = Pool::import(found, &options)?;
    load_keys(&pool, &settings.keys)?;
    Ok(pool)
}

/// Loads the matching keys.
fn load_keys(pool: &Pool, keys: &[Vec<u8>]) -> Result<(), ProofError> {
    if keys.is_empty() {
        return Ok(());
    }
    for dataset in pool.datasets().root()?.descendants()? {
        if dataset.key_status()? == KeyStatus::Unavailable {
            // Most keys do not match.
            let _ = keys.iter().find(|key| dataset.load_key(key).is_ok());
        }
    }
    Ok(())
}

/// Opens a pool for changes, but none of its file systems.
///
/// # Errors
/// [`ProofError`].
pub fn open_pool(
    sources: &[DeviceSource],
    name: &str,
    settings: &Settings,
) -> Result<LivePool, ProofError> {
    let options = OpenOptions::new().access(Access::ReadWrite);
    let pool = import(sources, name, &options, settings)?;
    Ok(LivePool::open(&pool, Arc::clone(&settings.environment), &settings.pool)?)
}

/// Opens a pool for reading.
///
/// # Errors
/// [`ProofError`].
pub fn open_for_reading(
    sources: &[DeviceSource],
    name: &str,
    settings: &Settings,
) -> Result<Pool, ProofError> {
    import(sources, name, &OpenOptions::new(), settings)
}

/// Opens a file system or snapshot for reading.
///
/// # Errors
/// [`ProofError`].
pub fn read_dataset(pool: &Pool, name: &str) -> Result<FileSystem, ProofError> {
    let dataset = pool.datasets().open(name)?;
    FileSystem::of_dataset(&dataset, pool.version()).map_err(|source| ProofError::at(name, source))
}

/// A pool in image files, in its own directory.
#[derive(Clone, Debug)]
pub struct PoolFiles {
    dir: PathBuf,
    name: String,
}

impl PoolFiles {
    /// The pool of this name whose images are in a directory.
    #[must_use]
    pub fn new(dir: &Path, name: &str) -> Self {
        Self { dir: dir.to_owned(), name: name.to_owned() }
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn sources(&self) -> [DeviceSource; 1] {
        [DeviceSource::Path(self.dir.clone())]
    }

    /// Makes the pool, in new files.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn create(&self, shape: &Shape, settings: &Settings) -> Result<OpenPool, ProofError> {
        let words = shape.words(|letter| self.dir.join(letter).display().to_string());
        let mut opener = DeviceOpener::new(OpenOptions::new(), Some(shape.device_size));
        let spec = VdevSpec::parse(&words)?.open(&mut opener)?;
        opener.keep_files();
        OpenPool::of_spec(shape, spec, settings)
    }

    /// Opens the pool for changes.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn open(&self, settings: &Settings) -> Result<OpenPool, ProofError> {
        OpenPool::open(&self.sources(), &self.name, settings)
    }

    /// Opens the pool for reading.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn read(&self, settings: &Settings) -> Result<Pool, ProofError> {
        open_for_reading(&self.sources(), &self.name, settings)
    }
}
