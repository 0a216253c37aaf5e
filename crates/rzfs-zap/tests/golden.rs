//! Every ZAP of pools that OpenZFS made: each listed entry must be found by its name or words,
//! which only works if hashes, normalised forms and the paths to leaves are OpenZFS's.

use std::collections::HashMap;
use std::sync::Arc;

use rzfs_blockdev::{BlockDevice, FileDevice, OpenOptions, read_exact_at};
use rzfs_codec::checksum::Salt;
use rzfs_dmu::{BlockPipeline, Object, Objset, PipelineOptions};
use rzfs_dsl::dataset::{DatasetError, DatasetTree};
use rzfs_format::object_type::ObjectType;
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{BlockId, Guid, ObjectId, ObjsetId};
use rzfs_testkit::ReferencePool;
use rzfs_vdev::{TreeOptions, VdevConfig, VdevKind, VdevTree};
use rzfs_zap::{
    Cookie, Matching, MemoryBlocks, NewZap, Normalization, Zap, ZapBlocks, ZapEntry, ZapForm,
    ZapStatistics, verify,
};

fn open_mos(pool: &ReferencePool) -> Objset {
    let image = &pool.images().unwrap()[0];
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(image, &OpenOptions::new()).unwrap());
    let ring = read_exact_at(&*device, 128 << 10, 128 << 10).unwrap();
    let slots = ring.chunks(1024).filter_map(|slot| Uberblock::decode(slot).ok());
    let uberblock = slots.map(|(u, _)| u).max_by_key(Uberblock::precedence).unwrap();
    let mut disk = VdevConfig::new(VdevKind::File, Guid(2));
    disk.top.ashift = Some(9);
    disk.top.asize = Some(device.geometry().size - (5 << 20));
    let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([disk]);
    let devices = HashMap::from([(Guid(2), device)]);
    let vdevs = VdevTree::open(root, &devices, TreeOptions::default()).unwrap();
    let options = PipelineOptions {
        salt: Salt::new([0; 32]),
        dynamic_gang_headers: false,
        arc_max: 16 << 20,
        tunables: Default::default(),
        injector: None,
    };
    let pipeline = BlockPipeline::new(Arc::new(vdevs), options);
    Objset::open(&pipeline, ObjsetId::MOS, &uberblock.mos, None).unwrap()
}

/// The MOS and all file systems and volumes whose keys are not needed.
fn objsets(pool: &ReferencePool) -> Vec<Objset> {
    let mos = open_mos(pool);
    let directory = mos.object(ObjectId(1)).unwrap().zap().unwrap();
    let root = directory.lookup_u64("root_dataset").unwrap().unwrap();
    let tree = DatasetTree::new(mos.clone(), pool.name().to_owned(), ObjectId(root), || u64::MAX);
    let mut objsets = vec![mos];
    for dataset in tree.root().unwrap().descendants().unwrap() {
        match dataset.open_objset() {
            Ok(objset) => objsets.push(objset),
            Err(DatasetError::KeyNotLoaded { .. }) => {}
            Err(error) => panic!("{}: {error}", dataset.name()),
        }
    }
    objsets
}

#[derive(Default, Debug, PartialEq)]
struct Seen {
    zaps: usize,
    entries: usize,
    fat: usize,
    words: usize,
    normalizing: usize,
}

fn check_zap(zap: &Zap<Object>, seen: &mut Seen) {
    seen.zaps += 1;
    let rules = zap.normalization();
    let mut before = None;
    let mut cookie = Cookie::START;
    let mut count = 0;
    for entry in zap.entries() {
        let entry = entry.unwrap();
        count += 1;
        assert!(before < Some((entry.hash, entry.differentiator)), "entries are out of order");
        before = Some((entry.hash, entry.differentiator));
        let resumed = zap.entries_from(cookie).next().unwrap().unwrap();
        assert_eq!(resumed, entry, "a cookie leads elsewhere");
        cookie = entry.next;
        if let Some(words) = entry.key.as_words() {
            seen.words += 1;
            assert_eq!(zap.lookup_words(words).unwrap(), Some(entry.value));
            continue;
        }
        assert_eq!(zap.lookup(entry.name()).unwrap().as_ref(), Some(&entry.value));
        assert_eq!(zap.lookup([entry.name(), b"~"].concat()).unwrap(), None);
        if !rules.is_none() {
            let other = if rules.fold_case {
                entry.name().to_ascii_uppercase()
            } else {
                entry.name().to_vec()
            };
            let found = zap.lookup_matching(&other, Matching::Normalized).unwrap().unwrap();
            assert_eq!(rules.normalize(found.name()), rules.normalize(entry.name()));
        }
    }
    assert_eq!(zap.entry_count(), count);
    assert_eq!(verify(zap.blocks()).unwrap(), []);
    match zap.statistics().unwrap() {
        ZapStatistics::Micro(statistics) => assert_eq!(statistics.entries as u64, count),
        ZapStatistics::Fat(statistics) => {
            assert_eq!(statistics.entries_with_chunks.iter().sum::<u64>(), count);
            assert_eq!(
                statistics.leaves_with_pointers.iter().sum::<u64>(),
                statistics.header.leaves
            );
        }
    }
    seen.entries += count as usize;
    seen.fat += usize::from(zap.form() == ZapForm::Fat);
    seen.normalizing += usize::from(rules != Normalization::NONE);
}

