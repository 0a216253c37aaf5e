//! Vectors of the x86 instruction sets.
//!
//! A product by a constant is linear, so that of a byte is the sum of those of its two halves:
//! two tables of 16 entries, looked up by a byte shuffle. With GFNI it is one multiplication by a
//! matrix of 8 by 8 bits.
#![allow(unsafe_code)]

use super::blocks::{generate_blocks, solve_blocks};
use super::field::{POLYNOMIAL, multiply};
use super::solution::Solution;
use super::stripe::{Known, Rows, Stripe};
use super::vector::Vector;
use std::arch::x86_64::*;
use std::ops::Range;

/// For every constant, its products with the low and with the high half of a byte.
static PRODUCTS: [[[u8; 16]; 2]; 256] = {
    let mut products = [[[0; 16]; 2]; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut half = 0;
        while half < 16 {
            products[constant][0][half] = multiply(constant as u8, half as u8);
            products[constant][1][half] = multiply(constant as u8, (half as u8) << 4);
            half += 1;
        }
        constant += 1;
    }
    products
};

/// For every constant, the matrix of its multiplication: the row for output bit `i` is byte
/// `7 - i`.
static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut constant = 0;
    while constant < 256 {
        let mut input = 0;
        while input < 8 {
            let column = multiply(constant as u8, 1 << input);
            let mut output = 0;
            while output < 8 {
                let bit = (column >> output & 1) as u64;
                matrices[constant] |= bit << (8 * (7 - output) + input);
                output += 1;
            }
            input += 1;
        }
        constant += 1;
    }
    matrices
};

macro_rules! entry_points {
    ($generate:ident, $solve:ident, $feature:literal, $vector:ty, $block:literal, $unroll:literal) => {
        /// # Safety
        /// The processor has the instructions.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $generate(
            stripe: &impl Stripe,
            range: Range<usize>,
            rows: &mut Rows<'_>,
        ) -> usize {
            // SAFETY: the function has the instructions enabled.
            unsafe { generate_blocks::<$vector, $block, $unroll>(stripe, range, rows) }
        }

        /// # Safety
        /// The processor has the instructions.
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $solve(
            stripe: &mut Known<'_, '_>,
            range: Range<usize>,
            solution: &Solution,
        ) -> usize {
            // SAFETY: the function has the instructions enabled.
            unsafe { solve_blocks::<$vector, $block, $unroll>(stripe, range, solution) }
        }
    };
}

entry_points!(generate_ssse3, solve_ssse3, "ssse3", Xmm, 64, 4);
entry_points!(generate_avx2, solve_avx2, "avx2", Ymm, 128, 4);
entry_points!(generate_avx512, solve_avx512, "avx512f,avx512bw", Zmm, 256, 4);
entry_points!(generate_gfni, solve_gfni, "avx512f,avx512bw,gfni", GfniZmm, 256, 4);

/// Implements [`Vector`] by the intrinsics of one width.
macro_rules! shuffled_vector {
    (
        $(#[$doc:meta])* $name:ident($register:ty), $constant:ty, $zero:ident, $load:ident,
        $store:ident, $xor:ident, $double:expr, $product_tables:expr, $multiply:expr
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name($register);

        // SAFETY comments of the methods: the trait's caller vouches for the instructions and
        // for the memory.
        impl Vector for $name {
            const BYTES: usize = size_of::<$register>();
            type Constant = $constant;

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: as the trait says.
                Self(unsafe { $zero() })
            }

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: as the trait says.
                Self(unsafe { $load(from.cast()) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: as the trait says.
                unsafe { $store(to.cast(), self.0) };
            }

            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as the trait says.
                Self(unsafe { $xor(self.0, other.0) })
            }

            #[inline(always)]
            unsafe fn double(self) -> Self {
                // SAFETY: as the trait says.
                Self(unsafe { $double(self.0) })
            }

            #[inline(always)]
            unsafe fn constant(value: u8) -> $constant {
                // SAFETY: as the trait says.
                unsafe { $product_tables(value) }
            }

            #[inline(always)]
            unsafe fn multiply(self, constant: $constant) -> Self {
                // SAFETY: as the trait says.
                Self(unsafe { $multiply(self.0, constant) })
            }
        }
    };
}

