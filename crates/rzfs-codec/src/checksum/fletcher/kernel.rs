//! Which instructions compute the sums.

use super::portable::{fletcher2_lanes, fletcher4_portable};
#[cfg(target_arch = "x86_64")]
use super::x86;
use rzfs_format::ByteOrder;

/// An implementation of the fletcher sums; all give the same result.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Kernel {
    /// Plain Rust, eight lanes that the compiler may put into the vectors of the baseline.
    Portable,
    /// 256-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512-bit vectors.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Kernel {
    /// The fastest that this processor can run.
    #[inline]
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if Self::Avx512.is_available() {
                return Self::Avx512;
            }
            if Self::Avx2.is_available() {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// All that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        let all = [
            Self::Portable,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512,
        ];
        all.into_iter().filter(|kernel| kernel.is_available())
    }

    #[inline]
    fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::has_avx512(),
        }
    }

    /// The name that benches print.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => "avx512",
        }
    }

    /// The fletcher4 sums of the whole 32-bit words of `data`. A kernel that this processor
    /// cannot run is replaced by the portable one.
    #[must_use]
    pub fn fletcher4(self, data: &[u8], order: ByteOrder) -> [u64; 4] {
        let vectorised = match self {
            Self::Portable => None,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::fletcher4_avx2(data, order),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::fletcher4_avx512(data, order),
        };
        vectorised.unwrap_or_else(|| fletcher4_portable(data, order))
    }

    /// The fletcher2 sums of the whole pairs of 64-bit words of `data`. A kernel that this
    /// processor cannot run is replaced by the portable one.
    #[must_use]
    pub fn fletcher2(self, data: &[u8], order: ByteOrder) -> [u64; 4] {
        let vectorised = match self {
            Self::Portable => None,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => x86::fletcher2_avx2(data, order),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => x86::fletcher2_avx512(data, order),
        };
        vectorised.unwrap_or_else(|| fletcher2_lanes(data, order))
    }
}
