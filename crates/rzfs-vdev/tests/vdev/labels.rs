//! Labels and uberblocks on devices that fail and lose power.

use bytes::Bytes;
use rzfs_blockdev::simulated::{Fault, FaultKind, Loss};
use rzfs_blockdev::{BlockDevice, SimulatedDevice, Simulation, read_exact_at};
use rzfs_codec::checksum::{EmbeddedVerifier, verify_embedded};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::label::{LabelIndex, LeafSize, Multihost, RING_OFFSET, RING_SIZE, UberblockRing};
use rzfs_format::nvlist::{NvList, NvString};
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::{self, MultihostConfig, Uberblock};
use rzfs_format::{BlockPointer, Dva, Guid, ObjectId, Txg, VdevId};
use rzfs_testkit::{Defect, SparseDevice};
use rzfs_vdev::label::{DeviceUse, find_labels};
use rzfs_vdev::{
    AuxReason, BlockRead, BlockWrite, Commit, CommitError, CommitReport, ConfigSync, Coverage,
    Durability, Health, LeafDevices, LeafEvent, Persistence, TreeOptions, TxgSet, VdevConfig,
    VdevKind, VdevState, VdevTree,
};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

const SIZE: u64 = 64 << 20;

fn pool() -> PoolConfig {
    PoolConfig {
        version: 5000,
        name: "tank".into(),
        state: PoolState::Active,
        txg: Txg(0),
        guid: Guid(1),
        errata: Some(0),
        comment: None,
        compatibility: None,
        host: LastHost { id: 0x1234, name: Some("host".into()) },
        vdev_children: None,
        holes: Vec::new(),
        split_guid: None,
        features_for_read: Some(Vec::new()),
        vdev_tree: NvList::new(),
    }
}

fn uberblock(txg: u64) -> Uberblock {
    Uberblock {
        version: 5000,
        txg: Txg(txg),
        guid_sum: 3,
        timestamp: 1_000_000 + txg,
        mos: BlockPointer::from_words([0; 16]),
        software_version: 5000,
        multihost: None,
        checkpoint_txg: Txg(0),
        raidz_reflow: Default::default(),
    }
}

fn leaf(guid: u64) -> VdevConfig {
    VdevConfig::new(VdevKind::File, Guid(guid))
}

fn top(mut config: VdevConfig, leaves: u64) -> VdevConfig {
    config.top.ashift = Some(12);
    config.top.asize = Some(LeafSize::of_device(SIZE).unwrap().allocatable() * leaves);
    config.top.metaslab_array = Some(ObjectId(70));
    config.top.metaslab_shift = Some(24);
    config
}

fn mirror(guid: u64, leaves: &[u64]) -> VdevConfig {
    let mirror = VdevConfig::new(VdevKind::Mirror, Guid(guid));
    top(mirror, 1).with_children(leaves.iter().map(|guid| leaf(*guid)))
}

fn tree(
    tops: Vec<VdevConfig>,
    devices: impl IntoIterator<Item = (u64, Arc<dyn BlockDevice>)>,
) -> VdevTree {
    let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children(tops);
    let devices: HashMap<Guid, Arc<dyn BlockDevice>> =
        devices.into_iter().map(|(guid, device)| (Guid(guid), device)).collect();
    VdevTree::open(root, &devices, TreeOptions::default()).unwrap()
}

fn commit(tree: &VdevTree, txg: u64) -> Result<CommitReport, CommitError> {
    commit_as(tree, txg, Multihost::Off, 0)
}

fn commit_as(
    tree: &VdevTree,
    txg: u64,
    multihost: Multihost,
    first_choice: u64,
) -> Result<CommitReport, CommitError> {
    commit_uberblock(tree, &uberblock(txg), multihost, first_choice)
}

fn commit_uberblock(
    tree: &VdevTree,
    uberblock: &Uberblock,
    multihost: Multihost,
    first_choice: u64,
) -> Result<CommitReport, CommitError> {
    let pool = pool();
    let commit = Commit { pool: &pool, uberblock, multihost, first_choice, auxiliary: &[] };
    ConfigSync::begin(tree).commit(&commit)
}

