//! gzip-1 to gzip-9: a zlib stream (RFC 1950; spec 02, section 5.7).

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};
use std::cell::RefCell;

const LEVELS: usize = 9;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    /// One per level, made when the level is first used.
    static COMPRESSORS: RefCell<[Option<Compressor>; LEVELS]> =
        const { RefCell::new([const { None }; LEVELS]) };
}

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, &'static str> {
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        decompressor.zlib_decompress(src, dst).map_err(|error| match error {
            DecompressionError::BadData => "broken stream",
            DecompressionError::InsufficientSpace => "longer than the block",
        })
    })
}

pub(super) fn compress(level: u8, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    COMPRESSORS.with_borrow_mut(|compressors| {
        let slot = compressors.get_mut(usize::from(level).checked_sub(1)?)?;
        if slot.is_none() {
            *slot = Some(Compressor::new(CompressionLvl::new(i32::from(level)).ok()?));
        }
        slot.as_mut()?.zlib_compress(src, dst).ok()
    })
}
