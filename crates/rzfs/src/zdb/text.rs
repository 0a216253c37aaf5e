//! Notations of zdb: block pointers, histograms, name-value lists, numbers, times, escapes.

pub(crate) mod histogram;
pub(crate) use crate::nvlist_text as nvlist;
pub(crate) mod pointer;

/// How sizes are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NumberStyle {
    /// At most five characters: `1.50K`.
    Scaled,
    /// All digits (`-P`).
    Plain,
}

impl NumberStyle {
    /// A size or count.
    pub(crate) fn show(self, number: u64) -> String {
        match self {
            Self::Scaled => crate::quantity::nicenum(number),
            Self::Plain => number.to_string(),
        }
    }
}

/// Bytes as text where printable, else in octal (`\001`).
pub(crate) fn escaped(bytes: &[u8]) -> String {
    use std::fmt::Write;
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() || byte == b' ' {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\{byte:03o}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_bytes_are_octal() {
        assert_eq!(escaped(b"a b\x02\xff"), "a b\\002\\377");
    }

    #[test]
    fn numbers_are_scaled_unless_all_digits_are_wanted() {
        assert_eq!(NumberStyle::Plain.show(1536), "1536");
        assert_eq!(NumberStyle::Scaled.show(1536), "1.50K");
    }
}
