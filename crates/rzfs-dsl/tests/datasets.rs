//! Compares datasets and their properties with what OpenZFS said about the same pools.

use rzfs_blockdev::{BlockDevice, FileDevice, OpenOptions, read_exact_at};
use rzfs_codec::checksum::Salt;
use rzfs_dmu::{BlockPipeline, Objset, PipelineOptions};
use rzfs_dsl::dataset::property::{Property, PropertySource, PropertyValue};
use rzfs_dsl::dataset::{Dataset, DatasetTree};
use rzfs_format::uberblock::Uberblock;
use rzfs_format::{Guid, ObjectId, ObjsetId};
use rzfs_testkit::ReferencePool;
use rzfs_vdev::{TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

fn open(pool: &ReferencePool, name: &str) -> DatasetTree {
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
        arc_max: 8 << 20,
        injector: None,
    };
    let pipeline = BlockPipeline::new(Arc::new(vdevs), options);
    let mos = Objset::open(&pipeline, ObjsetId::MOS, &uberblock.mos, None).unwrap();
    let directory = mos.object(ObjectId(1)).unwrap();
    let root = directory.zap().unwrap().lookup_u64(b"root_dataset").unwrap().unwrap();
    DatasetTree::new(mos, name.to_owned(), ObjectId(root), || u64::MAX)
}

fn shown(property: &Property) -> (String, String) {
    let value = match (&*property.name, &property.value) {
        (_, None) => "-".to_owned(),
        ("compressratio" | "refcompressratio", Some(PropertyValue::Number(n))) => {
            format!("{}.{:02}", n / 100, n % 100)
        }
        (_, Some(PropertyValue::Number(n))) => n.to_string(),
        (_, Some(PropertyValue::Text(text))) => text.clone(),
    };
    let source = match &property.source {
        PropertySource::None => "-".to_owned(),
        PropertySource::Default => "default".to_owned(),
        PropertySource::Local => "local".to_owned(),
        PropertySource::Inherited(from) => format!("inherited from {from}"),
        PropertySource::Received => "received".to_owned(),
    };
    (value, source)
}

/// What `zfs get -Hp -r all` said: dataset, property, value, source.
fn expected(pool: &ReferencePool) -> BTreeMap<String, Vec<[String; 3]>> {
    let text = String::from_utf8(pool.text("zfs").unwrap()).unwrap();
    let mut datasets: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split('\t').map(str::to_owned);
        let dataset = fields.next().unwrap();
        datasets.entry(dataset).or_default().push([(); 3].map(|()| fields.next().unwrap()));
    }
    datasets
}

/// Whether a property of a dataset is the same in the images as it was when OpenZFS was asked.
fn is_comparable(dataset: &str, name: &str, value: &str) -> bool {
    // What depends on the machine that was asked.
    let runtime = matches!(name, "mounted" | "keystatus" | "available");
    // The pool's own space went on changing until the export.
    let of_pool = matches!(name, "used" | "usedbychildren" | "logicalused" | "compressratio");
    // It was set while the manifests were taken.
    let temporary = (name, value) == ("snapdir", "visible");
    // Old pools cannot store it.
    let in_memory = name == "snapshots_changed" && matches!(dataset, "g21" | "g22");
    !(runtime || (of_pool && !dataset.contains(['/', '@'])) || temporary || in_memory)
}

fn check(name: &str) {
    let pool = ReferencePool::golden(name).expect("a golden pool");
    let expected = expected(&pool);
    let pool_name = expected.keys().next().unwrap().split(['/', '@']).next().unwrap();
    let tree = open(&pool, pool_name);

    let mut found: Vec<Dataset> = Vec::new();
    for dataset in tree.root().unwrap().descendants().unwrap() {
        found.extend(dataset.snapshots().unwrap());
        found.push(dataset);
    }
    let mut names: Vec<_> = found.iter().map(|dataset| dataset.name().to_owned()).collect();
    names.sort();
    let all: Vec<_> = expected.keys().filter(|name| !name.contains('#')).cloned().collect();
    assert_eq!(names, all, "{name}");

    let mut wrong = Vec::new();
    for dataset in &found {
        assert_eq!(tree.by_object(dataset.object()).unwrap().name(), dataset.name());
        for [property, value, source] in &expected[dataset.name()] {
            if !is_comparable(dataset.name(), property, value) {
                continue;
            }
            let got = dataset.property(property).unwrap().as_ref().map(shown);
            if got != Some((value.clone(), source.clone())) {
                wrong.push(format!("{} {property}: {value} {source}, not {got:?}", dataset.name()));
            }
        }
        for property in dataset.properties().unwrap() {
            if !expected[dataset.name()].iter().any(|[name, ..]| *name == property.name) {
                wrong.push(format!("{} has no {}", dataset.name(), property.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

macro_rules! pools {
    ($($test:ident: $pool:literal,)*) => {
        $(#[test]
        fn $test() {
            check($pool);
        })*
    };
}

pools! {
    default_pool: "g01-default",
    compression: "g02-compress",
    encryption: "g10-encrypted",
    names: "g14-names",
    checkpoint: "g17-checkpoint",
    no_features: "g20-nofeatures",
    version_28: "g21-v28",
    version_8: "g22-v8",
    many_datasets: "g23-many",
}

const PASSPHRASE: &[u8] = b"correct horse battery\n";

fn key_of(pool: &ReferencePool, root: &str) -> Vec<u8> {
    match root {
        "g10/raw" => pool.text("raw.key").unwrap(),
        "g10/hex" => pool.text("hex.key").unwrap(),
        _ => PASSPHRASE.to_vec(),
    }
}

/// Reads every data block of every object; how many bytes of files there were.
fn read_everything(objset: &Objset) -> u64 {
    let mut bytes = 0;
    for entry in objset.objects() {
        let object = objset.object(entry.unwrap().id).unwrap();
        let blocks = object.dnode().max_block_id.0 + 1;
        for block in object.read_blocks(0..blocks) {
            bytes += block.unwrap().data.len() as u64;
        }
        object.spill().unwrap();
    }
    bytes
}

#[test]
fn every_block_of_every_suite_and_key_format_is_authentic() {
    let pool = ReferencePool::golden("g10-encrypted").expect("a golden pool");
    let tree = open(&pool, "g10");
    let datasets = tree.root().unwrap().descendants().unwrap();
    for dataset in &datasets {
        let Some(root) = dataset.encryption_root().unwrap() else { continue };
        if root.name() == dataset.name() {
            assert_eq!(dataset.open_objset().unwrap_err().errno(), 13, "{}", dataset.name());
            dataset.load_key(b"not the key of anything").unwrap_err();
            dataset.load_key(&key_of(&pool, root.name())).unwrap();
        }
    }
    let mut encrypted = 0;
    for dataset in &datasets {
        encrypted += u32::from(dataset.encryption_root().unwrap().is_some());
        for snapshot in dataset.snapshots().unwrap() {
            assert!(read_everything(&snapshot.open_objset().unwrap()) > 0, "{}", snapshot.name());
        }
        assert!(read_everything(&dataset.open_objset().unwrap()) > 0, "{}", dataset.name());
    }
    assert_eq!(encrypted, 10);
}
