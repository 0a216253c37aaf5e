//! From arguments to labelled devices.

use rzfs_blockdev::{
    Access, BlockDevice, DeviceGeometry, FileDevice, FileIdentity, MemoryDevice, OpenOptions,
};
use rzfs_format::config::{LastHost, PoolConfig};
use rzfs_format::label::LabelIndex;
use rzfs_format::label::Multihost;
use rzfs_format::nvlist::NvList;
use rzfs_format::pool_state::PoolState;
use rzfs_format::uberblock::{Multihost as MultihostFields, MultihostConfig, Uberblock};
use rzfs_format::{BlockPointer, Guid, ObjectId, Txg};
use rzfs_testkit::SparseDevice;
use rzfs_vdev::config::AllocationBias;
use rzfs_vdev::create::{
    DeviceOpener, LocalPools, NewDevice, NewVdevs, Objection, OpenFailure, PlanError, PlanOptions,
    TopSpec, VdevSpec,
};
use rzfs_vdev::label::{DeviceUse, LabelError, find_labels};
use rzfs_vdev::{Commit, ConfigSync, TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn parse(words: &str) -> VdevSpec {
    VdevSpec::parse(&words.split_whitespace().collect::<Vec<_>>()).unwrap()
}

/// Opens names by a rule.
fn opened(spec: VdevSpec, device: &dyn Fn(&str) -> NewDevice) -> VdevSpec<NewDevice> {
    let all = |names: Vec<String>| names.iter().map(|name| device(name)).collect::<Vec<_>>();
    let tops = spec.tops.into_iter();
    VdevSpec {
        tops: tops
            .map(|TopSpec { layout, bias, devices }| TopSpec {
                layout,
                bias,
                devices: all(devices),
            })
            .collect(),
        spares: all(spec.spares),
        caches: all(spec.caches),
    }
}

/// Files with different names of up to seven letters are different.
fn identity_of(name: &str) -> FileIdentity {
    let inode = name.bytes().fold(1, |number, byte| number << 8 | u64::from(byte));
    FileIdentity::RegularFile { device: 0, inode }
}

/// A file of 64 MiB, or what the first letter says: `d` a disk, `l` a large file.
fn by_letter(name: &str) -> NewDevice {
    let kind = if name.starts_with('d') { VdevKind::Disk } else { VdevKind::File };
    let size = if name.starts_with('l') { 96 * MIB } else { 64 * MIB };
    let (path, identity) = (name.to_owned(), identity_of(name));
    NewDevice { path, kind, identity, access: Access::ReadWrite, device: SparseDevice::new(size) }
}

fn counter(start: u64) -> impl FnMut() -> u64 {
    let mut next = start;
    move || {
        next += 1;
        next
    }
}

fn plan(words: &str, options: &PlanOptions) -> Result<NewVdevs, PlanError> {
    opened(parse(words), &by_letter).plan(options, &mut counter(100))
}

/// Objections to arguments, alone or in a pool of other arguments.
fn objections(words: &str, pool: Option<&str>) -> Vec<String> {
    let tree = pool.map(|words| {
        let new = plan(words, &PlanOptions::default()).unwrap();
        VdevTree::open(new.root(Guid(1), Txg(4)), &new.devices, TreeOptions::default()).unwrap()
    });
    let found = opened(parse(words), &by_letter).objections(tree.as_ref(), &LocalPools::default());
    found.0.iter().map(ToString::to_string).collect()
}

#[test]
fn vdevs_of_a_pool_should_be_alike() {
    for (pool, words, message) in [
        (None, "a b", None),
        (None, "mirror a b mirror c e", None),
        (None, "mirror a b mirror c e log f", None),
        (None, "raidz a b c special mirror e f", None),
        (None, "raidz a b c draid e f g", None),
        (None, "raidz a b c raidz e f g", None),
        (None, "a d1", Some("both file and disk vdevs are present")),
        (None, "a mirror b c", Some("both file and mirror vdevs are present")),
        (
            None,
            "raidz a b c raidz2 e f g",
            Some("both 1 and 2 device parity raidz vdevs are present"),
        ),
        (None, "raidz a b c raidz e f g h", Some("both 3-way and 4-way raidz vdevs are present")),
        (None, "mirror a b mirror c e f", Some("both 2-way and 3-way mirror vdevs are present")),
        (
            None,
            "raidz2 a b c special mirror e f",
            Some("raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present"),
        ),
        (
            None,
            "raidz2 a b c e draid f g h",
            Some("raidz and draid vdevs with different redundancy, 2 vs. 1 are present"),
        ),
        (None, "mirror a d1", Some("mirror contains both files and devices")),
        (None, "raidz a b lc", Some("raidz contains devices of different sizes")),
        (Some("mirror a b"), "mirror c e", None),
        (Some("mirror a b"), "log c", None),
        (Some("mirror a b"), "spare c", None),
        (Some("mirror a b raidz2 c e f g"), "h", None),
        (Some("mirror a b"), "c", Some("pool uses mirror and new vdev is file")),
        (
            Some("raidz a b c"),
            "raidz2 e f g",
            Some("pool uses 1 device parity and new vdev uses 2"),
        ),
        (
            Some("mirror a b"),
            "mirror c e f",
            Some("pool uses 2-way mirror and new vdev uses 3-way mirror"),
        ),
        (
            Some("raidz2 a b c e"),
            "special mirror f g",
            Some(
                "pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)",
            ),
        ),
    ] {
        let expected = message.map(|message| format!("mismatched replication level: {message}"));
        assert_eq!(objections(words, pool), Vec::from_iter(expected), "{words}");
    }
}

#[test]
fn a_device_is_used_once() {
    let found = opened(parse("mirror a b spare a"), &by_letter);
    let found = found.objections(None, &LocalPools::default());
    assert_eq!(found.0, [Objection::SameDevice { path: "a".into() }]);
    assert_eq!(found.clone().overridden(), found);
    let message = found.to_string();
    assert!(
        message.starts_with("invalid vdev specification\nthe following errors must be manually")
    );
}

/// A device with other sectors.
#[derive(Debug)]
struct Sectors(Arc<SparseDevice>, u32, u32);

impl BlockDevice for Sectors {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        let size = self.0.geometry().size;
        DeviceGeometry { size, logical_sector: self.1, physical_sector: self.2 }
    }

    fn submit(
        &self,
        requests: Vec<rzfs_blockdev::IoRequest>,
        completions: &Arc<rzfs_blockdev::CompletionQueue>,
    ) {
        self.0.submit(requests, completions);
    }
}

