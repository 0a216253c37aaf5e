//! Damage to dnodes, their bonuses, and objset blocks.

use super::pointers::raised;
use crate::random::Random;
use crate::victim::Victim;
use rzfs_format::BlockPointer;
use rzfs_format::dnode::{CORE_SIZE, MAX_LEVELS, SLOT_SIZE};
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::{ACCOUNTING_OFFSETS, TYPE_OFFSET, ZIL_HEADER_OFFSET, ZIL_HEADER_SIZE};
use rzfs_format::units::Bookmark;

/// Places of fields in a dnode.
const INDIRECT_SHIFT: usize = 1;
const LEVELS: usize = 2;
const POINTERS: usize = 3;
const BONUS_TYPE: usize = 4;
const FLAGS: usize = 7;
const BLOCK_SECTORS: usize = 8;
const BONUS_SIZE: usize = 10;
const EXTRA_SLOTS: usize = 12;
const MAX_BLOCK: usize = 16;
/// The flag that the last 128 bytes of a dnode point to its spill block.
const SPILL: u8 = 4;
/// Words at the start of a bonus that are references.
const BONUS_WORDS: usize = 40;

/// Damages one of the objects in a block of dnodes.
pub(super) fn damage(victim: &mut Victim<'_>, bookmark: Bookmark, random: &mut Random) {
    let slots = victim.len() / SLOT_SIZE;
    let taken: Vec<usize> = (0..slots).filter(|slot| victim.byte(slot * SLOT_SIZE) != 0).collect();
    let Some(&slot) = random.pick(&taken) else { return };
    let at = slot * SLOT_SIZE;
    if random.once_in(2) {
        let first = bookmark.block.0.wrapping_mul(slots as u64);
        let kind = victim.byte(at + BONUS_TYPE);
        // Objects of its own kind, including itself.
        let alike: Vec<u64> = taken
            .iter()
            .filter(|other| victim.byte(*other * SLOT_SIZE + BONUS_TYPE) == kind)
            .map(|other| first.wrapping_add(*other as u64))
            .collect();
        bonus(victim, at, &alike, random);
    } else {
        dnode(victim, at, random);
    }
}

/// Damages the fields of an objset block, its meta-dnode, accounting objects, intent log.
pub(super) fn damage_objset(victim: &mut Victim<'_>, random: &mut Random) {
    match random.below(8) {
        0..=2 => dnode(victim, 0, random),
        3 => {
            let at = random.pick(&ACCOUNTING_OFFSETS).copied().unwrap_or_default();
            dnode(victim, at, random);
        }
        4 | 5 => {
            let at = ZIL_HEADER_OFFSET + 8 * random.index(ZIL_HEADER_SIZE / 8);
            victim.change_word(at, random);
        }
        6 => victim.change_word(TYPE_OFFSET + 8 * random.index(2), random),
        _ => victim.number(random),
    }
}

/// Changes a field, a pointer or the spill pointer of the dnode at `at`.
fn dnode(victim: &mut Victim<'_>, at: usize, random: &mut Random) {
    let first = at + CORE_SIZE;
    match random.below(10) {
        0 | 1 => victim.put(at + random.index(16), &[random.hostile() as u8]),
        // A tree of more levels than it has, over what is the top now.
        2 => {
            raise(victim, at, 1 + random.below(u64::from(MAX_LEVELS) + 1) as u8);
            victim.change_word(at + MAX_BLOCK, random);
        }
        3 => victim.put(at + POINTERS, &[random.below(5) as u8]),
        4 => victim.put_half(at + BLOCK_SECTORS, random.hostile() as u16),
        5 => victim.put_half(at + BONUS_SIZE, random.hostile() as u16),
        6 => {
            victim.put(at + FLAGS, &[victim.byte(at + FLAGS) | SPILL]);
            let slots = usize::from(victim.byte(at + EXTRA_SLOTS)) + 1;
            let spill = at + slots * SLOT_SIZE - BlockPointer::SIZE;
            let mut pointer = victim.pointer(first);
            if random.once_in(2) {
                let word = random.index(16);
                pointer.words_mut()[word] = random.instead_of(pointer.words()[word]);
            }
            victim.put_pointer(spill, &pointer);
        }
        7 => victim.change_word(at + MAX_BLOCK + 8 * random.index(6), random),
        8 => victim.change_word(first + 8 * random.index(48), random),
        _ => victim.change_word(at + 8 * random.index(SLOT_SIZE / 8), random),
    }
}

/// Makes the trees of all objects that have indirect blocks deep, and as long as they can be.
pub(crate) fn raise_all(victim: &mut Victim<'_>, random: &mut Random) {
    for at in (0..victim.len()).step_by(SLOT_SIZE) {
        if victim.byte(at) != 0 && (2..=MAX_LEVELS).contains(&victim.byte(at + LEVELS)) {
            raise(victim, at, 3 + random.below(u64::from(MAX_LEVELS) - 2) as u8);
        }
    }
}

/// Makes the tree of the dnode at `at` one of this many levels, over what is its top now.
fn raise(victim: &mut Victim<'_>, at: usize, levels: u8) {
    let top = raised(&victim.pointer(at + CORE_SIZE), levels);
    let pointers_shift = u32::from(victim.byte(at + INDIRECT_SHIFT)).saturating_sub(7);
    let bits = pointers_shift * u32::from(levels.saturating_sub(1));
    victim.put(at + LEVELS, &[levels]);
    victim.put_pointer(at + CORE_SIZE, &top);
    victim.put_word(at + MAX_BLOCK, u64::MAX >> 64_u32.saturating_sub(bits.min(54)).min(63));
}

/// Changes the bonus of the dnode at `at`; `alike` are objects with such a bonus.
fn bonus(victim: &mut Victim<'_>, at: usize, alike: &[u64], random: &mut Random) {
    let pointers = usize::from(victim.byte(at + POINTERS)).min(3);
    let start = at + CORE_SIZE + pointers * BlockPointer::SIZE;
    let len = usize::from(victim.half(at + BONUS_SIZE));
    if victim.byte(at + BONUS_TYPE) == ObjectType::SA.number() {
        // Magic number, layout and size of the header, lengths.
        let place = start + 2 * random.index(8);
        return victim.put_half(place, random.instead_of(u64::from(victim.half(place))) as u16);
    }
    let place = start + 8 * random.index((len / 8).clamp(1, BONUS_WORDS));
    match random.below(3) {
        0 | 1 => {
            let object = random.pick(alike).copied().unwrap_or_default();
            victim.put_word(place, object);
        }
        _ => victim.change_word(place, random),
    }
}
