//! Space maps that are damaged.

use super::judges::{only_leaks, openzfs_says};
use super::{contents, create_with, damage_above, damage_object, works};
use rzfs_dsl::Pool;
use rzfs_format::ObjectId;
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig};

/// Files that lie in several metaslabs.
const FILES: u64 = 10;

fn name(number: u64) -> String {
    format!("old-{number}")
}

/// A pool with many files, as the machine stops.
fn with_files(features: FeatureSet) -> (Rig, OpenPool) {
    let (rig, open) = create_with(features);
    let files = Files(open.root().unwrap().1);
    files.put("whole", &contents(99)).unwrap();
    for number in 0..FILES {
        files.put(&name(number), &contents(number)).unwrap();
        open.sync().unwrap();
    }
    // Space that is free has been in use: maps have to be read.
    for number in (0..FILES).step_by(3) {
        files.unlink(&name(number)).unwrap();
        open.sync().unwrap();
    }
    (rig, open)
}

/// An import reads what is new, and would notice.
fn age(open: &OpenPool) {
    for mode in 0..8 {
        Files(open.root().unwrap().1).chmod("whole", 0o600 + mode).unwrap();
        open.sync().unwrap();
    }
}

/// The own maps of metaslabs that have entries.
fn maps(pool: &Pool) -> Vec<ObjectId> {
    let metaslabs = pool.metaslabs().unwrap();
    let all = metaslabs.vdevs().flat_map(|vdev| vdev.metaslabs());
    let maps = all.filter_map(|metaslab| metaslab.space_map());
    maps.filter(|map| map.header().length > 0).map(|map| map.object()).collect()
}

fn changes_and_works(rig: &Rig, open: OpenPool) {
    let files = Files(open.root().unwrap().1);
    for number in (0..FILES).filter(|number| number % 3 > 0) {
        files.unlink(&name(number)).unwrap();
        open.sync().unwrap();
    }
    works(&open);
    for number in 0..FILES {
        files.put(&name(number), &contents(number + 50)).unwrap();
        open.sync().unwrap();
    }
    works(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    works(&open);
    let fs = open.root().unwrap().1;
    for number in 0..FILES {
        let mut bytes = vec![0; super::LENGTH];
        fs.read(Files(fs).find(&name(number)).unwrap(), 0, &mut bytes).unwrap();
        assert!(bytes == contents(number + 50), "file {number}");
    }
    open.export().unwrap();
    only_leaks(rig);
}

#[test]
fn a_metaslab_whose_map_is_damaged_is_passed_over() {
    for features in [FeatureSet::Default, FeatureSet::NoLogSpaceMap, FeatureSet::None] {
        let (rig, open) = with_files(features);
        open.export().unwrap();
        let mut written_anew = 0;
        let number = maps(&rig.read().unwrap()).len();
        assert!(number > 1, "{features:?}: {number} maps");
        for index in 0..number {
            let rig = rig.copy();
            let open = rig.open().unwrap();
            let pool = open.pool.view().unwrap();
            let map = maps(&pool)[index];
            println!("{features:?}: map {map}");
            let object = pool.mos().object(map).unwrap();
            assert!(damage_object(&rig, &object) > 0);
            damage_above(&rig, &object);
            let cache = open.pool.pipeline().cache();
            cache.set_max(0);
            cache.clear();
            changes_and_works(&rig, open);
            if maps(&rig.read().unwrap()).contains(&map) {
                continue;
            }
            written_anew += 1;
            if written_anew == 1
                && let Some(text) = openzfs_says(&rig, &["-bcc"])
            {
                assert!(text.contains("bp count:"), "{text}");
            }
        }
        assert!(written_anew > 0, "{features:?}");
    }
}

#[test]
fn a_pool_whose_logged_space_is_damaged_is_not_imported() {
    let (rig, open) = with_files(FeatureSet::Default);
    age(&open);
    let crash = rig.copy();
    open.export().unwrap();
    let pool = crash.read().unwrap();
    let metaslabs = pool.metaslabs().unwrap();
    assert!(metaslabs.logs().len() > 1);
    for log in metaslabs.logs() {
        let rig = crash.copy();
        let object = pool.mos().object(log.log.object).unwrap();
        assert!(damage_object(&rig, &object) > 0);
        let before = rig.devices["A"].content();
        let error = rig.open().unwrap_err().to_string();
        // Of recent txgs everything is read before.
        let is_clear = error.contains("log space map") || error.contains("recent txgs are damaged");
        assert!(is_clear, "{error}");
        assert!(rig.devices["A"].content() == before, "nothing is written");
    }
    let open = crash.open().unwrap();
    works(&open);
    open.export().unwrap();
}
