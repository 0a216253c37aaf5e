//! Displaying text from untrusted sources.

/// Replaces every control character in a text by `?`, except those in `kept`: line ends, where the
/// text may have several lines.
#[must_use]
pub fn without_controls(text: &[u8], kept: &[u8]) -> Vec<u8> {
    let mut shown = text.to_vec();
    let mut start = 0;
    while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
        let is_kept = rest.first().is_some_and(|first| kept.contains(first));
        let length = if is_kept { 0 } else { control_length(rest) };
        shown.iter_mut().skip(start).take(length).for_each(|byte| *byte = b'?');
        start += length.max(1);
    }
    shown
}

/// Bytes of the control character that a text begins with, in UTF-8; those that turn the direction
/// of writing are among them, as they make a name look like another one.
const fn control_length(text: &[u8]) -> usize {
    match text {
        [0..=0x1f | 0x7f, ..] => 1,
        // C1, and the mark of Arabic letters.
        [0xc2, 0x80..=0x9f, ..] | [0xd8, 0x9c, ..] => 2,
        // U+200E, U+200F, U+202A to U+202E; U+2066 to U+2069.
        [0xe2, 0x80, 0x8e | 0x8f | 0xaa..=0xae, ..] | [0xe2, 0x81, 0xa6..=0xa9, ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, kept: &[u8]) -> String {
        String::from_utf8(without_controls(text.as_bytes(), kept)).unwrap()
    }

    #[test]
    fn terminals_are_not_controlled() {
        assert_eq!(shown("a\u{1b}[31mb\u{7}\r\n\tc\u{7f}", b"\n\t"), "a?[31mb??\n\tc?");
        assert_eq!(shown("a\n\tb", b""), "a??b");
        assert_eq!(shown("\u{9b}2Jé ä €", b""), "??2Jé ä €");
        for turn in "\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            assert_eq!(shown(&format!("a{turn}b"), b""), "a???b");
        }
        assert_eq!(shown("a\u{61c}b \u{2065}\u{202f}—", b""), "a??b \u{2065}\u{202f}—");
    }
}
