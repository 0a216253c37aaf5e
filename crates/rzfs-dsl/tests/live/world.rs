//! Image files, and the pools that are made of them.

use rzfs_blockdev::{Access, BlockDevice, FileDevice, OpenOptions};
use rzfs_dmu::live::{LiveObjset, NewObject, Transaction};
use rzfs_dsl::import::{DeviceSource, Discovery, HostIdentity, ImportFailure, ImportOptions};
use rzfs_dsl::live::{
    ContentsError, LiveOptions, LivePool, NewContents, NewEncryption, NewPool, SystemEnvironment,
};
use rzfs_dsl::{Pool, ReadOnly};
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::features::Feature;
use rzfs_format::label::LeafSize;
use rzfs_format::nvlist::NvList;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::pool_state::PoolState;
use rzfs_format::{Guid, ObjectId, Txg};
use rzfs_vdev::{TreeOptions, VdevConfig, VdevKind, VdevTree};
use rzfs_zap::NewZap;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

const SIZE: u64 = 128 << 20;
const ASHIFT: u64 = 12;
const NAME: &str = "made";

/// How the devices of a pool are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Single,
    Stripe,
    Mirror,
    Raidz1,
}

pub(crate) struct World {
    shape: Shape,
    dir: tempfile::TempDir,
    devices: Vec<Arc<dyn BlockDevice>>,
}

/// A file system's set with nothing but a master node.
struct Bare;

impl NewContents for Bare {
    fn objset_type(&self) -> ObjsetType {
        ObjsetType::Zfs
    }

    fn populate(&self, objset: &LiveObjset, tx: &dyn Transaction) -> Result<(), ContentsError> {
        let new = NewObject {
            object_type: ObjectType::MASTER_NODE,
            data_block_size: 512,
            indirect_shift: 17,
            bonus_type: ObjectType::NONE,
            bonus: &[],
            slots: 1,
        };
        let master = objset.claim(tx, ObjectId(1), new)?.unwrap();
        let mut zap = master.create_zap(tx, &NewZap::new(7)).unwrap();
        zap.writer(master.zap_blocks(tx)).insert("VERSION", 5).unwrap();
        Ok(())
    }
}

fn host() -> HostIdentity {
    HostIdentity { id: 0, name: Some("here".to_owned()) }
}

fn environment() -> Arc<SystemEnvironment> {
    Arc::new(SystemEnvironment::new(host()))
}

