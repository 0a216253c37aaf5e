//! Pools in image files, for the tests of layers above `rzfs-dsl`. Unexpected failures panic: the
//! test has failed.

use rzfs_blockdev::{Access, OpenOptions};
use rzfs_dsl::Pool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostIdentity, ImportFailure, ImportOptions};
use rzfs_dsl::live::{
    Environment, LiveOptions as PoolOptions, LivePool, NewEncryption, NewPool, SystemEnvironment,
};
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::features::{Feature, Release};
use rzfs_format::nvlist::NvList;
use rzfs_format::pool_state::PoolState;
use rzfs_format::znode::Timestamp;
use rzfs_format::{Txg, VdevId};
use rzfs_vdev::create::{DeviceOpener, PlanOptions, VdevSpec};
use rzfs_vdev::label::NewLabel;
use rzfs_vdev::{TreeOptions, TxgSet, VdevTree};
use rzfs_zap::ZapValue;
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewFileSystem};
use rzfs_zpl::{FileSystem, FileSystemOptions};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SIZE: u64 = 96 << 20;
const NAME: &str = "made";

/// A pool in image files of a directory, open or not.
#[derive(Debug)]
pub struct ImagePool {
    dir: PathBuf,
    away: tempfile::TempDir,
    words: Vec<String>,
    size: u64,
    /// Properties of the root file system.
    properties: Vec<(String, ZapValue)>,
    /// The newest release whose features it is created with; `None` for any.
    release: Option<Release>,
    /// Features it is created without.
    without: Vec<Feature>,
    /// User and group of its root directory.
    owner: (u32, u32),
    _temporary: Option<tempfile::TempDir>,
}

/// A pool that is open, with its root file system.
#[derive(Debug)]
pub struct Session {
    /// The pool.
    pub pool: LivePool,
    /// Its root file system.
    pub fs: Arc<LiveFileSystem>,
}

impl Session {
    /// Exports the pool.
    pub fn export(self) {
        self.fs.pause_reclaiming();
        self.fs.flush_access_times().unwrap();
        drop(self.fs);
        self.pool.export().unwrap();
    }

    /// Abandons the pool as a crash would.
    pub fn abandon(self) {
        drop(self);
    }
}

fn environment(host: u32) -> Arc<SystemEnvironment> {
    let host = HostIdentity { id: host, name: Some("here".to_owned()) };
    Arc::new(SystemEnvironment::new(host))
}