#[test]
fn the_sector_size_follows_the_devices_unless_somebody_says_otherwise() {
    let ashift = |sectors: &[(u32, u32)], wanted: u64| {
        let names: Vec<String> = (0..sectors.len()).map(|index| index.to_string()).collect();
        let words = format!("mirror {}", names.join(" "));
        let device = |name: &str| {
            let (logical, physical) = sectors[name.parse::<usize>().unwrap()];
            let device = Arc::new(Sectors(SparseDevice::new(64 * MIB), logical, physical));
            NewDevice { device, ..by_letter(name) }
        };
        let options = PlanOptions { ashift: wanted, ..PlanOptions::default() };
        let new = opened(parse(&words), &device).plan(&options, &mut counter(0));
        new.map(|new| new.tops[0].top.ashift.unwrap())
    };
    let small = (512, 512);
    assert_eq!(ashift(&[small, small], 0), Ok(9));
    assert_eq!(ashift(&[(512, 4096), small], 0), Ok(12));
    assert_eq!(ashift(&[(4096, 4096), (512, 8192)], 0), Ok(13));
    // Too large to be plausible.
    assert_eq!(ashift(&[(512, 1 << 15), small], 0), Ok(9));
    assert_eq!(ashift(&[(512, 4096), small], 9), Ok(9));
    assert_eq!(ashift(&[(4096, 4096), small], 9), Ok(12));
    assert_eq!(ashift(&[small, small], 16), Ok(16));
    assert_eq!(ashift(&[small, small], 17), Err(PlanError::Ashift(17)));
    let large = ashift(&[(1 << 17, 1 << 17), small], 0).unwrap_err();
    assert_eq!(large.errno(), 33);
}

