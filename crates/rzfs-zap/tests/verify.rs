//! Each rule of the format, broken in blocks that were sound, is told.

use rzfs_format::zap::leaf::{ChainOrder, Integers, LeafMut, NewEntry};
use rzfs_format::zap::micro::{self, MicroEntry};
use rzfs_format::zap::{HashBits, IntegerSize, ZapHash};
use rzfs_format::{BlockId, ByteOrder};
use rzfs_zap::{MemoryBlocks, NewZap, Violation, Zap, ZapBlocks, ZapBlocksMut, ZapFlags, verify};

const SALT: u64 = 0x1234_5679;
const NATIVE: ByteOrder = ByteOrder::NATIVE;

/// A ZAP with numbered names.
fn made(new: &NewZap, names: u64) -> MemoryBlocks {
    let mut zap = Zap::create(MemoryBlocks::empty(), new).unwrap();
    for number in 0..names {
        zap.edit().insert(&format!("name {number}"), number).unwrap();
    }
    let blocks = zap.into_blocks();
    assert_eq!(verify(&blocks).unwrap(), []);
    blocks
}

/// A fat ZAP of several leaves, whose pointer table is external when blocks have 512 bytes.
fn fat(block_size: usize) -> MemoryBlocks {
    made(&NewZap::new(SALT).fat(ZapFlags::NONE, block_size), 300)
}

fn set(blocks: &mut MemoryBlocks, block: u64, offset: usize, word: u64) {
    blocks
        .modify_block(BlockId(block), |block| {
            block.bytes[offset..offset + 8].copy_from_slice(&NATIVE.bytes64(word));
        })
        .unwrap();
}

fn get(blocks: &MemoryBlocks, block: u64, offset: usize) -> u64 {
    let (bytes, order) = blocks.read_block(BlockId(block)).unwrap();
    order.u64(*bytes[offset..].first_chunk().unwrap())
}

/// What is found after a word was changed.
fn after(mut blocks: MemoryBlocks, block: u64, offset: usize, word: u64) -> Vec<Violation> {
    set(&mut blocks, block, offset, word);
    verify(&blocks).unwrap()
}

#[test]
fn counts_of_the_header_are_checked() {
    let blocks = fat(4096);
    let (leaves, entries) = (get(&blocks, 0, 64), get(&blocks, 0, 72));
    let recorded = leaves + 1;
    assert_eq!(
        after(blocks.clone(), 0, 64, recorded),
        [Violation::Leaves { recorded, found: leaves }]
    );
    assert_eq!(after(blocks, 0, 72, 7), [Violation::Entries { recorded: 7, found: entries }]);
}

#[test]
fn pointers_are_checked() {
    for block_size in [512, 4096] {
        let blocks = fat(block_size);
        let first = get(&blocks, 0, 16);
        let (table, offset) = if first == 0 { (0, block_size / 2) } else { (first, 0) };
        let right = get(&blocks, table, offset);
        let other = if right == 1 { 2 } else { 1 };
        let found = after(blocks.clone(), table, offset, other);
        let leaf = BlockId(other);
        assert!(found.contains(&Violation::Pointer { index: 0, leaf }), "{found:?}");
        let found = after(blocks.clone(), table, offset, 1 << 40);
        assert!(matches!(found[0], Violation::Structure { .. }), "{found:?}");
        assert!(!after(blocks.clone(), table, offset, 0).is_empty());
        // A block that is no leaf, and a first free block in the midst of those that are used.
        assert!(!after(blocks.clone(), right, 0, 7).is_empty());
        assert!(!after(blocks.clone(), 0, 56, 2).is_empty());
        assert!(!after(blocks.clone(), 0, 56, blocks.block_count().unwrap() + 1).is_empty());
    }
}

#[test]
fn chunks_of_leaves_are_checked() {
    let blocks = fat(4096);
    // Free chunks, entries, the length of the prefix, the head of the free list.
    for (offset, bit) in [(24, 32), (24, 48), (32, 0), (32, 16)] {
        let word = get(&blocks, 1, offset);
        let found = after(blocks.clone(), 1, offset, word ^ 1 << bit);
        assert!(!found.is_empty(), "{offset}, bit {bit}");
    }
    let first_chunk = 48 + 2 * 128;
    let found = after(blocks, 1, first_chunk, 0);
    assert!(matches!(found[0], Violation::Structure { block: BlockId(1), .. }), "{found:?}");
}

