//! A leaf of a fat ZAP: a hash table of chunk chains in one block (spec 03, section 12.7).
//!
//! ```text
//! 0        48              48 + 2 H                             end
//! | header | H bucket heads | C chunks of 24 bytes               |
//!
//! entry chunk:  252 | intlen | next 2 | name chunk 2 | name length 2 | value chunk 2
//!               | value length 2 | cd 4 | hash 8
//! array chunk:  251 | 21 bytes | next 2
//! free chunk:   253 | 21 zeros | next 2
//! ```
//! All entries of a leaf share the top `prefix_len` bits of their hashes; the bits after them
//! choose the bucket. Names and values are chains of array chunks, always big-endian.

mod check;
mod edit;

pub use edit::{ChainOrder, Integers, LeafEditError, LeafMut, NewEntry};

use super::fat::Geometry;
use super::{BLOCK_TYPE_LEAF, IntegerSize, ZapHash};
use crate::endian::Fields;
use crate::{ByteOrder, FormatError};

/// The leaf's magic number.
pub const MAGIC: u32 = 0x02ab_1eaf;
/// Ends a chain.
pub const CHAIN_END: u16 = 0xffff;
/// Bytes of a chunk.
pub const CHUNK_SIZE: usize = 24;
/// Payload bytes of an array chunk.
pub const ARRAY_BYTES: usize = 21;

const HEADER_SIZE: usize = 48;
const KIND_ENTRY: u8 = 252;
const KIND_ARRAY: u8 = 251;
const KIND_FREE: u8 = 253;
const WHAT: &str = "ZAP leaf";

/// A leaf's block.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    fields: Fields<'a>,
    geometry: Geometry,
    prefix: u64,
    prefix_len: u32,
    entries: u16,
    free_chunks: u16,
}

/// A chain of array chunks: the integers of a name or value, big-endian.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArrayRef {
    first: u16,
    /// Bytes of one integer.
    pub integer_size: IntegerSize,
    /// Number of integers.
    pub count: u16,
}

impl ArrayRef {
    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.integer_size.bytes() * self.count as usize
    }

    /// Whether there are no integers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Chunks that the array takes.
    #[must_use]
    pub const fn chunks(&self) -> usize {
        self.len().div_ceil(ARRAY_BYTES)
    }
}

/// An entry's chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafEntry {
    chunk: u16,
    /// The name: bytes with the closing NUL, or 64-bit words (which [`ArrayRef`] it is follows
    /// from the flags of the ZAP).
    pub name: ArrayRef,
    /// The value.
    pub value: ArrayRef,
    /// Distinguishes keys with equal hashes.
    pub cd: u32,
    /// The hash of the key.
    pub hash: ZapHash,
}

impl LeafEntry {
    /// Chunks that the entry takes.
    #[must_use]
    pub const fn chunks(&self) -> usize {
        1 + self.name.chunks() + self.value.chunks()
    }
}

/// What the keys of a ZAP are made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyKind {
    /// Strings.
    Name,
    /// Arrays of 64-bit words.
    Words,
}

impl<'a> Leaf<'a> {
    /// Checks the header.
    pub fn decode(bytes: &'a [u8], order: ByteOrder) -> Result<Self, FormatError> {
        let geometry = Geometry::of_block_size(bytes.len())?;
        let fields = Fields::new(WHAT, bytes, order);
        let [block_type, next_leaf, prefix] = fields.u64s(0)?;
        if block_type != BLOCK_TYPE_LEAF {
            return Err(FormatError::field(WHAT, "block type", block_type));
        }
        if fields.u32(24)? != MAGIC {
            return Err(FormatError::field(WHAT, "magic", fields.u32(24)?));
        }
        if next_leaf != 0 {
            return Err(FormatError::field(WHAT, "next leaf", next_leaf));
        }
        let prefix_len = u32::from(fields.u16(32)?);
        if prefix_len > super::fat::MAX_TABLE_SHIFT || prefix >> prefix_len != 0 {
            return Err(FormatError::field(WHAT, "prefix length", prefix_len));
        }
        Ok(Self {
            fields,
            geometry,
            prefix,
            prefix_len,
            entries: fields.u16(30)?,
            free_chunks: fields.u16(28)?,
        })
    }

    /// Leading bits that the hashes of all entries share.
    #[must_use]
    pub const fn prefix_len(&self) -> u32 {
        self.prefix_len
    }

    /// The shared bits.
    #[must_use]
    pub const fn prefix(&self) -> u64 {
        self.prefix
    }

