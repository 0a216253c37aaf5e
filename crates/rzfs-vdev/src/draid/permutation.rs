//! The permutations of a dRAID's children (spec 07, section 11.3).
//!
//! They are not stored: a generator with a fixed seed for every number of children produces them,
//! and a checksum verifies the result.

use super::seeds::{SEEDS, Seed};

/// State word that all generators start with; the other one is the seed.
const INITIAL: u64 = 0x0000_000d_7a1d_5eed;

/// The generated map is not OpenZFS's, or there is none for this number of children.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapMismatch {
    /// Children.
    pub children: usize,
}

/// A table of permutations of the children, one per row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PermutationMap {
    children: usize,
    rows: Vec<u8>,
}

impl PermutationMap {
    /// Generates the map for 2 to 255 children and compares its checksum.
    pub fn generate(children: usize) -> Result<Self, MapMismatch> {
        let mismatch = MapMismatch { children };
        let Seed { seed, checksum, .. } =
            *SEEDS.iter().find(|row| usize::from(row.children) == children).ok_or(mismatch)?;
        let permutations = if children <= 31 { 256 } else { 512 };
        let mut generator = Xoroshiro128PlusPlus { state: [INITIAL, seed] };
        let mut row: Vec<u8> = (0..=u8::MAX).take(children).collect();
        let mut rows = Vec::with_capacity(children * permutations);
        for _ in 0..permutations {
            for last in (1..children).rev() {
                let other = generator.next() % (last as u64 + 1);
                row.swap(last, other as usize);
            }
            rows.extend_from_slice(&row);
        }
        let map = Self { children, rows };
        if map.checksum() == checksum { Ok(map) } else { Err(mismatch) }
    }

    /// The sum of the table's bytes taken as little-endian words: the first word of its
    /// fletcher4.
    fn checksum(&self) -> u64 {
        let words = self.rows.chunks_exact(4).map(|word| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(word);
            u64::from(u32::from_le_bytes(bytes))
        });
        words.fold(0, u64::wrapping_add)
    }

    /// The children in the order of row `index`.
    #[must_use]
    pub fn row(&self, index: usize) -> &[u8] {
        let start = index.saturating_mul(self.children);
        self.rows.get(start..start.saturating_add(self.children)).unwrap_or_default()
    }

    /// The child at `position` of the permutation of slice `slice`.
    #[must_use]
    pub fn device(&self, slice: u64, position: usize) -> usize {
        let children = self.children as u64;
        let permutation = slice % (self.rows.len() as u64).max(1);
        let (row, shift) = (permutation / children, permutation % children);
        let device = self.row(row as usize).get(position).copied().unwrap_or(0);
        ((u64::from(device) + shift) % children) as usize
    }
}

/// The generator xoroshiro128++.
struct Xoroshiro128PlusPlus {
    state: [u64; 2],
}

impl Xoroshiro128PlusPlus {
    fn next(&mut self) -> u64 {
        let [s0, s1] = self.state;
        let result = s0.wrapping_add(s1).rotate_left(17).wrapping_add(s0);
        let mixed = s1 ^ s0;
        self.state = [s0.rotate_left(49) ^ mixed ^ (mixed << 21), mixed.rotate_left(28)];
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_yields_the_published_numbers() {
        let mut generator = Xoroshiro128PlusPlus { state: [INITIAL, 0x5a54_3003_6b98_2ccb] };
        let numbers: Vec<u64> = std::iter::repeat_with(|| generator.next()).take(4).collect();
        assert_eq!(
            numbers,
            [0x6021cb78918e1395, 0x95d176a9e79914e4, 0x5c5429a1fc70ac19, 0x19a715f9a40a830c]
        );
    }

    #[test]
    fn every_map_has_its_checksum_and_holds_permutations() {
        assert_eq!(SEEDS.len(), 254);
        for children in 2..=255 {
            let map = PermutationMap::generate(children).unwrap();
            for row in map.rows.chunks_exact(children) {
                let mut sorted = row.to_vec();
                sorted.sort_unstable();
                assert!(
                    sorted.iter().enumerate().all(|(index, child)| index == usize::from(*child))
                );
            }
        }
        assert!(PermutationMap::generate(1).is_err());
        assert!(PermutationMap::generate(256).is_err());
    }

    #[test]
    fn rows_are_the_published_ones() {
        type Row<'a> = (usize, &'a [u8], &'a [u8], &'a [u8]);
        let table: [Row<'_>; 4] = [
            (2, &[0, 1], &[0, 1], &[1, 0]),
            (3, &[1, 2, 0], &[2, 1, 0], &[1, 0, 2]),
            (
                9,
                &[7, 3, 6, 5, 0, 2, 8, 4, 1],
                &[8, 1, 5, 2, 3, 7, 0, 6, 4],
                &[0, 1, 2, 7, 8, 4, 3, 6, 5],
            ),
            (
                14,
                &[1, 7, 3, 13, 9, 0, 12, 5, 6, 10, 4, 11, 8, 2],
                &[7, 2, 10, 8, 5, 6, 1, 9, 0, 12, 11, 13, 4, 3],
                &[12, 13, 3, 1, 0, 7, 10, 4, 11, 8, 6, 9, 2, 5],
            ),
        ];
        for (children, first, second, last) in table {
            let map = PermutationMap::generate(children).unwrap();
            assert_eq!(map.row(0), first);
            assert_eq!(map.row(1), second);
            assert_eq!(map.row(255), last);
        }
        let map = PermutationMap::generate(9).unwrap();
        let shifted: Vec<usize> = (0..9).map(|position| map.device(1, position)).collect();
        assert_eq!(shifted, [8, 4, 7, 6, 1, 3, 0, 5, 2]);
    }
}