fn check(name: &str) -> Option<Seen> {
    let pool = ReferencePool::golden(name)?;
    let mut seen = Seen::default();
    for objset in objsets(&pool) {
        for entry in objset.objects() {
            let entry = entry.unwrap();
            if !entry.dnode.object_type.is_zap() {
                continue;
            }
            let object = objset.object(entry.id).unwrap();
            // An object that was never written holds no ZAP yet.
            if object.dnode().pointers.iter().any(|pointer| !pointer.is_hole()) {
                check_zap(&object.zap().unwrap(), &mut seen);
            }
        }
    }
    Some(seen)
}

#[test]
fn zaps_of_a_default_pool() {
    let Some(seen) = check("g01-default") else { return };
    assert!(seen.fat > 5 && seen.entries > 3800, "{seen:?}");
}

#[test]
fn zaps_of_dedup_tables() {
    let Some(seen) = check("g11-dedup") else { return };
    assert!(seen.words > 20, "{seen:?}");
    let Some(seen) = check("g12-fdt-clone") else { return };
    assert!(seen.words > 20, "{seen:?}");
}

#[test]
fn directories_that_fold_and_normalise_names() {
    let Some(seen) = check("g14-names") else { return };
    assert!(seen.normalizing > 8 && seen.entries > 28_000, "{seen:?}");
}

#[test]
fn zaps_of_old_pools() {
    for name in ["g20-nofeatures", "g21-v28", "g22-v8"] {
        let Some(seen) = check(name) else { continue };
        assert!(seen.zaps > 10, "{name}: {seen:?}");
    }
}

/// What `zdb -dddd` of OpenZFS 2.3.2 says about the directory with 20000 names.
#[test]
fn statistics_are_those_of_zdb() {
    let Some(pool) = ReferencePool::golden("g14-names") else { return };
    let objset = &objsets(&pool)[1];
    let zap = objset.object(ObjectId(129)).unwrap().zap().unwrap();
    let ZapStatistics::Fat(statistics) = zap.statistics().unwrap() else { panic!("it is fat") };
    let header = &statistics.header;
    assert_eq!((header.entries, header.leaves, statistics.blocks), (20000, 128, 129));
    assert_eq!((header.salt, header.table_shift), (0x1536_ce63, 10));
    assert_eq!(statistics.leaves_with_pointers, [0, 0, 0, 128, 0, 0, 0, 0, 0, 0]);
    assert_eq!(statistics.leaves_with_fives, [0, 0, 0, 0, 0, 0, 0, 0, 0, 128]);
    assert_eq!(statistics.leaves_with_tenths, [0, 0, 0, 0, 0, 0, 0, 128, 0, 0]);
    assert_eq!(statistics.entries_with_chunks, [0, 0, 0, 20000, 0, 0, 0, 0, 0, 0]);
    assert_eq!(statistics.buckets_with_entries, [46840, 17456, 1176, 64, 0, 0, 0, 0, 0, 0]);
}

/// Makes a directory anew, if its files are `entry-number-1` and so on, made in this order, and
/// none was ever removed.
fn made_anew(zap: &Zap<Object>) -> Option<MemoryBlocks> {
    let number = |entry: &ZapEntry| {
        let name = std::str::from_utf8(entry.name()).ok()?;
        name.strip_prefix("entry-number-")?.parse::<usize>().ok()
    };
    let entries = zap.entries().map(|entry| entry.unwrap());
    let mut entries: Vec<_> =
        entries.map(|entry| Some((number(&entry)?, entry))).collect::<Option<_>>()?;
    entries.sort_by_key(|(number, _)| *number);
    if entries.is_empty() || !entries.iter().map(|(number, _)| *number).eq(1..=entries.len()) {
        return None;
    }
    let new = NewZap::new(zap.salt()).normalization(zap.normalization());
    let mut made = Zap::create(MemoryBlocks::empty(), &new).unwrap();
    for (_, entry) in entries {
        made.edit().insert(&entry.key, entry.value).unwrap();
    }
    Some(made.into_blocks())
}

/// Directories of golden pools whose history is known, byte for byte: a microzap, and fat ones
/// with and without normalised names.
#[test]
fn directories_made_anew_are_those_of_openzfs() {
    let mut blocks = 0;
    let mut directories = Vec::new();
    for name in ["g01-default", "g14-names"] {
        let Some(pool) = ReferencePool::golden(name) else { return };
        for objset in objsets(&pool) {
            for entry in objset.objects() {
                let entry = entry.unwrap();
                if entry.dnode.object_type != ObjectType::DIRECTORY_CONTENTS {
                    continue;
                }
                let zap = objset.object(entry.id).unwrap().zap().unwrap();
                let Some(made) = made_anew(&zap) else { continue };
                assert_eq!(made.block_size(), zap.blocks().block_size() as usize);
                let theirs = ZapBlocks::block_count(zap.blocks()).unwrap();
                assert_eq!(made.block_count(), Ok(theirs));
                for (id, block) in made.blocks().iter().enumerate() {
                    let theirs = zap.blocks().read_block(BlockId(id as u64)).unwrap();
                    assert!(theirs.data == block, "{name}: block {id} of directory {}", entry.id);
                    blocks += 1;
                }
                directories.push((name, zap.entry_count()));
            }
        }
    }
    assert!(blocks > 200, "{directories:?}");
    assert!([300, 3000, 2100, 20_000].iter().all(|n| directories.iter().any(|d| d.1 == *n)));
}
