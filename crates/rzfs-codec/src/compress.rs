//! Compression of blocks (spec 02, section 5).
//!
//! A compressed block is zero-padded to whole sectors, so what is decompressed is a prefix of the
//! input: lz4 and zstd have its length in front, the other streams end by themselves when the
//! output is full. The output's length, LSIZE, is known from the block pointer.
//!
//! Contexts and tables of the compressors live as long as their thread: compressing or
//! decompressing a block allocates nothing after the first one of its kind.

mod frame;
mod gzip;
mod lz4;
mod lzjb;
mod zle;
mod zstd;

pub use zstd::ZstdLevel;

use rzfs_format::compression::CompressionFunction;

/// Bytes that are not a block compressed by the function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The stream is broken.
    #[error("{}: {problem}", function.name())]
    Corrupt {
        /// The function.
        function: CompressionFunction,
        /// What is wrong.
        problem: &'static str,
    },
    /// The stream gives another number of bytes than the block has.
    #[error("{}: {actual} bytes instead of {expected}", function.name())]
    Size {
        /// The function.
        function: CompressionFunction,
        /// The block's logical size.
        expected: usize,
        /// What the stream gave.
        actual: usize,
    },
    /// The function is a policy; no stored block has it.
    #[error("no block is compressed by {:?}", function.name())]
    NotStored {
        /// The function.
        function: CompressionFunction,
    },
}

/// Decompresses a block: fills `dst`, whose length is LSIZE, from `src`, the stored bytes.
///
/// # Errors
/// [`DecompressError`] when `src` does not give exactly `dst.len()` bytes; `dst` then holds
/// anything.
pub fn decompress(
    function: CompressionFunction,
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), DecompressError> {
    let expected = dst.len();
    let size = |actual| DecompressError::Size { function, expected, actual };
    let problem = match function {
        CompressionFunction::Off => {
            if src.len() != expected {
                return Err(size(src.len()));
            }
            dst.copy_from_slice(src);
            return Ok(());
        }
        CompressionFunction::Inherit | CompressionFunction::On | CompressionFunction::Empty => {
            return Err(DecompressError::NotStored { function });
        }
        CompressionFunction::Lzjb => lzjb::decompress(src, dst),
        CompressionFunction::Zle => zle::decompress(src, dst),
        CompressionFunction::Gzip(_) => gzip::decompress(src, dst),
        CompressionFunction::Lz4 => lz4::decompress(src, dst),
        CompressionFunction::Zstd => zstd::decompress(src, dst),
    };
    match problem {
        Ok(actual) if actual == expected => Ok(()),
        Ok(actual) => Err(size(actual)),
        Err(problem) => Err(DecompressError::Corrupt { function, problem }),
    }
}

/// Compresses `src` into `dst`, whose length is the most that is of use, and tells how many bytes
/// it took. The rest of `dst` then holds anything: the caller pads with zeros.
///
/// `level` matters for zstd only. `None` means that the result does not fit, or that the function
/// does not compress at all (off, empty, and what is only a property); the block is then stored
/// as it is.
#[must_use]
pub fn compress(
    function: CompressionFunction,
    level: ZstdLevel,
    src: &[u8],
    dst: &mut [u8],
) -> Option<usize> {
    match function {
        CompressionFunction::Inherit
        | CompressionFunction::On
        | CompressionFunction::Off
        | CompressionFunction::Empty => None,
        CompressionFunction::Lzjb => lzjb::compress(src, dst),
        CompressionFunction::Zle => zle::compress(src, dst),
        CompressionFunction::Gzip(level) => gzip::compress(level, src, dst),
        CompressionFunction::Lz4 => lz4::compress(src, dst),
        CompressionFunction::Zstd => zstd::compress(level, src, dst),
    }
}

#[cfg(test)]
mod tests;
