//! Zstandard (spec 02, section 5.8).
//!
//! ```text
//! 0             4                     5                  8                  8 + c     PSIZE
//! | c, big-endian | level, ZFS encoding | library version | magicless frame | zeros |
//! ```
//! Old big-endian hosts wrote level and version the other way round.

use super::frame::framed;
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, ResetDirective};

const HEADER: usize = 8;

/// A zstd level in the encoding of ZFS: 1 to 19, and 103 to 123 for the fast levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZstdLevel(u8);

impl ZstdLevel {
    /// zstd-3, what `compression=zstd` means.
    pub const DEFAULT: Self = Self(3);

    /// The level with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1..=19 | 103..=123 => Some(Self(number)),
            _ => None,
        }
    }

    /// The number in ZFS's encoding.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The level as the zstd library counts: fast levels are negative.
    #[must_use]
    pub fn library_level(self) -> i32 {
        let number = i32::from(self.0);
        match number {
            103..=112 => 102 - number,
            113..=120 => (111 - number) * 10,
            121 => -100,
            122 => -500,
            123 => -1000,
            _ => number,
        }
    }
}

impl Default for ZstdLevel {
    fn default() -> Self {
        Self::DEFAULT
    }
}

thread_local! {
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static COMPRESSOR: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

/// The level in the second word of the header, whichever way the word was written: the version
/// has three bytes and its highest is zero, which tells where it is.
fn level(word: [u8; 4]) -> Option<ZstdLevel> {
    let [high, _, _, low] = word;
    let zero = word.iter().rev().position(|byte| *byte == 0)?;
    ZstdLevel::from_number(if zero % 2 == 0 { high } else { low })
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, &'static str> {
    let frame = framed(src, 4)?;
    src.get(4..)
        .and_then(|rest| rest.first_chunk())
        .and_then(|word| level(*word))
        .ok_or("no such level")?;
    DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = new_decompressor();
        }
        let context = slot.as_mut().ok_or("no context")?;
        context.decompress(dst, frame).map_err(|_| "broken stream")
    })
}

fn new_decompressor() -> Option<DCtx<'static>> {
    let mut context = DCtx::try_create()?;
    context.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    Some(context)
}

pub(super) fn compress(level: ZstdLevel, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (header, room) = dst.split_first_chunk_mut::<HEADER>()?;
    let length = COMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            *slot = new_compressor();
        }
        let context = slot.as_mut()?;
        context.set_parameter(CParameter::CompressionLevel(level.library_level())).ok()?;
        let length = context.compress2(room, src).ok();
        if length.is_none() {
            context.reset(ResetDirective::SessionOnly).ok()?;
        }
        length
    })?;
    let version = zstd_safe::version_number() & 0xff_ffff;
    header[..4].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
    header[4..].copy_from_slice(&(u32::from(level.0) << 24 | version).to_be_bytes());
    Some(HEADER + length)
}

fn new_compressor() -> Option<CCtx<'static>> {
    let mut context = CCtx::try_create()?;
    context.set_parameter(CParameter::Format(FrameFormat::Magicless)).ok()?;
    context.set_parameter(CParameter::ContentSizeFlag(false)).ok()?;
    context.set_parameter(CParameter::ChecksumFlag(false)).ok()?;
    context.set_parameter(CParameter::DictIdFlag(false)).ok()?;
    Some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_translate_as_the_spec_says() {
        let library = |number| ZstdLevel::from_number(number).map(ZstdLevel::library_level);
        assert_eq!([1, 19, 103, 112].map(library), [1, 19, -1, -10].map(Some));
        assert_eq!([113, 120, 121, 122, 123].map(library), [-20, -90, -100, -500, -1000].map(Some));
        assert_eq!([0, 20, 102, 124, 251, 255].map(library), [None; 6]);
    }

    #[test]
    fn the_level_is_found_in_all_four_byte_orders() {
        let three = ZstdLevel::from_number(3);
        assert_eq!(level([3, 0x00, 0x28, 0xa5]), three);
        assert_eq!(level([0xa5, 0x28, 0x00, 3]), three);
        assert_eq!(level([0x00, 0x28, 0xa5, 3]), three);
        assert_eq!(level([3, 0xa5, 0x28, 0x00]), three);
        assert_eq!(level([3, 0x01, 0x28, 0xa5]), None);
        assert_eq!(level([20, 0x00, 0x28, 0xa5]), None);
    }
}
