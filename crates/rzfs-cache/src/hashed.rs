//! Keys that are hashed once: for the choice of the shard and for the table in the shard.

use std::hash::{BuildHasher, Hash, Hasher};
use xxhash_rust::xxh3::xxh3_64;

/// A key with its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hashed<K> {
    pub(crate) hash: u64,
    pub(crate) key: K,
}

impl<K> Hashed<K> {
    /// A key whose content is these words.
    pub(crate) fn new<const N: usize>(key: K, words: [u64; N]) -> Self {
        let mut bytes = [[0; 8]; N];
        for (bytes, word) in bytes.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        Self { hash: xxh3_64(bytes.as_flattened()), key }
    }

    /// Which of `shards` (a power of two) the key belongs to. The table uses the other bits.
    pub(crate) const fn shard(&self, shards: usize) -> usize {
        (self.hash >> 32) as usize & (shards - 1)
    }
}

impl<K> Hash for Hashed<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Hashes what is hashed already.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Prehashed;

impl BuildHasher for Prehashed {
    type Hasher = PassThrough;

    fn build_hasher(&self) -> PassThrough {
        PassThrough(0)
    }
}

/// A hasher that returns the last word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassThrough(u64);

impl Hasher for PassThrough {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64(bytes);
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}
