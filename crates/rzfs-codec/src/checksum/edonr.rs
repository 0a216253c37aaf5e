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
fn sum(v: &Vector, indices: [usize; 5]) -> u64 {
    indices.iter().fold(0, |sum: u64, &index| sum.wrapping_add(v[index]))
}

#[inline(always)]
fn quasigroup(x: &Vector, y: &Vector) -> Vector {
    let s = [
        sum(x, [0, 1, 2, 4, 7]).wrapping_add(0xaaaa_aaaa_aaaa_aaaa),
        sum(x, [0, 1, 3, 4, 7]).rotate_left(5),
        sum(x, [0, 1, 4, 6, 7]).rotate_left(15),
        sum(x, [2, 3, 5, 6, 7]).rotate_left(22),
        sum(x, [1, 2, 3, 5, 6]).rotate_left(31),
        sum(x, [0, 2, 3, 4, 5]).rotate_left(40),
        sum(x, [0, 1, 5, 6, 7]).rotate_left(50),
        sum(x, [2, 3, 4, 5, 6]).rotate_left(59),
    ];
    let t = [
        sum(y, [0, 1, 2, 5, 7]).wrapping_add(0x5555_5555_5555_5555),
        sum(y, [0, 1, 3, 4, 6]).rotate_left(10),
        sum(y, [0, 1, 2, 3, 5]).rotate_left(19),
        sum(y, [2, 3, 4, 6, 7]).rotate_left(29),
        sum(y, [0, 1, 3, 4, 5]).rotate_left(36),
        sum(y, [2, 4, 5, 6, 7]).rotate_left(44),
        sum(y, [1, 2, 5, 6, 7]).rotate_left(48),
        sum(y, [0, 3, 4, 6, 7]).rotate_left(55),
    ];
    let both = |[a, b, c]: [usize; 3], [d, e, f]: [usize; 3]| {
        (s[a] ^ s[b] ^ s[c]).wrapping_add(t[d] ^ t[e] ^ t[f])
    };
    [
        both([0, 1, 4], [0, 1, 5]),
        both([0, 4, 7], [2, 6, 7]),
        both([1, 6, 7], [0, 1, 3]),
        both([2, 3, 4], [0, 3, 4]),
        both([0, 1, 7], [1, 2, 5]),
        both([3, 5, 6], [3, 4, 6]),
        both([2, 5, 6], [2, 5, 7]),
        both([2, 3, 5], [4, 6, 7]),
    ]
}
