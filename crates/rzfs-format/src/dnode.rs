//! Dnodes (spec 03, section 2).
//!
//! ```text
//! 0         64                     64 + 128 n                    512 (1 + extra)
//! | header   | n block pointers     | bonus ...   [| spill bp 128] |
//! ```
//! A dnode takes one or more 512-byte slots of a 16 KiB dnode block and never crosses it.

mod encode;

use crate::block_pointer::BlockPointer;
use crate::endian::{ByteOrder, Fields};
use crate::object_type::ObjectType;
use crate::units::SECTOR_SIZE;
use crate::{BlockId, FormatError};

/// Bytes of one dnode slot.
pub const SLOT_SIZE: usize = 512;
/// Slots of a dnode block.
pub const SLOTS_PER_BLOCK: usize = 32;
/// Bytes of a dnode block, the data block of the meta-dnode.
pub const BLOCK_SIZE: usize = SLOT_SIZE * SLOTS_PER_BLOCK;
/// Bytes before the first block pointer.
pub const CORE_SIZE: usize = 64;
/// Most levels that a tree can have.
pub const MAX_LEVELS: u8 = 12;
/// Most block pointers in a dnode.
pub const MAX_POINTERS: usize = 3;

const WHAT: &str = "dnode";

/// Flags of a dnode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DnodeFlags(pub u8);

impl DnodeFlags {
    /// `used` counts bytes, not sectors.
    pub const USED_BYTES: u8 = 1;
    /// The space is in the accounting objects.
    pub const USER_USED_ACCOUNTED: u8 = 2;
    /// The last 128 bytes are a spill block pointer.
    pub const SPILL_POINTER: u8 = 4;
    /// The object is counted in the accounting objects.
    pub const USER_OBJ_USED_ACCOUNTED: u8 = 8;

    /// Whether the flag is set.
    #[must_use]
    pub const fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }
}

/// A decoded dnode: what an object is and where its blocks are. Valid by construction
/// (spec 03, section 2.4).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dnode {
    /// Type of the object; never NONE.
    pub object_type: ObjectType,
    /// Type of the bonus, NONE when there is none.
    pub bonus_type: ObjectType,
    /// log2 of the size of an indirect block, in bytes.
    pub indirect_shift: u8,
    /// Levels of the tree: 1 = the pointers address data.
    pub levels: u8,
    /// Checksum function, 0 = inherited.
    pub checksum: u8,
    /// Compression function, 0 = inherited.
    pub compress: u8,
    /// Flags.
    pub flags: DnodeFlags,
    /// Size of a data block in bytes.
    pub data_block_size: u32,
    /// 512-byte slots that the dnode takes.
    pub slots: u8,
    /// The last block; also 0 for an empty object.
    pub max_block_id: BlockId,
    /// Space used, in bytes.
    pub used: u64,
    /// Top of the tree: one to three pointers.
    pub pointers: Vec<BlockPointer>,
    /// The bonus: `bonuslen` bytes.
    pub bonus: Vec<u8>,
    /// Pointer to the spill block.
    pub spill: Option<BlockPointer>,
    /// Byte order of the bonus: that of the block that the dnode was in.
    pub order: ByteOrder,
}

impl Dnode {
    /// Decodes the dnode at the start of `bytes`, which reach to the end of the dnode block.
    ///
    /// `None` is a free slot.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Option<Self>, FormatError> {
        let all = Fields::new(WHAT, bytes, order);
        if all.u8(0)? == 0 {
            return Ok(None);
        }
        let slots = usize::from(all.u8(12)?) + 1;
        let size = slots * SLOT_SIZE;
        let fields = all.sub(WHAT, 0, size)?;

