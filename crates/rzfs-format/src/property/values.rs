//! What values properties have: how these are stored, shown and typed.

use super::compression;
use crate::compression::CompressionFunction;
use crate::features::Feature;
use std::borrow::Cow;

/// The smallest block that a property can ask for, in bytes.
pub const MIN_BLOCK_SIZE: u64 = 512;
/// The largest block that a property can ask for, in bytes.
pub const MAX_BLOCK_SIZE: u64 = 16 << 20;
/// The largest block that needs no feature, in bytes.
const OLD_MAX_BLOCK_SIZE: u64 = 128 << 10;

/// What kind of values a property has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// Numbers.
    Number(NumberFormat),
    /// Sizes of blocks: powers of two between [`MIN_BLOCK_SIZE`] and [`MAX_BLOCK_SIZE`].
    BlockSize,
    /// The same, and 0.
    BlockSizeOrZero,
    /// The log2 of a sector's size, 9 to 16; 0 leaves it to the device.
    SectorShift,
    /// Some words, each stored as a number, in the order of the usage.
    Words(&'static [Word]),
    /// A compression function and its level, stored as one number.
    Compression,
    /// Texts.
    Text,
}

/// How people read a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberFormat {
    /// Bytes, `0B` for nothing.
    Bytes,
    /// Bytes or a count, `0` for nothing.
    Scaled,
    /// Bytes with `none` for 0.
    BytesOrNone,
    /// A count with `none` for 0.
    ScaledOrNone,
    /// A word, or bytes with `none` for 0.
    Quota,
    /// A count with `none` for the greatest number.
    CountOrNone,
    /// A number as it is.
    Plain,
    /// A version: a number as it is, but it stands in a column like a word.
    Version,
    /// Hundredths: `1.06x`.
    Ratio,
    /// `3%`.
    Percent,
    /// Seconds since 1970 to the minute: `Sat Nov 21  2:15 2026`.
    TimeToTheMinute,
    /// Seconds since 1970: `Sat Nov 21  2:15:08 2026`.
    TimeToTheSecond,
}

/// A word that stands for a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// What is stored.
    pub number: u64,
    /// What people read and type.
    pub text: &'static str,
    /// Who uses the word.
    pub spelling: Spelling,
    /// The feature that the value needs.
    pub feature: Option<Feature>,
    /// The number that is stored for software that does not know the real one, which then goes
    /// under `NAME$iuv` (spec 04, section 13.1).
    pub substitute: Option<u64>,
}

/// Who uses a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spelling {
    /// Everybody.
    Usual,
    /// In input only: another word for a number, not mentioned in the usage text.
    Alias,
    /// In output only.
    Shown,
}

impl Word {
    const fn new(number: u64, text: &'static str, spelling: Spelling) -> Self {
        Self { number, text, spelling, feature: None, substitute: None }
    }

    pub(super) const fn needs(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }

    pub(super) const fn substituted_by(self, number: u64) -> Self {
        Self { substitute: Some(number), ..self }
    }
}

pub(super) const fn word(number: u64, text: &'static str) -> Word {
    Word::new(number, text, Spelling::Usual)
}

pub(super) const fn alias(number: u64, text: &'static str) -> Word {
    Word::new(number, text, Spelling::Alias)
}

pub(super) const fn only_shown(number: u64, text: &'static str) -> Word {
    Word::new(number, text, Spelling::Shown)
}

/// The values of a property with these words.
macro_rules! words {
    ($($word:expr),* $(,)?) => {
        $crate::property::values::Values::Words(const { &[$($word),*] })
    };
}
pub(super) use words;

/// The number of a word.
pub(super) const fn number_of(words: &[Word], text: &str) -> Option<u64> {
    match words {
        [] => None,
        [word, ..] if is_same(word.text.as_bytes(), text.as_bytes()) => Some(word.number),
        [_, words @ ..] => number_of(words, text),
    }
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    match (a, b) {
        ([], []) => true,
        ([a, a_rest @ ..], [b, b_rest @ ..]) => *a == *b && is_same(a_rest, b_rest),
        _ => false,
    }
}