/// Slots with a good uberblock by label, and the txgs of these.
fn rings(device: &dyn BlockDevice, ashift: u64) -> Vec<Vec<(usize, u64)>> {
    let size = LeafSize::of_device(device.geometry().size).unwrap();
    let ring = UberblockRing::of_ashift(ashift);
    LabelIndex::ALL
        .into_iter()
        .map(|label| {
            let start = size.label_offset(label);
            let block = read_exact_at(device, start + RING_OFFSET, RING_SIZE).unwrap();
            let slots = block.chunks_exact(ring.slot_size()).enumerate();
            slots
                .filter_map(|(slot, bytes)| {
                    let offset = start + ring.slot_offset(slot);
                    let verifier = EmbeddedVerifier::Label { offset };
                    verify_embedded(ChecksumFunction::Label, bytes, verifier).ok()?;
                    Some((slot, Uberblock::decode(bytes).ok()?.0.txg.get()))
                })
                .collect()
        })
        .collect()
}

/// The state chosen by an import (spec 01, section 3.3): the best uberblock, and the newest label
/// of its leaf that is not younger.
fn chosen(devices: &[&dyn BlockDevice]) -> Option<(u64, u64)> {
    let newest = |device: &&dyn BlockDevice| {
        rings(*device, 12).into_iter().flatten().map(|(_, txg)| txg).max().unwrap_or(0)
    };
    let device = devices.iter().max_by_key(|device| newest(device))?;
    let txg = newest(device);
    let labels = find_labels(*device).into_iter().filter(|label| label.is_verified);
    let label = labels
        .filter_map(|label| Some(label.config.member()?.pool.txg.get()))
        .filter(|label| *label <= txg)
        .max()?;
    (txg > 0).then_some((txg, label))
}

#[test]
fn a_crash_at_any_moment_leaves_the_old_or_the_new_state() {
    let simulation = Simulation::new(7);
    let device = || Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let devices: [Arc<SimulatedDevice>; 2] = [device(), device()];
    let shared = |index: usize| Arc::clone(&devices[index]) as Arc<dyn BlockDevice>;
    let tree = tree(vec![mirror(2, &[3, 4])], [(3, shared(0)), (4, shared(1))]);
    tree.write_new_labels(&pool(), tree.top_levels(), None, Txg(4)).unwrap();
    tree.mark_all_configs_dirty();
    commit(&tree, 4).unwrap();
    let first = simulation.now();
    tree.change(Guid(2), |config| config.top.metaslab_shift = Some(25));
    commit(&tree, 5).unwrap();
    commit(&tree, 6).unwrap();
    let last = simulation.now();

    let histories = [devices[0].history(), devices[1].history()];
    let mut moments: Vec<_> = histories.iter().flat_map(|history| history.moments()).collect();
    moments.push(last);
    moments.retain(|moment| *moment >= first);
    moments.sort_unstable();
    moments.dedup();
    let mut seen = Vec::new();
    for moment in moments {
        for loss in [Loss::Everything, Loss::Random { seed: moment.0 }] {
            let images = histories.each_ref().map(|history| {
                let image = SparseDevice::new(SIZE);
                for (offset, bytes) in history.crash_writes(moment, &loss) {
                    image.write(offset, &bytes);
                }
                image
            });
            let images = images.each_ref().map(|image| image.as_ref() as &dyn BlockDevice);
            let (txg, label) = chosen(&images).expect("a state");
            let shift = find_labels(images[0])
                .into_iter()
                .filter(|found| found.is_verified)
                .filter_map(|found| found.config.member().map(|member| member.pool.clone()))
                .filter(|pool| pool.txg <= Txg(txg))
                .max_by_key(|pool| pool.txg)
                .map(|pool| pool.vdev_tree.u64("metaslab_shift").unwrap());
            // Labels of txg 5 belong to the uberblocks of 5 and 6.
            assert!(matches!((txg, label), (4, 4) | (5, 5) | (6, 5)), "{txg} {label}");
            assert!(shift.is_none_or(|shift| shift == if txg == 4 { 24 } else { 25 }));
            seen.push(txg);
        }
    }
    for txg in [4, 5, 6] {
        assert!(seen.contains(&txg), "{txg}");
    }
    assert!(seen.is_sorted_by(|a, b| a <= b || a.abs_diff(*b) == 1));
    assert_eq!(seen.last(), Some(&6));
}

#[test]
fn a_leaf_that_joins_belongs_to_nobody_before_the_first_uberblock() {
    let device = SparseDevice::new(SIZE);
    let tree = tree(vec![top(leaf(3), 1)], [(3, device.clone() as Arc<dyn BlockDevice>)]);
    tree.write_new_labels(&pool(), tree.top_levels(), None, Txg(4)).unwrap();
    assert_eq!(DeviceUse::of(device.as_ref()), DeviceUse::Unlabelled);
    assert!(rings(device.as_ref(), 12).iter().all(Vec::is_empty));
    tree.mark_all_configs_dirty();
    let report = commit(&tree, 4).unwrap();
    assert_eq!((report.uberblocks, report.relabelled.len()), (4, 1));
    let labels = find_labels(device.as_ref());
    assert_eq!(labels.len(), 4);
    for label in labels {
        let member = label.config.member().unwrap();
        assert!(label.is_verified);
        assert_eq!((member.guid, member.top_guid), (Guid(3), Guid(3)));
        assert_eq!((member.pool.txg, member.pool.vdev_children), (Txg(4), Some(1)));
    }
    assert_eq!(rings(device.as_ref(), 12), vec![vec![(4, 4)]; 4]);
}