        let flags = DnodeFlags(fields.u8(7)?);
        let pointer_count = usize::from(fields.u8(3)?);
        let levels = fields.u8(2)?;
        let indirect_shift = fields.u8(1)?;
        let sectors = fields.u16(8)?;
        let bonus_len = usize::from(fields.u16(10)?);
        if pointer_count == 0 || pointer_count > MAX_POINTERS {
            return Err(FormatError::field(WHAT, "nblkptr", fields.u8(3)?));
        }
        if levels == 0 || levels > MAX_LEVELS {
            return Err(FormatError::field(WHAT, "nlevels", levels));
        }
        if levels > 1 && !(10..=17).contains(&indirect_shift) {
            return Err(FormatError::field(WHAT, "indblkshift", indirect_shift));
        }
        if sectors == 0 || sectors > 32768 {
            return Err(FormatError::field(WHAT, "datablkszsec", sectors));
        }
        let bonus_start = CORE_SIZE + pointer_count * BlockPointer::SIZE;
        let spill_size = if flags.has(DnodeFlags::SPILL_POINTER) { BlockPointer::SIZE } else { 0 };
        if bonus_start + bonus_len + spill_size > size {
            return Err(FormatError::field(WHAT, "bonuslen", bonus_len as u64));
        }
        let pointers = (0..pointer_count)
            .map(|index| {
                let offset = CORE_SIZE + index * BlockPointer::SIZE;
                BlockPointer::decode(fields.bytes(offset, BlockPointer::SIZE)?, order)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let spill = if spill_size == 0 {
            None
        } else {
            let offset = size - BlockPointer::SIZE;
            Some(BlockPointer::decode(fields.bytes(offset, BlockPointer::SIZE)?, order)?)
        };
        let used = fields.u64(24)?;
        let dnode = Self {
            object_type: ObjectType::from_number(fields.u8(0)?)?,
            bonus_type: ObjectType::from_number(fields.u8(4)?)?,
            indirect_shift: indirect_shift.clamp(10, 17),
            levels,
            checksum: fields.u8(5)?,
            compress: fields.u8(6)?,
            flags,
            data_block_size: u32::from(sectors) * SECTOR_SIZE as u32,
            slots: slots as u8,
            max_block_id: BlockId(fields.u64(16)?),
            used: if flags.has(DnodeFlags::USED_BYTES) {
                used
            } else {
                used.saturating_mul(SECTOR_SIZE)
            },
            pointers,
            bonus: fields.bytes(bonus_start, bonus_len)?.to_vec(),
            spill,
            order,
        };
        dnode.validate_extent()?;
        Ok(Some(dnode))
    }

    /// The tree must be able to address the last block, and more than one block needs blocks of
    /// a power of two.
    fn validate_extent(&self) -> Result<(), FormatError> {
        if self.max_block_id.0 >= self.capacity_blocks() {
            return Err(FormatError::field(WHAT, "maxblkid", self.max_block_id.0));
        }
        if self.max_block_id.0 > 0 && !self.data_block_size.is_power_of_two() {
            return Err(FormatError::invalid(WHAT, "several blocks of an odd size"));
        }
        Ok(())
    }

    /// log2 of the pointers in an indirect block.
    #[must_use]
    pub const fn pointers_shift(&self) -> u32 {
        self.indirect_shift as u32 - BlockPointer::SHIFT
    }

    /// Size of an indirect block in bytes.
    #[must_use]
    pub const fn indirect_size(&self) -> u32 {
        1 << self.indirect_shift
    }

    /// How many data blocks the tree can address; saturates.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        let shift = u32::from(self.levels - 1) * self.pointers_shift();
        (self.pointers.len() as u64)
            .checked_shl(shift)
            .filter(|blocks| blocks >> shift == self.pointers.len() as u64)
            .unwrap_or(u64::MAX)
    }

    /// Number of the block at `level` above (or at) the data block `block`; 0 when the level
    /// is beyond everything a 64-bit number can address.
    #[must_use]
    pub fn ancestor(&self, block: BlockId, level: u8) -> BlockId {
        let shift = u32::from(level) * self.pointers_shift();
        BlockId(block.0.checked_shr(shift).unwrap_or(0))
    }

    /// Index of a block's pointer in its parent (an indirect block, or the dnode at the top).
    #[must_use]
    pub fn index_in_parent(&self, level: u8, block: BlockId) -> usize {
        if level + 1 >= self.levels {
            usize::try_from(block.0).unwrap_or(usize::MAX)
        } else {
            (block.0 & ((1 << self.pointers_shift()) - 1)) as usize
        }
    }

