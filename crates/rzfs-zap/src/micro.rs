//! An open microzap: its block and the index of its entries (spec 03, section 12.5).

use bytes::Bytes;
use rzfs_format::zap::micro::{MAX_CD, MicroBlock, MicroEntry};
use rzfs_format::zap::{HashBits, ZapHash};
use rzfs_format::{ByteOrder, FormatError};

use crate::btree::BTree;
use crate::cookie::Position;
use crate::entry::{ZapEntry, ZapKey};
use crate::{Normalization, ZapValue};

/// Bytes of elements in a leaf of the index: small, so that insertions in the random order of
/// hashes move little.
const INDEX_LEAF_BYTES: usize = 512;

/// An entry's place in the index: 32 bits of hash (of which 28 are used), 16 bits of collision
/// differentiator and the number of the entry in the block, compared in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct IndexEntry(u64);

impl IndexEntry {
    /// `cd` and `slot` have 16 bits: larger blocks and cds are refused when they are decoded.
    const fn new(hash: ZapHash, cd: u32, slot: usize) -> Self {
        Self(hash.0 & 0xffff_ffff_0000_0000 | (cd as u64 & 0xffff) << 16 | slot as u64 & 0xffff)
    }

    const fn hash(self) -> ZapHash {
        ZapHash(self.0 & 0xffff_ffff_0000_0000)
    }

    const fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Hash and cd, which no two entries share.
    const fn position(self) -> u64 {
        self.0 >> 16
    }
}

/// A microzap with its index.
#[derive(Debug)]
pub(crate) struct Micro {
    block: Bytes,
    order: ByteOrder,
    index: BTree<IndexEntry>,
    salt: u64,
    normalization: Normalization,
}

impl Micro {
    /// Checks every entry and builds the index.
    pub(crate) fn open(block: Bytes, order: ByteOrder) -> Result<Self, FormatError> {
        let view = MicroBlock::decode(&block, order)?;
        let (salt, normalization) = (view.salt(), view.normalization());
        let mut elements = Vec::with_capacity(view.capacity());
        for used in view.entries() {
            let (slot, entry) = used?;
            let hash = hash_of(salt, normalization, entry.name);
            elements.push(IndexEntry::new(hash, entry.cd, slot));
        }
        elements.sort_unstable();
        if elements.windows(2).any(|pair| pair[0].position() == pair[1].position()) {
            return Err(FormatError::invalid("microzap", "two entries have one position"));
        }
        let index = BTree::from_sorted(&elements, INDEX_LEAF_BYTES)
            .ok_or(FormatError::invalid("microzap", "two entries have one position"))?;
        Ok(Self { block, order, index, salt, normalization })
    }

    pub(crate) const fn salt(&self) -> u64 {
        self.salt
    }

    pub(crate) const fn normalization(&self) -> Normalization {
        self.normalization
    }

    pub(crate) const fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) const fn block_size(&self) -> usize {
        self.block.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.block.len()
    }

    fn slot(&self, slot: usize) -> Result<MicroEntry<'_>, FormatError> {
        MicroBlock::decode(&self.block, self.order)?
            .entry(slot)?
            .ok_or(FormatError::invalid("microzap", "an indexed entry is free"))
    }

    /// Value of the entry with exactly this name.
    pub(crate) fn lookup(&self, name: &[u8]) -> Result<Option<u64>, FormatError> {
        let hash = hash_of(self.salt, self.normalization, name);
        for slot in self.slots_of(hash) {
            let entry = self.slot(slot)?;
            if entry.name == name {
                return Ok(Some(entry.value));
            }
        }
        Ok(None)
    }

    /// The entries whose names have the hash of this one, by ascending cd.
    pub(crate) fn with_hash_of(
        &self,
        name: &[u8],
    ) -> impl Iterator<Item = Result<ZapEntry, FormatError>> + use<'_> {
        let hash = hash_of(self.salt, self.normalization, name);
        self.slots_of(hash).map(move |slot| self.entry(hash, slot))
    }

    fn slots_of(&self, hash: ZapHash) -> impl Iterator<Item = usize> + use<'_> {
        self.index
            .range_from(&IndexEntry::new(hash, 0, 0))
            .take_while(move |element| element.hash() == hash)
            .map(IndexEntry::slot)
    }

    /// The entries from a position on.
    pub(crate) fn from(
        &self,
        position: Position,
    ) -> impl Iterator<Item = Result<ZapEntry, FormatError>> + Send + '_ {
        let Position { hash, cd } = position;
        let start = if cd > MAX_CD {
            // Between all entries with this hash and the next.
            IndexEntry(hash.0 | 0xffff_ffff)
        } else {
            IndexEntry::new(hash, cd, 0)
        };
        let index = self.index.range_from(&start);
        index.map(|element| self.entry(element.hash(), element.slot()))
    }

    fn entry(&self, hash: ZapHash, slot: usize) -> Result<ZapEntry, FormatError> {
        let entry = self.slot(slot)?;
        Ok(ZapEntry {
            key: ZapKey::Name(self.block.slice_ref(entry.name)),
            value: ZapValue::from(entry.value),
            next: Position { hash, cd: entry.cd }.cookie_after(HashBits::Bits28),
            hash,
            differentiator: entry.cd,
        })
    }
}

fn hash_of(salt: u64, normalization: Normalization, name: &[u8]) -> ZapHash {
    ZapHash::of_name(salt, &normalization.normalize(name), HashBits::Bits28)
}