#[test]
fn a_txg_without_changes_writes_a_few_uberblocks_and_no_label() {
    let devices: Vec<_> = (0..6).map(|_| SparseDevice::new(SIZE)).collect();
    let mut tops: Vec<_> = (0..6).map(|index| top(leaf(10 + index), 1)).collect();
    tops[1].top.is_log = Some(1);
    tops[2].top.metaslab_array = Some(ObjectId(0));
    let shared = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    let tree = tree(tops, (10..).zip(shared));
    tree.mark_all_configs_dirty();
    let report = commit(&tree, 10).unwrap();
    // Copies on a vdev without metaslabs do not count.
    assert_eq!((report.relabelled.len(), report.uberblocks), (6, 20));
    let has = |txg: u64| -> Vec<usize> {
        let written = |device: &Arc<SparseDevice>| {
            rings(device.as_ref(), 12).iter().all(|ring| ring.iter().any(|(_, t)| *t == txg))
        };
        (0..6).filter(|index| written(&devices[*index])).collect()
    };
    assert_eq!(has(10), [0, 1, 2, 3, 4, 5]);
    for (txg, first, chosen) in [(11, 0, [0, 3, 4]), (12, 5, [0, 3, 5]), (13, 64, [0, 4, 5])] {
        let report = commit_as(&tree, txg, Multihost::Off, first).unwrap();
        assert_eq!((report.relabelled.len(), report.uberblocks), (0, 12));
        assert_eq!(has(txg), chosen);
    }
    for device in &devices {
        let labels = find_labels(device.as_ref());
        assert!(labels.iter().all(|label| label.config.member().unwrap().pool.txg == Txg(10)));
    }
}

#[test]
fn heartbeats_keep_the_last_slot() {
    let device = SparseDevice::new(SIZE);
    let tree = tree(vec![top(leaf(3), 1)], [(3, device.clone() as Arc<dyn BlockDevice>)]);
    for txg in 31..63 {
        commit_as(&tree, txg, Multihost::On, 0).unwrap();
    }
    let slots = rings(device.as_ref(), 12).remove(0);
    assert_eq!(slots.len(), 31);
    assert_eq!((slots[0], slots[30]), ((0, 62), (30, 61)));
}

#[test]
fn one_good_leaf_is_enough_and_none_is_too_few() {
    let devices: Vec<_> = (0..2).map(|_| SparseDevice::new(SIZE)).collect();
    let shared = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    let tree = tree(vec![mirror(2, &[3, 4])], (3..).zip(shared));
    tree.mark_all_configs_dirty();
    devices[0].damage_all(Defect::Errno(5));
    let report = commit(&tree, 7).unwrap();
    assert_eq!(report.uberblocks, 4);
    assert!(report.failures.iter().all(|failure| failure.leaf == Guid(3)));
    assert!(!report.failures.is_empty());
    assert_eq!(tree.by_guid(Guid(3)).unwrap().health().state, VdevState::Faulted);
    // The fault is written to the labels of the next txg.
    assert_eq!(tree.dirty_configs().into_iter().collect::<Vec<_>>(), [VdevId(0)]);
    commit(&tree, 8).unwrap();
    let label = find_labels(devices[1].as_ref()).remove(0);
    let children = label.config.member().unwrap().pool.vdev_tree.find_lists("children");
    let children = children.unwrap().unwrap();
    assert_eq!(children[0].find_u64("faulted"), Ok(Some(1)));
    let aux = children[0].find_string("aux_state").unwrap();
    assert_eq!(aux.map(NvString::as_bytes), Some(&b"err_exceeded"[..]));
    assert_eq!(children[1].find_u64("faulted"), Ok(None));

    tree.mark_all_configs_dirty();
    devices[1].damage_all(Defect::Errno(5));
    let error = commit(&tree, 9).unwrap_err();
    assert!(matches!(error, CommitError::Labels { committed: false, .. }), "{error}");
    assert!(rings(&Healed(&devices[1]), 12).iter().flatten().all(|(_, txg)| *txg < 9));
    // The pending changes are kept.
    assert!(!tree.dirty_configs().is_empty());
}

