//! Sizes as typed by users, and in OpenZFS's output format (spec 09, section 1.3).

/// Suffixes of powers of 1024.
const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// Formats a number in at most five characters: `0`, `1023`, `1.50K`, `480M`.
#[must_use]
pub fn nicenum(number: u64) -> String {
    scaled(number, "")
}

/// The same for bytes, where plain numbers carry a `B`: `0B`, `512B`, `1.50K`.
#[must_use]
pub fn nicebytes(bytes: u64) -> String {
    scaled(bytes, "B")
}

fn scaled(number: u64, plain_unit: &str) -> String {
    let mut index = 0;
    let mut whole = number;
    while whole >= 1024 && index < UNITS.len() - 1 {
        whole /= 1024;
        index += 1;
    }
    let unit = UNITS.get(index).copied().unwrap_or("");
    if index == 0 {
        return format!("{number}{plain_unit}");
    }
    let scale = 1u64 << (10 * index);
    if number.is_multiple_of(scale) {
        return format!("{whole}{unit}");
    }
    let value = number as f64 / scale as f64;
    (0..=2)
        .rev()
        .map(|digits| format!("{value:.digits$}{unit}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{unit}"))
}

/// Why a size cannot be parsed; the texts are OpenZFS's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not a number.
    #[error("bad numeric value '{0}'")]
    Number(String),
    /// The text after the number is not a unit.
    #[error("invalid numeric suffix '{0}'")]
    Suffix(String),
    /// It does not fit into 64 bits.
    #[error("numeric value is too large")]
    TooLarge,
}

/// Parses a size: digits, optionally a fraction, one of `bkmgtpez` (any case), and `b` or `ib`.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    if digits.is_empty() {
        return Err(SizeError::Number(text.to_owned()));
    }
    let shift = suffix_shift(suffix).ok_or_else(|| SizeError::Suffix(suffix.to_owned()))?;
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or(SizeError::TooLarge);
    }
    if digits.bytes().all(|b| b.is_ascii_digit()) && !digits.is_empty() {
        return Err(SizeError::TooLarge);
    }
    let value: f64 = digits.parse().map_err(|_| SizeError::Number(text.to_owned()))?;
    let bytes = value * (1u64 << shift) as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(SizeError::TooLarge) }
}

/// log2 of the multiplier of a suffix; `None` if it is not a suffix.
fn suffix_shift(suffix: &str) -> Option<u32> {
    let lower = suffix.to_ascii_lowercase();
    let mut letters = lower.chars();
    let Some(first) = letters.next() else { return Some(0) };
    let position = "bkmgtpe".find(first)?;
    match (position, letters.as_str()) {
        (_, "") => {}
        (1.., "b" | "ib") => {}
        _ => return None,
    }
    u32::try_from(position * 10).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_match_the_table_of_the_specification() {
        for (value, number, bytes) in [
            (0, "0", "0B"),
            (512, "512", "512B"),
            (1023, "1023", "1023B"),
            (1024, "1K", "1K"),
            (1536, "1.50K", "1.50K"),
            (10_239, "10.0K", "10.0K"),
            (104_857_600, "100M", "100M"),
            (503_316_480, "480M", "480M"),
            (1_229_184, "1.17M", "1.17M"),
            (1_073_741_823, "1024M", "1024M"),
            (u64::MAX, "16.0E", "16.0E"),
        ] {
            assert_eq!(nicenum(value), number, "{value}");
            assert_eq!(nicebytes(value), bytes, "{value}");
        }
    }

    #[test]
    fn sizes_as_typed() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("1.5G"), Ok(3 << 29));
        assert_eq!(parse_size("32m"), Ok(32 << 20));
        assert_eq!(parse_size("32MiB"), Ok(32 << 20));
        assert_eq!(parse_size("7b"), Ok(7));
        assert_eq!(parse_size("abc"), Err(SizeError::Number("abc".into())));
        assert_eq!(parse_size(".."), Err(SizeError::Number("..".into())));
        assert_eq!(parse_size("1Q"), Err(SizeError::Suffix("Q".into())));
        assert_eq!(parse_size("99999999999999999999"), Err(SizeError::TooLarge));
        assert_eq!(parse_size("17E"), Err(SizeError::TooLarge));
    }

    proptest! {
        #[test]
        fn numbers_never_exceed_five_characters(value: u64) {
            prop_assert!(nicenum(value).len() <= 5);
        }

        #[test]
        fn typed_sizes_never_panic(text in "[0-9.]{0,24}[a-zA-Z]{0,4}") {
            let _ = parse_size(&text);
        }
    }
}
