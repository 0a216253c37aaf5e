//! Creating pools, like `zpool create`.
//!
//! ```no_run
//! let pool = rzfs::NewPool::new("tank")
//!     .vdevs(["mirror", "/srv/a.img", "/srv/b.img"])
//!     .missing_file_size(1 << 30)
//!     .property("ashift", "12")
//!     .root_property("compression", "zstd")
//!     .create()?;
//! pool.export()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod name;

pub use error::CreateError;
pub use name::{PoolNameError, check_pool_name};

use crate::Secret;
use crate::WritablePool;
use crate::setting::{DefaultFeatures, NewDatasetProperties, NewPoolProperties, SettingError};
use crate::vdev_request::{VdevRequest, VdevRequestError};
use rzfs_dsl::import::HostIdentity;
use rzfs_dsl::live::{
    self, EncryptionProblem, Environment, LiveOptions, LivePool, NewEncryption, SuiteChoice,
    SystemEnvironment,
};
use rzfs_dsl::pool::{AuxiliaryKind, AuxiliaryState, AuxiliaryVdev};
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::features::Feature;
use rzfs_format::nvlist::NvList;
use rzfs_format::pool_state::PoolState;
use rzfs_format::znode::Timestamp;
use rzfs_format::{Guid, Txg, VdevId};
use rzfs_tunables::Tunables;
use rzfs_vdev::config::AllocationBias;
use rzfs_vdev::create::{
    DeviceOpener, LocalPools, NewDevice, NewVdevs, PlanOptions, TopLayout, VdevSpec,
};
use rzfs_vdev::{IoTunables, TreeOptions, VdevConfig, VdevTree};
use rzfs_zpl::live::NewFileSystem;
use std::sync::Arc;

/// The first txg of a pool.
const FIRST_TXG: Txg = Txg(4);

/// A pool to be created.
#[derive(Debug, Default)]
pub struct NewPool {
    name: String,
    request: VdevRequest,
    force_mode: Force,
    features: DefaultFeatures,
    properties: Vec<(String, String)>,
    root_properties: Vec<(String, String)>,
    root_key: Option<Secret>,
    live: LiveOptions,
    command: Option<String>,
}

/// Whether to use devices that seem to be in use, or do not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Force {
    #[default]
    Careful,
    /// `-f`.
    Forced,
}

