//! Identity of the file of an object: numbers are reused, and a generation number distinguishes
//! successive files (spec 05, section 2).

use rzfs_format::ByteOrder;
use rzfs_format::endian::Fields;
use rzfs_format::object_type::ObjectType;

/// The magic number of a bonus with system attributes.
const SA_MAGIC: u32 = 0x002f_505a;
/// The offset of the generation in the attributes, the same in all layouts of files.
const IN_ATTRIBUTES: usize = 16;
/// Its offset in the bonus of old versions.
const IN_ZNODE: usize = 64;

/// The generation of the file with this bonus, if it belongs to a file.
pub(crate) fn generation(bonus_type: ObjectType, bonus: &[u8], order: ByteOrder) -> Option<u64> {
    match bonus_type {
        ObjectType::ZNODE => Fields::new("znode", bonus, order).u64(IN_ZNODE).ok(),
        ObjectType::SA => {
            let what = "system attributes";
            let little = Fields::new(what, bonus, ByteOrder::Little).u32(0).ok()?;
            let order = if little == SA_MAGIC { ByteOrder::Little } else { ByteOrder::Big };
            let fields = Fields::new(what, bonus, order);
            if fields.u32(0).ok()? != SA_MAGIC {
                return None;
            }
            let header = usize::from(fields.u16(4).ok()? >> 10) * 8;
            fields.u64(header + IN_ATTRIBUTES).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_found_in_both_kinds_of_bonus_and_both_byte_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let put = |bytes: &mut [u8], at: usize, value: &[u8]| {
                let mut value = value.to_vec();
                if order == ByteOrder::Big {
                    value.reverse();
                }
                bytes[at..at + value.len()].copy_from_slice(&value);
            };
            let mut attributes = vec![0; 168];
            put(&mut attributes, 0, &SA_MAGIC.to_le_bytes());
            put(&mut attributes, 4, &(2_u16 << 10).to_le_bytes());
            put(&mut attributes, 32, &77_u64.to_le_bytes());
            assert_eq!(generation(ObjectType::SA, &attributes, order), Some(77));
            let mut znode = vec![0; 264];
            put(&mut znode, 64, &78_u64.to_le_bytes());
            assert_eq!(generation(ObjectType::ZNODE, &znode, order), Some(78));
        }
        assert_eq!(generation(ObjectType::SA, &[0; 168], ByteOrder::Little), None);
        assert_eq!(generation(ObjectType::SA, &[], ByteOrder::Little), None);
        assert_eq!(generation(ObjectType::NONE, &[], ByteOrder::Little), None);
    }
}
