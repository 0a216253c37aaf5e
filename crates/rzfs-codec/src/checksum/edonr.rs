//! Edon-R with 512 bits, as ZFS keys it (spec 02, section 4.7).
//!
//! The state is two vectors of eight 64-bit words. A block of 128 bytes is mixed in by eight
//! quasigroup operations: each takes two vectors, makes eight rotated sums of words of either,
//! and combines them by exclusive-or into the eight words of a third.

use zeroize::Zeroize;

const BLOCK: usize = 128;
/// Where the length of the message starts in the last block.
const LENGTH_OFFSET: usize = 120;

type Vector = [u64; 8];

/// The double pipe, and the bytes taken in so far.
#[derive(Clone, Zeroize)]
pub(super) struct State {
    low: Vector,
    high: Vector,
    taken: u64,
}

impl State {
    fn initial() -> Self {
        let half = |start: u8| {
            std::array::from_fn(|word| {
                let first = start + 8 * word as u8;
                u64::from_be_bytes(std::array::from_fn(|byte| first + byte as u8))
            })
        };
        Self { low: half(0x80), high: half(0xc0), taken: 0 }
    }

    /// The state after the block that the salt makes: the salt's hash, then the hash of that.
    pub(super) fn keyed(salt: &[u8; 32]) -> Self {
        let initial = Self::initial();
        let mut block = [0; BLOCK];
        let first = initial.digest(salt);
        block[..64].copy_from_slice(&first);
        block[64..].copy_from_slice(&initial.digest(&first));
        let mut state = initial;
        state.absorb(&block);
        block.zeroize();
        state
    }

    /// The digest of a message that goes on from this state.
    pub(super) fn digest(&self, data: &[u8]) -> [u8; 64] {
        let mut state = self.clone();
        let (blocks, rest) = data.as_chunks::<BLOCK>();
        for block in blocks {
            state.absorb(block);
        }
        let bits = (state.taken.wrapping_add(rest.len() as u64)).wrapping_mul(8);
        let mut block = [0; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        block[rest.len()] = 0x80;
        if rest.len() >= LENGTH_OFFSET {
            state.absorb(&block);
            block = [0; BLOCK];
        }
        block[LENGTH_OFFSET..].copy_from_slice(&bits.to_le_bytes());
        state.absorb(&block);
        let mut digest = [0; 64];
        for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(state.high) {
            *bytes = word.to_le_bytes();
        }
        digest
    }

    fn absorb(&mut self, block: &[u8; BLOCK]) {
        let words = block.as_chunks::<8>().0;
        let low: Vector = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
        let high: Vector = std::array::from_fn(|index| u64::from_le_bytes(words[index + 8]));
        let p = quasigroup(&reversed(&high), &low);
        let q = quasigroup(&p, &high);
        let p = quasigroup(&self.high, &p);
        let q = quasigroup(&p, &q);
        let p = quasigroup(&p, &self.low);
        let q = quasigroup(&q, &p);
        let p = quasigroup(&reversed(&low), &p);
        let q = quasigroup(&p, &q);
        for index in 0..8 {
            self.low[index] ^= high[index] ^ p[index];
            self.high[index] ^= low[index] ^ q[index];
        }
        self.taken = self.taken.wrapping_add(BLOCK as u64);
    }
}

fn reversed(vector: &Vector) -> Vector {
    std::array::from_fn(|index| vector[7 - index])
}

#[inline(always)]
fn sum([a, b]: [u64; 2]) -> u64 {
    a.wrapping_add(b)
}

/// Adds five of the words of either vector to each of eight sums; what several sums share is
/// added once.
#[inline(always)]
fn quasigroup(x: &Vector, y: &Vector) -> Vector {
    let [x0, x1, x2, x3, x4, x5, x6, x7] = *x;
    let x01 = sum([x0, x1]);
    let x0147 = sum([x01, sum([x4, x7])]);
    let x23 = sum([x2, x3]);
    let x56 = sum([x5, x6]);
    let x2356 = sum([x23, x56]);
    let s = [
        sum([sum([x0147, x2]), 0xaaaa_aaaa_aaaa_aaaa]),
        sum([x0147, x3]).rotate_left(5),
        sum([x0147, x6]).rotate_left(15),
        sum([x2356, x7]).rotate_left(22),
        sum([x2356, x1]).rotate_left(31),
        sum([sum([x23, x5]), sum([x0, x4])]).rotate_left(40),
        sum([sum([x01, x56]), x7]).rotate_left(50),
        sum([x2356, x4]).rotate_left(59),
    ];
    let [y0, y1, y2, y3, y4, y5, y6, y7] = *y;
    let (y01, y34, y67, y25) = (sum([y0, y1]), sum([y3, y4]), sum([y6, y7]), sum([y2, y5]));
    let (y0134, y0125, y3467, y2567) =
        (sum([y01, y34]), sum([y01, y25]), sum([y34, y67]), sum([y25, y67]));
    let t = [
        sum([sum([y0125, y7]), 0x5555_5555_5555_5555]),
        sum([y0134, y6]).rotate_left(10),
        sum([y0125, y3]).rotate_left(19),
        sum([y3467, y2]).rotate_left(29),
        sum([y0134, y5]).rotate_left(36),
        sum([y2567, y4]).rotate_left(44),
        sum([y2567, y1]).rotate_left(48),
        sum([y3467, y0]).rotate_left(55),
    ];
    [
        sum([s[0] ^ s[1] ^ s[4], t[0] ^ t[1] ^ t[5]]),
        sum([s[0] ^ s[4] ^ s[7], t[2] ^ t[6] ^ t[7]]),
        sum([s[1] ^ s[6] ^ s[7], t[0] ^ t[1] ^ t[3]]),
        sum([s[2] ^ s[3] ^ s[4], t[0] ^ t[3] ^ t[4]]),
        sum([s[0] ^ s[1] ^ s[7], t[1] ^ t[2] ^ t[5]]),
        sum([s[3] ^ s[5] ^ s[6], t[3] ^ t[4] ^ t[6]]),
        sum([s[2] ^ s[5] ^ s[6], t[2] ^ t[5] ^ t[7]]),
        sum([s[2] ^ s[3] ^ s[5], t[4] ^ t[6] ^ t[7]]),
    ]
}
