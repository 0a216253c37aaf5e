//! Damage to block pointers.

use crate::random::Random;
use crate::victim::Victim;
use rzfs_format::{BlockPointer, Txg};

/// The word of sizes, compression, checksum, type and level.
const PROPERTIES: usize = 6;
const LEVEL_SHIFT: u32 = 56;
const LEVEL_MASK: u64 = 0x1f << LEVEL_SHIFT;
const EMBEDDED: u64 = 1 << 39;

/// Changes pointers of an indirect block.
pub(super) fn damage(victim: &mut Victim<'_>, own: &BlockPointer, random: &mut Random) {
    let pointers = victim.len() / BlockPointer::SIZE;
    // Most indirect blocks are empty from some place on.
    let used = (0..pointers).rev().find(|at| !victim.pointer(at * BlockPointer::SIZE).is_hole());
    let used = used.unwrap_or(0) + 1;
    let at = random.index(used) * BlockPointer::SIZE;
    match random.below(8) {
        // A block that contains itself, and one that is right about the level then.
        0 => victim.put_pointer(at, own),
        1 => victim.put_pointer(at, &one_below(own)),
        2 => victim.copy(random.index(used) * BlockPointer::SIZE, at, BlockPointer::SIZE),
        // One child many times.
        3 => (0..pointers).for_each(|to| {
            victim.copy(at, to * BlockPointer::SIZE, BlockPointer::SIZE);
        }),
        4 => victim.change_word(at + 8 * PROPERTIES, random),
        5 => victim.change_word(at + 8 * random.index(6), random),
        6 => victim.put_word(at + 8 * PROPERTIES, victim.word(at + 8 * PROPERTIES) | EMBEDDED),
        _ => victim.change_word(at + 8 * random.index(16), random),
    }
}

/// The same block as a child of itself would be pointed to: one level lower, and of another birth,
/// so that no cache takes the two for one.
fn one_below(own: &BlockPointer) -> BlockPointer {
    let mut pointer = *own;
    let level = u64::from(own.level().0.unsigned_abs()).saturating_sub(1);
    let birth = Txg(own.physical_birth().0.saturating_sub(1).max(1));
    let words = pointer.words_mut();
    words[PROPERTIES] = words[PROPERTIES] & !LEVEL_MASK | level << LEVEL_SHIFT;
    pointer.with_births(own.logical_birth(), birth)
}

/// Fills an indirect block with itself, one level lower: a small tree without end. The last level
/// stays as it is.
pub(crate) fn endless(victim: &mut Victim<'_>, own: &BlockPointer) {
    if own.level().0 > 1 {
        let child = one_below(own).encode(victim.order);
        victim.bytes.chunks_mut(BlockPointer::SIZE).for_each(|place| place.copy_from_slice(&child));
    }
}

/// A pointer to an indirect block as the top of a tree of this many levels would have it.
pub(super) fn raised(top: &BlockPointer, levels: u8) -> BlockPointer {
    let mut pointer = *top;
    let words = pointer.words_mut();
    let level = u64::from(levels.saturating_sub(1));
    words[PROPERTIES] = words[PROPERTIES] & !LEVEL_MASK | level << LEVEL_SHIFT;
    pointer
}