#[test]
fn what_is_cleared_on_disks_is_no_part_of_their_labels() {
    for sector in [512_u32, 4096, 8192, 16 << 10, 32 << 10, 64 << 10] {
        let content = SparseDevice::new(64 * MIB);
        content.write(0, &[7; 8192]);
        let device = Arc::new(Sectors(content.clone(), sector, sector));
        let disk = NewDevice { device, ..by_letter("disk") };
        let spec = opened(parse("x"), &|_| disk.clone());
        let new = match spec.plan(&PlanOptions::default(), &mut counter(0)) {
            Ok(new) => new,
            // Such a device cannot hold a boot environment, which has 8 KiB.
            Err(PlanError::SectorTooLarge { .. }) if sector > 8192 => continue,
            Err(error) => panic!("{sector}: {error}"),
        };
        create(&new);
        assert_eq!(find_labels(content.as_ref()).len(), 4, "{sector}");
        let cleared = (0..8).all(|page| content.pages()[&page] == [0; 512]);
        assert!(cleared, "{sector}");
        let boot = content.pages()[&((8 << 10) / 512 + 15)];
        assert!(boot.iter().any(|byte| *byte != 0), "{sector}: the boot environment is there");
    }
}

#[test]
fn devices_have_to_be_large_enough() {
    let tiny = |name: &str| NewDevice { device: SparseDevice::new(63 * MIB), ..by_letter(name) };
    for words in ["a", "mirror a b", "raidz a b c"] {
        let error = opened(parse(words), &tiny).plan(&PlanOptions::default(), &mut counter(0));
        assert!(matches!(error, Err(PlanError::TooSmall { .. })), "{words}");
    }
    // 64 MiB have 59.5 MiB of space: the reserve of a dRAID and one row of 16 MiB, which is one
    // group if that is as wide as the vdev, and less than a slice otherwise.
    let asize = |words: &str| {
        plan(words, &PlanOptions::default()).map(|new| new.tops[0].top.asize.unwrap())
    };
    assert_eq!(asize("draid1:2d a b c"), Ok(48 * MIB));
    assert_eq!(asize("draid1:2d:1s la lb lc le lf"), Ok(192 * MIB));
}

#[test]
fn distributed_spares_come_with_their_draid() {
    let new = plan("a draid2:3d:2s la lb lc le lf lg lh spare s", &PlanOptions::default()).unwrap();
    let draid = &new.tops[1];
    assert_eq!(new.spares.len(), 3);
    for (index, spare) in (0..2).zip(&new.spares) {
        assert_eq!(spare.kind, VdevKind::DistributedSpare);
        let path = spare.hints.path.as_ref().unwrap().to_text().into_owned();
        assert_eq!(path, format!("draid2-1-{index}"));
        assert_eq!((spare.top_guid, spare.leaf.spare_id), (Some(draid.guid), Some(index)));
        let list = spare.to_auxiliary_nvlist().unwrap();
        assert!(!list.contains("id") && list.contains("spareid") && list.contains("is_spare"));
    }
    assert_eq!(new.auxiliary_labels(5000).unwrap().len(), 1);
}

#[test]
fn what_a_vdev_is_for_goes_into_its_zap() {
    let words = "mirror a b special mirror c e dedup mirror f g log h";
    let mut new = plan(words, &PlanOptions::default()).unwrap();
    let (special, dedup) = (AllocationBias::Special, AllocationBias::Dedup);
    assert_eq!(new.take_biases(), [(1, special), (2, dedup), (3, AllocationBias::Log)]);
    assert_eq!(new.take_biases(), []);
    assert_eq!(
        new.tops.iter().map(|top| top.top.is_log).collect::<Vec<_>>(),
        [0, 0, 0, 1].map(Some)
    );
}

