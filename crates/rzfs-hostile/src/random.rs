//! Reproducible randomness: splitmix64.

/// A sequence of numbers determined by its seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Boundary values of sizes, counts and shifts.
const EDGES: [u64; 20] = [
    0,
    1,
    2,
    7,
    8,
    9,
    31,
    63,
    64,
    127,
    255,
    511,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 47,
    1 << 62,
    1 << 63,
    u64::MAX,
];

/// Lower numbers are likely to be object numbers.
const OBJECTS: u64 = 300;

impl Random {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence of this seed and these words, independent of other draws.
    #[must_use]
    pub fn of_place(seed: u64, place: &[u64]) -> Self {
        place.iter().fold(Self(seed), |mut random, word| {
            let mixed = random.draw() ^ word;
            Self(mixed)
        })
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 when that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// An index into something of this length.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with probability 1 in `of`.
    pub fn once_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// One of these; `None` when there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.index(of.len()))
    }

    /// An untrustworthy number: near a boundary, an object's, or any.
    pub fn hostile(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(OBJECTS),
            1 => self.draw(),
            2 => 1_u64.wrapping_shl(self.below(64) as u32).wrapping_sub(self.below(2)),
            _ => self.pick(&EDGES).copied().unwrap_or_default(),
        }
    }

    /// A number near `old`, or a hostile one.
    pub fn instead_of(&mut self, old: u64) -> u64 {
        match self.below(4) {
            0 => old ^ 1_u64.wrapping_shl(self.below(64) as u32),
            1 => old.wrapping_add(self.below(5)).wrapping_sub(2),
            _ => self.hostile(),
        }
    }
}
