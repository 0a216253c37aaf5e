//! The table of blocks that several files have, damaged.

use super::{FILE, LENGTH, contents, create_with, damage, damage_above, works};
use rzfs_dmu::Object;
use rzfs_format::VdevId;
use rzfs_format::brt::{BrtHeader, vdev_key};
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig};

/// Files whose blocks others have, too: so many that the table has several blocks.
const SHARED: u64 = 8;

fn name(number: u64) -> String {
    format!("{FILE}-{number}")
}

fn with_clones() -> Rig {
    let (rig, open) = create_with(FeatureSet::Default);
    let files = Files(open.root().unwrap().1);
    files.put("whole", &contents(99)).unwrap();
    for number in 0..SHARED {
        files.put(&name(number), &contents(number)).unwrap();
        open.sync().unwrap();
        files.copy(&name(number), &format!("{}-copy", name(number)), LENGTH as u64).unwrap();
    }
    for number in 0..8 {
        files.put(&format!("later-{number}"), b"x").unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
    rig
}

/// Shares blocks, and removes files.
fn changes(open: &OpenPool) {
    let files = Files(open.root().unwrap().1);
    for number in 0..SHARED {
        let name = name(number);
        match number % 4 {
            0 => files.unlink(&name).unwrap(),
            1 => files.copy(&name, &format!("{name}-third"), LENGTH as u64).unwrap(),
            2 => {
                files.unlink(&name).unwrap();
                open.sync().unwrap();
                files.unlink(&format!("{name}-copy")).unwrap();
            }
            _ => {}
        }
        open.sync().unwrap();
    }
    files.put("new", &contents(70)).unwrap();
    open.sync().unwrap();
    files.copy("new", "new-copy", LENGTH as u64).unwrap();
    open.sync().unwrap();
    files.unlink("new").unwrap();
    open.sync().unwrap();
    files.put("newest", &contents(71)).unwrap();
    open.sync().unwrap();
    works(open);
}

fn are_whole(open: &OpenPool) {
    let fs = open.root().unwrap().1;
    let has = |name: &str, seed| {
        let mut bytes = vec![0; LENGTH];
        fs.read(Files(fs).find(name).unwrap(), 0, &mut bytes).unwrap();
        assert!(bytes == contents(seed), "{name}");
    };
    for number in 0..SHARED {
        let name = name(number);
        match number % 4 {
            0 => has(&format!("{name}-copy"), number),
            1 => ["", "-copy", "-third"]
                .into_iter()
                .for_each(|end| has(&format!("{name}{end}"), number)),
            2 => {}
            _ => {
                has(&name, number);
                has(&format!("{name}-copy"), number);
            }
        }
    }
    has("new-copy", 70);
    has("newest", 71);
}

fn changes_and_works(rig: &Rig) {
    let open = rig.open().unwrap();
    changes(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    are_whole(&open);
    works(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    are_whole(&open);
    open.export().unwrap();
}

fn objects(rig: &Rig) -> [Object; 2] {
    let pool = rig.read().unwrap();
    let counters = pool.directory().object(&vdev_key(VdevId(0))).unwrap().unwrap();
    let counters = pool.mos().object(counters).unwrap();
    let entries = BrtHeader::decode(counters.bonus(), counters.order()).unwrap().entries;
    let entries = pool.mos().object(entries).unwrap();
    [counters, entries]
}

#[test]
fn every_block_of_the_table_of_clones_may_be_damaged() {
    let rig = with_clones();
    for object in objects(&rig) {
        for block in 0..=object.dnode().max_block_id.0 {
            let pointer = object.pointers(0, block..block + 1).remove(0).unwrap();
            if pointer.is_hole() || pointer.is_embedded() {
                continue;
            }
            println!("object {}, block {block}", object.id());
            let rig = rig.copy();
            damage(&rig, &pointer);
            changes_and_works(&rig);
        }
        let rig = rig.copy();
        if damage_above(&rig, &object) > 0 {
            println!("object {}, indirect blocks", object.id());
            changes_and_works(&rig);
        }
    }
}

#[test]
fn the_table_of_clones_may_be_damaged_while_the_pool_is_open() {
    let rig = with_clones();
    for object in objects(&rig) {
        println!("object {}", object.id());
        let rig = rig.copy();
        let open = rig.open().unwrap();
        super::damage_object(&rig, &object);
        damage_above(&rig, &object);
        let cache = open.pool.pipeline().cache();
        cache.set_max(0);
        cache.clear();
        changes(&open);
        are_whole(&open);
        open.export().unwrap();
        let open = rig.open().unwrap();
        are_whole(&open);
        open.export().unwrap();
    }
}
