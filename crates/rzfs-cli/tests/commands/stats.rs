//! Pool counters during use, and how they are shown.

use crate::harness::wait_until;
use crate::workshop::Workshop;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;

/// Each half of it is a whole number of kernel pages.
const BYTES: usize = 512 << 10;

fn parse(line: &str) -> Value {
    let all: Value = serde_json::from_str(line).unwrap();
    all["pools"]["tank"].clone()
}

/// The counters of the pool `tank`.
fn stats(shop: &Workshop) -> Value {
    parse(&shop.succeed("stats -j tank"))
}

/// The counters of a dataset.
fn objset<'a>(stats: &'a Value, name: &str) -> &'a Value {
    let is_it = |(key, one): &(&String, &Value)| {
        key.starts_with("objset-0x") && one["dataset_name"].as_str() == Some(name)
    };
    stats.as_object().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{name}: {stats}")).1
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// A pool with a file `file`, synced twice: the first fsync creates the log.
fn used_pool() -> Workshop {
    let shop = Workshop::new();
    // Only groups that are waited for are written.
    shop.succeed("zpool create -o zfs_txg_timeout=3600 -R ROOT --size 96M tank A");
    let mut file = File::create(shop.root().join("file")).unwrap();
    for _ in 0..2 {
        file.write_all(&[7; BYTES / 2]).unwrap();
        file.sync_all().unwrap();
    }
    shop
}

#[test]
fn what_is_done_to_files_is_counted() {
    let shop = used_pool();
    let written = stats(&shop);
    let of_dataset = objset(&written, "tank");
    assert!(number(&of_dataset["writes"]) >= 2, "{of_dataset}");
    assert_eq!(number(&of_dataset["nwritten"]), BYTES as u64);
    let zil = &written["zil"];
    assert!(number(&zil["zil_commit_count"]) >= 2, "{zil}");
    for name in ["zil_commit_writer_count", "zil_itx_count", "zil_itx_metaslab_normal_count"] {
        assert!(number(&zil[name]) >= 1, "{name}: {zil}");
    }
    let data = ["zil_itx_indirect_bytes", "zil_itx_needcopy_bytes"].map(|name| number(&zil[name]));
    assert_eq!(data.iter().sum::<u64>(), BYTES as u64 / 2, "{zil}");
    assert!(number(&written["dmu_tx"]["dmu_tx_assigned"]) > 2);

    fs::remove_file(shop.root().join("file")).unwrap();
    wait_until("the file is freed", || {
        let now = stats(&shop);
        let of_dataset = objset(&now, "tank");
        assert_eq!(number(&of_dataset["nunlinks"]), 1);
        number(&of_dataset["nunlinked"]) == 1
    });
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn what_is_read_is_counted_also_in_pools_that_are_only_read() {
    let shop = used_pool();
    shop.succeed("zpool export tank");
    for option in ["-N -R", "-o readonly=on -N -R"] {
        shop.succeed(&format!("zpool import {option} ROOT -d IMAGES tank"));
        let before = stats(&shop);
        shop.succeed("zfs mount tank");
        assert_eq!(fs::read(shop.root().join("file")).unwrap().len(), BYTES);
        let after = stats(&shop);
        let of_dataset = objset(&after, "tank");
        assert_eq!(number(&of_dataset["nread"]), BYTES as u64, "{option}");
        assert!(number(&of_dataset["reads"]) >= 1, "{option}");
        for name in ["hits", "misses", "size", "data_size"] {
            let [before, after] = [&before, &after].map(|one| number(&one["arcstats"][name]));
            assert!(after > before, "{option}: {name}: {before}, {after}");
        }
        let is_written = option == "-N -R";
        assert_eq!(after.get("zil").is_some(), is_written, "{after}");
        assert!(number(&after["zfetchstats"]["misses"]) >= 1, "{after}");
        shop.succeed("zpool export tank");
    }
}

#[test]
fn the_last_transaction_groups_are_listed() {
    let shop = used_pool();
    shop.succeed("zpool sync tank");
    let stats = stats(&shop);
    let txgs = stats["txgs"].as_array().unwrap();
    assert_eq!(txgs.last().unwrap()["state"], "O");
    let is_written = |one: &&Value| {
        one["state"] == "C" && number(&one["ndirty"]) > 0 && number(&one["nwritten"]) > 0
    };
    let written = txgs.iter().rfind(is_written).unwrap_or_else(|| panic!("{stats}"));
    for name in ["birth", "writes", "otime", "stime"] {
        assert!(number(&written[name]) > 0, "{name}: {written}");
    }
    let numbers: Vec<_> = txgs.iter().map(|one| number(&one["txg"])).collect();
    assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "{numbers:?}");
    let table = shop.succeed("stats tank");
    let (_, table) = table.split_once("tank: txgs\n").unwrap();
    let header: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header[..4], ["TXG", "STATE", "BIRTH", "NDIRTY"]);
    shop.succeed("zpool export tank");
}

/// The samples of Prometheus's text format, by name and labels; checks that each follows a type.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let (mut kind, mut samples) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, word) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&word), "{line}");
            assert_eq!(word == "counter", name.ends_with("_total"), "{line}");
            name.clone_into(&mut kind);
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap();
            assert!(name == kind && labels.ends_with('}'), "{line}");
            assert!(samples.insert(series.to_owned(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    samples
}

#[test]
fn numbers_are_shown_as_tables_and_for_prometheus() {
    let shop = used_pool();
    let table = shop.succeed("stats");
    assert!(table.starts_with("tank: arcstats\nNAME "), "{table}");
    for line in ["\ntank: zil\n", "\ntank: dmu_tx\n", "\ntank: zfetchstats\n", "\ntank: objset-0x"]
    {
        assert!(table.contains(line), "{line}: {table}");
    }
    let samples = samples(&shop.succeed("stats -p tank"));
    let written = samples[r#"rzfs_objset_nwritten_total{dataset="tank",pool="tank"}"#];
    assert_eq!(written, BYTES as f64);
    assert!(samples[r#"rzfs_zil_commit_count_total{pool="tank"}"#] >= 2.0);
    assert!(samples[r#"rzfs_arcstats_c_max{pool="tank"}"#] >= f64::from(32 << 20));
    shop.succeed("zpool export tank");
}

#[test]
fn an_interval_shows_what_was_counted_in_it() {
    let shop = used_pool();
    let reports = shop.succeed("stats -j tank 0.2 3");
    let reports: Vec<_> = reports.lines().map(parse).collect();
    let written: Vec<_> =
        reports.iter().map(|one| number(&objset(one, "tank")["nwritten"])).collect();
    assert_eq!(written, [BYTES as u64, 0, 0]);
    let [first, _, third] = &reports[..] else { panic!() };
    assert!(number(&third["arcstats"]["size"]) > 0, "how things are is no difference");
    let txgs = |one: &Value| one["txgs"].as_array().unwrap().len();
    assert!(txgs(third) < txgs(first));
    shop.succeed("zpool export tank");
}

#[test]
fn mistakes_are_told() {
    let shop = Workshop::new();
    assert_eq!(shop.succeed("stats"), "no pools available\n");
    assert_eq!(shop.succeed("stats -p"), "");
    assert_eq!(shop.refuse("stats nopool", 1), "cannot open 'nopool': no such pool\n");
    assert!(shop.refuse("stats -p 1", 2).contains("no interval with -p"));
    assert!(shop.refuse("stats 0", 2).contains("interval cannot be zero"));
    assert!(shop.refuse("stats -j -p", 2).contains("cannot be used with"));
}
