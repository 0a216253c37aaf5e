//! Skein-512 with 256 bits of output, keyed (Skein 1.3; spec 02, section 4.6).
//!
//! A chain of Threefish-512 encryptions: the state is the key, a block of the message is the
//! plaintext, and the ciphertext exclusive-or the plaintext is the next state. The tweak tells
//! how many bytes were taken in and what kind of block it is: key, configuration, message,
//! output.

use zeroize::Zeroize;

const BLOCK: usize = 64;
const PARITY: u64 = 0x1bd1_1bda_a9fc_1a22;

const KIND_KEY: u64 = 0;
const KIND_CONFIG: u64 = 4;
const KIND_MESSAGE: u64 = 48;
const KIND_OUTPUT: u64 = 63;
const FIRST: u64 = 1 << 62;
const FINAL: u64 = 1 << 63;

/// Rotations of the eight rounds between two pairs of key additions.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

/// The chaining value.
#[derive(Clone, Zeroize)]
pub(super) struct State([u64; 8]);

impl State {
    /// The state after the key and the configuration (256 bits of output, no tree).
    pub(super) fn keyed(key: &[u8; 32]) -> Self {
        let mut state = Self([0; 8]);
        let mut block = [0; BLOCK];
        block[..32].copy_from_slice(key);
        state.absorb(&block, 32, KIND_KEY << 56 | FIRST | FINAL);
        block.zeroize();
        block[..4].copy_from_slice(b"SHA3");
        block[4] = 1;
        block[8..16].copy_from_slice(&256_u64.to_le_bytes());
        state.absorb(&block, 32, KIND_CONFIG << 56 | FIRST | FINAL);
        state
    }

    /// The digest of a message that starts from this state.
    pub(super) fn digest(&self, data: &[u8]) -> [u8; 32] {
        let mut state = self.clone();
        let last_start = data.len().saturating_sub(1) / BLOCK * BLOCK;
        let (body, last) = data.split_at(last_start);
        let mut flags = KIND_MESSAGE << 56 | FIRST;
        let mut taken = 0;
        for block in body.as_chunks::<BLOCK>().0 {
            taken += BLOCK as u64;
            state.absorb(block, taken, flags);
            flags &= !FIRST;
        }
        let mut block = [0; BLOCK];
        block[..last.len()].copy_from_slice(last);
        state.absorb(&block, taken + last.len() as u64, flags | FINAL);
        state.absorb(&[0; BLOCK], 8, KIND_OUTPUT << 56 | FIRST | FINAL);
        let mut digest = [0; 32];
        for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(state.0) {
            *bytes = word.to_le_bytes();
        }
        digest
    }

    fn absorb(&mut self, block: &[u8; BLOCK], taken: u64, flags: u64) {
        let mut plain = [0; 8];
        for (word, bytes) in plain.iter_mut().zip(block.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let cipher = threefish(&self.0, [taken, flags, taken ^ flags], &plain);
        for ((state, cipher), plain) in self.0.iter_mut().zip(cipher).zip(plain) {
            *state = cipher ^ plain;
        }
    }
}

/// Threefish-512 in 72 rounds: nineteen subkeys, and four rounds between each two. The numbers of
/// the subkeys are constants, so that all indices into the schedule are.
#[inline]
fn threefish(key: &[u64; 8], tweak: [u64; 3], plain: &[u64; 8]) -> [u64; 8] {
    let parity = key.iter().fold(PARITY, |parity, word| parity ^ word);
    let schedule: [u64; 9] =
        std::array::from_fn(|index| key.get(index).map_or(parity, |word| *word));
    let keys = Subkeys { schedule, tweak };
    let x = keys.add::<0>(*plain);
    let x = keys.eight_rounds::<1, 2>(x);
    let x = keys.eight_rounds::<3, 4>(x);
    let x = keys.eight_rounds::<5, 6>(x);
    let x = keys.eight_rounds::<7, 8>(x);
    let x = keys.eight_rounds::<9, 10>(x);
    let x = keys.eight_rounds::<11, 12>(x);
    let x = keys.eight_rounds::<13, 14>(x);
    let x = keys.eight_rounds::<15, 16>(x);
    keys.eight_rounds::<17, 18>(x)
}

/// What the subkeys are made of: the key with its parity, and the tweak with its parity.
struct Subkeys {
    schedule: [u64; 9],
    tweak: [u64; 3],
}

impl Subkeys {
    /// Adds a subkey.
    #[inline(always)]
    fn add<const NUMBER: usize>(&self, x: [u64; 8]) -> [u64; 8] {
        let word = |index: usize| x[index].wrapping_add(self.schedule[(NUMBER + index) % 9]);
        [
            word(0),
            word(1),
            word(2),
            word(3),
            word(4),
            word(5).wrapping_add(self.tweak[NUMBER % 3]),
            word(6).wrapping_add(self.tweak[(NUMBER + 1) % 3]),
            word(7).wrapping_add(NUMBER as u64),
        ]
    }

    /// Four rounds, a subkey, four rounds, a subkey.
    #[inline(always)]
    fn eight_rounds<const MIDDLE: usize, const END: usize>(&self, x: [u64; 8]) -> [u64; 8] {
        let [r0, r1, r2, r3, r4, r5, r6, r7] = ROTATIONS;
        let x = round(round(round(round(x, r0), r1), r2), r3);
        let x = self.add::<MIDDLE>(x);
        self.add::<END>(round(round(round(round(x, r4), r5), r6), r7))
    }
}

#[inline(always)]
fn round(x: [u64; 8], rotations: [u32; 4]) -> [u64; 8] {
    let mix = |pair: usize| {
        let sum = x[2 * pair].wrapping_add(x[2 * pair + 1]);
        (sum, x[2 * pair + 1].rotate_left(rotations[pair]) ^ sum)
    };
    let [(a, b), (c, d), (e, f), (g, h)] = [mix(0), mix(1), mix(2), mix(3)];
    // The words of the four pairs change places: 2 1 4 7 6 5 0 3.
    [c, b, e, h, g, f, a, d]
}