impl Values {
    /// Whether values are stored as texts, not as numbers.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::Text)
    }

    /// The word that people read for a stored number; `None` if they read the number.
    #[must_use]
    pub fn word(self, number: u64) -> Option<Cow<'static, str>> {
        match self {
            Self::Words(_) => Some(self.entry(number)?.text.into()),
            Self::Compression => compression::word(number),
            Self::Number(NumberFormat::CountOrNone) => {
                (number == u64::MAX).then_some("none".into())
            }
            _ => None,
        }
    }

    /// The number that a typed word stands for; `None` if it is no word of the property.
    #[must_use]
    pub fn number(self, typed: &str) -> Option<u64> {
        match self {
            Self::Words(words) => {
                let mut typeable = words.iter().filter(|word| word.spelling != Spelling::Shown);
                typeable.find(|word| word.text == typed).map(|word| word.number)
            }
            Self::Compression => compression::number(typed),
            Self::Number(NumberFormat::BytesOrNone) if typed == "none" => Some(0),
            Self::Number(NumberFormat::CountOrNone) if typed == "none" => Some(u64::MAX),
            _ => None,
        }
    }

    /// Checks that a property can have a number.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self, number: u64) -> Result<(), &'static str> {
        let is_block_size =
            number.is_power_of_two() && (MIN_BLOCK_SIZE..=MAX_BLOCK_SIZE).contains(&number);
        let (is_valid, problem) = match self {
            Self::Number(_) => (true, ""),
            Self::BlockSize => (is_block_size, "must be power of 2 from 512B to 16M"),
            Self::BlockSizeOrZero => {
                (number == 0 || is_block_size, "must be zero or a power of 2 from 512B to 16M")
            }
            Self::SectorShift => {
                (number == 0 || (9..=16).contains(&number), "must be 0 or from 9 to 16")
            }
            Self::Words(_) => (self.entry(number).is_some(), "has no such value"),
            Self::Compression => {
                let word = compression::word(number);
                let is_known = word.and_then(|word| compression::number(&word)) == Some(number);
                (is_known, "has no such value")
            }
            Self::Text => (false, "must be a string"),
        };
        if is_valid { Ok(()) } else { Err(problem) }
    }

    /// The feature that a number needs.
    pub(super) fn feature(self, number: u64) -> Option<Feature> {
        match self {
            Self::BlockSize | Self::BlockSizeOrZero => {
                (number > OLD_MAX_BLOCK_SIZE).then_some(Feature::LargeBlocks)
            }
            Self::Words(_) => self.entry(number)?.feature,
            Self::Compression => match compression::function(number)? {
                CompressionFunction::Lz4 => Some(Feature::Lz4Compress),
                CompressionFunction::Zstd => Some(Feature::ZstdCompress),
                _ => None,
            },
            Self::Number(_) | Self::SectorShift | Self::Text => None,
        }
    }

    /// The number that is stored in place of one that old software does not know.
    #[must_use]
    pub fn substitute(self, number: u64) -> Option<u64> {
        self.entry(number)?.substitute
    }

    /// The entry of the word that is shown for a number.
    fn entry(self, number: u64) -> Option<&'static Word> {
        let Self::Words(words) = self else { return None };
        words.iter().find(|word| word.number == number && word.spelling != Spelling::Alias)
    }

    /// The usage's text for values of this kind.
    pub(super) fn usage(self) -> Cow<'static, str> {
        match self {
            Self::Number(format) => match format {
                NumberFormat::Bytes | NumberFormat::Scaled | NumberFormat::Quota => "<size>",
                NumberFormat::BytesOrNone => "<size> | none",
                NumberFormat::ScaledOrNone | NumberFormat::CountOrNone => "<count> | none",
                NumberFormat::Plain | NumberFormat::Version => "<uint64>",
                NumberFormat::Ratio => "<1.00x or higher if compressed>",
                NumberFormat::Percent => "<percent>",
                NumberFormat::TimeToTheMinute | NumberFormat::TimeToTheSecond => "<date>",
            }
            .into(),
            Self::BlockSize => "512 to 1M, power of 2".into(),
            Self::BlockSizeOrZero => "zero or 512 to 1M, power of 2".into(),
            Self::SectorShift => "<ashift, 9-16, or 0=default>".into(),
            Self::Words(words) => {
                let usual = words.iter().filter(|word| word.spelling == Spelling::Usual);
                usual.map(|word| word.text).collect::<Vec<_>>().join(" | ").into()
            }
            Self::Compression => compression::USAGE.into(),
            Self::Text => "<text>".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_checked() {
        for (number, is_block_size) in [
            (0, false),
            (256, false),
            (512, true),
            (3000, false),
            (16 << 20, true),
            (32 << 20, false),
        ] {
            assert_eq!(Values::BlockSize.check(number).is_ok(), is_block_size, "{number}");
            let or_zero = Values::BlockSizeOrZero.check(number).is_ok();
            assert_eq!(or_zero, is_block_size || number == 0, "{number}");
        }
        let shifts = [0, 8, 9, 16, 17].map(|shift| Values::SectorShift.check(shift).is_ok());
        assert_eq!(shifts, [true, false, true, true, false]);
        let compressions = [0, 1, 4, 15, 15 | 3 << 7, 16 | 19 << 7, 16 | 50 << 7];
        let are_valid = compressions.map(|number| Values::Compression.check(number).is_ok());
        assert_eq!(are_valid, [false, true, false, true, false, true, false]);
    }
}
