//! fletcher2 and fletcher4 (spec 02, sections 4.2 and 4.3).
//!
//! fletcher4 adds up 32-bit words `f` in four orders: `a += f; b += a; c += b; d += c`. Each sum
//! is one of the words under a weight that is a binomial of the word's distance from the end:
//! 1, `n`, `n(n+1)/2`, `n(n+1)(n+2)/6`. Two facts follow that make it fast and composable:
//!
//! * sums of two pieces give the sums of the whole ([`Fletcher4::append`]);
//! * words dealt round-robin to L lanes can be summed lane by lane, as vector registers do, and
//!   the lanes' sums combined at the end. A word at round `q` from the end of lane `j` has the
//!   distance `L q - j`, so its weight is a polynomial in `q`, and the lane's own sums are the
//!   terms of that polynomial. `Lanes::combine` has the coefficients, computed at compile time.
//!
//! All arithmetic is modulo 2^64.

mod kernel;
mod lanes;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use kernel::Kernel;

use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumValue;

/// The fletcher4 checksum of a block: of all its whole 32-bit words.
#[must_use]
pub fn fletcher4(data: &[u8], order: ByteOrder) -> ChecksumValue {
    ChecksumValue(Kernel::detect().fletcher4(data, order))
}

/// The fletcher2 checksum of a block: of all its whole pairs of 64-bit words.
#[must_use]
pub fn fletcher2(data: &[u8], order: ByteOrder) -> ChecksumValue {
    ChecksumValue(Kernel::detect().fletcher2(data, order))
}

/// fletcher4 of data that comes in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fletcher4 {
    order: ByteOrder,
    sums: [u64; 4],
    words: u64,
}

impl Fletcher4 {
    /// The sums of nothing, for data in this byte order.
    #[must_use]
    pub const fn new(order: ByteOrder) -> Self {
        Self { order, sums: [0; 4], words: 0 }
    }

    /// Adds the next piece, a multiple of 4 bytes.
    pub fn update(&mut self, data: &[u8]) {
        let sums = Kernel::detect().fletcher4(data, self.order);
        self.append(&Self { order: self.order, sums, words: data.len() as u64 / 4 });
    }

    /// Adds a piece whose sums are known.
    pub fn append(&mut self, piece: &Self) {
        let [a, b, c, d] = self.sums;
        let [w1, w2, w3] = weights(piece.words);
        let [pa, pb, pc, pd] = piece.sums;
        let plus = |sum: u64, terms: [(u64, u64); 3]| {
            terms.iter().fold(sum, |sum, (x, y)| sum.wrapping_add(x.wrapping_mul(*y)))
        };
        self.sums = [
            a.wrapping_add(pa),
            plus(b.wrapping_add(pb), [(w1, a), (0, 0), (0, 0)]),
            plus(c.wrapping_add(pc), [(w1, b), (w2, a), (0, 0)]),
            plus(d.wrapping_add(pd), [(w1, c), (w2, b), (w3, a)]),
        ];
        self.words = self.words.wrapping_add(piece.words);
    }

    /// The checksum of the pieces so far.
    #[must_use]
    pub const fn value(&self) -> ChecksumValue {
        ChecksumValue(self.sums)
    }
}

/// `n`, `n(n+1)/2` and `n(n+1)(n+2)/6`.
fn weights(n: u64) -> [u64; 3] {
    let n = u128::from(n);
    let (second, last) = (n * (n + 1) / 2, n + 2);
    // Divided before the product is reduced; either factor is a multiple of 3.
    let third = if second.is_multiple_of(3) {
        (second / 3).wrapping_mul(last)
    } else {
        second.wrapping_mul(last / 3)
    };
    [n as u64, second as u64, third as u64]
}

/// fletcher2 of data that comes in pieces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fletcher2 {
    order: ByteOrder,
    sums: [u64; 4],
}

impl Fletcher2 {
    /// The sums of nothing, for data in this byte order.
    #[must_use]
    pub const fn new(order: ByteOrder) -> Self {
        Self { order, sums: [0; 4] }
    }

    /// Adds the next piece, a multiple of 16 bytes.
    pub fn update(&mut self, data: &[u8]) {
        let [a0, a1, b0, b1] = self.sums;
        let [p0, p1, q0, q1] = Kernel::detect().fletcher2(data, self.order);
        let pairs = data.len() as u64 / 16;
        self.sums = [
            a0.wrapping_add(p0),
            a1.wrapping_add(p1),
            b0.wrapping_add(q0).wrapping_add(pairs.wrapping_mul(a0)),
            b1.wrapping_add(q1).wrapping_add(pairs.wrapping_mul(a1)),
        ];
    }

    /// The checksum of the pieces so far.
    #[must_use]
    pub const fn value(&self) -> ChecksumValue {
        ChecksumValue(self.sums)
    }
}

#[cfg(test)]
mod tests;
