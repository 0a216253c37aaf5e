//! The sums in plain Rust.

use super::lanes::{Lanes, fletcher4_words};
use rzfs_format::ByteOrder;

/// fletcher4 in plain Rust.
pub(super) fn fletcher4_portable(data: &[u8], order: ByteOrder) -> [u64; 4] {
    match order {
        ByteOrder::Little => fletcher4_lanes(data, order, u32::from_le_bytes),
        ByteOrder::Big => fletcher4_lanes(data, order, u32::from_be_bytes),
    }
}

fn fletcher4_lanes(data: &[u8], order: ByteOrder, word: impl Fn([u8; 4]) -> u32) -> [u64; 4] {
    const LANES: usize = 8;
    let mut lanes = Lanes::<LANES>([[0; LANES]; 4]);
    let [a, b, c, d] = &mut lanes.0;
    let (rounds, rest) = data.as_chunks::<{ LANES * 4 }>();
    for round in rounds {
        let words = round.as_chunks::<4>().0;
        for lane in 0..LANES {
            a[lane] = a[lane].wrapping_add(u64::from(word(words[lane])));
            b[lane] = b[lane].wrapping_add(a[lane]);
            c[lane] = c[lane].wrapping_add(b[lane]);
            d[lane] = d[lane].wrapping_add(c[lane]);
        }
    }
    fletcher4_words(lanes.combine(), rest, order)
}

/// fletcher2 in plain Rust, for the compiler to put into whatever vectors the caller may use.
#[inline(always)]
pub(super) fn fletcher2_lanes(data: &[u8], order: ByteOrder) -> [u64; 4] {
    match order {
        ByteOrder::Little => fletcher2_words(data, u64::from_le_bytes),
        ByteOrder::Big => fletcher2_words(data, u64::from_be_bytes),
    }
}

/// Pairs are dealt to eight lanes: lane `j` has the pairs `j`, `j + 8` and so on.
#[inline(always)]
fn fletcher2_words(data: &[u8], word: impl Fn([u8; 8]) -> u64) -> [u64; 4] {
    const LANES: usize = 8;
    const WORDS: usize = LANES * 2;
    let (mut a, mut b) = ([0_u64; WORDS], [0_u64; WORDS]);
    let (rounds, rest) = data.as_chunks::<{ WORDS * 8 }>();
    for round in rounds {
        let words = round.as_chunks::<8>().0;
        for index in 0..WORDS {
            a[index] = a[index].wrapping_add(word(words[index]));
            b[index] = b[index].wrapping_add(a[index]);
        }
    }
    let mut sums = [0_u64; 4];
    for index in 0..WORDS {
        let (lane, half) = (index / 2, index % 2);
        let weighted =
            b[index].wrapping_mul(LANES as u64).wrapping_sub(a[index].wrapping_mul(lane as u64));
        sums[half] = sums[half].wrapping_add(a[index]);
        sums[half + 2] = sums[half + 2].wrapping_add(weighted);
    }
    for pair in rest.as_chunks::<16>().0 {
        for (half, bytes) in pair.as_chunks::<8>().0.iter().enumerate() {
            sums[half] = sums[half].wrapping_add(word(*bytes));
            sums[half + 2] = sums[half + 2].wrapping_add(sums[half]);
        }
    }
    sums
}
