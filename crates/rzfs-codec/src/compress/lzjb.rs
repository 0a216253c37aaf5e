//! lzjb (spec 02, section 5.5).
//!
//! Groups of up to eight items behind a control byte, whose bits, lowest first, tell what each
//! item is: a literal byte (0), or a match (1) of two bytes: six bits of length less 3, ten bits
//! of distance.

const MIN_MATCH: usize = 3;
const MAX_MATCH: usize = 66;
const DISTANCE_MASK: usize = 0x3ff;
const HASH_SLOTS: usize = 1024;
/// Bytes that a control byte and its eight items can take.
const GROUP: usize = 17;

pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<usize, &'static str> {
    let (mut src, mut filled) = (src, 0);
    let mut take = || -> Result<u8, &'static str> {
        let (first, rest) = src.split_first().ok_or("the stream ends early")?;
        src = rest;
        Ok(*first)
    };
    let size = dst.len();
    while filled < size {
        let control = take()?;
        for bit in 0..8 {
            if filled == size {
                break;
            }
            if control >> bit & 1 == 0 {
                dst[filled] = take()?;
                filled += 1;
                continue;
            }
            let (x, y) = (usize::from(take()?), usize::from(take()?));
            let distance = (x << 8 | y) & DISTANCE_MASK;
            if distance == 0 || distance > filled {
                return Err("a match before the start");
            }
            let length = ((x >> 2) + MIN_MATCH).min(size - filled);
            copy_match(dst, filled, distance, length);
            filled += length;
        }
    }
    Ok(filled)
}

/// Copies `length` bytes from `distance` before `at`; the two may overlap, and then repeat.
/// The caller has checked that `distance` is in `1..=at` and that there is room.
fn copy_match(dst: &mut [u8], at: usize, distance: usize, length: usize) {
    if distance >= length {
        dst.copy_within(at - distance..at - distance + length, at);
    } else if distance == 1 {
        let byte = dst[at - 1];
        dst[at..at + length].fill(byte);
    } else {
        for index in at..at + length {
            dst[index] = dst[index - distance];
        }
    }
}

pub(super) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut table = [0_u16; HASH_SLOTS];
    let last_control = dst.len().checked_sub(GROUP)?;
    let (mut position, mut used) = (0, 0);
    while position < src.len() {
        if used >= last_control {
            return None;
        }
        let control = used;
        dst[control] = 0;
        used += 1;
        for bit in 0..8 {
            if position == src.len() {
                break;
            }
            match find_match(src, position, &mut table) {
                Some((distance, length)) => {
                    dst[control] |= 1 << bit;
                    dst[used] = ((length - MIN_MATCH) << 2 | distance >> 8) as u8;
                    dst[used + 1] = distance as u8;
                    used += 2;
                    position += length;
                }
                None => {
                    dst[used] = src[position];
                    used += 1;
                    position += 1;
                }
            }
        }
    }
    Some(used)
}

/// Distance and length of the match that the table suggests, and the position entered into it.
/// The end of the input, shorter than the longest match, is neither searched nor entered.
fn find_match(
    src: &[u8],
    position: usize,
    table: &mut [u16; HASH_SLOTS],
) -> Option<(usize, usize)> {
    let ahead = src.get(position..position + MAX_MATCH)?;
    let word = usize::from(ahead[0]) << 16 | usize::from(ahead[1]) << 8 | usize::from(ahead[2]);
    let hash = word + (word >> 9);
    let slot = &mut table[(hash + (hash >> 5)) % HASH_SLOTS];
    let distance = position.wrapping_sub(usize::from(*slot)) & DISTANCE_MASK;
    *slot = position as u16;
    if distance == 0 || distance > position {
        return None;
    }
    let candidate = &src[position - distance..];
    let length = ahead.iter().zip(candidate).take_while(|(a, b)| a == b).count();
    (length >= MIN_MATCH).then_some((distance, length))
}
