//! Objects that contain 64-bit numbers.

use crate::error::ZdbError;
use crate::session::Session;
use rzfs_dmu::Object;
use rzfs_format::ByteOrder;
use rzfs_format::object_type::{ByteSwapClass, ObjectType};
use std::io::{self, Write};

/// Minimum verbosity for the numbers.
const NUMBERS: u8 = 6;
/// Numbers per line.
const PER_LINE: usize = 4;
/// Bytes of a bonus shown, whatever its length.
const BONUS_SIZE: usize = 64;
/// Maximum size of objects whose numbers are shown; real ones have kilobytes.
const MAX_SIZE: u64 = 64 << 20;

/// Whether objects of this type contain 64-bit numbers.
pub(super) fn are_in(object_type: ObjectType) -> bool {
    object_type == ObjectType::OBJECT_ARRAY
        || object_type.is_self_described()
            && !object_type.is_encrypted()
            && object_type.byte_swap_class() == ByteSwapClass::Uint64
}

/// Prints the contents of an object.
pub(super) fn print(session: &mut Session<'_>, object: &Object) -> Result<(), ZdbError> {
    if session.arguments.datasets < NUMBERS {
        return Ok(());
    }
    let size = object.dnode().extent().min(MAX_SIZE);
    let bytes = object.read_bytes(0, usize::try_from(size).unwrap_or(0))?;
    print_numbers(session.out, &bytes, object.order())?;
    Ok(())
}

/// Prints the bonus of an object.
pub(super) fn print_bonus(session: &mut Session<'_>, object: &Object) -> Result<(), ZdbError> {
    let bonus = object.bonus();
    if session.arguments.datasets < NUMBERS || bonus.is_empty() {
        return Ok(());
    }
    let mut bytes = bonus.to_vec();
    bytes.resize(bonus.len().max(BONUS_SIZE), 0);
    print_numbers(session.out, &bytes, object.order())?;
    Ok(())
}

fn print_numbers(out: &mut dyn Write, bytes: &[u8], order: ByteOrder) -> io::Result<()> {
    out.write_all(b"\t\t[")?;
    for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
        match index {
            0 => {}
            _ if index % PER_LINE == 0 => out.write_all(b",\n\t\t")?,
            _ => out.write_all(b", ")?,
        }
        write!(out, "{:x}", order.u64(*word))?;
    }
    writeln!(out, "]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_numbers_are_on_a_line() {
        let bytes: Vec<u8> =
            [0x4b, 0x4a, 0, 9, 16].iter().flat_map(|n: &u64| n.to_le_bytes()).collect();
        let mut out = Vec::new();
        print_numbers(&mut out, &bytes, ByteOrder::Little).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\t\t[4b, 4a, 0, 9,\n\t\t10]\n");
    }
}