/// The contents of a device, regardless of errors.
#[derive(Debug)]
struct Healed<'a>(&'a SparseDevice);

impl BlockDevice for Healed<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn geometry(&self) -> rzfs_blockdev::DeviceGeometry {
        self.0.geometry()
    }

    fn submit(
        &self,
        requests: Vec<rzfs_blockdev::IoRequest>,
        completions: &Arc<rzfs_blockdev::CompletionQueue>,
    ) {
        let damage = self.0.take_damage();
        self.0.submit(requests, completions);
        self.0.put_damage(damage);
    }
}

#[test]
fn no_uberblock_names_blocks_that_may_not_be_durable() {
    let simulation = Simulation::new(3);
    let device = || Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let devices: [Arc<SimulatedDevice>; 2] = [device(), device()];
    let shared = |index: usize| Arc::clone(&devices[index]) as Arc<dyn BlockDevice>;
    let tree = tree(vec![mirror(2, &[3, 4])], [(3, shared(0)), (4, shared(1))]);
    tree.set_missing_txgs(Guid(3), TxgSet::new());
    // It is retried once, with everything written again.
    devices[0].inject(Fault::new(FaultKind::FailFlush(5)).times(2));
    let report = commit(&tree, 7).unwrap();
    assert_eq!(report.failures.iter().map(|failure| failure.leaf).collect::<Vec<_>>(), [Guid(3)]);
    let missing = tree.by_guid(Guid(3)).unwrap().missing_txgs();
    assert_eq!(missing, Some(TxgSet::from_ranges([(Txg(7), Txg(8))])));

    for device in &devices {
        device.inject(Fault::new(FaultKind::FailFlush(5)).times(2));
    }
    let error = commit(&tree, 8).unwrap_err();
    assert!(matches!(error, CommitError::Flush { txg: Txg(8), .. }), "{error}");
    for device in &devices {
        assert!(rings(device.as_ref(), 12).iter().flatten().all(|(_, txg)| *txg == 7));
    }
    assert!(commit(&tree, 8).unwrap().failures.is_empty());
}

#[test]
fn a_flush_that_fails_once_is_made_good_before_an_uberblock_is_written() {
    let simulation = Simulation::new(3);
    let device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 6).unwrap();
    let (position, data) = (8 << 20, Bytes::from(vec![7; 4096]));
    let dva = Dva::new(VdevId(0), position, 4096, false);
    let write = BlockWrite { dva, birth: Txg(7), data };
    for result in tree.write(vec![write]) {
        assert_eq!(result.unwrap(), Coverage::Full);
    }
    // Of the blocks, and of the uberblock.
    for spared in [0, 1] {
        device.inject(Fault::new(FaultKind::DropOnFlush(5)).after(spared).times(1));
        assert!(commit(&tree, 7 + spared).unwrap().failures.is_empty());
    }
    assert_eq!(tree.by_guid(Guid(3)).unwrap().errors().write, 2);
    device.lose_cache();
    let newest = rings(device.as_ref(), 12).into_iter().flatten().map(|(_, txg)| txg).max();
    assert_eq!(newest, Some(8));
    let start = (4 << 20) + position as usize;
    assert!(device.content()[start..start + 4096].iter().all(|byte| *byte == 7));
}

/// A leaf whose device was pulled with a block in its cache, which is lost.
fn away_with_a_lost_write() -> (Arc<SimulatedDevice>, VdevTree) {
    let simulation = Simulation::new(3);
    let device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 6).unwrap();
    let dva = Dva::new(VdevId(0), 8 << 20, 4096, false);
    let write = BlockWrite { dva, birth: Txg(7), data: Bytes::from(vec![7; 4096]) };
    assert!(tree.write(vec![write]).iter().all(Result::is_ok));
    device.detach();
    device.lose_cache();
    (device, tree)
}

/// The block of [`away_with_a_lost_write`] is there.
fn assert_keeps_the_write(device: &SimulatedDevice) {
    let start = (4 << 20) + (8 << 20);
    assert!(device.content()[start..start + 4096].iter().all(|byte| *byte == 7));
}

#[test]
fn a_device_that_comes_back_gets_what_it_may_have_lost() {
    let (device, tree) = away_with_a_lost_write();
    assert!(commit(&tree, 7).is_err());
    device.attach();
    tree.apply(Guid(3), LeafEvent::Opened { degraded: false }, Persistence::Persistent);
    commit(&tree, 7).unwrap();
    device.lose_cache();
    assert_keeps_the_write(&device);
}

