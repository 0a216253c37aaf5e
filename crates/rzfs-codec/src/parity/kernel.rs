//! The choice of the vector that the loops over a stripe use.
#![allow(unsafe_code)]

use super::blocks::{generate_blocks, solve_blocks};
use super::solution::Solution;
use super::stripe::{Known, Rows, Stripe};
use super::vector::{Byte, Words};
#[cfg(target_arch = "x86_64")]
use super::x86;
use std::ops::Range;

/// An implementation of the parity computations; all give the same result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Kernel {
    /// Plain Rust.
    Portable,
    /// 128-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 512-bit vectors and instructions for binary fields.
    #[cfg(target_arch = "x86_64")]
    Avx512Gfni,
}

impl Kernel {
    /// All kernels, slowest first.
    const ALL: &[Self] = &[
        Self::Portable,
        #[cfg(target_arch = "x86_64")]
        Self::Ssse3,
        #[cfg(target_arch = "x86_64")]
        Self::Avx2,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512,
        #[cfg(target_arch = "x86_64")]
        Self::Avx512Gfni,
    ];

    /// The fastest that this processor can run.
    #[must_use]
    pub fn detect() -> Self {
        let usable = Self::ALL.iter().rev().find(|kernel| kernel.is_available());
        usable.copied().unwrap_or(Self::Portable)
    }

    /// All that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|kernel| kernel.is_available())
    }

    fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Gfni => Self::Avx512.is_available() && is_x86_feature_detected!("gfni"),
        }
    }

    /// The name that benches print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Gfni => "avx512-gfni",
        }
    }

    /// Computes the parity rows asked for, `length` bytes of each. A kernel that this processor
    /// cannot run is replaced by the portable one.
    pub(super) fn generate(self, stripe: &impl Stripe, length: usize, rows: &mut Rows<'_>) {
        let usable = if self.is_available() { self } else { Self::Portable };
        let mut offset = 0;
        while offset < length {
            let end = stripe.segment_end(offset, length);
            // SAFETY: the processor can run this kernel.
            let done = unsafe { usable.generate_blocks(stripe, offset..end, rows) };
            // SAFETY: bytes need no special instructions.
            unsafe { generate_blocks::<Byte, 1, 1>(stripe, done..end, rows) };
            offset = end;
        }
    }

    /// Writes the missing columns of a stripe of `length` bytes. A kernel that this processor
    /// cannot run is replaced by the portable one.
    pub(super) fn solve(self, stripe: &mut Known<'_, '_>, length: usize, solution: &Solution) {
        let usable = if self.is_available() { self } else { Self::Portable };
        let mut offset = 0;
        while offset < length {
            let end = stripe.segment_end(offset, length);
            // SAFETY: the processor can run this kernel.
            let done = unsafe { usable.solve_blocks(stripe, offset..end, solution) };
            // SAFETY: bytes need no special instructions.
            unsafe { solve_blocks::<Byte, 1, 1>(stripe, done..end, solution) };
            offset = end;
        }
    }

    /// # Safety
    /// The processor can run the kernel.
    unsafe fn generate_blocks(
        self,
        stripe: &impl Stripe,
        range: Range<usize>,
        rows: &mut Rows<'_>,
    ) -> usize {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            match self {
                Self::Portable => generate_blocks::<Words, 64, 2>(stripe, range, rows),
                #[cfg(target_arch = "x86_64")]
                Self::Ssse3 => x86::generate_ssse3(stripe, range, rows),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => x86::generate_avx2(stripe, range, rows),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => x86::generate_avx512(stripe, range, rows),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512Gfni => x86::generate_gfni(stripe, range, rows),
            }
        }
    }

    /// # Safety
    /// The processor can run the kernel.
    unsafe fn solve_blocks(
        self,
        stripe: &mut Known<'_, '_>,
        range: Range<usize>,
        solution: &Solution,
    ) -> usize {
        // SAFETY: the caller vouches for the instructions.
        unsafe {
            match self {
                Self::Portable => solve_blocks::<Words, 64, 2>(stripe, range, solution),
                #[cfg(target_arch = "x86_64")]
                Self::Ssse3 => x86::solve_ssse3(stripe, range, solution),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => x86::solve_avx2(stripe, range, solution),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => x86::solve_avx512(stripe, range, solution),
                #[cfg(target_arch = "x86_64")]
                Self::Avx512Gfni => x86::solve_gfni(stripe, range, solution),
            }
        }
    }
}