impl NewPool {
    /// A pool of this name, with OpenZFS's defaults; it needs vdevs.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Its vdevs, in the words of `zpool create`: `mirror A B`, `raidz2 A B C D`, `A log B`, ...
    /// Files must exist, unless [`NewPool::missing_file_size`] is given.
    #[must_use]
    pub fn vdevs<W: AsRef<str>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.request.extend(words);
        self
    }

    /// Its vdevs, on devices that are open already: memory, say.
    #[must_use]
    pub fn open_vdevs(mut self, devices: VdevSpec<NewDevice>) -> Self {
        self.request.devices = Some(devices);
        self
    }

    /// Creates missing files with this size in bytes, sparse; they are removed again if the pool is
    /// not created.
    #[must_use]
    pub const fn missing_file_size(mut self, bytes: u64) -> Self {
        self.request.missing_file_size = Some(bytes);
        self
    }

    /// Uses devices that seem to be in use, and vdevs of different redundancy (`-f`).
    #[must_use]
    pub const fn force(mut self) -> Self {
        self.force_mode = Force::Forced;
        self
    }

    /// Enables only features named by properties (`-d`).
    #[must_use]
    pub const fn without_features(mut self) -> Self {
        self.features = DefaultFeatures::None;
        self
    }

    /// Sets a property of the pool (`-o`): `ashift`, `feature@...`, `compatibility`, ...
    #[must_use]
    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a property of the pool's root file system (`-O`), which others inherit.
    #[must_use]
    pub fn root_property(mut self, name: &str, value: &str) -> Self {
        self.root_properties.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The key of its root file system: a passphrase, hexadecimal digits or 32 bytes, according to
    /// property `keyformat`.
    #[must_use]
    pub fn root_key(mut self, key: Secret) -> Self {
        self.root_key = Some(key);
        self
    }

    /// Pools in use on this host; their devices are refused.
    #[must_use]
    pub fn local_pools(mut self, local: LocalPools) -> Self {
        self.request.local = local;
        self
    }

    /// Memory and thread options of the open pool.
    #[must_use]
    pub const fn live_options(mut self, options: LiveOptions) -> Self {
        self.live = options;
        self
    }

    /// Tunables of the open pool.
    #[must_use]
    pub const fn tunables(mut self, tunables: Tunables) -> Self {
        self.live.tunables = tunables;
        self
    }

    /// The first command in the pool's history; by default one is composed.
    #[must_use]
    pub fn command(mut self, line: &str) -> Self {
        self.command = Some(line.to_owned());
        self
    }

    /// Creates the pool, and leaves it open for writing.
    ///
    /// # Errors
    /// [`CreateError`]. Devices are unchanged, unless writing itself failed, or the root file
    /// system needs more than its properties allow.
    pub fn create(self) -> Result<WritablePool, CreateError> {
        self.plan()?.create()
    }

    /// Checks everything, and opens the devices; nothing is written yet.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn plan(self) -> Result<PlannedPool, CreateError> {
        let pairs = |list: &[(String, String)]| list.to_owned();
        let fail = |source| CreateError::Setting { pool: self.name.clone(), source };
        let properties = pairs(&self.properties);
        let words = properties.iter().map(|(name, value)| (&**name, &**value));
        let properties = NewPoolProperties::parse(words, self.features).map_err(fail)?;
        let root = pairs(&self.root_properties);
        let words = root.iter().map(|(name, value)| (&**name, &**value));
        let root = NewDatasetProperties::parse(words).map_err(fail)?;
        if root.features().any(|feature| !properties.features.contains(&feature)) {
            return Err(fail(SettingError::NeedsUpgrade));
        }
        let (opener, devices) = self.request.open(VdevSpec::check_new_pool)?;
        let objections = devices.objections(None, &self.request.local);
        let counting = match self.force_mode {
            Force::Forced => objections.overridden(),
            Force::Careful => objections,
        };
        counting.into_result().map_err(VdevRequestError::from)?;
        if let Some(feature) = needed(&devices).find(|one| !properties.features.contains(one)) {
            return Err(CreateError::MissingFeature { pool: self.name, feature });
        }
        check_pool_name(&self.name)
            .map_err(|source| CreateError::Name { pool: self.name.clone(), source })?;
        Ok(PlannedPool { new: self, properties, root, opener, devices })
    }
}

/// The features that vdevs need.
fn needed(devices: &VdevSpec<NewDevice>) -> impl Iterator<Item = Feature> {
    devices.tops.iter().flat_map(|top| {
        let draid = matches!(top.layout, TopLayout::Draid { .. }).then_some(Feature::Draid);
        let is_class = matches!(top.bias, Some(AllocationBias::Special | AllocationBias::Dedup));
        draid.into_iter().chain(is_class.then_some(Feature::AllocationClasses))
    })
}

/// A pool with checked properties and open devices.
#[derive(Debug)]
pub struct PlannedPool {
    new: NewPool,
    properties: NewPoolProperties,
    root: NewDatasetProperties,
    opener: DeviceOpener,
    devices: VdevSpec<NewDevice>,
}

