//! Dnode blocks (spec 04, section 19.9).
//!
//! ```text
//! 0      64                 64 + 128 n           size - 128      size = 512 (1 + extra slots)
//! | core | n block pointers | bonus             | spill pointer |
//! | aad, | aad, as records  | message or aad    | aad, record   |
//! | masked
//! ```
//! The spill pointer is there when the flag says so; else the bonus reaches to the end.

use super::super::record::PointerRecord;
use super::super::{CryptoError, CryptoVersion};
use super::parts::Parts;
use rzfs_format::dnode::{CORE_SIZE, DnodeFlags, SLOT_SIZE};
use rzfs_format::endian::Fields;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, FormatError};
use std::ops::Range;

const WHAT: &str = "dnode";
const FLAGS: usize = 7;
const USED: Range<usize> = 24..32;

/// The first 64 bytes of a dnode with what a receiver may change taken out: the space used, and
/// all flags but the one for the spill pointer.
pub(in super::super) struct Core {
    masked: [u8; CORE_SIZE],
    flags: DnodeFlags,
}

impl Core {
    pub(in super::super) fn decode(dnode: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let mut masked = Fields::new(WHAT, dnode, order).array(0)?;
        let flags = DnodeFlags(masked[FLAGS]);
        masked[FLAGS] &= DnodeFlags::SPILL_POINTER;
        masked[USED].fill(0);
        Ok(Self { masked, flags })
    }

    /// The bytes in the block's own order.
    pub(in super::super) const fn as_stored(&self) -> &[u8; CORE_SIZE] {
        &self.masked
    }

    /// The bytes with all numbers in little-endian order.
    pub(in super::super) fn in_little_endian(&self, order: ByteOrder) -> [u8; CORE_SIZE] {
        let mut bytes = self.masked;
        if order == ByteOrder::Big {
            for number in [8..10, 10..12, 16..24, USED] {
                bytes[number].reverse();
            }
        }
        bytes
    }
}

/// Where the pointers of a dnode are.
pub(in super::super) struct PointerArea {
    /// The pointers of the tree.
    pub(in super::super) tree: Range<usize>,
    /// What is left for the bonus.
    bonus: Range<usize>,
    /// The spill pointer.
    pub(in super::super) spill: Option<Range<usize>>,
}

impl PointerArea {
    /// `dnode` is the whole dnode, all its slots.
    pub(in super::super) fn of(dnode: &[u8], core: &Core) -> Result<Self, FormatError> {
        let count = core.masked[3];
        let tree = CORE_SIZE..CORE_SIZE + usize::from(count) * BlockPointer::SIZE;
        let spill = core.flags.has(DnodeFlags::SPILL_POINTER);
        let end =
            if spill { dnode.len().checked_sub(BlockPointer::SIZE) } else { Some(dnode.len()) };
        let end = end.filter(|end| *end >= tree.end);
        let end = end.ok_or(FormatError::field(WHAT, "nblkptr", count))?;
        Ok(Self { bonus: tree.end..end, tree, spill: spill.then(|| end..end + BlockPointer::SIZE) })
    }
}

pub(super) fn take_apart(
    version: CryptoVersion,
    order: ByteOrder,
    block: &[u8],
    parts: &mut Parts,
) -> Result<(), CryptoError> {
    let mut offset = 0;
    while offset < block.len() {
        let rest = Fields::new(WHAT, block, order);
        let slots = usize::from(rest.u8(offset + 12)?) + 1;
        let dnode = Fields::new(WHAT, rest.bytes(offset, slots * SLOT_SIZE)?, order);
        take_dnode_apart(version, dnode, offset, parts)?;
        offset += dnode.len();
    }
    Ok(())
}

fn take_dnode_apart(
    version: CryptoVersion,
    dnode: Fields<'_>,
    offset: usize,
    parts: &mut Parts,
) -> Result<(), CryptoError> {
    let order = dnode.order();
    let bytes = dnode.bytes(0, dnode.len())?;
    let core = Core::decode(bytes, order)?;
    let area = PointerArea::of(bytes, &core)?;
    parts.aad.extend_from_slice(core.as_stored());
    let pointers = dnode.bytes(area.tree.start, area.tree.len())?;
    for pointer in pointers.chunks_exact(BlockPointer::SIZE) {
        parts.aad.extend_from_slice(PointerRecord::decode(version, pointer, order)?.bytes());
    }
    if let Some(spill) = area.spill {
        let pointer = dnode.bytes(spill.start, spill.len())?;
        parts.aad.extend_from_slice(PointerRecord::decode(version, pointer, order)?.bytes());
    }
    let is_used = dnode.u8(0)? != 0;
    let has_bonus = dnode.u16(10)? != 0;
    let is_secret =
        ObjectType::from_number(dnode.u8(4)?).is_ok_and(|bonus_type| bonus_type.is_encrypted());
    if is_used && has_bonus && is_secret {
        parts.encrypted.push(offset + area.bonus.start..offset + area.bonus.end);
    } else {
        parts.aad.extend_from_slice(dnode.bytes(area.bonus.start, area.bonus.len())?);
    }
    Ok(())
}
