//! Decompresses a block with an unknown function, and possibly to an unknown size.

use super::request::Request;
use crate::session::Session;
use rzfs_codec::compress::decompress;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::units::SECTOR_SIZE;
use std::io;

/// Functions that detect foreign blocks.
const SURE: [CompressionFunction; 4] = [
    CompressionFunction::Lz4,
    CompressionFunction::Lzjb,
    CompressionFunction::Gzip(1),
    CompressionFunction::Zstd,
];

/// zle accepts nearly everything, so it comes last, unless `ZDB_NO_ZLE` is set.
const UNSURE: [CompressionFunction; 1] = [CompressionFunction::Zle];

/// The remark about a block that zle accepted.
const UNSURE_REMARK: &str = "
ZLE decompression was selected. If you suspect the results are wrong,
try avoiding ZLE by setting and exporting ZDB_NO_ZLE=\"true\"
";

/// Bytes of the largest block.
const MAX_SIZE: u64 = 16 << 20;

/// The first successful expansion of a block. If the request has only one size all larger ones are
/// tried.
pub(super) fn expand(
    session: &mut Session<'_>,
    stored: &[u8],
    request: &Request<'_>,
) -> io::Result<Option<Vec<u8>>> {
    let sizes = if request.lsize == request.psize {
        request.psize + SECTOR_SIZE..=MAX_SIZE
    } else {
        request.lsize..=request.lsize
    };
    let mut block = Vec::new();
    let unsure = if std::env::var_os("ZDB_NO_ZLE").is_some() { &[][..] } else { &UNSURE[..] };
    for functions in [&SURE[..], unsure] {
        for lsize in sizes.clone().step_by(SECTOR_SIZE as usize) {
            block.resize(lsize as usize, 0);
            for function in functions {
                if request.flags.verbose {
                    let (from, name) = (request.psize, function.name());
                    writeln!(session.notes, "Trying {from:05x} -> {lsize:05x} ({name})")?;
                }
                if decompress(*function, stored, &mut block).is_ok() {
                    if UNSURE.contains(function) {
                        write!(session.out, "{UNSURE_REMARK}")?;
                    }
                    return Ok(Some(block));
                }
            }
        }
    }
    Ok(None)
}
