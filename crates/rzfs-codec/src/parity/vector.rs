//! What the kernels ask of a vector of bytes, and the vectors that need no special instructions.
#![allow(unsafe_code)]

use super::field::{POLYNOMIAL, double, multiply};

/// Some bytes, each an element of the field.
///
/// # Safety
/// Methods of vectors that need special instructions may be called only where the processor has
/// them.
pub(super) trait Vector: Copy {
    /// Bytes of a vector.
    const BYTES: usize;

    /// A constant of the field, made ready to be multiplied by.
    type Constant: Copy;

    /// All zeros.
    unsafe fn zero() -> Self;

    /// Loads [`Self::BYTES`] bytes that `from` points to; they need no alignment.
    unsafe fn load(from: *const u8) -> Self;

    /// Stores [`Self::BYTES`] bytes where `to` points to; they need no alignment.
    unsafe fn store(self, to: *mut u8);

    /// The sum.
    unsafe fn add(self, other: Self) -> Self;

    /// Two times.
    unsafe fn double(self) -> Self;

    /// Makes a constant ready.
    unsafe fn constant(value: u8) -> Self::Constant;

    /// The product.
    unsafe fn multiply(self, constant: Self::Constant) -> Self;
}

/// One byte.
#[derive(Clone, Copy)]
pub(super) struct Byte(u8);

impl Vector for Byte {
    const BYTES: usize = 1;
    type Constant = u8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self(0)
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for one byte.
        Self(unsafe { from.read() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for one byte.
        unsafe { to.write(self.0) };
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        Self(double(self.0))
    }

    #[inline(always)]
    unsafe fn constant(value: u8) -> u8 {
        value
    }

    #[inline(always)]
    unsafe fn multiply(self, constant: u8) -> Self {
        Self(multiply(self.0, constant))
    }
}

const WORDS: usize = 4;

/// 32 bytes in general registers, or in what vectors the compiler may use everywhere.
#[derive(Clone, Copy)]
pub(super) struct Words([u64; WORDS]);

/// A byte in every byte.
const fn repeat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

impl Vector for Words {
    const BYTES: usize = WORDS * 8;
    type Constant = u8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0; WORDS])
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the caller vouches for 32 bytes.
        Self(unsafe { from.cast::<[u64; WORDS]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for 32 bytes.
        unsafe { to.cast::<[u64; WORDS]>().write_unaligned(self.0) };
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index] ^ other.0[index]))
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // The highest bits, spread over their bytes: 0x80 becomes 0xff.
        Self(self.0.map(|word| {
            let high = word & repeat(0x80);
            let carried = (high << 1).wrapping_sub(high >> 7);
            ((word << 1) & repeat(0xfe)) ^ (carried & repeat(POLYNOMIAL))
        }))
    }

    #[inline(always)]
    unsafe fn constant(value: u8) -> u8 {
        value
    }

    #[inline(always)]
    unsafe fn multiply(self, constant: u8) -> Self {
        let (mut sum, mut term, mut left) = (Self([0; WORDS]), self, constant);
        while left != 0 {
            // SAFETY: these operations need no special instructions.
            unsafe {
                if left & 1 != 0 {
                    sum = sum.add(term);
                }
                term = term.double();
            }
            left >>= 1;
        }
        sum
    }
}
