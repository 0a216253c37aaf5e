//! Repeatable randomness: SplitMix64.

/// A sequence of numbers determined by its seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

/// The golden ratio in 64 bits, SplitMix64's step.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's output function: a bijection in which every bit depends on every other.
const fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

impl Random {
    /// The sequence of a part of something that has a seed: part `index`.
    pub(super) const fn derive(seed: u64, index: u64) -> Self {
        Self(mix(seed ^ mix(index.wrapping_add(STEP))))
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below `bound`; 0 if that is 0.
    pub(super) const fn below(&mut self, bound: usize) -> usize {
        // The high half of the product is even enough for any bound that a test has.
        ((self.next() as u128 * bound as u128) >> 64) as usize
    }

    pub(super) const fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// Puts a list into random order.
    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        // Reference output for seed 1234567 (Vigna's splitmix64.c, as quoted in many places).
        let mut random = Random(1_234_567);
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random(7);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5)] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.below(0), 0);
    }
}