#[test]
fn what_a_device_may_have_lost_is_read_from_memory_until_it_has_it_again() {
    let (device, tree) = away_with_a_lost_write();
    let dva = Dva::new(VdevId(0), 8 << 20, 4096, false);
    let verify = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 7);
    let read = || {
        let read = BlockRead { dva, size: 4096, birth: Txg(7), verify: &verify };
        tree.read(vec![read]).remove(0).map(|block| block.len())
    };
    device.attach();
    assert_eq!(read().unwrap(), 4096, "nobody has noticed that it was");
    tree.apply(Guid(3), LeafEvent::Opened { degraded: false }, Persistence::Persistent);
    assert_eq!(read().unwrap(), 4096);
    commit(&tree, 7).unwrap();
    assert_keeps_the_write(&device);
    device.lose_cache();
    assert_eq!(read().unwrap(), 4096, "from the device");
}

#[test]
fn a_device_that_was_away_unnoticed_gets_what_it_has_lost_when_errors_are_cleared() {
    let (device, tree) = away_with_a_lost_write();
    device.attach();
    assert!(tree.clear(None, &HashMap::<Guid, Arc<dyn BlockDevice>>::new()));
    commit(&tree, 7).unwrap();
    device.lose_cache();
    assert_keeps_the_write(&device);
}

#[test]
fn a_copy_from_before_the_last_commit_does_not_come_back_when_errors_are_cleared() {
    let simulation = Simulation::new(3);
    let device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 7).unwrap();
    let copy = |device: &SimulatedDevice| {
        let copy: Arc<dyn BlockDevice> = Arc::new(simulation.device("copy", device.content()));
        HashMap::from([(Guid(3), copy)])
    };
    let old = copy(&device);
    commit(&tree, 8).unwrap();
    let current = copy(&device);
    device.detach();
    assert!(commit(&tree, 9).is_err());
    let health = || tree.by_guid(Guid(3)).unwrap().health();
    assert!(tree.clear(None, &old));
    assert_eq!((health().state, health().aux), (VdevState::CantOpen, AuxReason::CorruptData));
    assert!(tree.clear(None, &current));
    assert_eq!(health(), Health::HEALTHY);
    commit(&tree, 9).unwrap();
}

#[test]
fn a_device_that_another_process_has_had_does_not_come_back_when_errors_are_cleared() {
    let (device, ours) = committed();
    device.detach();
    assert!(commit(&ours, 8).is_err());
    // The uberblocks of both for the same txg differ, and those of others alone are younger.
    let other_mos = |uberblock: &mut Uberblock| uberblock.mos.words_mut()[15] = 1;
    for (txg, change) in [(8, &other_mos as &dyn Fn(&mut Uberblock)), (9, &|_| {})] {
        let taken = Arc::new(Simulation::new(3).device("taken", device.content()));
        let shared: Arc<dyn BlockDevice> = Arc::clone(&taken) as _;
        let theirs = tree(vec![top(leaf(3), 1)], [(3, Arc::clone(&shared))]);
        theirs.mark_all_configs_dirty();
        let mut uberblock = uberblock(txg);
        change(&mut uberblock);
        commit_uberblock(&theirs, &uberblock, Multihost::Off, 0).unwrap();
        assert!(ours.clear(None, &HashMap::from([(Guid(3), shared)])));
        let health = ours.by_guid(Guid(3)).unwrap().health();
        assert_eq!((health.state, health.aux), (VdevState::CantOpen, AuxReason::CorruptData));
        assert!(commit(&ours, 8).is_err());
    }
}

/// Records of an intent log, and their data, are durable without an uberblock.
#[test]
fn a_copy_from_before_the_last_flush_does_not_come_back_when_errors_are_cleared() {
    let simulation = Simulation::new(3);
    let device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 7).unwrap();
    let copy = |device: &SimulatedDevice| {
        let copy: Arc<dyn BlockDevice> = Arc::new(simulation.device("copy", device.content()));
        HashMap::from([(Guid(3), copy)])
    };
    let old = copy(&device);
    let dva = Dva::new(VdevId(0), 8 << 20, 4096, false);
    let write = BlockWrite { dva, birth: Txg(8), data: Bytes::from(vec![7; 4096]) };
    assert!(tree.write(vec![write]).iter().all(Result::is_ok));
    let vdevs = [VdevId(0)].into();
    tree.make_durable(Durability::Records { since: Txg(8), vdevs: &vdevs }).unwrap();
    let current = copy(&device);
    device.detach();
    let health = || tree.by_guid(Guid(3)).unwrap().health();
    tree.apply(Guid(3), LeafEvent::Vanished, Persistence::Temporary);
    assert!(tree.clear(None, &old));
    assert_eq!((health().state, health().aux), (VdevState::CantOpen, AuxReason::CorruptData));
    assert!(tree.clear(None, &current));
    assert_eq!(health(), Health::HEALTHY);
    commit(&tree, 8).unwrap();
}