fn pool(name: &str) -> PoolConfig {
    PoolConfig {
        version: 5000,
        name: name.into(),
        state: PoolState::Active,
        txg: Txg(0),
        guid: Guid(77),
        errata: Some(0),
        comment: None,
        compatibility: None,
        host: LastHost { id: 0, name: Some("host".into()) },
        vdev_children: None,
        holes: Vec::new(),
        split_guid: None,
        features_for_read: Some(Vec::new()),
        vdev_tree: NvList::new(),
    }
}

fn uberblock(tree: &VdevTree, txg: Txg) -> Uberblock {
    Uberblock {
        version: 5000,
        txg,
        guid_sum: tree.guid_sum(),
        timestamp: 1_795_227_842,
        mos: BlockPointer::from_words([0; 16]),
        software_version: 5000,
        multihost: Some(MultihostFields { delay: 0, config: MultihostConfig(0) }),
        checkpoint_txg: Txg(0),
        raidz_reflow: Default::default(),
    }
}

/// Labels new vdevs as the first txg of a pool does.
fn create(new: &NewVdevs) -> VdevTree {
    let root = new.root(Guid(77), Txg(4));
    let tree = VdevTree::open(root, &new.devices, TreeOptions::default()).unwrap();
    let pool = pool("made");
    new.label((&pool, &tree), tree.top_levels(), None, Txg(4)).unwrap();
    for top in &new.tops {
        tree.change(top.guid, |config| {
            config.top.metaslab_array = Some(ObjectId(70));
            config.top.metaslab_shift = Some(24);
        });
    }
    tree.mark_all_configs_dirty();
    let report = ConfigSync::begin(&tree).commit(&Commit {
        pool: &pool,
        uberblock: &uberblock(&tree, Txg(4)),
        multihost: Multihost::Off,
        first_choice: 0,
        auxiliary: &new.auxiliary_devices(),
    });
    assert!(report.unwrap().failures.is_empty());
    tree
}

#[test]
fn zdb_accepts_the_labels_of_new_files() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let names: Vec<String> =
        (0..9).map(|index| dir.path().join(format!("{index}.img")).display().to_string()).collect();
    let words = format!(
        "raidz2 {} {} {} {} special mirror {} {} log {} spare {} cache {}",
        names[0], names[1], names[2], names[3], names[4], names[5], names[6], names[7], names[8]
    );
    let mut opener = DeviceOpener::new(OpenOptions::new(), Some(64 * MIB));
    let spec = parse(&words).open(&mut opener).unwrap();
    let found = spec.objections(None, &LocalPools::default());
    assert_eq!(found.0.len(), 1, "raidz2 and mirror");
    assert_eq!(found.overridden().0, []);
    let options = PlanOptions { ashift: 12, ..PlanOptions::default() };
    let new = spec.plan(&options, &mut counter(1000)).unwrap();
    let tree = create(&new);
    opener.keep_files();
    drop((tree, spec, new, opener));

    for (index, name) in names.iter().enumerate() {
        let path = Path::new(name);
        let device = FileDevice::open(path, &OpenOptions::new()).unwrap();
        assert_eq!(find_labels(&device).len(), 4);
        let Some(text) = rzfs_testkit::zdb(["-lu", name]) else { continue };
        assert!(!text.contains("failed to unpack") && !text.contains("Bad label"), "{text}");
        assert_eq!(text.matches("labels = 0 1 2 3").count(), 2, "{index}: {text}");
        assert!(text.contains("txg = 4"), "{text}");
        let shown = match index {
            0..=3 => "type: 'raidz'",
            4 | 5 => "type: 'mirror'",
            6 => "is_log: 1",
            7 => "state: 3",
            _ => "state: 4",
        };
        assert!(text.contains(shown), "{index}: {text}");
    }
}