impl World {
    pub(crate) fn new(shape: Shape) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let count = if shape == Shape::Single { 1 } else { 3 };
        let devices = (0..count).map(|index| {
            let path = dir.path().join(format!("{index}.img"));
            std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
            let options = OpenOptions::new().access(Access::ReadWrite);
            Arc::new(FileDevice::open(&path, &options).unwrap()) as Arc<dyn BlockDevice>
        });
        Self { shape, devices: devices.collect(), dir }
    }

    fn path(&self, index: usize) -> PathBuf {
        self.dir.path().join(format!("{index}.img"))
    }

    fn vdevs(&self) -> Arc<VdevTree> {
        let size = LeafSize::of_device(SIZE).unwrap().allocatable();
        let mut devices = HashMap::new();
        let mut leaves = Vec::new();
        for (index, device) in self.devices.iter().enumerate() {
            let guid = Guid(1000 + index as u64);
            devices.insert(guid, Arc::clone(device));
            let mut leaf = VdevConfig::new(VdevKind::File, guid);
            leaf.id = index as u64;
            leaf.create_txg = Some(Txg(4));
            let path = self.path(index).display().to_string();
            leaf.hints.path = Some(rzfs_format::nvlist::NvString::new(path).unwrap());
            leaves.push(leaf);
        }
        let tops = match self.shape {
            Shape::Single | Shape::Stripe => leaves,
            Shape::Mirror => vec![VdevConfig::new(VdevKind::Mirror, Guid(2)).with_children(leaves)],
            Shape::Raidz1 => {
                let mut top = VdevConfig::new(VdevKind::Raidz, Guid(2)).with_children(leaves);
                top.nparity = Some(1);
                vec![top]
            }
        };
        let tops = tops.into_iter().enumerate().map(|(id, mut top)| {
            let width = if self.shape == Shape::Raidz1 { 3 } else { 1 };
            top.id = id as u64;
            top.create_txg = Some(Txg(4));
            top.top.ashift = Some(ASHIFT);
            top.top.asize = Some(size * width);
            top.top.is_log = Some(0);
            top
        });
        let root = VdevConfig::new(VdevKind::Root, Guid(3)).with_children(tops);
        Arc::new(VdevTree::open(root, &devices, TreeOptions::default()).unwrap())
    }

    pub(crate) fn create(&self) -> LivePool {
        let vdevs = self.vdevs();
        let config = PoolConfig {
            version: 5000,
            name: NAME.to_owned(),
            state: PoolState::Active,
            txg: Txg(0),
            guid: Guid(3),
            errata: Some(0),
            comment: None,
            compatibility: None,
            host: LastHost { id: 0, name: Some("here".to_owned()) },
            vdev_children: None,
            holes: Vec::new(),
            split_guid: None,
            features_for_read: Some(Vec::new()),
            vdev_tree: NvList::new(),
        };
        vdevs.write_new_labels(&config, vdevs.top_levels(), None, Txg(4)).unwrap();
        let new = NewPool {
            auxiliary: Vec::new(),
            config,
            features: Feature::ALL.iter().copied().filter(|f| f.is_enabled_by_upgrade()).collect(),
            vdevs,
            properties: vec![("ashift".to_owned(), ASHIFT.into())],
            root_properties: vec![("mountpoint".to_owned(), "none".into())],
            encryption: NewEncryption::default(),
            root: &Bare,
            command: ("zpool create made".to_owned(), 0),
        };
        LivePool::create(new, environment(), &LiveOptions::default()).unwrap()
    }

    /// Opens the pool that is on the devices for writing.
    pub(crate) fn open(&self) -> LivePool {
        let pool = self.import();
        LivePool::open(&pool, environment(), &LiveOptions::default()).unwrap()
    }

    /// The same on a host with this id.
    pub(crate) fn open_as(&self, id: u32) -> LivePool {
        let environment = SystemEnvironment::new(HostIdentity { id, ..host() });
        let options = LiveOptions::default();
        LivePool::open(&self.import_as(id).unwrap(), Arc::new(environment), &options).unwrap()
    }

    pub(crate) fn import(&self) -> Pool<ReadOnly> {
        self.import_as(host().id).unwrap()
    }

    /// The same on a host with this id.
    pub(crate) fn import_as(&self, id: u32) -> Result<Pool<ReadOnly>, ImportFailure> {
        let host = HostIdentity { id, ..host() };
        let sources = self.devices.iter().map(|device| DeviceSource::from(Arc::clone(device)));
        let sources: Vec<_> = sources.collect();
        let discovery = Discovery::search(&sources, &OpenOptions::new());
        let found = discovery.matching(NAME).next().unwrap();
        let options = ImportOptions { host, ..ImportOptions::default() };
        Pool::import(found, &options)
    }

    /// Imports the pool and has it judged: by the walk over all of its blocks, and by OpenZFS's
    /// zdb.
    pub(crate) fn check(&self) {
        let pool = self.import();
        assert_eq!(pool.health(), rzfs_vdev::Health::HEALTHY);
        assert_eq!(rzfs_proof::walk(&pool).unwrap(), None, "{:?}", self.shape);
        let options = ["-bcc", "-e", "-p"].map(OsStr::new);
        let names = [self.dir.path().as_os_str(), NAME.as_ref()];
        if let Some(text) = rzfs_testkit::zdb(options.into_iter().chain(names)) {
            assert!(text.contains("No leaks"), "{:?}\n{text}", self.shape);
        }
    }
}