#[test]
fn a_device_can_come_back_as_another_one_any_number_of_times() {
    let simulation = Simulation::new(3);
    let mut device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    for txg in 6..46 {
        commit(&tree, txg).unwrap();
        let before = Arc::downgrade(&device);
        device.detach();
        assert!(commit(&tree, txg + 1).is_err());
        device = Arc::new(simulation.device("disk", device.content()));
        let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
        assert!(tree.clear(None, &HashMap::from([(Guid(3), shared)])));
        assert!(before.upgrade().is_none(), "what does not answer any more is closed");
    }
    commit(&tree, 46).unwrap();
}

/// An open file is locked.
struct Locked {
    content: Vec<u8>,
    before: Weak<SimulatedDevice>,
}

impl LeafDevices for Locked {
    fn device(&self, _: &VdevConfig) -> Result<Arc<dyn BlockDevice>, AuxReason> {
        match self.before.upgrade() {
            Some(_) => Err(AuxReason::OpenFailed),
            None => Ok(Arc::new(Simulation::new(3).device("disk", self.content.clone()))),
        }
    }

    fn has_candidate(&self, _: &VdevConfig) -> bool {
        true
    }
}

#[test]
fn a_device_that_answers_no_more_keeps_nobody_from_opening_it_again() {
    let (device, tree) = committed();
    device.detach();
    assert!(commit(&tree, 8).is_err());
    let place = Locked { content: device.content(), before: Arc::downgrade(&device) };
    // It is still open elsewhere.
    assert!(tree.clear(None, &place));
    assert_eq!(tree.by_guid(Guid(3)).unwrap().health().state, VdevState::Removed);
    assert!(commit(&tree, 8).is_err());
    drop(device);
    assert!(tree.clear(None, &place));
    assert_eq!(tree.by_guid(Guid(3)).unwrap().health(), Health::HEALTHY);
    commit(&tree, 8).unwrap();
}

#[test]
fn a_device_that_answers_in_part_is_not_closed_for_what_cannot_be_opened() {
    let (device, tree) = committed();
    let place = Locked { content: device.content(), before: Arc::downgrade(&device) };
    // The contents of the labels are unknown.
    let size = LeafSize::of_device(SIZE).unwrap();
    for label in LabelIndex::ALL {
        let start = size.label_offset(label) + RING_OFFSET;
        device.inject(Fault::new(FaultKind::FailRead(5)).within(start..start + RING_SIZE as u64));
    }
    assert!(tree.clear(None, &place));
    assert_eq!(tree.by_guid(Guid(3)).unwrap().health(), Health::HEALTHY);
    commit(&tree, 8).unwrap();
}

#[test]
fn a_device_that_works_is_not_closed_when_errors_are_cleared() {
    let device = SparseDevice::new(SIZE);
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 7).unwrap();
    tree.apply(Guid(3), LeafEvent::ErrorsTolerated, Persistence::Temporary);
    let size = LeafSize::of_device(SIZE).unwrap();
    for label in LabelIndex::ALL {
        let ring = size.label_offset(label) + RING_OFFSET;
        device.damage(ring..ring + RING_SIZE as u64, Defect::Errno(5));
    }
    assert!(tree.clear(None, &HashMap::<Guid, Arc<dyn BlockDevice>>::new()));
    assert_eq!(tree.by_guid(Guid(3)).unwrap().health().state, VdevState::Degraded);
    device.take_damage();
    commit(&tree, 8).unwrap();
}

#[test]
fn what_has_become_of_a_device_that_is_needed_is_looked_at_when_errors_are_cleared() {
    let device = SparseDevice::new(SIZE);
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 7).unwrap();
    let size = LeafSize::of_device(SIZE).unwrap();
    for label in LabelIndex::ALL {
        let ring = size.label_offset(label) + RING_OFFSET;
        device.write(ring, &vec![0; RING_SIZE]);
    }
    let health = || tree.by_guid(Guid(3)).unwrap().health();
    assert_eq!(health(), Health::HEALTHY);
    assert!(tree.clear(None, &HashMap::<Guid, Arc<dyn BlockDevice>>::new()));
    assert_eq!((health().state, health().aux), (VdevState::CantOpen, AuxReason::CorruptData));
    assert!(commit(&tree, 8).is_err());
}

