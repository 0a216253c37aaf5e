//! The output of OpenZFS's commands on reference pools before it exported them.

use crate::harness::{Rzfs, reference};
use rzfs_testkit::ReferencePool;
use std::collections::BTreeMap;

/// Properties that the export changed: sums of space, `snapdir`, which was `visible` only for the
/// comparison of files, and `snapshots_changed`, which old pools do not store. The others depend on
/// how the pool is imported.
const CHANGED: [&str; 20] = [
    "available",
    "allocated",
    "capacity",
    "checkpoint",
    "compressratio",
    "dedup_table_size",
    "free",
    "fragmentation",
    "load_guid",
    "logicalreferenced",
    "logicalused",
    "mounted",
    "readonly",
    "referenced",
    "snapdir",
    "snapshots_changed",
    "used",
    "usedbychildren",
    "usedbydataset",
    "written",
];

/// The output of `zpool get -Hp` and `zfs get -Hp` by object and property.
fn properties(text: &str) -> BTreeMap<(String, String), (String, String)> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let [name, property, value, source] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        if !CHANGED.contains(&property) {
            all.insert((name.into(), property.into()), (value.into(), source.into()));
        }
    }
    all
}

fn text(pool: &ReferencePool, name: &str) -> String {
    String::from_utf8(pool.text(name).unwrap()).unwrap()
}

/// Compares the output of a command with a recorded text of a pool.
fn agrees(reference_pool: &str, file: &str, command: &str) {
    let (pool, images) = reference(reference_pool);
    let short = reference_pool.split('-').next().unwrap();
    let words = command.split(' ').map(str::to_owned).chain([short.to_owned()]);
    let devices = images.iter().flat_map(|one| ["-d".into(), one.to_str().unwrap().to_owned()]);
    let found = properties(&Rzfs::new().succeed(words.chain(devices)));
    let expected = properties(&text(&pool, file));
    let wrong: Vec<_> = expected
        .iter()
        .filter(|(key, value)| found.get(*key) != Some(value))
        .map(|(key, value)| format!("{key:?}: {value:?}, not {:?}", found.get(key)))
        .collect();
    assert!(wrong.is_empty(), "{reference_pool}:\n{}", wrong.join("\n"));
    assert!(expected.len() > 20);
}

#[test]
fn properties_of_pools() {
    for pool in ["g01-default", "g08-draid2", "g13-classes", "g21-v28", "g22-v8"] {
        agrees(pool, "zpool", "zpool get -Hp all");
    }
}

#[test]
fn properties_of_datasets() {
    for pool in ["g01-default", "g14-names", "g21-v28", "g22-v8", "g23-many"] {
        agrees(pool, "zfs", "zfs get -Hpr all");
    }
}

#[test]
fn states_of_pools() {
    for name in ["g01-default", "g08-draid2", "g13-classes", "g15-removed", "g16-expanded"] {
        let (pool, images) = reference(name);
        let devices: Vec<_> = images.iter().flat_map(|one| ["-d", one.to_str().unwrap()]).collect();
        let found = Rzfs::new().succeed(["zpool", "status", "-v"].iter().chain(&devices));
        let directory = images[0].parent().unwrap().to_str().unwrap();
        // Longer paths change the column widths.
        let folded = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let found = folded(&found.replace(directory, "/tmp/v"));
        assert_eq!(found, folded(&text(&pool, "status")), "{name}");
    }
}
