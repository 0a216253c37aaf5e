//! Notations of zdb: block pointers, histograms, numbers, escapes.

pub(crate) mod histogram;
pub(crate) mod pointer;

/// The format of sizes.
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
            Self::Scaled => rzfs::quantity::nicenum(number),
            Self::Plain => number.to_string(),
        }
    }
}

/// Which bytes are shown in octal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Escape {
    /// None if all are printable, else all.
    WhereNeeded,
    /// All.
    Always,
}

/// Bytes as text, or in octal (`\001\101`).
pub(crate) fn escaped(bytes: &[u8], escape: Escape) -> String {
    use std::fmt::Write;
    if escape == Escape::WhereNeeded
        && bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
    {
        return bytes.iter().copied().map(char::from).collect();
    }
    let mut text = String::with_capacity(bytes.len() * 4);
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\\{byte:03o}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_bytes_are_octal() {
        assert_eq!(escaped(b"a b", Escape::WhereNeeded), "a b");
        assert_eq!(escaped(b"a", Escape::Always), "\\141");
        assert_eq!(escaped(b"a \x02\xff", Escape::WhereNeeded), "\\141\\040\\002\\377");
    }

    #[test]
    fn numbers_are_scaled_unless_all_digits_are_wanted() {
        assert_eq!(NumberStyle::Plain.show(1536), "1536");
        assert_eq!(NumberStyle::Scaled.show(1536), "1.50K");
    }
}