#[test]
fn what_may_be_lost_is_not_written_again_to_a_device_that_has_become_another_one() {
    let simulation = Simulation::new(3);
    let device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 7).unwrap();
    let older = device.content();
    commit(&tree, 8).unwrap();
    let dva = Dva::new(VdevId(0), 8 << 20, 4096, false);
    let write = BlockWrite { dva, birth: Txg(9), data: Bytes::from(vec![7; 4096]) };
    assert!(tree.write(vec![write]).iter().all(Result::is_ok));
    device.damage(0, older.clone());
    device.inject(Fault::new(FaultKind::DropOnFlush(5)).times(1));
    assert!(commit(&tree, 9).is_err());
    let health = tree.by_guid(Guid(3)).unwrap().health();
    assert_eq!((health.state, health.aux), (VdevState::CantOpen, AuxReason::CorruptData));
    device.lose_cache();
    assert!(device.content() == older, "it was written to");
}

/// A tree with one device and a committed txg.
fn committed() -> (Arc<SimulatedDevice>, VdevTree) {
    let simulation = Simulation::new(3);
    let device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    tree.mark_all_configs_dirty();
    commit(&tree, 7).unwrap();
    (device, tree)
}

#[test]
fn a_device_is_its_pools_while_the_pool_gets_another_guid() {
    let (device, tree) = committed();
    tree.set_root_guid(Guid(77));
    let dva = Dva::new(VdevId(0), 8 << 20, 4096, false);
    let write = BlockWrite { dva, birth: Txg(8), data: Bytes::from(vec![7; 4096]) };
    assert!(tree.write(vec![write]).iter().all(Result::is_ok));
    device.inject(Fault::new(FaultKind::DropOnFlush(5)).times(1));
    commit(&tree, 8).unwrap();
    assert!(tree.clear(None, &HashMap::<Guid, Arc<dyn BlockDevice>>::new()));
    assert_eq!(tree.by_guid(Guid(3)).unwrap().health(), Health::HEALTHY);
}

/// The power failed between the labels with another guid and their uberblock; the pool was opened
/// without the device, under its old guid.
#[test]
fn a_device_comes_back_with_labels_of_a_guid_that_the_pool_never_got() {
    let (device, tree) = committed();
    tree.mark_all_configs_dirty();
    for label in LabelIndex::ALL {
        let ring = LeafSize::of_device(SIZE).unwrap().label_offset(label) + RING_OFFSET;
        let fault = Fault::new(FaultKind::FailWrite(5));
        device.inject(fault.within(ring..ring + RING_SIZE as u64));
    }
    let other = PoolConfig { guid: Guid(77), ..pool() };
    let failed = ConfigSync::begin(&tree).commit(&Commit {
        pool: &other,
        uberblock: &uberblock(8),
        multihost: Multihost::Off,
        first_choice: 0,
        auxiliary: &[],
    });
    assert!(failed.is_err());
    let guids = find_labels(device.as_ref()).into_iter();
    let guids: Vec<_> = guids.map(|label| label.config.member().unwrap().pool.guid).collect();
    assert_eq!(guids, [Guid(77), pool().guid, Guid(77), pool().guid]);
    let copy: Arc<dyn BlockDevice> = Arc::new(Simulation::new(4).device("copy", device.content()));
    device.detach();
    assert!(tree.clear(None, &HashMap::from([(Guid(3), copy)])));
    assert_eq!(tree.by_guid(Guid(3)).unwrap().health(), Health::HEALTHY);
}

#[test]
fn heartbeats_do_not_make_a_copy_current() {
    let (device, tree) = committed();
    let older = device.content();
    commit(&tree, 8).unwrap();
    device.damage(0, older);
    let config = MultihostConfig::new(1000, 1, 10);
    let beat =
        Uberblock { multihost: Some(uberblock::Multihost { delay: 1, config }), ..uberblock(8) };
    tree.write_heartbeat(&beat, 0, 0).unwrap();
    assert!(tree.clear(None, &HashMap::<Guid, Arc<dyn BlockDevice>>::new()));
    let health = tree.by_guid(Guid(3)).unwrap().health();
    assert_eq!((health.state, health.aux), (VdevState::CantOpen, AuxReason::CorruptData));
}

