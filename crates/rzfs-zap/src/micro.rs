//! An open microzap: its block and the index of its entries (spec 03, section 12.5).

mod edit;
mod slots;

use bytes::Bytes;
use rzfs_format::zap::micro::{MAX_CD, MicroBlock, MicroEntry};
use rzfs_format::zap::{HashBits, ZapHash};
use rzfs_format::{BlockId, ByteOrder, FormatError};

use crate::btree::BTree;
use crate::cookie::Position;
use crate::entry::{ZapEntry, ZapKey};
use crate::first_block::{Contents, FirstBlock};
use crate::{Normalization, ZapBlocks, ZapError, ZapValue};
pub(crate) use edit::Room;
use slots::Slots;

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

    const fn cd(self) -> u32 {
        (self.0 >> 16) as u32 & 0xffff
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
    block: FirstBlock,
    size: usize,
    index: BTree<IndexEntry>,
    /// Which entries of the block are used; only a writer needs to know.
    slots: Option<Box<Slots>>,
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
        let size = block.len();
        let block = FirstBlock::new(Contents { bytes: block, order });
        Ok(Self { block, size, index, slots: None, salt, normalization })
    }

    pub(crate) const fn first_block(&mut self) -> &mut FirstBlock {
        &mut self.block
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
        self.size
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.size
    }

    /// The hash of a name.
    pub(crate) fn hash(&self, name: &[u8]) -> ZapHash {
        hash_of(self.salt, self.normalization, name)
    }

    /// Value of the entry with exactly this name.
    pub(crate) fn lookup<B: ZapBlocks>(
        &self,
        blocks: &B,
        name: &[u8],
    ) -> Result<Option<u64>, ZapError<B::Error>> {
        Ok(self.find(blocks, self.hash(name), name)?.map(|(_, value)| value))
    }

    /// Place and value of the entry with exactly this name, which has this hash.
    fn find<B: ZapBlocks>(
        &self,
        blocks: &B,
        hash: ZapHash,
        name: &[u8],
    ) -> Result<Option<(IndexEntry, u64)>, ZapError<B::Error>> {
        let block = self.block.get(blocks)?;
        for element in self.with_hash(hash) {
            let entry = slot(&block, element).map_err(ZapError::corrupt(BlockId(0)))?;
            if entry.name == name {
                return Ok(Some((element, entry.value)));
            }
        }
        Ok(None)
    }

    /// The entries whose names have the hash of this one, by ascending cd.
    pub(crate) fn with_hash_of<B: ZapBlocks>(
        &self,
        blocks: &B,
        name: &[u8],
    ) -> Result<Vec<ZapEntry>, ZapError<B::Error>> {
        let block = self.block.get(blocks)?;
        let entries = self.with_hash(self.hash(name)).map(|element| entry(&block, element));
        entries.collect::<Result<_, _>>().map_err(ZapError::corrupt(BlockId(0)))
    }

    fn with_hash(&self, hash: ZapHash) -> impl Iterator<Item = IndexEntry> + use<'_> {
        self.index
            .range_from(&IndexEntry::new(hash, 0, 0))
            .take_while(move |element| element.hash() == hash)
    }

    /// The entries from a position on.
    pub(crate) fn from<B: ZapBlocks>(
        &self,
        blocks: &B,
        position: Position,
    ) -> Result<
        impl Iterator<Item = Result<ZapEntry, FormatError>> + Send + use<'_, B>,
        ZapError<B::Error>,
    > {
        let Position { hash, cd } = position;
        let start = if cd > MAX_CD {
            // Between all entries with this hash and the next.
            IndexEntry(hash.0 | 0xffff_ffff)
        } else {
            IndexEntry::new(hash, cd, 0)
        };
        let block = self.block.get(blocks)?;
        Ok(self.index.range_from(&start).map(move |element| entry(&block, element)))
    }
}

fn slot(block: &Contents, element: IndexEntry) -> Result<MicroEntry<'_>, FormatError> {
    MicroBlock::decode(&block.bytes, block.order)?
        .entry(element.slot())?
        .ok_or(FormatError::invalid("microzap", "an indexed entry is free"))
}

fn entry(block: &Contents, element: IndexEntry) -> Result<ZapEntry, FormatError> {
    let found = slot(block, element)?;
    let hash = element.hash();
    Ok(ZapEntry {
        key: ZapKey::Name(block.bytes.slice_ref(found.name)),
        value: ZapValue::from(found.value),
        next: Position { hash, cd: found.cd }.cookie_after(HashBits::Bits28),
        hash,
        differentiator: found.cd,
    })
}

fn hash_of(salt: u64, normalization: Normalization, name: &[u8]) -> ZapHash {
    ZapHash::of_name(salt, &normalization.normalize(name), HashBits::Bits28)
}
