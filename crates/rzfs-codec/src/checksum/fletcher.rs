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

/// The four sums of each of L lanes, word `i` of the data having gone to lane `i mod L`.
struct Lanes<const L: usize>([[u64; L]; 4]);

impl<const L: usize> Lanes<L> {
    /// `COEFFICIENTS[r][p][j]`: how often sum `p` of lane `j` counts in sum `r` of the whole.
    ///
    /// With `T_r(x) = x(x+1)...(x+r-1)/r!`, sum `r` weighs a word by `T_r(L q - j)`. A polynomial
    /// `F(q)` is the sum of `c_p T_p(q)` with `c_p` the p-th backward difference of F at 0.
    const COEFFICIENTS: [[[u64; L]; 4]; 4] = {
        const BINOMIALS: [[i64; 4]; 4] = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 2, 1, 0], [1, 3, 3, 1]];
        let mut table = [[[0; L]; 4]; 4];
        let mut r = 0;
        while r < 4 {
            let mut p = 0;
            while p <= r {
                let mut j = 0;
                while j < L {
                    let mut s = 0;
                    let mut sum = 0;
                    while s <= p {
                        let term = BINOMIALS[p][s] * weight(r, -((L * s + j) as i64));
                        sum += if s % 2 == 0 { term } else { -term };
                        s += 1;
                    }
                    table[r][p][j] = sum as u64;
                    j += 1;
                }
                p += 1;
            }
            r += 1;
        }
        table
    };

    /// The sums of the whole; inlined, for vectors to do it where there are some.
    #[inline(always)]
    fn combine(&self) -> [u64; 4] {
        let mut sums = [0_u64; 4];
        for (sum, coefficients) in sums.iter_mut().zip(&Self::COEFFICIENTS) {
            let mut terms = [0_u64; L];
            for (lanes, coefficients) in self.0.iter().zip(coefficients) {
                for lane in 0..L {
                    let term = lanes[lane].wrapping_mul(coefficients[lane]);
                    terms[lane] = terms[lane].wrapping_add(term);
                }
            }
            *sum = terms.iter().fold(0, |sum, term| sum.wrapping_add(*term));
        }
        sums
    }
}

/// `T_r(x)`.
const fn weight(r: usize, x: i64) -> i64 {
    match r {
        0 => 1,
        1 => x,
        2 => x * (x + 1) / 2,
        _ => x * (x + 1) * (x + 2) / 6,
    }
}

/// Goes on word by word from `sums`.
fn fletcher4_words(mut sums: [u64; 4], data: &[u8], order: ByteOrder) -> [u64; 4] {
    for bytes in data.as_chunks::<4>().0 {
        sums[0] = sums[0].wrapping_add(u64::from(order.u32(*bytes)));
        sums[1] = sums[1].wrapping_add(sums[0]);
        sums[2] = sums[2].wrapping_add(sums[1]);
        sums[3] = sums[3].wrapping_add(sums[2]);
    }
    sums
}

#[cfg(test)]
mod tests;
