//! Tables of shared blocks that have no place for what they should have, though what they have can be
//! looked up.

use super::forged::Forger;
use super::{LENGTH, contents, create_with, works};
use rzfs_dsl::Pool;
use rzfs_format::brt::{BrtHeader, vdev_key};
use rzfs_format::{ObjectId, VdevId};
use rzfs_proof::{FeatureSet, Files, OpenPool, Rig};

/// The property value `dedup=sha256`.
const SHA256: u64 = 8;
/// What the blocks of a fat ZAP begin with: leaves, and the header.
const LEAF: u64 = 1 << 63;
const HEADER: u64 = LEAF + 1;
/// Where a leaf says how many chunks are free, and a header which block is.
const FREE_CHUNKS: usize = 28;
const FREE_BLOCK: usize = 56;

/// A leaf has no room, and cannot be split as it counts wrong.
fn full(block: &mut [u8]) {
    if kind(block) == LEAF {
        block[FREE_CHUNKS..FREE_CHUNKS + 2].fill(0);
    }
}

/// Nothing can be added.
fn without_room(block: &mut [u8]) {
    if kind(block) == HEADER {
        block[FREE_BLOCK..FREE_BLOCK + 8].fill(0x7f);
    }
}

fn kind(block: &[u8]) -> u64 {
    u64::from_le_bytes(*block.first_chunk().unwrap())
}

type Forge = fn(&mut [u8]);

/// The pool as it is read with a table that was changed like this.
fn forged(rig: &Rig, table: ObjectId, forge: Forge) -> OpenPool {
    let pool = Forger::default().contents(table, forge).open(rig);
    OpenPool::of_live(pool, &rig.settings).unwrap()
}

/// An import reads what is new, and would notice.
fn age(open: &OpenPool) {
    for mode in 0..30 {
        Files(open.root().unwrap().1).chmod("whole", 0o600 + mode).unwrap();
        open.sync().unwrap();
    }
}

/// Files share more and less; those that are left are whole, here and after another import.
fn shares_and_works(rig: &Rig, open: OpenPool, copy: fn(&Files<'_>, &str, &str, u64)) {
    let files = Files(open.root().unwrap().1);
    files.put("new", &contents(5)).unwrap();
    open.sync().unwrap();
    copy(&files, "new", "new again", 5);
    copy(&files, "whole", "third", 1);
    open.sync().unwrap();
    works(&open);
    for name in ["new", "shared"] {
        files.unlink(name).unwrap();
        open.sync().unwrap();
    }
    // What they had is not given to others.
    for number in 0..4 {
        files.put(&format!("later-{number}"), &contents(10 + number)).unwrap();
        open.sync().unwrap();
    }
    are_whole(&open);
    works(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    are_whole(&open);
    let files = Files(open.root().unwrap().1);
    files.unlink("third").unwrap();
    open.sync().unwrap();
    for number in 4..8 {
        files.put(&format!("later-{number}"), &contents(10 + number)).unwrap();
        open.sync().unwrap();
    }
    are_whole_but(&open, "third");
    works(&open);
    open.export().unwrap();
}

fn are_whole(open: &OpenPool) {
    are_whole_but(open, "");
}

fn are_whole_but(open: &OpenPool, gone: &str) {
    let fs = open.root().unwrap().1;
    for (name, seed) in [("new again", 5), ("third", 1), ("other", 1)] {
        if name != gone {
            let mut bytes = vec![0; LENGTH];
            fs.read(Files(fs).find(name).unwrap(), 0, &mut bytes).unwrap();
            assert!(bytes == contents(seed), "{name}");
        }
    }
}

#[test]
fn references_that_a_damaged_table_has_no_place_for_do_not_stop_the_pool() {
    let (rig, open) = create_with(FeatureSet::Default);
    let files = Files(open.root().unwrap().1);
    files.put("whole", &[8; LENGTH]).unwrap();
    files.put("other", &contents(1)).unwrap();
    files.put("source", &contents(2)).unwrap();
    open.sync().unwrap();
    files.copy("source", "shared", LENGTH as u64).unwrap();
    age(&open);
    open.export().unwrap();
    let table = references(&rig.read().unwrap());
    let open = forged(&rig, table, full);
    shares_and_works(&rig, open, |files, from, to, _| {
        let from = if from == "whole" { "other" } else { from };
        files.copy(from, to, LENGTH as u64).unwrap();
    });
}

/// The table with the references to blocks.
fn references(pool: &Pool) -> ObjectId {
    let table = pool.directory().object(&vdev_key(VdevId(0))).unwrap().unwrap();
    let table = pool.mos().object(table).unwrap();
    BrtHeader::decode(table.bonus(), table.order()).unwrap().entries
}

#[test]
fn entries_that_a_damaged_dedup_table_has_no_place_for_do_not_stop_the_pool() {
    for features in [FeatureSet::NoFastDedup, FeatureSet::Default] {
        let (rig, open) = create_with(features);
        open.pool.set_property(rig.name(), "dedup", SHA256.into()).unwrap();
        open.sync().unwrap();
        let files = Files(open.root().unwrap().1);
        files.put("whole", &[8; LENGTH]).unwrap();
        files.put("other", &contents(1)).unwrap();
        for name in ["source", "shared"] {
            files.put(name, &contents(2)).unwrap();
        }
        age(&open);
        open.export().unwrap();
        let pool = rig.read().unwrap();
        let objects = (1..400).filter_map(|number| pool.mos().object(ObjectId(number)).ok());
        let is_table = |object: &rzfs_dmu::Object| {
            object.dnode().object_type == rzfs_format::object_type::ObjectType::DDT_ZAP
        };
        let tables: Vec<ObjectId> = objects.filter(is_table).map(|object| object.id()).collect();
        assert_eq!(tables.len(), 2);
        for table in tables {
            for forge in [full as Forge, without_room] {
                let rig = rig.copy();
                let open = forged(&rig, table, forge);
                shares_and_works(&rig, open, |files, _, to, seed| {
                    files.put(to, &contents(seed)).unwrap();
                });
            }
        }
    }
}
