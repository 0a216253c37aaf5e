//! The words of `zdb -R`.

use rzfs_format::BlockPointer;
use rzfs_format::units::SECTOR_SIZE;
use std::io::{self, Write};

/// Bytes of the largest block.
const MAX_SIZE: u64 = 16 << 20;

/// A request to read and show a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request<'a> {
    /// The word itself.
    pub(super) text: &'a str,
    /// The vdev's name.
    pub(super) vdev: &'a str,
    /// Byte offset on the vdev.
    pub(super) offset: u64,
    /// Bytes of the block.
    pub(super) lsize: u64,
    /// Bytes that are stored.
    pub(super) psize: u64,
    pub(super) flags: Flags,
}

/// The letters of FLAGS.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Flags {
    /// `b` with an offset: the block pointer at that offset.
    pub(super) pointer: Option<u64>,
    /// `c`: the checksums of the block.
    pub(super) checksums: bool,
    /// `d`: decompressed with any function that fits.
    pub(super) decompress: bool,
    /// `e`: with bytes swapped in each word.
    pub(super) swap: bool,
    /// `g`: as a gang header.
    pub(super) gang: bool,
    /// `i`: as an indirect block.
    pub(super) indirect: bool,
    /// `r`: the raw bytes.
    pub(super) raw: bool,
    /// `v`: reports the attempts of `d`.
    pub(super) verbose: bool,
}

impl Flags {
    const LETTERS: &str = "bcdegirv";

    /// Reports unknown letters; `None` if no letter is known.
    fn parse(text: &str, out: &mut dyn Write) -> io::Result<Option<Self>> {
        let mut flags = Self::default();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                'b' => {
                    let mut offset = String::new();
                    while let Some(digit) = letters.next_if(|c| !Self::LETTERS.contains(*c)) {
                        offset.push(digit);
                    }
                    flags.pointer = Some(u64::from_str_radix(&offset, 16).unwrap_or(0));
                }
                'c' => flags.checksums = true,
                'd' => flags.decompress = true,
                'e' => flags.swap = true,
                'g' => flags.gang = true,
                'i' => flags.indirect = true,
                'r' => flags.raw = true,
                'v' => flags.verbose = true,
                unknown => writeln!(out, "***Ignoring flag: {unknown}")?,
            }
        }
        let none_known = !text.is_empty() && flags == Self::default();
        Ok((!none_known).then_some(flags))
    }
}

impl<'a> Request<'a> {
    /// Parses a word, or returns its error message.
    pub(super) fn parse(text: &'a str, out: &mut dyn Write) -> io::Result<Result<Self, String>> {
        let invalid = |what: &str| Ok(Err(format!("Invalid block specifier: {text}  - {what}")));
        let mut parts = text.split(':');
        let (vdev, offset) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (sizes, letters) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (logical, physical) = sizes.split_once('/').unwrap_or((sizes, sizes));
        let (Some(lsize), Some(psize)) = (size(logical), size(physical)) else {
            return invalid("invalid size(s)");
        };
        if lsize < psize {
            return invalid("invalid size(s)");
        }
        if !lsize.is_multiple_of(SECTOR_SIZE) || !psize.is_multiple_of(SECTOR_SIZE) {
            return invalid("size must be a multiple of sector size");
        }
        let Ok(offset) = u64::from_str_radix(offset, 16) else { return invalid("invalid offset") };
        if !offset.is_multiple_of(SECTOR_SIZE) {
            return invalid("offset must be a multiple of sector size");
        }
        let Some(flags) = Flags::parse(letters, out)? else {
            return Ok(Err(format!("Invalid flag arg: '{letters}'")));
        };
        let pointer_size = BlockPointer::SIZE as u64;
        if let Some(place) = flags.pointer.filter(|place| !place.is_multiple_of(pointer_size)) {
            return Ok(Err(format!(
                "Block pointer offset {place:#x} must be divisible by {pointer_size:#x}"
            )));
        }
        Ok(Ok(Self { text, vdev, offset, lsize, psize, flags }))
    }
}

/// Parses a possible block size in hex.
fn size(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|size| (1..=MAX_SIZE).contains(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Result<Request<'_>, String>, String) {
        let mut out = Vec::new();
        let request = Request::parse(text, &mut out).unwrap();
        (request, String::from_utf8(out).unwrap())
    }

    #[test]
    fn addresses_sizes_and_flags() {
        let (request, remarks) = parsed("0.1:5a5000:20000/1000:db80v");
        let request = request.unwrap();
        assert_eq!((request.vdev, request.offset), ("0.1", 0x5a5000));
        assert_eq!((request.lsize, request.psize), (0x20000, 0x1000));
        let flags =
            Flags { decompress: true, verbose: true, pointer: Some(0x80), ..Flags::default() };
        assert_eq!(request.flags, flags);
        assert_eq!(remarks, "");
        let (request, remarks) = parsed("/dev/a:0:200:x,r");
        assert!(request.unwrap().flags.raw);
        assert_eq!(remarks, "***Ignoring flag: x\n***Ignoring flag: ,\n");
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, problem) in [
            ("0:0", "Invalid block specifier: 0:0  - invalid size(s)"),
            ("0:0:200/400", "Invalid block specifier: 0:0:200/400  - invalid size(s)"),
            ("0:0:1000200", "Invalid block specifier: 0:0:1000200  - invalid size(s)"),
            (
                "0:0:100",
                "Invalid block specifier: 0:0:100  - size must be a multiple of sector size",
            ),
            (
                "0:1:200",
                "Invalid block specifier: 0:1:200  - offset must be a multiple of sector size",
            ),
            ("0:g:200", "Invalid block specifier: 0:g:200  - invalid offset"),
            ("0:0:200:z", "Invalid flag arg: 'z'"),
            ("0:0:200:b40", "Block pointer offset 0x40 must be divisible by 0x80"),
        ] {
            assert_eq!(parsed(text).0.unwrap_err(), problem);
        }
    }
}
