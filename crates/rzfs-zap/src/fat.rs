//! An open fat ZAP: its header, and the way to a leaf (spec 03, sections 12.6 and 12.7).

mod edit;
mod shrink;
mod split;
mod table;

use bytes::Bytes;
use rzfs_format::zap::fat::FatHeader;
use rzfs_format::zap::leaf::{KeyKind, Leaf, LeafEntry};
use rzfs_format::zap::{HashBits, IntegerSize, ZapHash};
use rzfs_format::{BlockId, ByteOrder, FormatError};

use crate::cookie::Position;
use crate::entry::{KeyRef, ZapEntry, ZapKey, big_endian};
use crate::first_block::{Contents, FirstBlock};
use crate::{ZapBlocks, ZapError, ZapValue};

/// A fat ZAP.
#[derive(Debug)]
pub(crate) struct Fat {
    pub(crate) header: FatHeader,
    block: FirstBlock,
}

/// A leaf's block.
pub(crate) struct LeafBlock {
    pub(crate) id: BlockId,
    bytes: Bytes,
    order: ByteOrder,
}

impl LeafBlock {
    /// The leaf; its block was checked when it was read.
    pub(crate) fn view(&self) -> Result<Leaf<'_>, FormatError> {
        Leaf::decode(&self.bytes, self.order)
    }

    /// Its contents, and their byte order.
    fn into_parts(self) -> (Vec<u8>, ByteOrder) {
        (self.bytes.into(), self.order)
    }
}

impl Fat {
    pub(crate) fn open(block: Bytes, order: ByteOrder) -> Result<Self, FormatError> {
        let header = FatHeader::decode(&block, order)?;
        Ok(Self { header, block: FirstBlock::new(Contents { bytes: block, order }) })
    }

    pub(crate) const fn first_block(&mut self) -> &mut FirstBlock {
        &mut self.block
    }

    pub(crate) const fn key_kind(&self) -> KeyKind {
        if self.header.flags.word_keys() { KeyKind::Words } else { KeyKind::Name }
    }

    /// The hash of a key; `None` when the ZAP's keys are of another kind.
    pub(crate) fn hash(&self, key: KeyRef<'_>) -> Option<ZapHash> {
        let flags = self.header.flags;
        let bits = flags.hash_bits();
        match (key, self.key_kind()) {
            (KeyRef::Name(name), KeyKind::Name) => {
                let normalized = self.header.normalization.normalize(name);
                Some(ZapHash::of_name(self.header.salt, &normalized, bits))
            }
            (KeyRef::Words(words), KeyKind::Words) if flags.pre_hashed() => {
                words.first().map(|&word| bits.truncate(word))
            }
            (KeyRef::Words(words), KeyKind::Words) => {
                Some(ZapHash::of_words(self.header.salt, words, bits))
            }
            _ => None,
        }
    }

    pub(crate) const fn hash_bits(&self) -> HashBits {
        self.header.flags.hash_bits()
    }

    /// Reads the leaf where entries with this hash are.
    pub(crate) fn leaf<B: ZapBlocks>(
        &self,
        blocks: &B,
        hash: ZapHash,
    ) -> Result<LeafBlock, ZapError<B::Error>> {
        let leaf = self.leaf_at(blocks, hash.top(self.header.table_shift))?;
        let view = leaf.view().map_err(ZapError::corrupt(leaf.id))?;
        if view.prefix_len() > self.header.table_shift || !view.covers(hash) {
            let prefix = FormatError::field("ZAP leaf", "prefix", view.prefix());
            return Err(ZapError::corrupt(leaf.id)(prefix));
        }
        Ok(leaf)
    }

    /// Reads the leaf that a pointer of the table refers to.
    pub(crate) fn leaf_at<B: ZapBlocks>(
        &self,
        blocks: &B,
        index: u64,
    ) -> Result<LeafBlock, ZapError<B::Error>> {
        let id = self.leaf_id(blocks, index)?;
        let (bytes, order) = read(blocks, id)?;
        let leaf = LeafBlock { id, bytes, order };
        let corrupt = ZapError::corrupt(id);
        let view = leaf.view().map_err(&corrupt)?;
        if view.geometry() != self.header.geometry {
            return Err(corrupt(FormatError::invalid("ZAP leaf", "its block size is another")));
        }
        Ok(leaf)
    }

    /// The block of a leaf, from the pointer table.
    fn leaf_id<B: ZapBlocks>(&self, blocks: &B, index: u64) -> Result<BlockId, ZapError<B::Error>> {
        let header = &self.header;
        let wrong = |block, value: u64| {
            ZapError::corrupt(block)(FormatError::field("ZAP pointer table", "leaf", value))
        };
        let (place, offset) = header.pointer_place(index).ok_or(wrong(BlockId(0), index))?;
        let word = |table: &Contents| {
            let word = table.bytes.get(offset..).and_then(|rest| rest.first_chunk::<8>());
            word.map(|word| table.order.u64(*word))
        };
        let leaf = if place.0 == 0 {
            let contents = self.block.get(blocks)?;
            word(&contents)
        } else {
            let (bytes, order) = read(blocks, place)?;
            word(&Contents { bytes, order })
        };
        let leaf = leaf.ok_or(wrong(place, index))?;
        if leaf == 0 || leaf >= header.free_block.0 {
            return Err(wrong(place, leaf));
        }
        Ok(BlockId(leaf))
    }

