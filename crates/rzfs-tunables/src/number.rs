//! Numbers as they are typed: `131072`, `128K`, `1.5G`, `yes`.

use crate::unit::Unit;

/// Suffixes of the powers of 1024.
const POWERS: &str = "kmgtpe";
/// Decimals that are looked at: they tell any bytes of 1 EiB apart.
const MOST_DECIMALS: usize = 18;

/// The number that a text says; fractions of a byte are dropped.
pub(crate) fn parse(text: &str, unit: Unit) -> Option<u64> {
    match unit {
        Unit::Flag => match text {
            "0" | "no" | "off" | "false" => Some(0),
            "1" | "yes" | "on" | "true" => Some(1),
            _ => None,
        },
        Unit::Bytes => bytes(text),
        _ => digits(text)?.parse().ok(),
    }
}

/// A number of bytes as [`parse`] understands it, with a suffix where nothing is lost.
pub(crate) fn short(bytes: u64) -> String {
    let power = match bytes {
        0 => 0,
        bytes => (bytes.trailing_zeros() / 10).min(6),
    };
    let suffix = power.checked_sub(1).and_then(|index| POWERS.chars().nth(index as usize));
    let suffix = suffix.map(|letter| letter.to_ascii_uppercase());
    format!("{}{}", bytes >> (10 * power), suffix.map_or(String::new(), String::from))
}

fn digits(text: &str) -> Option<&str> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(text)
}

fn bytes(text: &str) -> Option<u64> {
    let suffix = text.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let number = text.strip_suffix(suffix)?;
    let shift = shift(&suffix.to_ascii_lowercase())?;
    let (whole, decimals) = match number.split_once('.') {
        Some((whole, decimals)) if shift > 0 => (whole, digits(decimals)?),
        Some(_) => return None,
        None => (number, ""),
    };
    let decimals = decimals.get(..MOST_DECIMALS).unwrap_or(decimals);
    let scale = 10_u128.pow(u32::try_from(decimals.len()).ok()?);
    let whole: u64 = digits(whole)?.parse().ok()?;
    let decimals: u128 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let fraction = (decimals << shift) / scale;
    u64::try_from((u128::from(whole) << shift) + fraction).ok()
}

/// The power of two of a suffix, which may end with `b` or `ib`.
fn shift(suffix: &str) -> Option<usize> {
    let power = suffix.strip_suffix("ib").or_else(|| suffix.strip_suffix('b')).unwrap_or(suffix);
    match power {
        "" if suffix != "ib" => Some(0),
        power if power.len() == 1 => Some(10 * (POWERS.find(power)? + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        let cases = [
            ("0", Some(0)),
            ("131072", Some(131_072)),
            ("128K", Some(131_072)),
            ("128k", Some(131_072)),
            ("1.5G", Some(3 << 29)),
            ("0.0000000001K", Some(0)),
            ("15.9E", Some(18_331_451_923_248_866_918)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("16E", None),
            ("1.5", None),
            ("1.G", None),
            (".5G", None),
            ("K", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1 K", None),
            ("32MiB", Some(32 << 20)),
            ("7b", Some(7)),
            ("1KBB", None),
            ("1ib", None),
            ("1Q", None),
            ("ä", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text, Unit::Bytes), expected, "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_as_they_are_understood() {
        for (bytes, text) in [
            (0, "0"),
            (512, "512"),
            (128 << 10, "128K"),
            ((16 << 20) + 1, "16777217"),
            (1 << 60, "1E"),
            (u64::MAX, "18446744073709551615"),
        ] {
            assert_eq!(short(bytes), text);
            assert_eq!(parse(text, Unit::Bytes), Some(bytes));
        }
    }

    #[test]
    fn other_numbers_have_none() {
        assert_eq!(parse("5", Unit::Seconds), Some(5));
        assert_eq!(parse("5K", Unit::Seconds), None);
        assert_eq!(parse("0x5", Unit::Count), None);
        assert_eq!((parse("yes", Unit::Flag), parse("off", Unit::Flag)), (Some(1), Some(0)));
        assert_eq!(parse("2", Unit::Flag), None);
    }
}