shuffled_vector!(
    /// 16 bytes.
    Xmm(__m128i), [__m128i; 2], _mm_setzero_si128, _mm_loadu_si128, _mm_storeu_si128,
    _mm_xor_si128, double128, tables128, multiply128
);
shuffled_vector!(
    /// 32 bytes.
    Ymm(__m256i), [__m256i; 2], _mm256_setzero_si256, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm256_xor_si256, double256, tables256, multiply256
);
shuffled_vector!(
    /// 64 bytes.
    Zmm(__m512i), [__m512i; 2], _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_xor_si512, double512, tables512, multiply512
);
shuffled_vector!(
    /// 64 bytes, multiplied by matrices.
    GfniZmm(__m512i), __m512i, _mm512_setzero_si512, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_xor_si512, double_gfni, matrix, multiply_gfni
);

#[inline]
#[target_feature(enable = "ssse3")]
fn double128(x: __m128i) -> __m128i {
    let carried = _mm_cmpgt_epi8(_mm_setzero_si128(), x);
    let reduced = _mm_and_si128(carried, _mm_set1_epi8(POLYNOMIAL as i8));
    _mm_xor_si128(_mm_add_epi8(x, x), reduced)
}

#[inline]
#[target_feature(enable = "ssse3")]
fn tables128(constant: u8) -> [__m128i; 2] {
    // SAFETY: a table is 16 readable bytes, and the load needs no alignment.
    PRODUCTS[usize::from(constant)]
        .each_ref()
        .map(|table| unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "ssse3")]
fn multiply128(x: __m128i, [low, high]: [__m128i; 2]) -> __m128i {
    let nibble = _mm_set1_epi8(0x0f);
    let upper = _mm_and_si128(_mm_srli_epi16::<4>(x), nibble);
    _mm_xor_si128(_mm_shuffle_epi8(low, _mm_and_si128(x, nibble)), _mm_shuffle_epi8(high, upper))
}

#[inline]
#[target_feature(enable = "avx2")]
fn double256(x: __m256i) -> __m256i {
    let carried = _mm256_cmpgt_epi8(_mm256_setzero_si256(), x);
    let reduced = _mm256_and_si256(carried, _mm256_set1_epi8(POLYNOMIAL as i8));
    _mm256_xor_si256(_mm256_add_epi8(x, x), reduced)
}

#[inline]
#[target_feature(enable = "avx2")]
fn tables256(constant: u8) -> [__m256i; 2] {
    tables128(constant).map(|table| _mm256_broadcastsi128_si256(table))
}

#[inline]
#[target_feature(enable = "avx2")]
fn multiply256(x: __m256i, [low, high]: [__m256i; 2]) -> __m256i {
    let nibble = _mm256_set1_epi8(0x0f);
    let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(x), nibble);
    _mm256_xor_si256(
        _mm256_shuffle_epi8(low, _mm256_and_si256(x, nibble)),
        _mm256_shuffle_epi8(high, upper),
    )
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn double512(x: __m512i) -> __m512i {
    let carried = _mm512_movepi8_mask(x);
    let reduced = _mm512_maskz_set1_epi8(carried, POLYNOMIAL as i8);
    _mm512_xor_si512(_mm512_add_epi8(x, x), reduced)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn tables512(constant: u8) -> [__m512i; 2] {
    tables128(constant).map(|table| _mm512_broadcast_i32x4(table))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn multiply512(x: __m512i, [low, high]: [__m512i; 2]) -> __m512i {
    let nibble = _mm512_set1_epi8(0x0f);
    let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(x), nibble);
    _mm512_xor_si512(
        _mm512_shuffle_epi8(low, _mm512_and_si512(x, nibble)),
        _mm512_shuffle_epi8(high, upper),
    )
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn double_gfni(x: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix(2))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn matrix(constant: u8) -> __m512i {
    _mm512_set1_epi64(MATRICES[usize::from(constant)] as i64)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn multiply_gfni(x: __m512i, matrix: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix)
}
