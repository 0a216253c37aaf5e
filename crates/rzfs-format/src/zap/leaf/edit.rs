//! Changes a leaf in place: entries come, go and change their values, and a full leaf splits.
//!
//! A change looks at all that it is going to touch before it touches anything: when it fails, the
//! block is as it was. Free chunks are a stack, so what is freed is what is used next, and the
//! blocks that a sequence of changes makes are those that OpenZFS makes of it.

use super::{
    ARRAY_BYTES, ArrayRef, CHAIN_END, CHUNK_SIZE, HEADER_SIZE, KIND_ARRAY, KIND_ENTRY, KIND_FREE,
    KeyKind, Leaf, LeafEntry, MAGIC, WHAT,
};
use crate::endian::{Fields, FieldsMut};
use crate::zap::fat::{Geometry, MAX_TABLE_SHIFT};
use crate::zap::{BLOCK_TYPE_LEAF, IntegerSize, ZapHash};
use crate::{ByteOrder, FormatError};

const FREE_CHUNKS: usize = 28;
const ENTRIES: usize = 30;
const PREFIX_LEN: usize = 32;
const FREE_LIST: usize = 34;
const FLAGS: usize = 36;
const FLAG_CD_SORTED: u8 = 1;
/// Offset of the chunk that follows an entry in its bucket.
const ENTRY_NEXT: usize = 2;
/// Offset of the chunk that follows an array's or a free one.
const NEXT: usize = 22;
/// log2 of the largest leaf whose chunks have 16-bit numbers.
const MAX_SHIFT: u32 = 20;

/// Why an entry could not be put into a leaf.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeafEditError {
    /// The leaf has no room for the entry and must be split.
    #[error("the ZAP leaf is full")]
    Full,
    /// The leaf is not what it has to be.
    #[error(transparent)]
    Corrupt(#[from] FormatError),
}

/// A key or value as it is stored: big-endian integers of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Integers<'a> {
    /// Bytes of one integer.
    pub size: IntegerSize,
    /// The integers, big-endian; a multiple of the size.
    pub bytes: &'a [u8],
}

impl Integers<'_> {
    /// Chunks that they take.
    #[must_use]
    pub const fn chunks(&self) -> usize {
        self.bytes.len().div_ceil(ARRAY_BYTES)
    }

    const fn count(&self) -> usize {
        self.bytes.len() / self.size.bytes()
    }
}

/// An entry that is to be stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewEntry<'a> {
    /// The hash of the key.
    pub hash: ZapHash,
    /// Distinguishes keys with equal hashes.
    pub cd: u32,
    /// The key; a string includes its closing NUL.
    pub key: Integers<'a>,
    /// The value.
    pub value: Integers<'a>,
}

impl NewEntry<'_> {
    /// Chunks that it takes.
    #[must_use]
    pub const fn chunks(&self) -> usize {
        1 + self.key.chunks() + self.value.chunks()
    }
}

/// What is known about the order of a leaf's bucket chains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChainOrder {
    /// Nothing.
    Any,
    /// Each chain ascends by cd, as it has to in ZAPs that normalise names.
    ByCd,
}

impl ChainOrder {
    const fn flags(self) -> u8 {
        match self {
            Self::Any => 0,
            Self::ByCd => FLAG_CD_SORTED,
        }
    }
}

/// A leaf's block that can be changed.
#[derive(Debug)]
pub struct LeafMut<'a> {
    bytes: &'a mut [u8],
    order: ByteOrder,
    geometry: Geometry,
}