#[test]
fn files_that_were_made_in_vain_are_removed() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("new.img").display().to_string();
    let mut opener = DeviceOpener::new(OpenOptions::new(), Some(64 * MIB));
    let device = opener.open(&path).unwrap();
    assert_eq!(device.device.geometry().size, 64 * MIB);
    assert_eq!(opener.open(&path).unwrap().identity, device.identity);
    let error = opener.open(&dir.path().display().to_string()).unwrap_err();
    assert!(matches!(error, OpenFailure::NotADevice { .. }), "{error}");
    let error = opener.open("no-such-device-at-all").unwrap_err();
    assert!(error.to_string().contains("must be a full path or shorthand device name"));
    drop(opener);
    assert!(!Path::new(&path).exists());
    let mut without = DeviceOpener::new(OpenOptions::new(), None);
    assert!(matches!(without.open(&path), Err(OpenFailure::Open(_))));
}

/// The owner of the directory may put a link to another user's file there.
#[test]
fn files_that_were_exchanged_since_they_were_made_are_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let [new, other] = ["new.img", "other.img"].map(|name| dir.path().join(name));
    std::fs::File::create(&other).unwrap().set_len(64 * MIB).unwrap();
    let mut opener = DeviceOpener::new(OpenOptions::new(), Some(64 * MIB));
    let name = new.display().to_string();
    drop(opener.open(&name).unwrap());
    std::fs::remove_file(&new).unwrap();
    std::os::unix::fs::symlink(&other, &new).unwrap();
    let error = opener.open(&name).unwrap_err();
    assert!(matches!(error, OpenFailure::Exchanged { .. }), "{error}");
    drop(opener);
    assert!(other.exists() && new.is_symlink(), "neither is what was made");
}

#[test]
fn devices_of_other_pools_are_refused() {
    let new = plan("mirror a b spare s cache c", &PlanOptions::default()).unwrap();
    create(&new);
    let device = |vdev: &VdevConfig| NewDevice {
        path: "x".into(),
        kind: VdevKind::File,
        identity: identity_of("x"),
        access: Access::ReadWrite,
        device: Arc::clone(&new.devices[&vdev.guid]),
    };
    let check = |device: NewDevice, words: &str, local: &LocalPools| {
        let spec = opened(parse(words), &|_| device.clone());
        spec.objections(None, local).0.pop().map(|objection| objection.to_string())
    };
    let nobody = LocalPools::default();
    let member = device(&new.tops[0].children[0]);
    let expected = "x is part of potentially active pool 'made'";
    assert_eq!(check(member.clone(), "x", &nobody).as_deref(), Some(expected));
    let mut local = LocalPools::default();
    local.imported.insert(Guid(77));
    let expected = "x is part of active pool 'made'";
    assert_eq!(check(member, "x", &local).as_deref(), Some(expected));
    // A spare is free unless an imported pool has it, and can then be shared.
    let spare = device(&new.spares[0]);
    assert!(matches!(DeviceUse::of(spare.device.as_ref()), DeviceUse::Spare(_)));
    assert_eq!(check(spare.clone(), "x", &nobody), None);
    local.auxiliary.insert(new.spares[0].guid, "made".into());
    local.auxiliary.insert(new.caches[0].guid, "made".into());
    let expected = "x is reserved as a hot spare for pool made";
    assert_eq!(check(spare.clone(), "x", &local).as_deref(), Some(expected));
    assert_eq!(check(spare, "spare x", &local), None);
    let expected = "x is part of active pool 'made'";
    assert_eq!(check(device(&new.caches[0]), "cache x", &local).as_deref(), Some(expected));
}

