//! Damage to structures with their own checksums: gang headers and intent logs.

use crate::random::Random;
use crate::victim::Victim;
use rzfs_format::BlockPointer;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::zil::CHAIN_SIZE;

/// Bytes of the trailer of a gang header or log block: checksum and magic number.
const TRAILER: usize = 40;
/// Where records begin behind a link.
const RECORDS: usize = 192;
/// Words at the start of a log record: type, length, txg, sequence, and what the type has.
const RECORD_WORDS: usize = 12;

/// Changes the members of the gang header under `leader`.
pub(crate) fn damage_gang_header(
    victim: &mut Victim<'_>,
    leader: &BlockPointer,
    random: &mut Random,
) {
    let members = victim.len().saturating_sub(TRAILER) / BlockPointer::SIZE;
    let at = random.index(members) * BlockPointer::SIZE;
    match random.below(5) {
        // A gang that is a member of itself.
        0 => victim.put_pointer(at, leader),
        1 => victim.copy(random.index(members) * BlockPointer::SIZE, at, BlockPointer::SIZE),
        2 => victim.change_word(at + 48, random),
        3 => victim.put_word(at + 8, victim.word(at + 8) | 1 << 63),
        _ => victim.change_word(at + 8 * random.index(16), random),
    }
}

/// Changes a block of an intent log: its next pointer, its used length, its records.
pub(crate) fn damage_intent_log(victim: &mut Victim<'_>, own: &BlockPointer, random: &mut Random) {
    let (link, records) = match own.checksum_function() {
        Ok(ChecksumFunction::Zilog) => (victim.len().saturating_sub(CHAIN_SIZE), 0),
        _ => (0, RECORDS),
    };
    match random.below(6) {
        // A chain that comes back to this block, with the sequence number that is expected.
        0 => {
            let mut next = *own;
            let words = next.words_mut();
            words[15] = words[15].wrapping_add(1);
            victim.put_pointer(link + 8, &next);
        }
        1 => victim.change_word(link + 8 + 8 * random.index(16), random),
        2 => victim.change_word(link + 8 * random.index(CHAIN_SIZE / 8), random),
        3 | 4 => victim.change_word(records + 8 * random.index(RECORD_WORDS), random),
        _ => victim.number(random),
    }
}
