//! Labels compared with OpenZFS's: from the configuration and the uberblock of a golden pool, empty
//! devices of the same sizes get the exact bytes of the pool's images.

use crate::images::ImagePool;
use rzfs_blockdev::{BlockDevice, FileDevice, read_exact_at};
use rzfs_format::config::{LabelConfig, LastHost, MemberLabel, PoolConfig};
use rzfs_format::label::{
    BOOT_ENV_OFFSET, BOOT_ENV_SIZE, CONFIG_OFFSET, CONFIG_SIZE, LABEL_SIZE, LabelIndex, LeafSize,
    Multihost, RING_OFFSET, RING_SIZE, UberblockRing, decode_config,
};
use rzfs_format::nvlist::NvList;
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, Txg};
use rzfs_testkit::ReferencePool;
use rzfs_testkit::SparseDevice;
use rzfs_vdev::label::{
    AuxiliaryDevice, ClearError, ClearMode, DeviceUse, NewLabel, PoolUse, clear_labels, find_labels,
};
use rzfs_vdev::{Commit, ConfigSync, TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::sync::Arc;

/// A part of a label of an image.
fn part(image: &FileDevice, label: LabelIndex, offset: u64, len: usize) -> Vec<u8> {
    let size = LeafSize::of_device(image.geometry().size).unwrap();
    read_exact_at(image, size.label_offset(label) + offset, len).unwrap().to_vec()
}

/// The configuration in the first label of an image.
fn member(image: &FileDevice) -> Option<MemberLabel> {
    let list = decode_config(&part(image, LabelIndex::ALL[0], CONFIG_OFFSET, CONFIG_SIZE)).ok()?;
    match LabelConfig::from_list(&list).ok()? {
        LabelConfig::Member(label) => Some(*label),
        LabelConfig::Auxiliary(_) => None,
    }
}

/// The uberblock of a txg in the ring of an image.
fn uberblock(image: &FileDevice, ring: UberblockRing, slot: usize) -> Uberblock {
    let slot = part(image, LabelIndex::ALL[0], ring.slot_offset(slot), ring.slot_size());
    Uberblock::decode(&slot).unwrap().0
}

#[track_caller]
fn assert_same(image: &FileDevice, device: &Arc<SparseDevice>, offset: u64, len: usize) {
    let size = LeafSize::of_device(image.geometry().size).unwrap();
    for label in LabelIndex::ALL {
        let at = size.label_offset(label) + offset;
        let written = read_exact_at(device.as_ref(), at, len).unwrap();
        let expected = part(image, label, offset, len);
        let difference = written.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(difference, None, "{} label {label}, part {offset:#x}", image.name());
    }
}

fn root(tops: Vec<VdevConfig>) -> VdevConfig {
    let mut root = VdevConfig::new(VdevKind::Root, Guid(1));
    root.children = tops;
    root
}

fn check_pool(name: &str, images: &[FileDevice]) {
    let labels: Vec<_> = images.iter().map(|image| (image, member(image))).collect();
    let labels: Vec<_> =
        labels.into_iter().filter_map(|(image, label)| Some((image, label?))).collect();
    let newest = labels.iter().map(|(_, label)| &label.pool).max_by_key(|pool| pool.txg).unwrap();
    let count = newest.vdev_children.unwrap();
    let mut tops: Vec<VdevConfig> = Vec::new();
    for id in 0..count {
        let tree = labels.iter().find_map(|(_, label)| {
            let top = VdevConfig::from_nvlist(&label.pool.vdev_tree).unwrap();
            (top.id == id && label.pool.txg == newest.txg).then_some(top)
        });
        let mut hole = VdevConfig::new(VdevKind::Hole, Guid(0));
        hole.id = id;
        if !newest.holes.contains(&id) {
            hole.kind = VdevKind::Missing;
        }
        tops.push(tree.unwrap_or(hole));
    }
    let mut devices: HashMap<Guid, Arc<dyn BlockDevice>> = HashMap::new();
    let mut written = Vec::new();
    for (image, label) in &labels {
        let device = SparseDevice::new(image.geometry().size);
        devices.insert(label.guid, device.clone());
        written.push((*image, label, device));
    }
    let options = TreeOptions { version: newest.version, ..TreeOptions::default() };
    let tree = VdevTree::open(root(tops), &devices, options).unwrap();
    tree.mark_all_configs_dirty();

    let ashift = tree.top_levels().find_map(|top| top.ashift()).unwrap();
    let ring = UberblockRing::of_ashift(u64::from(ashift));
    let slot = ring.slot_of_txg(newest.txg, Multihost::Off);
    let uberblock = uberblock(labels[0].0, ring, slot);
    assert_eq!(uberblock.txg, newest.txg, "{name}");
    let pool = PoolConfig { vdev_tree: NvList::new(), ..newest.clone() };
    let mut sync = ConfigSync::begin(&tree);
    let report = sync
        .commit(&Commit {
            pool: &pool,
            uberblock: &uberblock,
            multihost: Multihost::Off,
            first_choice: 0,
            auxiliary: &[],
        })
        .unwrap();
    assert!(report.failures.is_empty() && tree.dirty_configs().is_empty());
    for (image, label, device) in written {
        if label.pool.txg == newest.txg {
            assert_same(image, &device, CONFIG_OFFSET, CONFIG_SIZE);
            assert_same(image, &device, ring.slot_offset(slot), ring.slot_size());
        }
    }
}

fn images(pool: &ReferencePool) -> Vec<FileDevice> {
    let options = rzfs_blockdev::OpenOptions::new();
    let images = pool.images().unwrap();
    images.iter().map(|image| FileDevice::open(image, &options).unwrap()).collect()
}

#[test]
fn labels_and_uberblocks_are_byte_for_byte_those_of_openzfs() {
    for pool in ReferencePool::all_golden() {
        let images = images(&pool);
        if images.iter().any(|image| member(image).is_some()) {
            check_pool(pool.name(), &images);
        }
    }
}

#[test]
fn spares_and_cache_devices_are_labelled_as_openzfs_does() {
    let Some(pool) = ReferencePool::golden("g13-classes") else { return };
    let mut seen = Vec::new();
    for image in images(&pool) {
        let labels = find_labels(&image);
        assert_eq!(labels.len(), 4);
        let LabelConfig::Auxiliary(label) = &labels[0].config else { continue };
        seen.push(label.state);
        let ring = UberblockRing::of_ashift(12);
        let device = SparseDevice::new(image.geometry().size);
        let shared: Arc<dyn BlockDevice> = device.clone();
        let new = NewLabel::of_auxiliary(label).unwrap();
        NewLabel::write_all(&[(new, Arc::clone(&shared))], None).unwrap();

        // The pool's first uberblock.
        let tree = VdevTree::open(
            root(vec![leaf_of_its_own()]),
            &HashMap::from([(Guid(5), SparseDevice::new(64 << 20) as Arc<dyn BlockDevice>)]),
            TreeOptions::default(),
        )
        .unwrap();
        ConfigSync::begin(&tree)
            .commit(&Commit {
                pool: &nameless(),
                uberblock: &uberblock(&image, ring, 4),
                multihost: Multihost::Off,
                first_choice: 3,
                auxiliary: &[AuxiliaryDevice { ashift: 12, device: shared }],
            })
            .unwrap();
        for (offset, len) in [
            (BOOT_ENV_OFFSET, BOOT_ENV_SIZE),
            (CONFIG_OFFSET, CONFIG_SIZE),
            (RING_OFFSET, RING_SIZE),
        ] {
            assert_same(&image, &device, offset, len);
        }
    }
    assert_eq!(seen, [PoolState::L2Cache, PoolState::Spare]);
}

fn leaf_of_its_own() -> VdevConfig {
    let mut leaf = VdevConfig::new(VdevKind::File, Guid(5));
    leaf.top.ashift = Some(9);
    leaf.top.asize = Some(LeafSize::of_device(64 << 20).unwrap().allocatable());
    leaf.top.metaslab_array = Some(rzfs_format::ObjectId(7));
    leaf
}

fn nameless() -> PoolConfig {
    PoolConfig {
        version: 5000,
        name: String::new(),
        state: PoolState::Active,
        txg: Txg(0),
        guid: Guid(1),
        errata: None,
        comment: None,
        compatibility: None,
        host: LastHost::default(),
        vdev_children: None,
        holes: Vec::new(),
        split_guid: None,
        features_for_read: None,
        vdev_tree: NvList::new(),
    }
}

#[test]
fn the_label_of_a_detached_disk_is_the_one_of_openzfs() {
    let Some(pool) = ReferencePool::golden("g15-removed") else { return };
    let image = images(&pool).remove(0);
    let list = decode_config(&part(&image, LabelIndex::ALL[0], CONFIG_OFFSET, CONFIG_SIZE));
    let list = list.unwrap();
    let config = PoolConfig::from_list(&list).unwrap();
    let top = VdevConfig::from_nvlist(&config.vdev_tree).unwrap();
    let mut other = leaf_of_its_own();
    other.id = 1;
    let device = SparseDevice::new(image.geometry().size);
    let tree = VdevTree::open(
        root(vec![top, other]),
        &HashMap::<Guid, Arc<dyn BlockDevice>>::new(),
        TreeOptions::default(),
    )
    .unwrap();
    let leaf = Guid(list.u64("guid").unwrap());
    let top = tree.top_levels().next().unwrap();
    let label = NewLabel::of_former_leaf(&config, &tree, top, leaf).unwrap();
    let ring = UberblockRing::of_ashift(12);
    NewLabel::write_all(&[(label, device.clone())], Some(&uberblock(&image, ring, 0))).unwrap();
    for (offset, len) in
        [(BOOT_ENV_OFFSET, BOOT_ENV_SIZE), (CONFIG_OFFSET, CONFIG_SIZE), (RING_OFFSET, RING_SIZE)]
    {
        assert_same(&image, &device, offset, len);
    }
    assert_eq!(DeviceUse::of(device.as_ref()), DeviceUse::Unlabelled);
}

#[test]
fn labels_are_cleared_with_the_care_of_openzfs() {
    let Some(pool) = ImagePool::find("g13-classes") else { return };
    let image = FileDevice::open(pool.image(0), &rzfs_blockdev::OpenOptions::new()).unwrap();
    let device = SparseDevice::new(image.geometry().size);
    let size = LeafSize::of_device(image.geometry().size).unwrap();
    for label in LabelIndex::ALL {
        device.write(size.label_offset(label), &part(&image, label, 0, LABEL_SIZE as usize));
    }
    let shared: Arc<dyn BlockDevice> = device.clone();
    let found = DeviceUse::of(device.as_ref());
    let DeviceUse::Member { pool, state: PoolUse::Exported, .. } = found else {
        panic!("{found:?}");
    };
    assert_eq!(pool.name, "g13");
    let error = clear_labels(&shared, ClearMode::Careful, |_| false).unwrap_err();
    assert!(matches!(error, ClearError::Exported { .. }), "{error}");
    let error = clear_labels(&shared, ClearMode::Force, |guid| guid == pool.guid).unwrap_err();
    assert!(matches!(error, ClearError::Active { .. }), "{error}");
    // An invalid one is left alone.
    device.write(size.label_offset(LabelIndex::ALL[1]) + CONFIG_OFFSET, &[0xff; 512]);
    assert_eq!(clear_labels(&shared, ClearMode::Force, |_| false).unwrap(), 3);
    assert_eq!(DeviceUse::of(device.as_ref()), DeviceUse::Unlabelled);
    let error = clear_labels(&shared, ClearMode::Force, |_| false).unwrap_err();
    assert!(matches!(error, ClearError::NoLabel { .. }), "{error}");
    let second = read_exact_at(device.as_ref(), LABEL_SIZE, LABEL_SIZE as usize).unwrap();
    assert!(second.iter().any(|byte| *byte != 0));
    let first = read_exact_at(device.as_ref(), 0, LABEL_SIZE as usize).unwrap();
    assert!(first.iter().all(|byte| *byte == 0));
}
