//! The list of importable pools.

use super::{images, options};
use rzfs_blockdev::OpenOptions;
use rzfs_dsl::import::{
    Destroyed, DeviceSource, Discovery, HostIdentity, ImportOptions, ImportablePool, SelectError,
};
use rzfs_dsl::pool::{AuxiliaryKind, Erratum, PoolStatus};
use rzfs_testkit::ReferencePool;
use rzfs_vdev::{Health, Vdev, VdevKind};
use std::path::Path;

/// A line of the configuration: indentation, name, state.
type Line = (usize, String, String);

fn examine(pool: &ReferencePool) -> ImportablePool {
    let sources: Vec<_> = images(pool).into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let [only] = found.pools() else { panic!("{}", pool.name()) };
    // The machine that made the expected texts had a host id unlike that of any pool.
    let host = HostIdentity { id: 1, name: None };
    ImportablePool::examine(only, &ImportOptions { host, ..options(only) })
}

/// The last component of a path; other names unchanged.
fn base(name: &str) -> String {
    Path::new(name).file_name().unwrap().to_str().unwrap().to_owned()
}

fn state(health: Health) -> String {
    format!("{health} {}", health.aux.text()).trim().to_owned()
}

fn lines(vdev: Vdev<'_>, depth: usize, lines: &mut Vec<Line>) {
    lines.push((depth, base(vdev.name()), state(vdev.health())));
    vdev.children().for_each(|child| self::lines(child, depth + 1, lines));
}

fn shown(pool: &ImportablePool) -> Vec<Line> {
    let mut shown = vec![(0, pool.name.clone(), state(pool.health))];
    let tree = pool.vdevs.as_ref().expect("a tree");
    for top in tree.top_levels().filter(|top| top.kind() != VdevKind::Hole) {
        lines(top, 1, &mut shown);
    }
    let mut spares = pool.auxiliary.iter().filter(|vdev| vdev.kind == AuxiliaryKind::Spare);
    let name = |path: &rzfs_format::nvlist::NvString| base(&path.to_text());
    if let Some(first) = spares.next() {
        shown.push((0, "spares".to_owned(), String::new()));
        for spare in std::iter::once(first).chain(spares) {
            let path = spare.config.hints.path.as_ref().map(name).expect("a path");
            shown.push((1, path, String::new()));
        }
    }
    shown
}

fn expected(text: &str) -> Vec<Line> {
    let config = text.lines().skip_while(|line| *line != "config:").skip(2);
    config
        .filter_map(|line| line.strip_prefix('\t'))
        .map(|line| {
            let depth = (line.len() - line.trim_start().len()) / 2;
            let mut words = line.split_whitespace();
            let name = base(words.next().expect("a name"));
            (depth, name, words.collect::<Vec<_>>().join(" "))
        })
        .collect()
}

fn expected_status(text: &str) -> PoolStatus {
    let table = [
        ("Errata #4", PoolStatus::Erratum(Erratum::EncryptionIvSets)),
        ("formatted using a legacy on-disk version", PoolStatus::VersionOlder),
        ("formatted using an incompatible version", PoolStatus::VersionNewer),
        ("Some supported features are not enabled", PoolStatus::FeaturesDisabled),
        ("last accessed by another system", PoolStatus::LastUsedElsewhere),
        ("One or more devices are missing", PoolStatus::Missing),
    ];
    let found = table.iter().find(|(words, _)| text.contains(words));
    found.map_or(PoolStatus::Healthy, |(_, status)| *status)
}

#[test]
fn the_list_of_importable_pools_is_the_one_that_openzfs_prints() {
    for pool in ReferencePool::all_openzfs() {
        let text = String::from_utf8(pool.text("import-list").expect("a list")).expect("UTF-8");
        let found = examine(&pool);
        let field = |label: &str| {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label));
            line.map(str::to_owned)
        };
        assert_eq!(Some(found.name.clone()), field("pool: "));
        assert_eq!(Some(found.guid.to_string()), field("id: "), "{}", found.name);
        assert_eq!(Some(found.health.to_string()), field("state: "), "{}", found.name);
        assert_eq!(found.status, expected_status(&text), "{}", found.name);
        let see = field("see: ").map(|address| base(&address));
        assert_eq!(found.status.message_id().map(str::to_owned), see, "{}", found.name);
        assert_eq!(shown(&found), expected(&text), "{}", found.name);
    }
}

#[test]
fn a_golden_pool_has_nothing_to_be_said_about_it() {
    for name in ["g01-default", "g04-mirror3", "g08-draid2", "g13-classes", "g15-removed"] {
        let Some(golden) = ReferencePool::golden(name) else { continue };
        let found = examine(&golden);
        assert_eq!((found.status, found.health), (PoolStatus::Healthy, Health::HEALTHY));
        assert!(found.error.is_none());
    }
}

#[test]
fn pools_are_selected_by_name_or_guid() {
    let Some(golden) = ReferencePool::golden("g01-default") else { return };
    let sources: Vec<_> = images(&golden).into_iter().map(DeviceSource::Path).collect();
    let found = Discovery::search(&sources, &OpenOptions::new());
    let guid = found.select("g01", Destroyed::Exclude).unwrap().guid();
    assert_eq!(found.select(&guid.to_string(), Destroyed::Exclude).unwrap().name(), "g01");
    let error = found.select("nope", Destroyed::Exclude).unwrap_err();
    assert_eq!(error.to_string(), "cannot import 'nope': no such pool available");
    let error = found.select("g01", Destroyed::Only).unwrap_err();
    assert_eq!(error, SelectError::NotFound { name: "g01".into() });
}
