//! Sums of words that were dealt round-robin to lanes.

use rzfs_format::ByteOrder;

/// The four sums of each of L lanes, word `i` of the data having gone to lane `i mod L`.
pub(super) struct Lanes<const L: usize>(pub(super) [[u64; L]; 4]);

impl<const L: usize> Lanes<L> {
    /// `COEFFICIENTS[r][p][j]`: how often sum `p` of lane `j` counts in sum `r` of the whole.
    ///
    /// With `T_r(x) = x(x+1)...(x+r-1)/r!`, sum `r` weighs a word by `T_r(L q - j)`. A polynomial
    /// `F(q)` is the sum of `c_p T_p(q)` with `c_p` the p-th backward difference of F at 0.
    pub(super) const COEFFICIENTS: [[[u64; L]; 4]; 4] = {
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
    pub(super) fn combine(&self) -> [u64; 4] {
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
pub(super) fn fletcher4_words(mut sums: [u64; 4], data: &[u8], order: ByteOrder) -> [u64; 4] {
    for bytes in data.as_chunks::<4>().0 {
        sums[0] = sums[0].wrapping_add(u64::from(order.u32(*bytes)));
        sums[1] = sums[1].wrapping_add(sums[0]);
        sums[2] = sums[2].wrapping_add(sums[1]);
        sums[3] = sums[3].wrapping_add(sums[2]);
    }
    sums
}
