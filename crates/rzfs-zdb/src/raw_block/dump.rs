//! Blocks as hex words or as raw bytes.

use std::io::{self, Write};

/// Bytes of a word.
const WORD: usize = 8;

/// Shows a block as words, with its printable characters.
pub(super) fn words(out: &mut dyn Write, title: &str, block: &[u8], swap: bool) -> io::Result<()> {
    let columns = if swap {
        "7 6 5 4 3 2 1 0   f e d c b a 9 8"
    } else {
        "0 1 2 3 4 5 6 7   8 9 a b c d e f"
    };
    writeln!(out, "\n{title}\n{:6}    {columns}  0123456789abcdef", "")?;
    for (row, offset) in block.chunks(2 * WORD).zip((0..).step_by(2 * WORD)) {
        write!(out, "{offset:06x}:")?;
        for word in row.as_chunks::<WORD>().0 {
            let value = if swap { u64::from_le_bytes(*word) } else { u64::from_be_bytes(*word) };
            write!(out, "  {value:016x}")?;
        }
        let text: String = row
            .iter()
            .map(
                |byte| {
                    if byte.is_ascii_graphic() || *byte == b' ' { char::from(*byte) } else { '.' }
                },
            )
            .collect();
        writeln!(out, "  {text}")?;
    }
    Ok(())
}

/// Writes the bytes of a block.
pub(super) fn raw(out: &mut dyn Write, block: &[u8], swap: bool) -> io::Result<()> {
    if !swap {
        return out.write_all(block);
    }
    for word in block.as_chunks::<WORD>().0 {
        let mut word = *word;
        word.reverse();
        out.write_all(&word)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_either_order() {
        let block: Vec<u8> = (0x40..0x60).collect();
        let mut out = Vec::new();
        words(&mut out, "0:0:20", &block, false).unwrap();
        words(&mut out, "t", &block[..16], true).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\n0:0:20\n          0 1 2 3 4 5 6 7   8 9 a b c d e f  0123456789abcdef\n\
             000000:  4041424344454647  48494a4b4c4d4e4f  @ABCDEFGHIJKLMNO\n\
             000010:  5051525354555657  58595a5b5c5d5e5f  PQRSTUVWXYZ[\\]^_\n\
             \nt\n          7 6 5 4 3 2 1 0   f e d c b a 9 8  0123456789abcdef\n\
             000000:  4746454443424140  4f4e4d4c4b4a4948  @ABCDEFGHIJKLMNO\n"
        );
        let mut out = Vec::new();
        raw(&mut out, &block[..8], true).unwrap();
        assert_eq!(out, b"GFEDCBA@");
    }
}
