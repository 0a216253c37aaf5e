//! The hash of a key (spec 03, section 12.2).

/// The reflected polynomial of ECMA-182.
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

const TABLE: [u64; 256] = table();

const fn table() -> [u64; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut value = index as u64;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ if value & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// How many leading bits of the hash a ZAP keeps; the others are zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashBits {
    /// 28, the usual number.
    Bits28,
    /// 48, with the flag HASH64.
    Bits48,
}

impl HashBits {
    /// The number.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Bits28 => 28,
            Self::Bits48 => 48,
        }
    }

    /// The bits of `hash` that are kept.
    #[must_use]
    pub const fn keep(self, hash: u64) -> u64 {
        hash & !(u64::MAX >> self.count())
    }

    /// The first collision differentiator that no entry can have.
    #[must_use]
    pub const fn differentiator_limit(self) -> u32 {
        match self {
            Self::Bits28 => u32::MAX,
            Self::Bits48 => 0xffff,
        }
    }
}

const fn step(hash: u64, byte: u8) -> u64 {
    (hash >> 8) ^ TABLE[((hash ^ byte as u64) & 0xff) as usize]
}

/// The hash of a name that is normalised already, without its NUL.
#[must_use]
pub fn hash_name(salt: u64, name: &[u8], bits: HashBits) -> u64 {
    bits.keep(name.iter().fold(salt, |hash, byte| step(hash, *byte)))
}

/// The hash of an array of words.
#[must_use]
pub fn hash_words(salt: u64, words: &[u64], bits: HashBits) -> u64 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bits.keep(bytes.fold(salt, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_that_of_the_spec() {
        assert_eq!(TABLE[1], 0xb32e_4cbe_03a7_5f6f);
        assert_eq!(TABLE[127], 0x29c1_f6e6_b3e0_301b);
        assert_eq!(TABLE[255], 0xe0ad_a173_6467_3f59);
    }

    #[test]
    fn hashes_are_those_of_the_spec() {
        let name = |salt, name: &str| hash_name(salt, name.as_bytes(), HashBits::Bits28);
        assert_eq!(name(1, "a"), 0x9f81_69b0_0000_0000);
        assert_eq!(name(1, "ROOT"), 0xa1ab_3e30_0000_0000);
        assert_eq!(name(0x1234_5678_9abc_def1, "README.md"), 0xf516_7f20_0000_0000);
        assert_eq!(name(0x1234_5678_9abc_def1, ""), 0x1234_5670_0000_0000);
        assert_eq!(name(0xce02_cf35, "subdir"), 0xe925_2c80_0000_0000);
        let words = |salt, words: &[u64]| hash_words(salt, words, HashBits::Bits48);
        assert_eq!(words(0x1234_5678_9abc_def1, &[1, 2, 3]), 0x3b1a_35bd_961c_0000);
        assert_eq!(words(1, &[0x0123_4567_89ab_cdef]), 0x3ff6_073c_d0e9_0000);
        assert_eq!(words(0x1_cab9_922d, &[0x5e_8000]), 0x0047_2b56_9b39_0000);
    }
}
