//! Writing dnodes.

use super::{CORE_SIZE, Dnode, DnodeFlags, SLOT_SIZE};
use crate::block_pointer::BlockPointer;
use crate::endian::{ByteOrder, FieldsMut};
use crate::object_type::ObjectType;
use crate::units::SECTOR_SIZE;

impl Dnode {
    /// Bytes that the dnode takes in its dnode block.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.slots as usize * SLOT_SIZE
    }

    /// Most bytes of bonus that there is room for.
    #[must_use]
    pub const fn bonus_capacity(&self) -> usize {
        let spill = if self.spill.is_some() { BlockPointer::SIZE } else { 0 };
        let taken = CORE_SIZE + self.pointers.len() * BlockPointer::SIZE + spill;
        self.size().saturating_sub(taken)
    }

    /// How many block pointers a new dnode gets (spec 03, section 2.1): one below system
    /// attributes, which may grow, else as many as the bonus leaves room for.
    #[must_use]
    pub const fn pointer_count(bonus_type: ObjectType, bonus_len: usize, slots: u8) -> usize {
        if bonus_type.number() == ObjectType::SA.number() {
            return 1;
        }
        let room = slots as usize * SLOT_SIZE - CORE_SIZE - BlockPointer::SIZE;
        let more = room.saturating_sub(bonus_len) / BlockPointer::SIZE;
        if more >= 2 { 3 } else { 1 + more }
    }

    /// Writes the dnode over its slots in a dnode block; `slots` begins at the first one.
    ///
    /// The bonus goes as it is: it has to be in `order` already.
    ///
    /// # Panics
    /// When `slots` is shorter than [`Dnode::size`], or the bonus longer than
    /// [`Dnode::bonus_capacity`]: both are the caller's bugs.
    pub fn encode(&self, slots: &mut [u8], order: ByteOrder) {
        let size = self.size();
        let slots = &mut slots[..size];
        slots.fill(0);
        assert!(self.bonus.len() <= self.bonus_capacity(), "the bonus does not fit");
        let mut fields = FieldsMut::new(slots, order);
        fields.set_u8(0, self.object_type.number());
        fields.set_u8(1, self.indirect_shift);
        fields.set_u8(2, self.levels);
        fields.set_u8(3, self.pointers.len() as u8);
        fields.set_u8(4, self.bonus_type.number());
        fields.set_u8(5, self.checksum);
        fields.set_u8(6, self.compress);
        fields.set_u8(7, self.stored_flags().0);
        fields.set_u16(8, (u64::from(self.data_block_size) / SECTOR_SIZE) as u16);
        fields.set_u16(10, self.bonus.len() as u16);
        fields.set_u8(12, self.slots - 1);
        fields.set_u64(16, self.max_block_id.0);
        let unit = if self.flags.has(DnodeFlags::USED_BYTES) { 1 } else { SECTOR_SIZE };
        fields.set_u64(24, self.used / unit);
        for (index, pointer) in self.pointers.iter().enumerate() {
            fields.set_bytes(CORE_SIZE + index * BlockPointer::SIZE, &pointer.encode(order));
        }
        let bonus_start = CORE_SIZE + self.pointers.len() * BlockPointer::SIZE;
        fields.set_bytes(bonus_start, &self.bonus);
        if let Some(spill) = &self.spill {
            fields.set_bytes(size - BlockPointer::SIZE, &spill.encode(order));
        }
    }

    /// The flags, with the one for the spill pointer as it is.
    const fn stored_flags(&self) -> DnodeFlags {
        let others = self.flags.0 & !DnodeFlags::SPILL_POINTER;
        let spill = if self.spill.is_some() { DnodeFlags::SPILL_POINTER } else { 0 };
        DnodeFlags(others | spill)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BlockId, Txg};
    use proptest::prelude::*;

    fn dnode() -> impl Strategy<Value = Dnode> {
        let sizes = (1_u8..=4, 0_usize..=3, any::<bool>());
        (sizes, any::<[u64; 4]>(), 0_u8..=1).prop_map(|((slots, bonus, spill), words, order)| {
            let order = if order == 0 { ByteOrder::Little } else { ByteOrder::Big };
            let mut pointer = BlockPointer::HOLE;
            pointer.words_mut()[10] = words[0];
            let bonus = vec![words[1] as u8; bonus * 40];
            let (bonus_type, sectors) = (ObjectType::SA, words[2] % 32768 + 1);
            let pointers = vec![pointer; Dnode::pointer_count(bonus_type, bonus.len(), slots)];
            Dnode {
                object_type: ObjectType::PLAIN_FILE_CONTENTS,
                bonus_type,
                indirect_shift: 17,
                levels: 1,
                checksum: 0,
                compress: 0,
                flags: DnodeFlags(
                    DnodeFlags::USED_BYTES | (u8::from(spill) * DnodeFlags::SPILL_POINTER),
                ),
                data_block_size: sectors as u32 * 512,
                slots,
                max_block_id: BlockId(0),
                used: words[3],
                pointers,
                bonus,
                spill: spill.then_some(pointer),
                order,
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(dnode in dnode()) {
            let mut bytes = vec![0xff; dnode.size() + 7];
            dnode.encode(&mut bytes, dnode.order);
            prop_assert_eq!(&bytes[dnode.size()..], &[0xff; 7]);
            prop_assert_eq!(Dnode::decode(&bytes, dnode.order).unwrap(), Some(dnode));
        }
    }

    #[test]
    fn pointer_counts_are_those_of_the_spec() {
        assert_eq!(Dnode::pointer_count(ObjectType::NONE, 0, 1), 3);
        assert_eq!(Dnode::pointer_count(ObjectType::DSL_DIR, 256, 1), 1);
        assert_eq!(Dnode::pointer_count(ObjectType::SPACE_MAP_HEADER, 24, 1), 3);
        assert_eq!(Dnode::pointer_count(ObjectType::SPACE_MAP_HEADER, 320, 1), 1);
        assert_eq!(Dnode::pointer_count(ObjectType::SA, 168, 2), 1);
    }

    #[test]
    fn sectors_stay_sectors_in_old_dnodes() {
        let mut bytes = vec![0; 512];
        bytes[..12].copy_from_slice(&[0x13, 0x11, 1, 1, 0x2c, 0, 0, 0, 0, 1, 0, 0]);
        bytes[24] = 9;
        let dnode = Dnode::decode(&bytes, ByteOrder::Little).unwrap().unwrap();
        assert_eq!((dnode.used, Txg::INITIAL), (9 * 512, Txg(4)));
        let mut again = vec![0; 512];
        dnode.encode(&mut again, ByteOrder::Little);
        assert_eq!(again, bytes);
    }
}
