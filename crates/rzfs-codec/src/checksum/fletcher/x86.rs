//! The sums in AVX2 and AVX-512 vectors.
//!
//! A vector of 32-bit words is split into its even and its odd words, each widened to 64 bits in
//! place: no word changes its lane, so that the split takes one cheap instruction per half.
//! Even and odd words have their own sums; together they are the lanes of [`Lanes`].
#![allow(unsafe_code)]

use super::lanes::{Lanes, fletcher4_words};
use super::portable::fletcher2_lanes;
use rzfs_format::ByteOrder;
use std::arch::x86_64::*;

/// fletcher4 in 256-bit vectors; `None` when the processor does not have AVX2.
pub(super) fn fletcher4_avx2(data: &[u8], order: ByteOrder) -> Option<[u64; 4]> {
    if !is_x86_feature_detected!("avx2") {
        return None;
    }
    let (rounds, rest) = data.as_chunks::<32>();
    // SAFETY: the processor has AVX2.
    let sums = unsafe {
        match order {
            ByteOrder::Little => avx2_native(rounds),
            ByteOrder::Big => avx2_swapped(rounds),
        }
    };
    Some(fletcher4_words(sums, rest, order))
}

/// fletcher4 in 512-bit vectors; `None` when the processor does not have AVX-512 F, BW and DQ.
pub(super) fn fletcher4_avx512(data: &[u8], order: ByteOrder) -> Option<[u64; 4]> {
    if !has_avx512() {
        return None;
    }
    let (rounds, rest) = data.as_chunks::<64>();
    // SAFETY: the processor has these parts of AVX-512.
    let sums = unsafe {
        match order {
            ByteOrder::Little => avx512_native(rounds),
            ByteOrder::Big => avx512_swapped(rounds),
        }
    };
    Some(fletcher4_words(sums, rest, order))
}

/// fletcher2 in 256-bit vectors; `None` when the processor does not have AVX2.
pub(super) fn fletcher2_avx2(data: &[u8], order: ByteOrder) -> Option<[u64; 4]> {
    // SAFETY: called only when the processor has AVX2.
    is_x86_feature_detected!("avx2").then(|| unsafe { fletcher2_with_avx2(data, order) })
}

/// fletcher2 in 512-bit vectors; `None` when the processor does not have AVX-512 F, BW and DQ.
pub(super) fn fletcher2_avx512(data: &[u8], order: ByteOrder) -> Option<[u64; 4]> {
    // SAFETY: called only when the processor has AVX-512 F, BW and DQ.
    has_avx512().then(|| unsafe { fletcher2_with_avx512(data, order) })
}

/// Whether the processor has the parts of AVX-512 that the kernels use.
pub(super) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

