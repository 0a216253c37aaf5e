//! The words of property `compression`: a function and its level in one number (spec 04, section
//! 14.1).

use crate::compression::CompressionFunction;
use std::borrow::Cow;

/// The function is in the bits below, the level of zstd above.
const LEVEL_SHIFT: u32 = 7;
/// `gzip` without a level is this one.
const GZIP_LEVEL: u8 = 6;
const GZIP_LEVELS: std::ops::RangeInclusive<u8> = 1..=9;
const ZSTD_LEVELS: std::ops::RangeInclusive<u64> = 1..=19;
/// Levels of `zstd-fast`: 1 to 10 above this number,
const FAST_ONES: u64 = 102;
/// tens to 100 above this one,
const FAST_TENS: u64 = 111;
/// and two more.
const FAST_500: u64 = 122;
const FAST_1000: u64 = 123;

/// The values as the usage describes them.
pub(super) const USAGE: &str = "on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | zstd | \
     zstd-[1-19] | zstd-fast | zstd-fast-[1-10,20,30,40,50,60,70,80,90,100,500,1000]";

/// The compression function that a number stands for.
pub(super) fn function(number: u64) -> Option<CompressionFunction> {
    CompressionFunction::from_number((number & ((1 << LEVEL_SHIFT) - 1)) as u8).ok()
}

/// `zstd-fast-10`, `gzip-6`, `lz4`, ...: the word of a number.
pub(super) fn word(number: u64) -> Option<Cow<'static, str>> {
    let level = number >> LEVEL_SHIFT;
    Some(match (function(number)?, level) {
        (CompressionFunction::Inherit | CompressionFunction::Empty, _) => return None,
        (CompressionFunction::On, _) => "on".into(),
        (CompressionFunction::Off, _) => "off".into(),
        (CompressionFunction::Lzjb, _) => "lzjb".into(),
        (CompressionFunction::Gzip(GZIP_LEVEL), _) => "gzip".into(),
        (CompressionFunction::Gzip(level), _) => format!("gzip-{level}").into(),
        (CompressionFunction::Zle, _) => "zle".into(),
        (CompressionFunction::Lz4, _) => "lz4".into(),
        (CompressionFunction::Zstd, 0) => "zstd".into(),
        (CompressionFunction::Zstd, 1..=19) => format!("zstd-{level}").into(),
        (CompressionFunction::Zstd, 103) => "zstd-fast".into(),
        (CompressionFunction::Zstd, 104..=112) => format!("zstd-fast-{}", level - FAST_ONES).into(),
        (CompressionFunction::Zstd, 113..=121) => {
            format!("zstd-fast-{}", (level - FAST_TENS) * 10).into()
        }
        (CompressionFunction::Zstd, FAST_500) => "zstd-fast-500".into(),
        (CompressionFunction::Zstd, FAST_1000) => "zstd-fast-1000".into(),
        (CompressionFunction::Zstd, _) => return None,
    })
}

/// The number of a word.
pub(super) fn number(word: &str) -> Option<u64> {
    let decimal = |text: &str| text.parse::<u64>().ok().filter(|_| !text.starts_with(['+', '0']));
    let of = |function: CompressionFunction| u64::from(function.number());
    let zstd = |level: u64| of(CompressionFunction::Zstd) | level << LEVEL_SHIFT;
    Some(match word {
        "on" => of(CompressionFunction::On),
        "off" => of(CompressionFunction::Off),
        "lzjb" => of(CompressionFunction::Lzjb),
        "gzip" => of(CompressionFunction::Gzip(GZIP_LEVEL)),
        "zle" => of(CompressionFunction::Zle),
        "lz4" => of(CompressionFunction::Lz4),
        "zstd" => zstd(0),
        "zstd-fast" => zstd(FAST_ONES + 1),
        _ => {
            if let Some(level) = word.strip_prefix("gzip-") {
                let level = u8::try_from(decimal(level)?).ok()?;
                of(CompressionFunction::Gzip(Some(level).filter(|it| GZIP_LEVELS.contains(it))?))
            } else if let Some(level) = word.strip_prefix("zstd-fast-") {
                match decimal(level)? {
                    level @ 1..=10 => zstd(FAST_ONES + level),
                    tens if tens <= 100 && tens.is_multiple_of(10) => zstd(FAST_TENS + tens / 10),
                    500 => zstd(FAST_500),
                    1000 => zstd(FAST_1000),
                    _ => return None,
                }
            } else {
                let level = decimal(word.strip_prefix("zstd-")?)?;
                zstd(Some(level).filter(|level| ZSTD_LEVELS.contains(level))?)
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_spelt_out() {
        for (number, shown) in [
            (1, "on"),
            (5, "gzip-1"),
            (10, "gzip"),
            (16, "zstd"),
            (400, "zstd-3"),
            (16 | 103 << 7, "zstd-fast"),
            (16 | 112 << 7, "zstd-fast-10"),
            (16 | 113 << 7, "zstd-fast-20"),
            (16 | 121 << 7, "zstd-fast-100"),
            (16 | 123 << 7, "zstd-fast-1000"),
        ] {
            assert_eq!(word(number).unwrap(), shown);
        }
        assert_eq!([0, 4, 17, 16 | 124 << 7].map(word), [None, None, None, None]);
    }

    #[test]
    fn what_is_shown_can_be_typed() {
        let words = "on off lzjb gzip-1 gzip gzip-9 zle lz4 zstd zstd-1 zstd-19 zstd-fast \
             zstd-fast-2 zstd-fast-10 zstd-fast-20 zstd-fast-100 zstd-fast-500 zstd-fast-1000";
        for typed in words.split_whitespace() {
            assert_eq!(word(number(typed).unwrap()).unwrap(), typed);
        }
        for wrong in ["", "gzip-0", "gzip-10", "zstd-0", "zstd-20", "zstd-fast-11", "zstd-+1"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }
}
