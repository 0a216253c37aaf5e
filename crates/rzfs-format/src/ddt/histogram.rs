//! Statistics of a dedup table: blocks by number of references (spec 02, section 9.2).

use crate::endian::{Fields, FieldsMut};
use crate::{ByteOrder, FormatError};

/// Counts and sizes of blocks, stored once and as referenced; eight words.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DdtStats {
    /// Blocks.
    pub blocks: u64,
    /// Logical bytes.
    pub lsize: u64,
    /// Physical bytes.
    pub psize: u64,
    /// Allocated bytes, deflated.
    pub dsize: u64,
    /// Blocks, each as often as it is referenced.
    pub ref_blocks: u64,
    /// Logical bytes as referenced.
    pub ref_lsize: u64,
    /// Physical bytes as referenced.
    pub ref_psize: u64,
    /// Allocated bytes as referenced.
    pub ref_dsize: u64,
}

impl DdtStats {
    const fn from_words(w: [u64; 8]) -> Self {
        Self {
            blocks: w[0],
            lsize: w[1],
            psize: w[2],
            dsize: w[3],
            ref_blocks: w[4],
            ref_lsize: w[5],
            ref_psize: w[6],
            ref_dsize: w[7],
        }
    }

    const fn to_words(self) -> [u64; 8] {
        [
            self.blocks,
            self.lsize,
            self.psize,
            self.dsize,
            self.ref_blocks,
            self.ref_lsize,
            self.ref_psize,
            self.ref_dsize,
        ]
    }

    /// Takes other statistics away; saturates.
    pub fn subtract(&mut self, other: &Self) {
        let mut words = self.to_words();
        for (word, less) in words.iter_mut().zip(other.to_words()) {
            *word = word.saturating_sub(less);
        }
        *self = Self::from_words(words);
    }

    /// Adds other statistics; saturates.
    pub fn add(&mut self, other: &Self) {
        let mut words = self.to_words();
        for (word, more) in words.iter_mut().zip(other.to_words()) {
            *word = word.saturating_add(more);
        }
        *self = Self::from_words(words);
    }
}

/// Statistics by number of references: bucket i is about entries with `1 << i` references up to
/// twice that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DdtHistogram {
    /// The buckets.
    pub buckets: [DdtStats; 64],
}

impl Default for DdtHistogram {
    fn default() -> Self {
        Self { buckets: [DdtStats::default(); 64] }
    }
}

impl DdtHistogram {
    /// On-disk size in bytes; it is the value of a ZAP, 512 integers of 8 bytes.
    pub const SIZE: usize = 4096;

    /// Decodes the value as bytes.
    pub fn decode(bytes: &[u8], order: ByteOrder) -> Result<Self, FormatError> {
        let fields = Fields::new("dedup histogram", bytes, order);
        let mut histogram = Self::default();
        for (index, bucket) in histogram.buckets.iter_mut().enumerate() {
            *bucket = DdtStats::from_words(fields.u64s(index * 64)?);
        }
        Ok(histogram)
    }

    /// The value as bytes.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> Vec<u8> {
        let mut bytes = vec![0; Self::SIZE];
        let mut fields = FieldsMut::new(&mut bytes, order);
        for (index, bucket) in self.buckets.iter().enumerate() {
            fields.set_u64s(index * 64, &bucket.to_words());
        }
        bytes
    }

    /// The bucket of an entry with this many references.
    #[must_use]
    pub const fn bucket_of(references: u64) -> usize {
        match references.checked_ilog2() {
            Some(bucket) => bucket as usize,
            None => 0,
        }
    }

    /// Adds an entry's statistics to its bucket.
    pub fn record(&mut self, references: u64, stats: &DdtStats) {
        if let Some(bucket) = self.buckets.get_mut(Self::bucket_of(references)) {
            bucket.add(stats);
        }
    }

    /// Takes an entry's statistics out of its bucket; saturates.
    pub fn forget(&mut self, references: u64, stats: &DdtStats) {
        if let Some(bucket) = self.buckets.get_mut(Self::bucket_of(references)) {
            bucket.subtract(stats);
        }
    }

    /// Adds another histogram bucket by bucket; saturates.
    pub fn add(&mut self, other: &Self) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            bucket.add(more);
        }
    }

    /// The sum of all buckets; saturates.
    #[must_use]
    pub fn total(&self) -> DdtStats {
        let mut total = DdtStats::default();
        for bucket in &self.buckets {
            total.add(bucket);
        }
        total
    }
}