#[target_feature(enable = "avx2")]
fn fletcher2_with_avx2(data: &[u8], order: ByteOrder) -> [u64; 4] {
    fletcher2_lanes(data, order)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn fletcher2_with_avx512(data: &[u8], order: ByteOrder) -> [u64; 4] {
    fletcher2_lanes(data, order)
}

/// The table of a byte shuffle, for 16 bytes, that widens two of four words with their bytes
/// reversed: the even ones (`first` = 0) or the odd ones (`first` = 4). -1 gives a zero byte.
const fn widen_swapped(first: i8) -> [i8; 16] {
    let mut table = [-1; 16];
    let mut byte = 0;
    while byte < 4 {
        table[byte] = first + 3 - byte as i8;
        table[byte + 8] = first + 11 - byte as i8;
        byte += 1;
    }
    table
}

const SWAPPED_EVEN: [i8; 16] = widen_swapped(0);
const SWAPPED_ODD: [i8; 16] = widen_swapped(4);

#[inline]
#[target_feature(enable = "avx2")]
fn load256(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the array is 32 readable bytes, and the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn table256(table: &[i8; 16]) -> __m256i {
    // SAFETY: the array is 16 readable bytes, and the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

#[target_feature(enable = "avx2")]
fn avx2_native(rounds: &[[u8; 32]]) -> [u64; 4] {
    let low = _mm256_set1_epi64x(0xffff_ffff);
    let mut sums = [[_mm256_setzero_si256(); 4]; 2];
    for round in rounds {
        let words = load256(round);
        accumulate256(&mut sums[0], _mm256_and_si256(words, low));
        accumulate256(&mut sums[1], _mm256_srli_epi64::<32>(words));
    }
    combine256(&sums)
}

#[target_feature(enable = "avx2")]
fn avx2_swapped(rounds: &[[u8; 32]]) -> [u64; 4] {
    let (even, odd) = (table256(&SWAPPED_EVEN), table256(&SWAPPED_ODD));
    let mut sums = [[_mm256_setzero_si256(); 4]; 2];
    for round in rounds {
        let words = load256(round);
        accumulate256(&mut sums[0], _mm256_shuffle_epi8(words, even));
        accumulate256(&mut sums[1], _mm256_shuffle_epi8(words, odd));
    }
    combine256(&sums)
}

#[inline]
#[target_feature(enable = "avx2")]
fn accumulate256([a, b, c, d]: &mut [__m256i; 4], words: __m256i) {
    *a = _mm256_add_epi64(*a, words);
    *b = _mm256_add_epi64(*b, *a);
    *c = _mm256_add_epi64(*c, *b);
    *d = _mm256_add_epi64(*d, *c);
}

#[target_feature(enable = "avx2")]
fn combine256(sums: &[[__m256i; 4]; 2]) -> [u64; 4] {
    let mut lanes = Lanes([[0; 8]; 4]);
    for (half, sums) in sums.iter().enumerate() {
        for (lanes, sum) in lanes.0.iter_mut().zip(sums) {
            let mut values = [0_u64; 4];
            // SAFETY: the array is 32 writable bytes, and the store needs no alignment.
            unsafe { _mm256_storeu_si256(values.as_mut_ptr().cast(), *sum) };
            for (pair, value) in values.into_iter().enumerate() {
                lanes[2 * pair + half] = value;
            }
        }
    }
    lanes.combine()
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load512(bytes: &[u8; 64]) -> __m512i {
    // SAFETY: the array is 64 readable bytes, and the load needs no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn table512(table: &[i8; 16]) -> __m512i {
    // SAFETY: the array is 16 readable bytes, and the load needs no alignment.
    _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn avx512_native(rounds: &[[u8; 64]]) -> [u64; 4] {
    let low = _mm512_set1_epi64(0xffff_ffff);
    let mut sums = [[_mm512_setzero_si512(); 4]; 2];
    for round in rounds {
        let words = load512(round);
        accumulate512(&mut sums[0], _mm512_and_si512(words, low));
        accumulate512(&mut sums[1], _mm512_srli_epi64::<32>(words));
    }
    combine512(&sums)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn avx512_swapped(rounds: &[[u8; 64]]) -> [u64; 4] {
    let (even, odd) = (table512(&SWAPPED_EVEN), table512(&SWAPPED_ODD));
    let mut sums = [[_mm512_setzero_si512(); 4]; 2];
    for round in rounds {
        let words = load512(round);
        accumulate512(&mut sums[0], _mm512_shuffle_epi8(words, even));
        accumulate512(&mut sums[1], _mm512_shuffle_epi8(words, odd));
    }
    combine512(&sums)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn accumulate512([a, b, c, d]: &mut [__m512i; 4], words: __m512i) {
    *a = _mm512_add_epi64(*a, words);
    *b = _mm512_add_epi64(*b, *a);
    *c = _mm512_add_epi64(*c, *b);
    *d = _mm512_add_epi64(*d, *c);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
fn combine512(sums: &[[__m512i; 4]; 2]) -> [u64; 4] {
    let mut lanes = Lanes([[0; 16]; 4]);
    for (half, sums) in sums.iter().enumerate() {
        for (lanes, sum) in lanes.0.iter_mut().zip(sums) {
            let mut values = [0_u64; 8];
            // SAFETY: the array is 64 writable bytes, and the store needs no alignment.
            unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), *sum) };
            for (pair, value) in values.into_iter().enumerate() {
                lanes[2 * pair + half] = value;
            }
        }
    }
    lanes.combine()
}