#[test]
fn disks_lose_what_they_held() {
    let disk = by_letter("disk");
    let content = SparseDevice::new(64 * MIB);
    content.write(512, &[&b"EFI PART"[..], &[0; 504]].concat());
    let disk = NewDevice { device: content.clone(), ..disk };
    let spec = opened(parse("x"), &|_| disk.clone());
    let found = spec.objections(None, &LocalPools::default());
    assert_eq!(found.0[0].to_string(), "disk contains a filesystem of type 'gpt'");
    assert_eq!(found.overridden().0, []);
    let new = spec.plan(&PlanOptions::default(), &mut counter(0)).unwrap();
    create(&new);
    let found = spec.objections(None, &LocalPools::default());
    assert!(matches!(found.0[0], Objection::PotentiallyActivePool { .. }));
    assert_eq!(rzfs_vdev::create::signature(content.as_ref()), None);
    assert_eq!(find_labels(content.as_ref())[3].index, LabelIndex::ALL[3]);
    assert_eq!(new.tops[0].hints.whole_disk, Some(0));
}

#[test]
fn a_device_that_somebody_writes_is_not_taken_whatever_it_is_to_be() {
    let new = plan("a spare s cache c", &PlanOptions::default()).unwrap();
    create(&new);
    let check = |device: Arc<dyn BlockDevice>, words: &str, local: &LocalPools| {
        let device = NewDevice { access: Access::ReadOnly, device, ..by_letter("x") };
        let found = opened(parse(words), &|_| device.clone()).objections(None, local);
        found.overridden().0.pop().map(|objection| objection.to_string())
    };
    let device = |vdev: &VdevConfig| Arc::clone(&new.devices[&vdev.guid]);
    let nobody = LocalPools::default();
    let unknown = Some("x is part of an active pool".to_owned());
    for words in ["x", "spare x", "cache x"] {
        assert_eq!(check(device(&new.spares[0]), words, &nobody), unknown, "{words}");
        assert_eq!(check(device(&new.caches[0]), words, &nobody), unknown, "{words}");
        assert_eq!(check(SparseDevice::new(64 * MIB), words, &nobody), unknown, "{words}");
    }
    let auxiliary = [&new.spares[0], &new.caches[0]].map(|vdev| (vdev.guid, "made".to_owned()));
    let local = LocalPools { auxiliary: auxiliary.into(), ..nobody };
    let spare = check(device(&new.spares[0]), "spare x", &local);
    assert_eq!(spare.as_deref(), Some("x is reserved as a hot spare for pool made"));
    let cache = check(device(&new.caches[0]), "spare x", &local);
    assert_eq!(cache.as_deref(), Some("x is part of active pool 'made'"));
}

#[test]
fn devices_keep_their_pool_when_one_of_them_takes_no_labels() {
    let old = plan("a", &PlanOptions::default()).unwrap();
    create(&old);
    let kept = Arc::clone(&old.devices[&old.tops[0].guid]);
    let unwritable = MemoryDevice::from_bytes("unwritable", vec![0; 64 << 20].into());
    let unwritable: Arc<dyn BlockDevice> = Arc::new(unwritable);
    let by_name = |name: &str| {
        let device = if name == "a" { &kept } else { &unwritable };
        NewDevice { device: Arc::clone(device), ..by_letter(name) }
    };
    for words in ["a u", "a spare u", "a cache u"] {
        let spec = opened(parse(words), &by_name);
        let new = spec.plan(&PlanOptions::default(), &mut counter(900)).unwrap();
        let tree = VdevTree::open(new.root(Guid(78), Txg(4)), &new.devices, TreeOptions::default());
        let (tree, other) = (tree.unwrap(), pool("other"));
        let refused = new.label((&other, &tree), tree.top_levels(), None, Txg(4));
        assert!(matches!(refused, Err(LabelError::Device(_))), "{words}: {refused:?}");
        let DeviceUse::Member { pool, .. } = DeviceUse::of(kept.as_ref()) else {
            panic!("{words}")
        };
        assert_eq!(pool.name, "made", "{words}");
    }
}