    /// Value of the entry with exactly this key.
    pub(crate) fn lookup<B: ZapBlocks>(
        &self,
        blocks: &B,
        key: KeyRef<'_>,
    ) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        self.find(blocks, key, |leaf, entry| {
            Ok(ZapValue::from_big_endian(entry.value.integer_size, &leaf.read(entry.value)?))
        })
    }

    /// The first 64-bit number of the value of the entry with exactly this key.
    pub(crate) fn lookup_number<B: ZapBlocks>(
        &self,
        blocks: &B,
        key: KeyRef<'_>,
    ) -> Result<Option<u64>, ZapError<B::Error>> {
        let found = self.find(blocks, key, |leaf, entry| {
            if entry.value.integer_size != IntegerSize::Eight {
                return Ok(None);
            }
            let piece = leaf.pieces(entry.value).next().transpose()?;
            Ok(piece
                .and_then(|bytes| bytes.first_chunk::<8>())
                .map(|word| u64::from_be_bytes(*word)))
        })?;
        found.map(|number| number.ok_or(ZapError::ValueKind)).transpose()
    }

    fn find<B: ZapBlocks, V>(
        &self,
        blocks: &B,
        key: KeyRef<'_>,
        value: impl Fn(&Leaf<'_>, &LeafEntry) -> Result<V, FormatError>,
    ) -> Result<Option<V>, ZapError<B::Error>> {
        let hash = self.hash(key).ok_or(ZapError::KeyKind)?;
        let leaf = self.leaf(blocks, hash)?;
        let stored = key.stored();
        let found = self.find_in(&leaf, hash, &stored, value);
        found.map_err(ZapError::corrupt(leaf.id))
    }

    /// What `value` says of the entry of a leaf whose key is stored as these bytes.
    fn find_in<V>(
        &self,
        leaf: &LeafBlock,
        hash: ZapHash,
        stored: &[u8],
        value: impl Fn(&Leaf<'_>, &LeafEntry) -> Result<V, FormatError>,
    ) -> Result<Option<V>, FormatError> {
        let view = leaf.view()?;
        for entry in view.bucket(view.bucket_of(hash), self.key_kind()) {
            let entry = entry?;
            if entry.hash == hash && view.equals(entry.name, stored)? {
                return value(&view, &entry).map(Some);
            }
        }
        Ok(None)
    }

    /// The entries with this hash, by ascending cd.
    pub(crate) fn with_hash<B: ZapBlocks>(
        &self,
        blocks: &B,
        hash: ZapHash,
    ) -> Result<Vec<ZapEntry>, ZapError<B::Error>> {
        let leaf = self.leaf(blocks, hash)?;
        let collect = || {
            let view = leaf.view()?;
            let mut found = Vec::new();
            for entry in view.bucket(view.bucket_of(hash), self.key_kind()) {
                let entry = entry?;
                if entry.hash == hash {
                    found.push(self.entry(&view, &entry)?);
                }
            }
            found.sort_by_key(|entry| entry.differentiator);
            Ok(found)
        };
        collect().map_err(ZapError::corrupt(leaf.id))
    }

    /// All entries of a leaf from a position on, in the order of cursors.
    pub(crate) fn sorted(
        &self,
        leaf: &LeafBlock,
        start: Position,
    ) -> Result<Vec<LeafEntry>, FormatError> {
        let view = leaf.view()?;
        let mut budget = view.geometry().chunks();
        let mut found = Vec::new();
        for bucket in 0..view.geometry().buckets() {
            for entry in view.bucket(bucket, self.key_kind()) {
                let entry = entry?;
                budget = budget
                    .checked_sub(1)
                    .ok_or(FormatError::invalid("ZAP leaf", "buckets share entries"))?;
                if !view.covers(entry.hash) || view.bucket_of(entry.hash) != bucket {
                    return Err(FormatError::field("ZAP leaf", "hash", entry.hash.0));
                }
                if (Position { hash: entry.hash, cd: entry.cd }) >= start {
                    found.push(entry);
                }
            }
        }
        found.sort_unstable_by_key(|entry| (entry.hash, entry.cd));
        Ok(found)
    }

    /// Key and value of an entry.
    pub(crate) fn entry(
        &self,
        leaf: &Leaf<'_>,
        entry: &LeafEntry,
    ) -> Result<ZapEntry, FormatError> {
        let key = match self.key_kind() {
            KeyKind::Name => ZapKey::Name(leaf.read_name(entry.name)?.into()),
            KeyKind::Words => {
                let bytes = leaf.read(entry.name)?;
                ZapKey::Words(bytes.chunks_exact(8).map(big_endian).collect())
            }
        };
        let value = ZapValue::from_big_endian(entry.value.integer_size, &leaf.read(entry.value)?);
        let LeafEntry { hash, cd, .. } = *entry;
        let next = Position { hash, cd }.cookie_after(self.hash_bits());
        Ok(ZapEntry { key, value, next, hash, differentiator: cd })
    }
}

/// Reads a block that has to exist.
fn read<B: ZapBlocks>(blocks: &B, id: BlockId) -> Result<(Bytes, ByteOrder), ZapError<B::Error>> {
    if id.0 >= blocks.block_count().map_err(ZapError::Blocks)? {
        return Err(ZapError::corrupt(id)(FormatError::invalid("ZAP", "the block is not there")));
    }
    blocks.read_block(id).map_err(ZapError::Blocks)
}