    /// Bytes from the start of the object to the end of its last block; saturates.
    #[must_use]
    pub const fn extent(&self) -> u64 {
        (self.max_block_id.0.saturating_add(1)).saturating_mul(self.data_block_size as u64)
    }
}

/// The slots of a dnode block at which a dnode starts, with what is there: `None` is a free slot.
///
/// Interior slots of large dnodes are skipped. The slot of a dnode that cannot be decoded is
/// reported as its error and skipped over as far as its slot count reaches.
pub fn slots(
    block: &[u8],
    order: ByteOrder,
) -> impl Iterator<Item = (usize, Result<Option<Dnode>, FormatError>)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        let slot = next;
        let bytes = block.get(slot * SLOT_SIZE..).filter(|rest| rest.len() >= SLOT_SIZE)?;
        next += span(bytes);
        Some((slot, Dnode::decode(bytes, order)))
    })
}

/// Slots to the next dnode.
fn span(bytes: &[u8]) -> usize {
    match (bytes.first(), bytes.get(12)) {
        (Some(&kind), Some(&extra)) if kind != 0 => usize::from(extra) + 1,
        _ => 1,
    }
}

/// Whether a dnode, used or free, starts at `slot` of a dnode block: false inside of a large one.
#[must_use]
pub fn starts_at(block: &[u8], slot: usize) -> bool {
    let mut at = 0;
    while at < slot {
        match block.get(at * SLOT_SIZE..) {
            Some(bytes) if !bytes.is_empty() => at += span(bytes),
            _ => return false,
        }
    }
    at == slot
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..12].copy_from_slice(&[0x13, 0x11, 2, 1, 0x2c, 0, 0, 0x0b, 0, 1, 0xb0, 0]);
        bytes[16] = 0x44;
        bytes[25] = 0x20;
        bytes[26] = 0x02;
        bytes
    }

    #[test]
    fn dnode_of_the_spec_decodes() {
        let dnode = Dnode::decode(&sample(), ByteOrder::Little).unwrap().unwrap();
        assert_eq!(dnode.object_type, ObjectType::PLAIN_FILE_CONTENTS);
        assert_eq!(dnode.bonus_type, ObjectType::SA);
        assert_eq!((dnode.levels, dnode.data_block_size), (2, 128 << 10));
        assert_eq!((dnode.max_block_id, dnode.used), (BlockId(68), 139_264));
        assert_eq!(dnode.bonus.len(), 176);
    }

    #[test]
    fn hostile_fields_are_refused() {
        for (offset, value) in [
            (0, 60),
            (1, 9),
            (2, 0),
            (2, 13),
            (3, 0),
            (3, 4),
            (4, 0x8a),
            (9, 0),
            (11, 2),
            (12, 1),
            (18, 8),
        ] {
            let mut bytes = sample();
            bytes[offset] = value;
            assert!(
                Dnode::decode(&bytes, ByteOrder::Little).is_err(),
                "byte {offset} = {value} was accepted"
            );
        }
    }

    #[test]
    fn paths_through_the_tree_are_those_of_the_spec() {
        let mut bytes = sample();
        bytes[1] = 12;
        bytes[2] = 3;
        bytes[16..24].fill(0);
        let dnode = Dnode::decode(&bytes, ByteOrder::Little).unwrap().unwrap();
        let block = BlockId(1000);
        assert_eq!(dnode.ancestor(block, 1), BlockId(31));
        assert_eq!(dnode.ancestor(block, 2), BlockId(0));
        assert_eq!(dnode.index_in_parent(0, block), 8);
        assert_eq!(dnode.index_in_parent(1, BlockId(31)), 31);
    }

    #[test]
    fn interior_slots_are_skipped() {
        let mut block = vec![0; BLOCK_SIZE];
        block[512..1024].copy_from_slice(&sample());
        block[512 + 12] = 2;
        let starts: Vec<_> =
            slots(&block, ByteOrder::Little).take(3).map(|(slot, _)| slot).collect();
        assert_eq!(starts, [0, 1, 4]);
        assert!(starts_at(&block, 4) && !starts_at(&block, 3));
    }
}