/// A fat ZAP with one leaf, in which these entries are stored, whatever they are.
fn with_entries(entries: &[(ZapHash, u32, &str)]) -> MemoryBlocks {
    let mut blocks = made(&NewZap::new(SALT).fat(ZapFlags::NONE, 4096), 0);
    blocks
        .modify_block(BlockId(1), |block| {
            let mut leaf = LeafMut::format(block.bytes, NATIVE, (0, 0), ChainOrder::Any).unwrap();
            for (hash, cd, name) in entries {
                let name = format!("{name}\0");
                let key = Integers { size: IntegerSize::One, bytes: name.as_bytes() };
                let value = Integers { size: IntegerSize::Eight, bytes: &[0; 8] };
                leaf.insert(&NewEntry { hash: *hash, cd: *cd, key, value }).unwrap();
            }
        })
        .unwrap();
    set(&mut blocks, 0, 72, entries.len() as u64);
    blocks
}

#[test]
fn entries_are_checked() {
    let hash = |name: &str| ZapHash::of_name(SALT, name.as_bytes(), HashBits::Bits28);
    let (a, b) = (hash("a"), hash("b"));
    let block = BlockId(1);
    assert_eq!(verify(&with_entries(&[(a, 0, "a"), (b, 0, "b")])).unwrap(), []);
    assert_eq!(
        verify(&with_entries(&[(a, 0, "a"), (a, 1, "b")])).unwrap(),
        [Violation::Hash { block, stored: a, wanted: b }]
    );
    assert_eq!(
        verify(&with_entries(&[(a, 0, "a"), (a, 1, "a")])).unwrap(),
        [Violation::Key { block, hash: a }]
    );
    let found = verify(&with_entries(&[(a, 3, "a"), (a, 3, "b")])).unwrap();
    assert!(found.contains(&Violation::Position { block, hash: a, cd: 3 }), "{found:?}");
    // Bits of the hash that do not count have to be 0.
    let found = verify(&with_entries(&[(ZapHash(a.0 | 1), 0, "a")])).unwrap();
    assert!(matches!(found[..], [Violation::Hash { .. }]), "{found:?}");
}

#[test]
fn entries_of_microzaps_are_checked() {
    let new = NewZap::new(SALT);
    let with = |slot, name: &str, cd| {
        let mut blocks = made(&new, 3);
        blocks
            .modify_block(BlockId(0), |block| {
                let entry = MicroEntry { name: name.as_bytes(), cd, value: 1 };
                micro::encode_entry(block.bytes, NATIVE, slot, entry);
            })
            .unwrap();
        verify(&blocks).unwrap()
    };
    assert_eq!(with(5, "another", 0), []);
    assert!(matches!(with(5, "name 1", 1)[..], [Violation::Key { .. }]));
    assert!(matches!(
        with(5, "name 1", 0)[..],
        [Violation::Position { cd: 0, .. }, Violation::Key { .. }]
    ));
    assert!(matches!(with(5, "another", 1 << 16)[..], [Violation::Structure { .. }]));
    // Something is left of an entry that is free.
    let found = after(made(&new, 3), 0, 64 * 5, 9);
    assert!(matches!(found[..], [Violation::Structure { .. }]), "{found:?}");
    let mut two = made(&new, 3);
    two.write_block(BlockId(1), vec![0; 512].into()).unwrap();
    assert!(matches!(verify(&two).unwrap()[..], [Violation::Structure { .. }]));
}

/// A table that is being copied, and a copy that went wrong.
#[test]
fn copies_of_the_table_are_checked() {
    let mut zap =
        Zap::create(MemoryBlocks::empty(), &NewZap::new(SALT).fat(ZapFlags(7), 512)).unwrap();
    let mut number = 0u64;
    let copied = |zap: &Zap<MemoryBlocks>| get(zap.blocks(), 0, 48);
    while copied(&zap) == 0 {
        number += 1;
        let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        zap.edit().insert(&[word][..], number).unwrap();
    }
    let blocks = zap.into_blocks();
    assert_eq!(verify(&blocks).unwrap(), []);
    let next = get(&blocks, 0, 40);
    let word = get(&blocks, next, 0);
    assert_eq!(after(blocks.clone(), next, 0, word + 1), [Violation::Copy { copied: 0 }]);
    assert!(!after(blocks.clone(), 0, 40, 1 << 50).is_empty());
    assert!(!after(blocks, 0, 48, 1 << 20).is_empty());
}

#[test]
fn violations_are_told_up_to_a_hundred() {
    let hash = ZapHash::of_name(SALT, b"a", HashBits::Bits28);
    let cds = (0..40).map(|_| (hash, 0, "b")).collect::<Vec<_>>();
    assert_eq!(verify(&with_entries(&cds)).unwrap().len(), 100);
    assert!(!verify(&MemoryBlocks::empty()).unwrap().is_empty());
}
