//! Checks all of a leaf: that its chains account for every chunk, once each (spec 03, section
//! 12.10).

use super::{ArrayRef, CHAIN_END, KIND_ARRAY, KIND_FREE, KeyKind, Leaf, LeafEntry, WHAT};
use crate::FormatError;

/// Which chunks have been seen.
struct Seen {
    words: Vec<u64>,
    count: usize,
}

impl Seen {
    fn claim(&mut self, chunk: u16) -> Result<(), FormatError> {
        let bit = 1 << (chunk % 64);
        let word = self.words.get_mut(usize::from(chunk / 64));
        let word = word.ok_or(FormatError::field(WHAT, "chunk index", chunk))?;
        if *word & bit != 0 {
            return Err(FormatError::invalid(WHAT, "a chunk is in two places"));
        }
        *word |= bit;
        self.count += 1;
        Ok(())
    }
}

impl Leaf<'_> {
    /// Checks that every chunk is in exactly one place (the free list, an entry, or an array of
    /// one), that each entry is in the bucket of its hash, and that the counts of the header are
    /// true. Keys, values and hashes themselves are not looked at.
    pub fn check(&self, keys: KeyKind) -> Result<(), FormatError> {
        let chunks = self.geometry.chunks();
        let mut seen = Seen { words: vec![0; chunks.div_ceil(64)], count: 0 };
        self.check_free_list(&mut seen)?;
        let mut entries = 0;
        for bucket in 0..self.geometry.buckets() {
            let mut least = 0;
            for entry in self.bucket(bucket, keys) {
                let entry = entry?;
                self.check_entry(&entry, bucket, &mut seen)?;
                if self.is_sorted()? && entry.cd < least {
                    return Err(FormatError::field(WHAT, "order of a bucket's cds", entry.cd));
                }
                least = entry.cd;
                entries += 1;
            }
        }
        if entries != usize::from(self.entries) {
            return Err(FormatError::field(WHAT, "number of entries", self.entries));
        }
        if seen.count != chunks {
            return Err(FormatError::invalid(WHAT, "a chunk is in no place"));
        }
        Ok(())
    }

    /// Whether the header says that bucket chains ascend by cd.
    fn is_sorted(&self) -> Result<bool, FormatError> {
        Ok(self.fields.u8(36)? & 1 != 0)
    }

    fn check_free_list(&self, seen: &mut Seen) -> Result<(), FormatError> {
        let mut next = self.fields.u16(34)?;
        while next != CHAIN_END {
            seen.claim(next)?;
            let chunk = self.chunk(next)?;
            if chunk.u8(0)? != KIND_FREE {
                return Err(FormatError::field(WHAT, "kind of a free chunk", chunk.u8(0)?));
            }
            next = chunk.u16(22)?;
        }
        if seen.count == usize::from(self.free_chunks) {
            Ok(())
        } else {
            Err(FormatError::field(WHAT, "number of free chunks", self.free_chunks))
        }
    }

    fn check_entry(
        &self,
        entry: &LeafEntry,
        bucket: usize,
        seen: &mut Seen,
    ) -> Result<(), FormatError> {
        seen.claim(entry.chunk)?;
        if !self.covers(entry.hash) || self.bucket_of(entry.hash) != bucket {
            return Err(FormatError::field(WHAT, "hash", entry.hash.0));
        }
        self.check_array(entry.name, seen)?;
        self.check_array(entry.value, seen)
    }

    /// Checks that an array has as many chunks as its length takes, and no more.
    fn check_array(&self, array: ArrayRef, seen: &mut Seen) -> Result<(), FormatError> {
        let mut next = array.first;
        for _ in 0..array.chunks() {
            seen.claim(next)?;
            let chunk = self.chunk(next)?;
            if chunk.u8(0)? != KIND_ARRAY {
                return Err(FormatError::field(WHAT, "kind of an array's chunk", chunk.u8(0)?));
            }
            next = chunk.u16(22)?;
        }
        if next == CHAIN_END {
            Ok(())
        } else {
            Err(FormatError::invalid(WHAT, "an array is longer than it says"))
        }
    }
}
