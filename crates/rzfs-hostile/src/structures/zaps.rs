//! Damage to ZAP blocks.

use crate::random::Random;
use crate::victim::Victim;
use rzfs_format::zap::{BLOCK_TYPE_HEADER, BLOCK_TYPE_LEAF, BLOCK_TYPE_MICRO, leaf, micro};

/// Bytes before the hash table of a leaf.
const LEAF_HEADER: usize = 48;
/// Bytes of a leaf for one entry of its hash table.
const BYTES_PER_BUCKET: usize = 32;
/// The first byte of a chunk with an entry.
const ENTRY_CHUNK: u8 = 252;
/// Places of chunk numbers and lengths in such a chunk: next entry, name, value.
const ENTRY_FIELDS: [usize; 5] = [2, 4, 6, 8, 10];
/// Place of the next chunk's number in any other chunk.
const NEXT: usize = 22;
/// Words of a header before the unused space.
const HEADER_WORDS: usize = 16;

/// Damages a block of a ZAP.
pub(super) fn damage(victim: &mut Victim<'_>, random: &mut Random) {
    match victim.word(0) {
        BLOCK_TYPE_HEADER => header(victim, random),
        BLOCK_TYPE_LEAF => damage_leaf(victim, random),
        BLOCK_TYPE_MICRO => micro_block(victim, random),
        // A block of a pointer table.
        _ => victim.change_word(random.index(victim.len() / 8) * 8, random),
    }
}

/// Table geometry, counts, and the pointer table in the second half of the block.
fn header(victim: &mut Victim<'_>, random: &mut Random) {
    let middle = victim.len() / 2;
    match random.below(3) {
        0 => victim.change_word(8 * random.index(HEADER_WORDS), random),
        1 => victim.change_word(middle + random.index(middle / 8) * 8, random),
        // Everything points to one leaf, or to no leaf at all.
        _ => {
            let block = random.below(6);
            for at in (middle..victim.len()).step_by(8) {
                victim.put_word(at, block);
            }
        }
    }
}

fn damage_leaf(victim: &mut Victim<'_>, random: &mut Random) {
    let buckets = victim.len() / BYTES_PER_BUCKET;
    let first = LEAF_HEADER + 2 * buckets;
    let chunks = victim.len().saturating_sub(first) / leaf::CHUNK_SIZE;
    let number = |random: &mut Random| match random.below(4) {
        0 => random.hostile() as u16,
        _ => random.index(chunks) as u16,
    };
    match random.below(4) {
        0 => {
            let bucket = LEAF_HEADER + 2 * random.index(buckets);
            let chunk = number(random);
            victim.put_half(bucket, chunk);
        }
        1 => {
            let at = 16 + 2 * random.index(12);
            victim.put_half(at, random.instead_of(u64::from(victim.half(at))) as u16);
        }
        _ => {
            let used: Vec<usize> = (0..chunks)
                .filter(|chunk| victim.byte(first + chunk * leaf::CHUNK_SIZE) <= ENTRY_CHUNK)
                .collect();
            let Some(&chunk) = random.pick(&used) else { return };
            let at = first + chunk * leaf::CHUNK_SIZE;
            let field = match victim.byte(at) {
                ENTRY_CHUNK => random.pick(&ENTRY_FIELDS).copied().unwrap_or(NEXT),
                _ => NEXT,
            };
            // A chain that comes back to where it is.
            let value = if random.once_in(2) { chunk as u16 } else { number(random) };
            victim.put_half(at + field, value);
        }
    }
}

/// Values that are other objects, names without an end, entries that are there twice.
fn micro_block(victim: &mut Victim<'_>, random: &mut Random) {
    let entries = victim.len() / micro::ENTRY_SIZE;
    let used: Vec<usize> =
        (1..entries).filter(|entry| victim.byte(entry * micro::ENTRY_SIZE + 14) != 0).collect();
    let Some(&entry) = random.pick(&used) else { return victim.number(random) };
    let at = entry * micro::ENTRY_SIZE;
    match random.below(5) {
        0 | 1 => victim.change_word(at, random),
        2 => {
            let other = random.pick(&used).copied().unwrap_or(1);
            victim.copy(other * micro::ENTRY_SIZE, at, micro::ENTRY_SIZE);
        }
        3 => victim.put(at + 14, &[b'x'; micro::NAME_SIZE]),
        // The values of two entries swapped in part: a child that is its parent.
        _ => {
            let other = random.pick(&used).copied().unwrap_or(1);
            victim.copy(other * micro::ENTRY_SIZE, at, 8);
        }
    }
}
