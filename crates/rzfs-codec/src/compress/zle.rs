//! Zero-length encoding (spec 02, section 5.6).
//!
//! Every chunk starts with a byte `b`. Below 64, `b + 1` literal bytes follow; else the chunk
//! stands for `b - 63` zero bytes.

const MAX_LITERALS: usize = 64;
const MAX_ZEROS: usize = 192;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, &'static str> {
    let (mut src, mut filled) = (src, 0);
    while filled < dst.len() {
        let (&lead, rest) = src.split_first().ok_or("the stream ends early")?;
        src = rest;
        let room = dst.get_mut(filled..).unwrap_or_default();
        let length = match usize::from(lead) {
            lead if lead < MAX_LITERALS => {
                let (literals, rest) =
                    src.split_at_checked(lead + 1).ok_or("the stream ends early")?;
                src = rest;
                room.get_mut(..literals.len())
                    .ok_or("longer than the block")?
                    .copy_from_slice(literals);
                literals.len()
            }
            lead => {
                let zeros = lead + 1 - MAX_LITERALS;
                room.get_mut(..zeros).ok_or("longer than the block")?.fill(0);
                zeros
            }
        };
        filled += length;
    }
    Ok(filled)
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (mut src, mut used) = (src, 0);
    while let Some(first) = src.first() {
        if *first == 0 {
            let zeros = src.iter().take(MAX_ZEROS).take_while(|byte| **byte == 0).count();
            *dst.get_mut(used)? = (zeros + MAX_LITERALS - 1) as u8;
            used += 1;
            src = src.get(zeros..)?;
        } else {
            // The room that the longest chunk takes is asked for, whatever this one takes: that
            // makes the same blocks incompressible as in OpenZFS.
            let room = dst.get_mut(used..).filter(|room| room.len() > MAX_LITERALS)?;
            let literals = literal_run(src);
            let (lead, room) = room.split_first_mut()?;
            *lead = (literals.len() - 1) as u8;
            room.get_mut(..literals.len())?.copy_from_slice(literals);
            used += 1 + literals.len();
            src = src.get(literals.len()..)?;
        }
    }
    Some(used)
}

/// The literals of one chunk: up to two zero bytes in a row, or a zero that ends the input.
fn literal_run(src: &[u8]) -> &[u8] {
    let limit = src.len().min(MAX_LITERALS);
    let is_zero = |index: usize| src.get(index).is_none_or(|byte| *byte == 0);
    let end = (1..limit).find(|&index| is_zero(index) && is_zero(index + 1)).unwrap_or(limit);
    src.get(..end).unwrap_or(src)
}