impl PlannedPool {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.new.name
    }

    /// Its vdevs.
    #[must_use]
    pub const fn devices(&self) -> &VdevSpec<NewDevice> {
        &self.devices
    }

    /// Its properties.
    #[must_use]
    pub const fn properties(&self) -> &NewPoolProperties {
        &self.properties
    }

    /// Writes the labels and the first txgs.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(mut self) -> Result<WritablePool, CreateError> {
        let environment = Arc::new(SystemEnvironment::new(HostIdentity::of_system()));
        let encryption = self.encryption(&*environment)?;
        let plan = PlanOptions {
            ashift: self.properties.ashift,
            ..PlanOptions::from(&self.new.live.tunables)
        };
        let fail = |source| CreateError::Plan { pool: self.new.name.clone(), source };
        let mut new = self.devices.plan(&plan, &mut || environment.random()).map_err(fail)?;
        let guid = environment.guid();
        let config = self.config(guid, &*environment);
        let vdevs = tree(&mut new, guid, &self.new.live.tunables)?;
        let stored = self.root.stored.iter();
        let root_properties: Vec<_> =
            stored.map(|one| (one.name.clone(), one.value.clone())).collect();
        let fail = |source| CreateError::Root { pool: self.new.name.clone(), source };
        live::check_root_properties(&vdevs, &root_properties).map_err(fail)?;
        new.label((&config, &vdevs), vdevs.top_levels(), None, FIRST_TXG)?;
        let now = i64::try_from(environment.now()).unwrap_or(i64::MAX);
        let now = Timestamp { seconds: now, nanoseconds: 0 };
        let owner = NewFileSystem {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            ..NewFileSystem::new(now, 0)
        };
        let contents = self.root.contents(&owner, now, environment.random());
        let pool = live::NewPool {
            config,
            features: self.properties.features.clone(),
            vdevs,
            auxiliary: auxiliary(&new),
            properties: std::mem::take(&mut self.properties.stored),
            root_properties,
            encryption,
            root: &contents,
            command: (self.command(), owner.uid.into()),
        };
        let fail = |source| CreateError::Live { pool: self.new.name.clone(), source };
        let shared = Arc::clone(&environment);
        let pool = LivePool::create(pool, shared, &self.new.live).map_err(fail)?;
        self.opener.keep_files();
        let pool = WritablePool::new(pool, environment);
        Ok(pool.with_alternate_root(self.properties.alternate_root))
    }

    /// The encryption of the root file system.
    fn encryption(&self, environment: &dyn Environment) -> Result<NewEncryption, CreateError> {
        let fail = |source| CreateError::Setting { pool: self.new.name.clone(), source };
        let key = self.new.root_key.as_ref().map(Secret::bytes);
        let salt = environment.random_nonzero();
        let encryption = self.root.encryption.encryption(key, salt).map_err(fail)?;
        let needed = [Feature::Encryption, Feature::BookmarkV2];
        let is_possible = needed.iter().all(|one| self.properties.features.contains(one));
        match (encryption.suite, &encryption.root) {
            (SuiteChoice::Suite(_), _) if !is_possible => {
                Err(fail(EncryptionProblem::Feature.into()))
            }
            (SuiteChoice::Suite(_), None) => Err(fail(EncryptionProblem::NoKeyFormat.into())),
            (SuiteChoice::Inherited | SuiteChoice::Off, Some(_)) => {
                Err(fail(EncryptionProblem::Off.into()))
            }
            _ => Ok(encryption),
        }
    }

    /// The pool configuration for the labels.
    fn config(&self, guid: Guid, environment: &dyn Environment) -> PoolConfig {
        let host = environment.host();
        PoolConfig {
            version: self.properties.version,
            name: self.new.name.clone(),
            state: PoolState::Active,
            txg: Txg(0),
            guid,
            errata: Some(0),
            comment: self.properties.comment.clone(),
            compatibility: self.properties.compatibility.clone(),
            host: LastHost { id: host.id.into(), name: host.name.clone() },
            vdev_children: None,
            holes: Vec::new(),
            split_guid: None,
            features_for_read: Some(Vec::new()),
            vdev_tree: NvList::new(),
        }
    }

    /// The command for the history.
    fn command(&self) -> String {
        let made_up =
            || format!("zpool create {} {}", self.new.name, self.new.request.words.join(" "));
        self.new.command.clone().unwrap_or_else(made_up)
    }
}

/// Creates a tree of new vdevs.
fn tree(new: &mut NewVdevs, pool: Guid, tunables: &Tunables) -> Result<Arc<VdevTree>, CreateError> {
    let root = new.root(pool, FIRST_TXG);
    let options = TreeOptions { tunables: IoTunables::from(tunables), ..TreeOptions::default() };
    let tree = VdevTree::open(root, &new.devices, options)?;
    for (vdev, bias) in new.take_biases() {
        if let Ok(vdev) = u32::try_from(vdev) {
            tree.set_allocation_bias(VdevId(vdev), bias);
        }
    }
    Ok(Arc::new(tree))
}

/// Its hot spares, then its cache devices.
fn auxiliary(new: &NewVdevs) -> Vec<AuxiliaryVdev> {
    let spares = new.spares.iter().map(|vdev| (AuxiliaryKind::Spare, vdev));
    let caches = new.caches.iter().map(|vdev| (AuxiliaryKind::Cache, vdev));
    let vdev = |(kind, config): (AuxiliaryKind, &VdevConfig)| AuxiliaryVdev {
        kind,
        config: config.clone(),
        device: new.devices.get(&config.guid).cloned(),
        state: AuxiliaryState::Available,
    };
    spares.chain(caches).map(vdev).collect()
}
