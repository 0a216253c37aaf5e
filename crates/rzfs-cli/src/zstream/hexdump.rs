//! Bytes in the format of `zstream dump -d`: sixteen per line, in groups of four.

use std::io::{self, Write};

const LINE: usize = 16;
const GROUP: usize = 4;
/// Columns of the hex digits: three for each byte, one between groups.
const HEX_COLUMNS: usize = LINE * 3 + LINE / GROUP - 1;

/// Writes bytes as hex digits, and as printable characters.
pub(super) fn write(out: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    let (mut hex, mut text) = (String::new(), String::new());
    for line in bytes.chunks(LINE) {
        hex.clear();
        text.clear();
        for (index, byte) in line.iter().enumerate() {
            if index > 0 && index % GROUP == 0 {
                hex.push(' ');
                text.push(' ');
            }
            hex.extend([' ', digit(byte >> 4), digit(byte & 15)]);
            let is_shown = byte.is_ascii_graphic() || *byte == b' ';
            text.push(if is_shown { char::from(*byte) } else { '.' });
        }
        writeln!(out, "{hex:HEX_COLUMNS$}   {text}")?;
    }
    Ok(())
}

fn digit(value: u8) -> char {
    char::from_digit(value.into(), 16).unwrap_or('?')
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_shown_as_zstream_shows_them() {
        let mut out = Vec::new();
        let bytes: Vec<u8> = (0x2b..0x3b).chain(*b"abc\x7f\xff \0").collect();
        super::write(&mut out, &bytes).unwrap();
        let expected = " 2b 2c 2d 2e  2f 30 31 32  33 34 35 36  37 38 39 3a   +,-. /012 3456 789:\n \
                        61 62 63 7f  ff 20 00                                abc. . .\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