impl ImagePool {
    /// `shape`: the arguments of `zpool create`, with capital letters for files.
    pub fn new(shape: &str) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let pool = Self::in_directory(temporary.path(), shape, SIZE);
        Self { _temporary: Some(temporary), ..pool }
    }

    /// The same with images of `size` bytes in a directory of the caller.
    pub fn in_directory(dir: &Path, shape: &str, size: u64) -> Self {
        let word = |word: &str| match word.chars().next() {
            Some('A'..='Z') => dir.join(word).display().to_string(),
            _ => word.to_owned(),
        };
        let words = shape.split(' ').map(word).collect();
        let away = tempfile::tempdir().unwrap();
        let dir = dir.to_owned();
        let (properties, without, owner) = (Vec::new(), Vec::new(), (0, 0));
        let release = Some(Release::V2_3);
        Self { dir, away, words, size, properties, release, without, owner, _temporary: None }
    }

    /// Enables features of all releases, even those unknown to the importing kernel.
    #[must_use]
    pub fn with_newest_features(mut self) -> Self {
        self.release = None;
        self
    }

    /// Leaves a feature disabled.
    #[must_use]
    pub fn without_feature(mut self, feature: Feature) -> Self {
        self.without.push(feature);
        self
    }

    /// Sets the owner and group of the root directory.
    #[must_use]
    pub fn owned_by(mut self, uid: u32, gid: u32) -> Self {
        self.owner = (uid, gid);
        self
    }

    /// Sets a property of the root file system.
    #[must_use]
    pub fn with_property(mut self, name: &str, value: u64) -> Self {
        self.properties.push((name.to_owned(), value.into()));
        self
    }

    /// Makes the pool.
    pub fn create(&self) -> Session {
        self.create_files(LiveOptions::new(FileSystemOptions::default(), 42))
    }

    /// The same with options for the file system.
    pub fn create_files(&self, options: LiveOptions) -> Session {
        Self::session(self.create_pool(), options)
    }

    /// Creates the pool, without opening its file systems.
    pub fn create_pool(&self) -> LivePool {
        let environment = environment(0);
        let spec = VdevSpec::parse(&self.words).unwrap();
        spec.check_new_pool().unwrap();
        let mut opener = DeviceOpener::new(OpenOptions::new(), Some(self.size));
        let spec = spec.open(&mut opener).unwrap();
        let plan = PlanOptions { ashift: 12, ..PlanOptions::default() };
        let mut new = spec.plan(&plan, &mut || environment.random()).unwrap();
        let guid = environment.guid();
        let root = new.root(guid, Txg(4));
        let vdevs = Arc::new(VdevTree::open(root, &new.devices, TreeOptions::default()).unwrap());
        for (vdev, bias) in new.take_biases() {
            let vdev = VdevId(u32::try_from(vdev).unwrap());
            assert!(vdevs.set_allocation_bias(vdev, bias));
        }
        let config = PoolConfig {
            version: 5000,
            name: NAME.to_owned(),
            state: PoolState::Active,
            txg: Txg(0),
            guid,
            errata: Some(0),
            comment: None,
            compatibility: None,
            host: LastHost { id: 0, name: environment.host().name.clone() },
            vdev_children: None,
            holes: Vec::new(),
            split_guid: None,
            features_for_read: Some(Vec::new()),
            vdev_tree: NvList::new(),
        };
        vdevs.write_new_labels(&config, vdevs.top_levels(), None, Txg(4)).unwrap();
        NewLabel::write_all(&new.auxiliary_labels(5000).unwrap(), None).unwrap();
        opener.keep_files();
        let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        let (uid, gid) = self.owner;
        let pool = LivePool::create(
            NewPool {
                config,
                features: Feature::ALL
                    .iter()
                    .copied()
                    .filter(|feature| feature.is_enabled_by_upgrade())
                    .filter(|feature| self.release.is_none_or(|last| feature.since() <= last))
                    .filter(|feature| !self.without.contains(feature))
                    .collect(),
                vdevs,
                auxiliary: Vec::new(),
                properties: vec![("ashift".to_owned(), 12.into())],
                root_properties: self.properties.clone(),
                encryption: NewEncryption::default(),
                root: &NewFileSystem { uid, gid, ..NewFileSystem::new(now, environment.random()) },
                command: ("zpool create made".to_owned(), 0),
            },
            environment,
            &PoolOptions::default(),
        );
        pool.unwrap()
    }

    fn session(pool: LivePool, options: LiveOptions) -> Session {
        let datasets = pool.dataset_tree().unwrap();
        let root = datasets.root().unwrap();
        let live = pool.open_dataset(&root).unwrap();
        let engine = Arc::clone(pool.engine());
        let fs = LiveFileSystem::open(live.objset(), engine, options).unwrap();
        Session { pool, fs }
    }

    /// Imports the pool from what is on disk.
    pub fn import(&self, options: &OpenOptions) -> Pool {
        self.import_as(0, options).unwrap()
    }

    /// The same on a host with this id.
    ///
    /// # Errors
    /// The pool cannot be imported.
    pub fn import_as(&self, host: u32, options: &OpenOptions) -> Result<Pool, ImportFailure> {
        let sources = [DeviceSource::Path(self.dir.clone())];
        let discovery = Discovery::search(&sources, options);
        let found = discovery.matching(NAME).next().unwrap();
        let host = environment(host).host().clone();
        Pool::import(found, &ImportOptions { host, ..ImportOptions::default() })
    }

    /// Removes a device, or brings it back.
    pub fn swap_away(&self, device: &str) {
        let (here, away) = (self.dir.join(device), self.away.path().join(device));
        let (from, to) = if here.exists() { (&here, &away) } else { (&away, &here) };
        std::fs::rename(from, to).unwrap();
    }

    /// What a device lacks, according to the state on disk.
    pub fn missing(&self, device: &str) -> TxgSet {
        let pool = self.import(&OpenOptions::new());
        let vdevs = pool.vdevs();
        let leaf = vdevs.vdevs().find(|vdev| vdev.name().ends_with(device)).unwrap();
        leaf.dirty_times().missing
    }

    /// The directory of its images.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// A copy of the current images.
    pub fn copy(&self) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        for image in std::fs::read_dir(&self.dir).unwrap() {
            let image = image.unwrap();
            let target = temporary.path().join(image.file_name());
            copy_sparse(&image.path(), &target);
        }
        let copy = Self::in_directory(temporary.path(), &self.words.join(" "), self.size);
        Self { _temporary: Some(temporary), ..copy }
    }

    /// Opens the pool for writing.
    pub fn open(&self) -> Session {
        self.open_with(&PoolOptions::default())
    }

    /// The same in another environment.
    pub fn open_in(&self, environment: SystemEnvironment) -> Session {
        let pool = self.import(&OpenOptions::new().access(rzfs_blockdev::Access::ReadWrite));
        let pool = LivePool::open(&pool, Arc::new(environment), &PoolOptions::default()).unwrap();
        Self::session(pool, LiveOptions::new(FileSystemOptions::default(), 42))
    }

    /// The same with options for the pool.
    pub fn open_with(&self, pool_options: &PoolOptions) -> Session {
        self.open_files(LiveOptions::new(FileSystemOptions::default(), 42), pool_options)
    }

    /// The same with options for the file system.
    pub fn open_files(&self, options: LiveOptions, pool_options: &PoolOptions) -> Session {
        Self::session(self.open_pool_as(0, pool_options), options)
    }

    /// Opens the pool for writing, and the root file system of its dataset, which replays the
    /// intent log.
    pub fn open_logged(&self, options: LiveOptions, pool: &PoolOptions) -> Session {
        let pool = self.open_pool_as(0, pool);
        let root = pool.dataset_tree().unwrap().root().unwrap();
        let live = pool.open_dataset(&root).unwrap();
        let fs = LiveFileSystem::open_dataset(&pool, &live, options).unwrap();
        Session { pool, fs }
    }

    /// Opens the pool for writing and exports it without opening its file systems.
    pub fn claim(&self) {
        self.open_pool().export().unwrap();
    }

    /// Opens the pool for writing, without opening its file systems.
    pub fn open_pool(&self) -> LivePool {
        self.open_pool_as(0, &PoolOptions::default())
    }

    /// The same on a host with this id.
    pub fn open_pool_as(&self, host: u32, options: &PoolOptions) -> LivePool {
        let writable = OpenOptions::new().access(Access::ReadWrite);
        let pool = self.import_as(host, &writable).unwrap();
        LivePool::open(&pool, environment(host), options).unwrap()
    }

    /// The image of a device.
    pub fn image(&self, device: &str) -> PathBuf {
        self.dir.join(device)
    }

    /// The root file system on disk.
    pub fn read(&self) -> FileSystem {
        let pool = self.import(&OpenOptions::new());
        let objset = pool.datasets().root().unwrap().open_objset().unwrap();
        FileSystem::open(objset, FileSystemOptions::default()).unwrap()
    }

    /// The output of OpenZFS's zdb; `None` if it is not installed.
    pub fn zdb(&self, options: &[&str]) -> Option<String> {
        let options = options.iter().map(OsStr::new);
        rzfs_testkit::zdb(options.chain([OsStr::new("-p"), self.dir.as_os_str(), NAME.as_ref()]))
    }

    /// Checks the pool: by the walk over all of its blocks, and by OpenZFS's zdb.
    pub fn judge(&self) {
        self.check_with_zdb();
        assert_eq!(crate::walk(&self.import(&OpenOptions::new())).unwrap(), None);
    }

    /// As [`ImagePool::judge`], and checks that heads and snapshots are linked and charged
    /// correctly.
    pub fn judge_chains(&self) {
        self.judge();
        let pool = self.import(&OpenOptions::new());
        let wrong = crate::wrong_chains(&pool).unwrap();
        assert_eq!(wrong, Vec::<String>::new());
    }

    fn check_with_zdb(&self) {
        for options in [["-bcc", "-e"], ["-dddd", "-e"]] {
            let Some(text) = self.zdb(&options) else { return };
            assert!(options[0] != "-bcc" || text.contains("No leaks"), "{text}");
        }
    }
}

/// Copies an image without its zeros, and without another process, which would keep files open that
/// a test is about to release.
fn copy_sparse(from: &Path, to: &Path) {
    let (from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    let len = from.metadata().unwrap().len();
    to.set_len(len).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for offset in (0..len).step_by(buffer.len()) {
        let got = from.read_at(&mut buffer, offset).unwrap();
        let part = &buffer[..got];
        if part.iter().any(|byte| *byte != 0) {
            to.write_all_at(part, offset).unwrap();
        }
    }
}