impl<'a> LeafMut<'a> {
    /// Makes a block an empty leaf, for the hashes that begin with the `prefix_len` bits `prefix`.
    ///
    /// # Errors
    /// When the block is larger than the 1 MiB whose chunks have 16-bit numbers, or the prefix is
    /// longer than a pointer table can distinguish.
    pub fn format(
        bytes: &'a mut [u8],
        order: ByteOrder,
        (prefix, prefix_len): (u64, u32),
        chains: ChainOrder,
    ) -> Result<Self, FormatError> {
        let geometry = geometry_of(bytes)?;
        if prefix_len > MAX_TABLE_SHIFT || prefix >> prefix_len != 0 {
            return Err(FormatError::field(WHAT, "prefix length", prefix_len));
        }
        bytes.fill(0);
        let mut leaf = Self { bytes, order, geometry };
        let chunks = geometry.chunks();
        let mut fields = leaf.fields();
        fields.set_u64s(0, &[BLOCK_TYPE_LEAF, 0]);
        fields.set_u32(24, MAGIC);
        fields.set_u16(FREE_CHUNKS, chunks as u16);
        fields.set_u16(FREE_LIST, 0);
        fields.set_u8(FLAGS, chains.flags());
        leaf.set_prefix(prefix, prefix_len);
        leaf.clear_buckets();
        for chunk in 0..chunks {
            let next = if chunk + 1 == chunks { CHAIN_END } else { (chunk + 1) as u16 };
            let offset = leaf.offset(chunk as u16);
            let mut fields = leaf.fields();
            fields.set_u8(offset, KIND_FREE);
            fields.set_u16(offset + NEXT, next);
        }
        Ok(leaf)
    }

    /// A leaf that is there already; its header is checked.
    pub fn open(bytes: &'a mut [u8], order: ByteOrder) -> Result<Self, FormatError> {
        let geometry = geometry_of(bytes)?;
        Leaf::decode(bytes, order)?;
        Ok(Self { bytes, order, geometry })
    }