#[test]
fn leaves_are_flushed_before_they_keep_too_much() {
    let simulation = Simulation::new(3);
    let device = Arc::new(simulation.device("disk", vec![0; SIZE as usize]));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let tree = tree(vec![top(leaf(3), 1)], [(3, shared)]);
    let dva = Dva::new(VdevId(0), 8 << 20, 1 << 20, false);
    let data = Bytes::from(vec![7; 1 << 20]);
    for _ in 0..70 {
        let write = BlockWrite { dva, birth: Txg(7), data: data.clone() };
        assert!(tree.write(vec![write]).iter().all(Result::is_ok));
    }
    assert_eq!(device.counts().flushes, 1);
}

#[test]
fn a_log_device_may_miss_its_label() {
    let devices: Vec<_> = (0..2).map(|_| SparseDevice::new(SIZE)).collect();
    let shared = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    let mut log = top(leaf(4), 1);
    log.top.is_log = Some(1);
    let tree = tree(vec![top(leaf(3), 1), log], (3..).zip(shared));
    tree.mark_all_configs_dirty();
    devices[1].damage_all(Defect::Errno(5));
    assert!(!commit(&tree, 7).unwrap().failures.is_empty());
}

#[test]
fn logs_are_trusted_until_something_happens_to_their_devices() {
    let simulation = Simulation::new(3);
    let devices =
        ["main", "log"].map(|name| Arc::new(simulation.device(name, vec![0; SIZE as usize])));
    let shared = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    let mut log = top(leaf(4), 1);
    log.top.is_log = Some(1);
    let tree = tree(vec![top(leaf(3), 1), log], (3..).zip(shared));
    let mut trust = tree.trust_in_logs();
    let mut has_changed =
        || std::mem::replace(&mut trust, tree.trust_in_logs()) != tree.trust_in_logs();
    tree.mark_all_configs_dirty();
    commit(&tree, 7).unwrap();
    let fails_to_write = |device: usize, vdev| {
        devices[device].inject(Fault::new(FaultKind::FailWrite(5)).times(1));
        let dva = Dva::new(VdevId(vdev), 8 << 20, 4096, false);
        let write = BlockWrite { dva, birth: Txg(8), data: Bytes::from(vec![7; 4096]) };
        assert!(tree.write(vec![write]).iter().all(Result::is_ok), "it is tried again");
    };
    fails_to_write(0, 0);
    assert!(!has_changed(), "nothing has happened to a log");
    fails_to_write(1, 1);
    assert!(has_changed(), "it may have been away");
    for device in &devices {
        device.inject(Fault::new(FaultKind::FailFlush(5)).times(1));
        commit(&tree, 8).unwrap();
        assert!(has_changed(), "so it may here");
    }
    commit(&tree, 9).unwrap();
    assert!(!has_changed());
    assert!(tree.clear(Some(Guid(3)), &HashMap::<Guid, Arc<dyn BlockDevice>>::new()));
    assert!(has_changed());
}

#[test]
fn decisions_of_the_administrator_are_in_labels_unless_they_are_temporary() {
    let devices: Vec<_> = (0..2).map(|_| SparseDevice::new(SIZE)).collect();
    let shared = devices.iter().map(|device| Arc::clone(device) as Arc<dyn BlockDevice>);
    let tree = tree(vec![mirror(2, &[3, 4])], (3..).zip(shared));
    let offline = |guid: u64| {
        tree.root().config_to_store().children[0]
            .children
            .iter()
            .any(|leaf| leaf.guid == Guid(guid) && leaf.flags.offline)
    };
    tree.apply(Guid(3), LeafEvent::TakenOffline, Persistence::Temporary);
    assert!(!offline(3));
    tree.apply(Guid(3), LeafEvent::Opened { degraded: false }, Persistence::Persistent);
    tree.apply(Guid(3), LeafEvent::TakenOffline, Persistence::Persistent);
    assert!(offline(3) && !offline(4));
    assert!(tree.dirty_configs().contains(&VdevId(0)));
}

#[test]
fn marks_that_come_during_a_txg_belong_to_the_next_unless_they_are_absorbed() {
    let device: Arc<dyn BlockDevice> = SparseDevice::new(SIZE);
    let tree = tree(vec![top(leaf(3), 1)], [(3, device)]);
    tree.mark_all_configs_dirty();
    let mut sync = ConfigSync::begin(&tree);
    assert_eq!(sync.dirty().len(), 1);
    assert!(!sync.absorb());
    tree.mark_config_dirty(VdevId(0));
    assert!(sync.absorb());
    tree.mark_config_dirty(VdevId(0));
    drop(sync);
    assert_eq!(tree.dirty_configs().len(), 1);
    // Nothing has labels there.
    tree.mark_config_dirty(VdevId(9));
    assert_eq!(tree.dirty_configs().len(), 1);
}
