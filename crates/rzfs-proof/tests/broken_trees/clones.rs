//! Damage to the table of shared blocks.

use super::judges::{leaks_at_most, openzfs_says};
use super::{
    DAMAGED, DATA_START, FILE, LENGTH, contents, create_with, damage, damage_above, damage_object,
    works,
};
use rzfs_dmu::Object;
use rzfs_format::brt::{self, BrtHeader, vdev_key};
use rzfs_format::{BlockId, VdevId};
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig, walk};
use rzfs_zpl::live::{Caller, FilePlace};

/// Files with shared blocks: enough for several table blocks.
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
    leaks_at_most(rig);
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
        assert!(damage_object(&rig, &object) > 0);
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
        leaks_at_most(&rig);
    }
}

/// The counters of the table.
fn counters(rig: &Rig) -> Vec<u16> {
    let [object, _] = objects(rig);
    let header = BrtHeader::decode(object.bonus(), object.order()).unwrap();
    let block = object.read_block(BlockId(0)).unwrap();
    assert!(header.counters * 2 <= block.data.len() as u64);
    let counters = brt::counters(&block.data, header.counter_order);
    counters.take(header.counters as usize).collect()
}

#[test]
fn counters_that_are_damaged_are_those_of_the_entries() {
    let rig = with_clones();
    let before = counters(&rig);
    assert!(before.iter().any(|counter| *counter > 0));
    let [object, _] = objects(&rig);
    assert!(damage_object(&rig, &object) > 0);
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    files.copy("later-0", "later-copy", 1).unwrap();
    open.sync().unwrap();
    files.unlink("later-copy").unwrap();
    open.sync().unwrap();
    open.export().unwrap();
    assert_eq!(counters(&rig), before);
    assert_eq!(walk(&rig.read().unwrap()).unwrap(), None);
    if let Some(text) = openzfs_says(&rig, &["-bcc"]) {
        assert!(text.contains("No leaks"), "{text}");
    }
    changes_and_works(&rig);
    assert_eq!(walk(&rig.read().unwrap()).unwrap(), None);
    if let Some(text) = openzfs_says(&rig, &["-bcc"]) {
        assert!(text.contains("No leaks"), "{text}");
    }
}

#[test]
fn counters_of_entries_that_are_damaged_do_not_overflow() {
    /// Blocks of 512 bytes in 16 MiB.
    const MOST: u16 = 32 << 10;
    let rig = with_clones();
    for object in objects(&rig) {
        assert!(damage_object(&rig, &object) > 0);
    }
    changes_and_works(&rig);
    let counters = counters(&rig);
    assert!(counters.iter().all(|counter| *counter == MOST), "{counters:?}");
    // It cannot detect leaks, either.
    let _ = openzfs_says(&rig, &["-TT"]);
}

#[test]
fn what_is_copied_beside_damage_stays_when_the_damage_is_gone() {
    let rig = with_clones();
    let [_, entries] = objects(&rig);
    let device = &rig.devices["A"];
    let before = device.content();
    assert!(damage_object(&rig, &entries) > 0);
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    // Blocks that are already shared, and unshared ones.
    let copied = [(name(0), 0), (name(5), 5), ("whole".to_owned(), 99)];
    for (file, _) in &copied {
        files.copy(file, &format!("{file}-late"), LENGTH as u64).unwrap();
    }
    open.sync().unwrap();
    open.export().unwrap();
    for (place, length) in places(&entries) {
        device.damage(place, before[place as usize..][..length].to_vec());
    }
    let open = rig.open().unwrap();
    let files = Files(open.root().unwrap().1);
    for (file, _) in &copied {
        files.unlink(file).unwrap();
        if file != "whole" {
            files.unlink(&format!("{file}-copy")).unwrap();
        }
        open.sync().unwrap();
    }
    for number in 0..8 {
        files.put(&format!("over-{number}"), &contents(200 + number)).unwrap();
        open.sync().unwrap();
    }
    open.export().unwrap();
    let open = rig.open().unwrap();
    let fs = open.root().unwrap().1;
    for (file, seed) in copied {
        let mut bytes = vec![0; LENGTH];
        fs.read(Files(fs).find(&format!("{file}-late")).unwrap(), 0, &mut bytes).unwrap();
        assert!(bytes == contents(seed), "{file}");
    }
    open.export().unwrap();
    assert_eq!(walk(&rig.read().unwrap()).unwrap(), None);
    if let Some(text) = openzfs_says(&rig, &["-bcc"]) {
        assert!(text.contains("No leaks"), "{text}");
    }
}

#[test]
fn logged_copies_are_made_whatever_sizes_of_blocks_are_beside_damage() {
    const HALF: u64 = 8 * (128 << 10);
    for record_size in [16 << 10, 1 << 20] {
        let rig = with_clones();
        let [_, entries] = objects(&rig);
        let open = rig.open().unwrap();
        open.pool.set_property(rig.name(), "recordsize", u64::into(record_size)).unwrap();
        let fs = open.root().unwrap().1;
        let source = Files(fs).find("whole").unwrap();
        Files(fs).put("late", b"").unwrap();
        let target = Files(fs).find("late").unwrap();
        fs.commit_all().unwrap();
        open.sync().unwrap();
        // Two records of the log.
        for (offset, len) in [(0, HALF), (HALF, LENGTH as u64 - HALF)] {
            let [from, to] = [source, target].map(|object| FilePlace { object, offset });
            assert_eq!(fs.copy_range(to, (&**fs, from), len, Caller::SUPERUSER).unwrap(), len);
        }
        Files(fs).put("after", b"text").unwrap();
        fs.commit_all().unwrap();
        let crash = rig.copy();
        assert_eq!(crash.read().unwrap().unreplayed_logs().unwrap().len(), 1);
        assert!(damage_object(&crash, &entries) > 0);
        let open = crash.open().unwrap();
        let fs = open.root().unwrap().1;
        for (name, expected) in [("late", contents(99)), ("after", b"text".to_vec())] {
            let mut bytes = vec![0; expected.len()];
            fs.read(Files(fs).find(name).unwrap(), 0, &mut bytes).unwrap();
            assert!(bytes == expected, "{name}, records of {record_size}");
        }
        open.export().unwrap();
        leaks_at_most(&crash);
    }
}

/// Where the blocks of an object begin on the device, and how much of each is damaged.
fn places(object: &Object) -> Vec<(u64, usize)> {
    let pointers = object.pointers(0, 0..object.dnode().max_block_id.0 + 1);
    let pointers = pointers.into_iter().map(Result::unwrap).filter(|one| !one.is_embedded());
    let dvas = pointers.flat_map(|pointer| pointer.dvas().collect::<Vec<_>>());
    dvas.map(|dva| (dva.offset() + DATA_START, DAMAGED)).collect()
}
