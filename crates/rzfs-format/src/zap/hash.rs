//! The hash that places a key in a ZAP: a salted CRC-64 of which the top bits count (spec 03,
//! section 12.2).

/// The reflected polynomial of ECMA-182.
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
};

/// How many bits of the CRC a ZAP keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashBits {
    /// 28 bits: microzaps and most fat ZAPs.
    Bits28,
    /// 48 bits: fat ZAPs with the HASH64 flag.
    Bits48,
}

impl HashBits {
    /// The number of bits.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::Bits28 => 28,
            Self::Bits48 => 48,
        }
    }

    /// Collision differentiators are below this.
    #[must_use]
    pub const fn max_cd(self) -> u32 {
        match self {
            Self::Bits28 => u32::MAX,
            Self::Bits48 => 0xffff,
        }
    }

    /// The hash that this many bits of `crc` make.
    #[must_use]
    pub const fn truncate(self, crc: u64) -> ZapHash {
        ZapHash(crc & (u64::MAX << (64 - self.count())))
    }
}

/// A key's hash as an entry stores it: the bits kept are at the top, the others are 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ZapHash(pub u64);

impl ZapHash {
    /// Hash of a string key in its normalised form.
    #[must_use]
    pub fn of_name(salt: u64, normalized: &[u8], bits: HashBits) -> Self {
        bits.truncate(crc(salt, normalized))
    }

    /// Hash of a key of 64-bit words.
    #[must_use]
    pub fn of_words(salt: u64, words: &[u64], bits: HashBits) -> Self {
        bits.truncate(words.iter().fold(salt, |hash, word| crc(hash, &word.to_le_bytes())))
    }

    /// The top `count` bits as a number: an index into a table of 2^`count` entries.
    #[must_use]
    pub const fn top(self, count: u32) -> u64 {
        match self.0.checked_shr(64 - if count > 64 { 64 } else { count }) {
            Some(top) => top,
            None => 0,
        }
    }
}

fn crc(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash >> 8) ^ TABLE[usize::from((hash as u8) ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_spec() {
        assert_eq!(TABLE[1], 0xb32e_4cbe_03a7_5f6f);
        assert_eq!(TABLE[2], 0xf484_3657_a840_a05b);
        assert_eq!(TABLE[127], 0x29c1_f6e6_b3e0_301b);
        assert_eq!(TABLE[128], POLYNOMIAL);
        assert_eq!(TABLE[255], 0xe0ad_a173_6467_3f59);
    }

    #[test]
    fn names_hash_as_in_the_spec() {
        for (salt, name, hash) in [
            (1, "a", 0x9f81_69b0_0000_0000),
            (1, "foo", 0x4dde_58a0_0000_0000),
            (1, "ROOT", 0xa1ab_3e30_0000_0000),
            (0x1234_5678_9abc_def1, "README.md", 0xf516_7f20_0000_0000),
            (0x1234_5678_9abc_def1, "", 0x1234_5670_0000_0000),
            (0xce02_cf35, "README.md", 0x0fa5_1c10_0000_0000),
            (0xce02_cf35, "b", 0x2557_3390_0000_0000),
            (0xce02_cf35, "hello", 0x5513_0200_0000_0000),
            (0xce02_cf35, "a", 0x62fd_4970_0000_0000),
            (0xce02_cf35, "subdir", 0xe925_2c80_0000_0000),
            (
                0x0012_91c7,
                "01234567890123456789012345678901234567890123456789",
                0x4763_8eb0_0000_0000,
            ),
        ] {
            let got = ZapHash::of_name(salt, name.as_bytes(), HashBits::Bits28);
            assert_eq!(got, ZapHash(hash), "{name}");
        }
    }

    #[test]
    fn words_hash_as_in_the_spec() {
        for (salt, words, hash) in [
            (0x1234_5678_9abc_def1, &[1, 2, 3][..], 0x3b1a_35bd_961c_0000),
            (1, &[0x0123_4567_89ab_cdef], 0x3ff6_073c_d0e9_0000),
            (0x1_cab9_922d, &[0x5e_8000], 0x0047_2b56_9b39_0000),
        ] {
            assert_eq!(ZapHash::of_words(salt, words, HashBits::Bits48), ZapHash(hash));
        }
    }

    #[test]
    fn top_bits_index_tables() {
        let hash = ZapHash(0x4763_8eb0_0000_0000);
        assert_eq!((hash.top(0), hash.top(4), hash.top(64)), (0, 4, hash.0));
    }
}