    /// Number of entries, as recorded.
    #[must_use]
    pub const fn entry_count(&self) -> u16 {
        self.entries
    }

    /// Number of free chunks, as recorded.
    #[must_use]
    pub const fn free_chunks(&self) -> u16 {
        self.free_chunks
    }

    /// The geometry of the block.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Whether a hash belongs in this leaf.
    #[must_use]
    pub const fn covers(&self, hash: ZapHash) -> bool {
        hash.top(self.prefix_len) == self.prefix
    }

    /// The last hash that belongs in this leaf.
    #[must_use]
    pub const fn last_hash(&self) -> ZapHash {
        let low = match u64::MAX.checked_shr(self.prefix_len) {
            Some(low) => low,
            None => 0,
        };
        match self.prefix.checked_shl(64 - self.prefix_len) {
            Some(high) => ZapHash(high | low),
            None => ZapHash(low),
        }
    }

    /// The bucket of a hash.
    #[must_use]
    pub const fn bucket_of(&self, hash: ZapHash) -> usize {
        let top = hash.top(self.prefix_len + self.geometry.bucket_shift());
        (top & (self.geometry.buckets() as u64 - 1)) as usize
    }

    /// The entries of a bucket, in the order of their chain.
    ///
    /// After an error there are no more. A chain longer than the leaf has chunks is an error, so
    /// a cycle ends.
    pub fn bucket(
        &self,
        bucket: usize,
        keys: KeyKind,
    ) -> impl Iterator<Item = Result<LeafEntry, FormatError>> + use<'a> {
        let leaf = *self;
        let mut budget = self.geometry.chunks();
        let mut next = self.fields.u16(HEADER_SIZE + 2 * bucket);
        std::iter::from_fn(move || {
            let index = match std::mem::replace(&mut next, Ok(CHAIN_END)) {
                Ok(CHAIN_END) => return None,
                Ok(index) => index,
                Err(error) => return Some(Err(error)),
            };
            let Some(left) = budget.checked_sub(1) else {
                return Some(Err(FormatError::invalid(WHAT, "a bucket's chain does not end")));
            };
            budget = left;
            Some(leaf.entry(index, keys).map(|(entry, following)| {
                next = Ok(following);
                entry
            }))
        })
    }

    /// The chunk `index`.
    fn chunk(&self, index: u16) -> Result<Fields<'a>, FormatError> {
        if usize::from(index) >= self.geometry.chunks() {
            return Err(FormatError::field(WHAT, "chunk index", index));
        }
        let first = HEADER_SIZE + 2 * self.geometry.buckets();
        self.fields.sub("ZAP chunk", first + usize::from(index) * CHUNK_SIZE, CHUNK_SIZE)
    }

    /// The entry in chunk `index`, and the next chunk of its bucket.
    fn entry(&self, index: u16, keys: KeyKind) -> Result<(LeafEntry, u16), FormatError> {
        let chunk = self.chunk(index)?;
        if chunk.u8(0)? != KIND_ENTRY {
            return Err(FormatError::field(WHAT, "kind of an entry's chunk", chunk.u8(0)?));
        }
        let name_size = match keys {
            KeyKind::Name => IntegerSize::One,
            KeyKind::Words => IntegerSize::Eight,
        };
        let entry = LeafEntry {
            chunk: index,
            name: ArrayRef { first: chunk.u16(4)?, integer_size: name_size, count: chunk.u16(6)? },
            value: ArrayRef {
                first: chunk.u16(8)?,
                integer_size: IntegerSize::from_bytes(chunk.u8(1)?)?,
                count: chunk.u16(10)?,
            },
            cd: chunk.u32(12)?,
            hash: ZapHash(chunk.u64(16)?),
        };
        Ok((entry, chunk.u16(2)?))
    }

    /// The pieces of an array, in order; they add up to exactly its length.
    ///
    /// An array that is longer than all chunks of the leaf is an error before anything is read.
    pub fn pieces(
        &self,
        array: ArrayRef,
    ) -> impl Iterator<Item = Result<&'a [u8], FormatError>> + use<'a> {
        let leaf = *self;
        let mut left = array.len();
        let mut next = array.first;
        if array.chunks() > self.geometry.chunks() {
            // A chunk that does not exist: the first piece is the error.
            next = CHAIN_END;
        }
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let piece = leaf.array_piece(next, left);
            match &piece {
                Ok((bytes, following)) => {
                    left -= bytes.len();
                    next = *following;
                }
                Err(_) => left = 0,
            }
            Some(piece.map(|(bytes, _)| bytes))
        })
    }

    fn array_piece(&self, index: u16, left: usize) -> Result<(&'a [u8], u16), FormatError> {
        let chunk = self.chunk(index)?;
        if chunk.u8(0)? != KIND_ARRAY {
            return Err(FormatError::field(WHAT, "kind of an array's chunk", chunk.u8(0)?));
        }
        Ok((chunk.bytes(1, left.min(ARRAY_BYTES))?, chunk.u16(22)?))
    }

    /// All bytes of an array.
    pub fn read(&self, array: ArrayRef) -> Result<Vec<u8>, FormatError> {
        let mut bytes =
            Vec::with_capacity(array.chunks().min(self.geometry.chunks()) * ARRAY_BYTES);
        for piece in self.pieces(array) {
            bytes.extend_from_slice(piece?);
        }
        Ok(bytes)
    }

    /// Whether an array has exactly these bytes.
    pub fn equals(&self, array: ArrayRef, bytes: &[u8]) -> Result<bool, FormatError> {
        if array.len() != bytes.len() {
            return Ok(false);
        }
        let mut rest = bytes;
        for piece in self.pieces(array) {
            let piece = piece?;
            match rest.strip_prefix(piece) {
                Some(tail) => rest = tail,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// A string key without its closing NUL.
    pub fn read_name(&self, array: ArrayRef) -> Result<Vec<u8>, FormatError> {
        if array.len() > super::MAX_NAME_SIZE {
            return Err(FormatError::field(WHAT, "name length", array.count));
        }
        let mut name = self.read(array)?;
        match name.pop() {
            Some(0) if !name.contains(&0) => Ok(name),
            _ => Err(FormatError::invalid(WHAT, "a name does not end where it says")),
        }
    }
}

/// Widths of the fields before the chunks, one after another.
pub(super) fn header_widths(geometry: Geometry) -> impl Iterator<Item = usize> {
    let header = [8, 8, 8, 4, 2, 2, 2, 2].into_iter().chain([1; 12]);
    header.chain(std::iter::repeat_n(2, geometry.buckets()))
}

/// Widths of the fields of a chunk of this kind, one after another.
pub(super) fn chunk_widths(kind: u8) -> Result<&'static [usize], FormatError> {
    const ENTRY: [usize; 9] = [1, 1, 2, 2, 2, 2, 2, 4, 8];
    const BYTES: [usize; 23] = {
        let mut widths = [1; 23];
        widths[22] = 2;
        widths
    };
    match kind {
        KIND_ENTRY => Ok(&ENTRY),
        KIND_ARRAY | KIND_FREE => Ok(&BYTES),
        _ => Err(FormatError::field(WHAT, "kind of chunk", kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endian::FieldsMut;

    const NAME: &[u8] = b"01234567890123456789012345678901234567890123456789\0";
    const HASH: ZapHash = ZapHash(0x4763_8eb0_0000_0000);
    const CHUNKS: usize = 0x430;

    /// The leaf of spec 03, section 12.7.
    fn sample(order: ByteOrder) -> Vec<u8> {
        let mut block = vec![0; 16384];
        let mut leaf = LeafMut::format(&mut block, order, (0, 0), ChainOrder::Any).unwrap();
        let value = 0x8000_0000_0000_0c44_u64.to_be_bytes();
        let new = NewEntry {
            hash: HASH,
            cd: 0,
            key: Integers { size: IntegerSize::One, bytes: NAME },
            value: Integers { size: IntegerSize::Eight, bytes: &value },
        };
        leaf.insert(&new).unwrap();
        block
    }

    fn entries(bytes: &[u8]) -> Result<Vec<LeafEntry>, FormatError> {
        let leaf = Leaf::decode(bytes, ByteOrder::Little)?;
        leaf.bucket(leaf.bucket_of(HASH), KeyKind::Name).collect()
    }

    #[test]
    fn bytes_are_those_of_the_spec() {
        let block = sample(ByteOrder::Little);
        assert_eq!(
            block[0x10..0x26],
            [0, 0, 0, 0, 0, 0, 0, 0, 0xaf, 0x1e, 0xab, 2, 0x79, 2, 1, 0, 0, 0, 5, 0, 0, 0]
        );
        assert_eq!(block[48 + 2 * 142..48 + 2 * 143], [0, 0]);
        assert_eq!(
            block[0x430..0x44c],
            [
                0xfc, 8, 0xff, 0xff, 1, 0, 0x33, 0, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xb0, 0x8e,
                0x63, 0x47, 0xfb, 0x30, 0x31, 0x32
            ]
        );
        assert_eq!(block[0x45e..0x460], [2, 0]);
        assert_eq!(block[0x490..0x49a], [0xfb, 0x80, 0, 0, 0, 0, 0, 0x0c, 0x44, 0]);
        assert_eq!((block[0x4a8], block[0x4a8 + 22]), (0xfd, 6));
    }

    #[test]
    fn entries_are_read_in_both_orders() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let block = sample(order);
            let leaf = Leaf::decode(&block, order).unwrap();
            assert_eq!(
                (leaf.bucket_of(HASH), leaf.entry_count(), leaf.free_chunks()),
                (142, 1, 633)
            );
            let entry = leaf.bucket(142, KeyKind::Name).next().unwrap().unwrap();
            assert_eq!((entry.hash, entry.cd, entry.chunks()), (HASH, 0, 5));
            assert!(leaf.equals(entry.name, NAME).unwrap());
            assert!(!leaf.equals(entry.name, &NAME[1..]).unwrap());
            assert_eq!(leaf.read_name(entry.name).unwrap(), NAME[..50]);
            let value = leaf.read(entry.value).unwrap();
            assert_eq!(value, 0x8000_0000_0000_0c44_u64.to_be_bytes());
        }
    }

    #[test]
    fn a_cycle_of_entries_ends() {
        let mut block = sample(ByteOrder::Little);
        FieldsMut::new(&mut block, ByteOrder::Little).set_u16(CHUNKS + 2, 0);
        let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
        let walked: Vec<_> = leaf.bucket(142, KeyKind::Name).collect();
        assert_eq!(walked.len(), leaf.geometry().chunks() + 1);
        assert!(walked.last().unwrap().is_err());
    }

    #[test]
    fn a_cycle_of_an_array_ends_with_its_length() {
        let mut block = sample(ByteOrder::Little);
        let mut fields = FieldsMut::new(&mut block, ByteOrder::Little);
        fields.set_u16(CHUNKS + CHUNK_SIZE + 22, 1);
        fields.set_u16(CHUNKS + 6, 1000);
        let entry = entries(&block).unwrap()[0];
        let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
        assert_eq!(leaf.read(entry.name).unwrap().len(), 1000);
        assert!(leaf.read_name(entry.name).is_err());
        FieldsMut::new(&mut block, ByteOrder::Little).set_u16(CHUNKS + 6, u16::MAX);
        let entry = entries(&block).unwrap()[0];
        let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
        assert!(leaf.read(entry.name).is_err() && leaf.read_name(entry.name).is_err());
    }

    #[test]
    fn chunks_of_the_wrong_kind_and_place_are_refused() {
        for (offset, value) in [(0, 253), (1, 3)] {
            let mut block = sample(ByteOrder::Little);
            block[CHUNKS + offset] = value;
            assert!(entries(&block).is_err());
        }
        let mut block = sample(ByteOrder::Little);
        FieldsMut::new(&mut block, ByteOrder::Little).set_u16(48 + 2 * 142, 638);
        assert!(entries(&block).is_err());
        for array in [0, 638, CHAIN_END] {
            let mut block = sample(ByteOrder::Little);
            FieldsMut::new(&mut block, ByteOrder::Little).set_u16(CHUNKS + 4, array);
            let entry = entries(&block).unwrap()[0];
            let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
            assert!(leaf.equals(entry.name, NAME).is_err());
        }
    }

    #[test]
    fn hostile_headers_are_refused() {
        for (offset, value) in [(0, 1), (8, 1), (24, 0), (32, 47), (32, 0xff)] {
            let mut block = sample(ByteOrder::Little);
            block[offset] = value;
            assert!(Leaf::decode(&block, ByteOrder::Little).is_err(), "{offset} = {value}");
        }
        let mut block = sample(ByteOrder::Little);
        block[16] = 1;
        assert!(Leaf::decode(&block, ByteOrder::Little).is_err());
    }

    #[test]
    fn the_range_of_a_leaf_follows_from_its_prefix() {
        let mut block = [0; 512];
        LeafMut::format(&mut block, ByteOrder::Little, (5, 3), ChainOrder::Any).unwrap();
        let leaf = Leaf::decode(&block, ByteOrder::Little).unwrap();
        assert_eq!(leaf.last_hash(), ZapHash(0xbfff_ffff_ffff_ffff));
        assert!(leaf.covers(ZapHash(5 << 61)) && !leaf.covers(ZapHash(6 << 61)));
    }
}