    /// The leaf, to read it.
    pub fn view(&self) -> Result<Leaf<'_>, FormatError> {
        Leaf::decode(self.bytes, self.order)
    }

    fn fields(&mut self) -> FieldsMut<'_> {
        FieldsMut::new(self.bytes, self.order)
    }

    fn u16(&self, offset: usize) -> Result<u16, FormatError> {
        Fields::new(WHAT, self.bytes, self.order).u16(offset)
    }

    /// Byte offset of a chunk that exists.
    const fn offset(&self, chunk: u16) -> usize {
        HEADER_SIZE + 2 * self.geometry.buckets() + chunk as usize * CHUNK_SIZE
    }

    /// Byte offset of a chunk, which must be of this kind.
    fn checked(&self, chunk: u16, kind: u8) -> Result<usize, FormatError> {
        let offset = self.offset(chunk);
        if usize::from(chunk) >= self.geometry.chunks() {
            return Err(FormatError::field(WHAT, "chunk index", chunk));
        }
        match self.bytes.get(offset) {
            Some(&found) if found == kind => Ok(offset),
            _ => Err(FormatError::field(WHAT, "kind of chunk", chunk)),
        }
    }

    /// Stores an entry, in its bucket before the first that has a larger cd.
    pub fn insert(&mut self, entry: &NewEntry<'_>) -> Result<(), LeafEditError> {
        let view = self.view()?;
        let need = entry.chunks();
        let Some(left) = usize::from(view.free_chunks()).checked_sub(need) else {
            return Err(LeafEditError::Full);
        };
        if !view.covers(entry.hash) {
            return Err(FormatError::field(WHAT, "hash", entry.hash.0).into());
        }
        let entries = view.entry_count().checked_add(1);
        let entries = entries.ok_or(FormatError::invalid(WHAT, "it has too many entries"))?;
        let (link, next) = self.place(view.bucket_of(entry.hash), entry.cd)?;
        let (chunks, rest) = self.free_list(need)?;
        let Some((&chunk, arrays)) = chunks.split_first() else { return Err(LeafEditError::Full) };
        let (key_chunks, value_chunks) = arrays.split_at(entry.key.chunks());
        self.write_array(key_chunks, entry.key.bytes);
        self.write_array(value_chunks, entry.value.bytes);
        let offset = self.offset(chunk);
        self.bytes[offset..offset + CHUNK_SIZE].fill(0);
        let mut fields = self.fields();
        fields.set_u8(offset, KIND_ENTRY);
        fields.set_u16(offset + ENTRY_NEXT, next);
        fields.set_u16(offset + 4, key_chunks.first().copied().unwrap_or(CHAIN_END));
        fields.set_u16(offset + 6, entry.key.count() as u16);
        fields.set_u32(offset + 12, entry.cd);
        fields.set_u64(offset + 16, entry.hash.0);
        fields.set_u16(link, chunk);
        fields.set_u16(FREE_LIST, rest);
        fields.set_u16(FREE_CHUNKS, left as u16);
        fields.set_u16(ENTRIES, entries);
        self.refer_to_value(offset, value_chunks, entry.value);
        Ok(())
    }

    /// Changes the value of an entry.
    pub fn replace_value(
        &mut self,
        entry: &LeafEntry,
        value: Integers<'_>,
    ) -> Result<(), LeafEditError> {
        let view = self.view()?;
        let offset = self.checked(entry.chunk, KIND_ENTRY)?;
        // The old value's chunks are freed, so its last one is the first to be used.
        let mut chunks = self.array_chunks(entry.value)?;
        chunks.reverse();
        let (old, need) = (chunks.len(), value.chunks());
        let free = usize::from(view.free_chunks()) + old;
        let free = free.checked_sub(need).ok_or(LeafEditError::Full)?;
        if free > self.geometry.chunks() {
            return Err(FormatError::invalid(WHAT, "more chunks are free than there are").into());
        }
        let (more, rest) = self.free_list(need.saturating_sub(old))?;
        chunks.extend_from_slice(&more);
        distinct(&chunks)?;
        chunks[need..].reverse();
        let (used, spare) = chunks.split_at(need);
        self.fields().set_u16(FREE_LIST, rest);
        self.push_free(spare);
        self.fields().set_u16(FREE_CHUNKS, free as u16);
        self.write_array(used, value.bytes);
        self.refer_to_value(offset, used, value);
        Ok(())
    }

    /// Removes an entry.
    pub fn remove(&mut self, entry: &LeafEntry) -> Result<(), FormatError> {
        let view = self.view()?;
        let offset = self.checked(entry.chunk, KIND_ENTRY)?;
        let link = self.link_to(view.bucket_of(entry.hash), entry.chunk)?;
        let chunks = self.chunks_of(entry)?;
        let free = usize::from(view.free_chunks()) + chunks.len();
        if free > self.geometry.chunks() {
            return Err(FormatError::invalid(WHAT, "more chunks are free than there are"));
        }
        let entries = view.entry_count().checked_sub(1);
        let entries = entries.ok_or(FormatError::invalid(WHAT, "it has no entries"))?;
        let next = self.u16(offset + ENTRY_NEXT)?;
        self.fields().set_u16(link, next);
        self.fields().set_u16(ENTRIES, entries);
        self.push_free(&chunks);
        self.fields().set_u16(FREE_CHUNKS, free as u16);
        Ok(())
    }

    /// Splits the leaf by the next bit of its entries' hashes: those that have it set move to
    /// `upper`, which becomes the leaf of the upper half. Everything about the leaf is checked
    /// before.
    pub fn split(
        &mut self,
        keys: KeyKind,
        chains: ChainOrder,
        upper: &mut [u8],
    ) -> Result<(), FormatError> {
        let view = self.view()?;
        view.check(keys)?;
        let (prefix, len) = (view.prefix() << 1, view.prefix_len() + 1);
        let mut upper = LeafMut::format(upper, self.order, (prefix | 1, len), chains)?;
        let mut entries = Vec::with_capacity(usize::from(view.entry_count()));
        for chunk in 0..self.geometry.chunks() as u16 {
            if self.checked(chunk, KIND_ENTRY).is_ok() {
                entries.push(view.entry(chunk, keys)?.0);
            }
        }
        self.set_prefix(prefix, len);
        self.fields().set_u8(FLAGS, chains.flags());
        self.clear_buckets();
        for entry in entries {
            if entry.hash.top(len) == prefix {
                let bucket = self.view()?.bucket_of(entry.hash);
                let (link, next) = self.place(bucket, entry.cd)?;
                let offset = self.offset(entry.chunk);
                self.fields().set_u16(link, entry.chunk);
                self.fields().set_u16(offset + ENTRY_NEXT, next);
            } else {
                self.transfer(&entry, &mut upper)?;
            }
        }
        Ok(())
    }

    /// Moves an entry that is in no bucket to another leaf.
    fn transfer(&mut self, entry: &LeafEntry, to: &mut LeafMut<'_>) -> Result<(), FormatError> {
        let view = self.view()?;
        let (key, value) = (view.read(entry.name)?, view.read(entry.value)?);
        let new = NewEntry {
            hash: entry.hash,
            cd: entry.cd,
            key: Integers { size: entry.name.integer_size, bytes: &key },
            value: Integers { size: entry.value.integer_size, bytes: &value },
        };
        let (free, entries) = (view.free_chunks(), view.entry_count());
        let chunks = self.chunks_of(entry)?;
        to.insert(&new).map_err(|error| match error {
            LeafEditError::Full => FormatError::invalid(WHAT, "half of it fills a leaf"),
            LeafEditError::Corrupt(error) => error,
        })?;
        self.push_free(&chunks);
        self.fields().set_u16(FREE_CHUNKS, free + chunks.len() as u16);
        self.fields().set_u16(ENTRIES, entries - 1);
        Ok(())
    }

    /// Makes an empty leaf that of another prefix.
    pub fn set_prefix(&mut self, prefix: u64, prefix_len: u32) {
        let mut fields = self.fields();
        fields.set_u64(16, prefix);
        fields.set_u16(PREFIX_LEN, prefix_len as u16);
    }

    fn clear_buckets(&mut self) {
        let end = HEADER_SIZE + 2 * self.geometry.buckets();
        self.bytes[HEADER_SIZE..end].fill(0xff);
    }

    /// Where in a bucket's chain an entry with this cd belongs: the offset of the chunk number
    /// that has to refer to it, and the chunk that has to follow.
    fn place(&self, bucket: usize, cd: u32) -> Result<(usize, u16), FormatError> {
        let cds = |offset| Fields::new(WHAT, self.bytes, self.order).u32(offset + 12);
        self.walk(bucket, |_, offset| Ok(cds(offset)? > cd))
    }

    /// The offset of the chunk number that refers to an entry.
    fn link_to(&self, bucket: usize, chunk: u16) -> Result<usize, FormatError> {
        match self.walk(bucket, |found, _| Ok(found == chunk))? {
            (_, CHAIN_END) => Err(FormatError::invalid(WHAT, "an entry is not in its bucket")),
            (link, _) => Ok(link),
        }
    }

    /// Walks a bucket's chain until `found` says so of a chunk and its offset: the offset of the
    /// number that refers to it, and its number.
    fn walk(
        &self,
        bucket: usize,
        found: impl Fn(u16, usize) -> Result<bool, FormatError>,
    ) -> Result<(usize, u16), FormatError> {
        let mut link = HEADER_SIZE + 2 * bucket;
        for _ in 0..=self.geometry.chunks() {
            let chunk = self.u16(link)?;
            if chunk == CHAIN_END {
                return Ok((link, chunk));
            }
            let offset = self.checked(chunk, KIND_ENTRY)?;
            if found(chunk, offset)? {
                return Ok((link, chunk));
            }
            link = offset + ENTRY_NEXT;
        }
        Err(FormatError::invalid(WHAT, "a bucket's chain does not end"))
    }

    /// The first `count` chunks of the free list, and the head of the rest.
    fn free_list(&self, count: usize) -> Result<(Vec<u16>, u16), FormatError> {
        let mut chunks = Vec::with_capacity(count.min(self.geometry.chunks()));
        let mut next = self.u16(FREE_LIST)?;
        for _ in 0..count {
            let offset = self.checked(next, KIND_FREE)?;
            chunks.push(next);
            next = self.u16(offset + NEXT)?;
        }
        distinct(&chunks)?;
        Ok((chunks, next))
    }

    /// The chunks of an array, in order.
    fn array_chunks(&self, array: ArrayRef) -> Result<Vec<u16>, FormatError> {
        let count = array.chunks();
        let mut chunks = Vec::with_capacity(count.min(self.geometry.chunks()));
        let mut next = array.first;
        if count > self.geometry.chunks() {
            return Err(FormatError::invalid(WHAT, "an array is longer than the leaf"));
        }
        for _ in 0..count {
            let offset = self.checked(next, KIND_ARRAY)?;
            chunks.push(next);
            next = self.u16(offset + NEXT)?;
        }
        Ok(chunks)
    }

    /// All chunks of an entry: those of the key, those of the value, its own.
    fn chunks_of(&self, entry: &LeafEntry) -> Result<Vec<u16>, FormatError> {
        let mut chunks = self.array_chunks(entry.name)?;
        chunks.append(&mut self.array_chunks(entry.value)?);
        chunks.push(entry.chunk);
        distinct(&chunks)?;
        Ok(chunks)
    }

    /// Pushes chunks on the free list, one after another: the last is the next to be used.
    fn push_free(&mut self, chunks: &[u16]) {
        let mut next = self.order.u16([self.bytes[FREE_LIST], self.bytes[FREE_LIST + 1]]);
        for &chunk in chunks {
            let offset = self.offset(chunk);
            self.bytes[offset..offset + CHUNK_SIZE].fill(0);
            let mut fields = self.fields();
            fields.set_u8(offset, KIND_FREE);
            fields.set_u16(offset + NEXT, next);
            next = chunk;
        }
        self.fields().set_u16(FREE_LIST, next);
    }

    fn write_array(&mut self, chunks: &[u16], bytes: &[u8]) {
        for (index, piece) in bytes.chunks(ARRAY_BYTES).enumerate() {
            let offset = self.offset(chunks[index]);
            let next = chunks.get(index + 1).copied().unwrap_or(CHAIN_END);
            self.bytes[offset + 1 + piece.len()..offset + NEXT].fill(0);
            let mut fields = self.fields();
            fields.set_u8(offset, KIND_ARRAY);
            fields.set_bytes(offset + 1, piece);
            fields.set_u16(offset + NEXT, next);
        }
    }

    fn refer_to_value(&mut self, offset: usize, chunks: &[u16], value: Integers<'_>) {
        let mut fields = self.fields();
        fields.set_u8(offset + 1, value.size as u8);
        fields.set_u16(offset + 8, chunks.first().copied().unwrap_or(CHAIN_END));
        fields.set_u16(offset + 10, value.count() as u16);
    }
}

fn geometry_of(bytes: &[u8]) -> Result<Geometry, FormatError> {
    let geometry = Geometry::of_block_size(bytes.len())?;
    if geometry.shift() > MAX_SHIFT {
        return Err(FormatError::field(WHAT, "block size", bytes.len() as u64));
    }
    Ok(geometry)
}

/// Refuses chains that meet.
fn distinct(chunks: &[u16]) -> Result<(), FormatError> {
    let twice = if chunks.len() <= 8 {
        (1..chunks.len()).any(|index| chunks[..index].contains(&chunks[index]))
    } else {
        let mut sorted = chunks.to_vec();
        sorted.sort_unstable();
        sorted.windows(2).any(|pair| pair[0] == pair[1])
    };
    if twice { Err(FormatError::invalid(WHAT, "a chunk is in two places")) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
