//! Entries of a fat ZAP come, go and change (spec 03, section 12.8).
//!
//! Each change first reads and checks what it is going to write, so that damage is found before
//! anything is changed.

use rzfs_format::zap::fat::{FatHeader, Geometry, PointerTable, ZapFlags};
use rzfs_format::zap::leaf::{
    ARRAY_BYTES, ChainOrder, Integers, LeafEditError, LeafEntry, LeafMut, NewEntry,
};
use rzfs_format::zap::{MAX_NAME_SIZE, MAX_VALUE_SIZE, ZapHash};
use rzfs_format::{BlockId, ByteOrder, FormatError};

use super::{Fat, LeafBlock};
use crate::blocks::edit_block;
use crate::entry::KeyRef;
use crate::writer::Present;
use crate::{Normalization, Tunables, ZapBlocks, ZapBlocksMut, ZapError};

/// A key as it is looked up and stored.
struct Key {
    hash: ZapHash,
    stored: Vec<u8>,
}

/// Free chunks below which a leaf that the table cannot split makes the table grow ahead of need.
const LOW_WATER: u16 = 20;

impl Fat {
    /// The blocks of a fat ZAP without entries: the header, and the only leaf.
    pub(crate) fn encode_empty(
        geometry: Geometry,
        salt: u64,
        normalization: Normalization,
        flags: ZapFlags,
    ) -> Result<[Vec<u8>; 2], FormatError> {
        let header = FatHeader {
            geometry,
            table: PointerTable::Embedded,
            table_shift: geometry.embedded_shift(),
            next_table: BlockId(0),
            blocks_copied: 0,
            free_block: BlockId(2),
            leaves: 1,
            entries: 0,
            salt,
            normalization,
            flags,
        };
        let size = geometry.block_size();
        let (mut head, mut leaf) = (vec![0; size], vec![0; size]);
        header.encode(&mut head, ByteOrder::NATIVE);
        for pointer in head[size / 2..].chunks_exact_mut(8) {
            pointer.copy_from_slice(&ByteOrder::NATIVE.bytes64(1));
        }
        LeafMut::format(&mut leaf, ByteOrder::NATIVE, (0, 0), chains(normalization))?;
        Ok([head, leaf])
    }

    /// Refuses to change what could not be changed soundly.
    pub(crate) fn check_writable<B: ZapBlocks>(
        &self,
        blocks: &B,
    ) -> Result<(), ZapError<B::Error>> {
        let header = &self.header;
        if header.flags.0 > 7 {
            return Err(ZapError::UnknownFlags(header.flags.0));
        }
        let mut end = blocks.block_count().map_err(ZapError::Blocks)?;
        if let PointerTable::External { blocks: count, .. } = header.table
            && header.next_table.0 != 0
        {
            // Blocks of the next table that nothing was copied to need not exist.
            let fits = header.next_table.0.checked_add(count.saturating_mul(2));
            if header.blocks_copied >= count || fits.is_none_or(|end| end > header.free_block.0) {
                return Err(corrupt_header("the next pointer table lies outside"));
            }
            end = end.saturating_add(count.saturating_mul(2));
        } else if header.next_table.0 != 0 || header.blocks_copied != 0 {
            return Err(corrupt_header("it has a next pointer table without a current one"));
        }
        if header.free_block.0 < 2 || header.free_block.0 > end {
            return Err(corrupt_header("its first free block lies outside"));
        }
        Ok(())
    }

    fn key<E>(&self, key: KeyRef<'_>) -> Result<Key, ZapError<E>> {
        let hash = self.hash(key).ok_or(ZapError::KeyKind)?;
        let fits = match key {
            KeyRef::Name(name) => {
                !name.is_empty() && name.len() < MAX_NAME_SIZE && !name.contains(&0)
            }
            KeyRef::Words(words) => !words.is_empty() && words.len() < MAX_NAME_SIZE / 8,
        };
        if fits { Ok(Key { hash, stored: key.stored() }) } else { Err(ZapError::BadKey) }
    }

    /// Whether a leaf can have an entry with a key of this many bytes, a closing NUL included.
    pub(crate) const fn can_have(geometry: Geometry, key_len: usize, value: Integers<'_>) -> bool {
        value.bytes.len() <= MAX_VALUE_SIZE
            && 1 + key_len.div_ceil(ARRAY_BYTES) + value.chunks() <= geometry.chunks()
    }

    /// An entry that is to be stored, if a leaf can have it.
    fn entry_of<'a, E>(
        &self,
        key: &'a Key,
        kind: KeyRef<'_>,
        value: Integers<'a>,
    ) -> Result<NewEntry<'a>, ZapError<E>> {
        let name = Integers { size: kind.integer_size(), bytes: &key.stored };
        let entry = NewEntry { hash: key.hash, cd: 0, key: name, value };
        let fits = Self::can_have(self.header.geometry, key.stored.len(), value);
        if fits { Ok(entry) } else { Err(ZapError::TooBig) }
    }

    /// Stores an entry.
    pub(crate) fn store<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        key: KeyRef<'_>,
        value: Integers<'_>,
        present: Present,
    ) -> Result<(), ZapError<B::Error>> {
        let kind = key;
        let key = self.key(key)?;
        let entry = self.entry_of(&key, kind, value)?;
        let leaf = self.leaf(blocks, key.hash)?;
        match (self.entry_in(&leaf, &key)?, present) {
            (Some(_), Present::Refuse) => Err(ZapError::Exists),
            (Some(found), Present::Replace) => self.replace(blocks, leaf, found, &key, value),
            (None, _) => {
                let cd = self.unused_cd(&leaf, key.hash)?;
                self.add_to(blocks, leaf, &NewEntry { cd, ..entry })
            }
        }
    }

    /// Adds an entry that was in another form of the ZAP and keeps its cd.
    pub(crate) fn add<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        key: KeyRef<'_>,
        cd: u32,
        value: Integers<'_>,
    ) -> Result<(), ZapError<B::Error>> {
        let kind = key;
        let key = self.key(key)?;
        let entry = self.entry_of(&key, kind, value)?;
        let leaf = self.leaf(blocks, key.hash)?;
        self.add_to(blocks, leaf, &NewEntry { cd, ..entry })
    }

    fn add_to<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        leaf: LeafBlock,
        entry: &NewEntry<'_>,
    ) -> Result<(), ZapError<B::Error>> {
        let mut leaf = leaf;
        while usize::from(free_chunks(&leaf)?) < entry.chunks() {
            self.check_split(&leaf, entry)?;
            self.split(blocks, leaf)?;
            leaf = self.leaf(blocks, entry.hash)?;
        }
        let id = leaf.id;
        drop(leaf);
        let (prefix_len, free) = edit_leaf(blocks, id, |leaf| {
            leaf.insert(entry)?;
            let view = leaf.view()?;
            Ok((view.prefix_len(), view.free_chunks()))
        })?;
        self.header.entries = self.header.entries.saturating_add(1);
        self.write_header(blocks)?;
        self.grow_ahead(blocks, prefix_len, free)
    }

    /// Changes the value of an entry that is there.
    fn replace<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        leaf: LeafBlock,
        found: LeafEntry,
        key: &Key,
        value: Integers<'_>,
    ) -> Result<(), ZapError<B::Error>> {
        let (mut leaf, mut found) = (leaf, found);
        while usize::from(free_chunks(&leaf)?) + found.value.chunks() < value.chunks() {
            let whole = NewEntry {
                hash: key.hash,
                cd: found.cd,
                key: Integers { size: found.name.integer_size, bytes: &key.stored },
                value,
            };
            self.check_split(&leaf, &whole)?;
            self.split(blocks, leaf)?;
            leaf = self.leaf(blocks, key.hash)?;
            let lost = || corrupt_leaf(leaf.id, "a split lost an entry");
            found = self.entry_in(&leaf, key)?.ok_or_else(lost)?;
        }
        let id = leaf.id;
        drop(leaf);
        let (prefix_len, free) = edit_leaf(blocks, id, |leaf| {
            leaf.replace_value(&found, value)?;
            let view = leaf.view()?;
            Ok((view.prefix_len(), view.free_chunks()))
        })?;
        self.grow_ahead(blocks, prefix_len, free)
    }

    /// Removes an entry; `false` if there is none with this key.
    pub(crate) fn remove<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        key: KeyRef<'_>,
        tunables: &Tunables,
    ) -> Result<bool, ZapError<B::Error>> {
        let key = self.key(key)?;
        let leaf = self.leaf(blocks, key.hash)?;
        let Some(found) = self.entry_in(&leaf, &key)? else { return Ok(false) };
        let id = leaf.id;
        drop(leaf);
        let left = edit_leaf(blocks, id, |leaf| {
            leaf.remove(&found)?;
            Ok(leaf.view()?.entry_count())
        })?;
        self.header.entries = self.header.entries.saturating_sub(1);
        if left == 0 && tunables.shrink_enabled {
            self.shrink(blocks, key.hash)?;
        }
        self.write_header(blocks)?;
        Ok(true)
    }

    /// Makes a leaf one that cannot be read: nobody finds the entry with this key any more, nor any
    /// other that the leaf has, nor that there is none.
    pub(crate) fn spoil<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        key: KeyRef<'_>,
    ) -> Result<(), ZapError<B::Error>> {
        let key = self.key(key)?;
        let leaf = self.leaf(blocks, key.hash)?.id;
        let nothing = vec![0; self.header.geometry.block_size()];
        blocks.write_block(leaf, nothing.into()).map_err(ZapError::Blocks)
    }

    fn entry_in<E>(&self, leaf: &LeafBlock, key: &Key) -> Result<Option<LeafEntry>, ZapError<E>> {
        self.find_in(leaf, key.hash, &key.stored, |_, entry| Ok(*entry))
            .map_err(ZapError::corrupt(leaf.id))
    }

    /// The lowest cd that no entry with this hash has.
    fn unused_cd<E>(&self, leaf: &LeafBlock, hash: ZapHash) -> Result<u32, ZapError<E>> {
        let view = leaf.view().map_err(ZapError::corrupt(leaf.id))?;
        let mut cds = Vec::new();
        for entry in view.bucket(view.bucket_of(hash), self.key_kind()) {
            let entry = entry.map_err(ZapError::corrupt(leaf.id))?;
            if entry.hash == hash {
                cds.push(entry.cd);
            }
        }
        cds.sort_unstable();
        let taken = (0..).zip(&cds).take_while(|(unused, cd)| unused == *cd).count() as u32;
        if taken < self.hash_bits().max_cd() { Ok(taken) } else { Err(ZapError::Full) }
    }

    /// Refuses to split a damaged leaf, or to split one for an entry that would not fit in it even
    /// if it had only those whose hashes no pointer table can tell from the entry's: each useless
    /// split would double the table.
    fn check_split<E>(&self, leaf: &LeafBlock, entry: &NewEntry<'_>) -> Result<(), ZapError<E>> {
        let limit = self.max_table_shift();
        let count = || {
            let view = leaf.view()?;
            view.check(self.key_kind())?;
            let mut chunks = entry.chunks();
            for bucket in 0..view.geometry().buckets() {
                for other in view.bucket(bucket, self.key_kind()) {
                    let other = other?;
                    let same = (other.hash, other.cd) == (entry.hash, entry.cd);
                    if other.hash.top(limit) == entry.hash.top(limit) && !same {
                        chunks = chunks.saturating_add(other.chunks());
                    }
                }
            }
            Ok(chunks)
        };
        let chunks = count().map_err(ZapError::corrupt(leaf.id))?;
        if chunks > self.header.geometry.chunks() { Err(ZapError::Full) } else { Ok(()) }
    }

    pub(super) fn chains(&self) -> ChainOrder {
        chains(self.header.normalization)
    }

    /// Bits of the largest pointer table; a leaf's prefix can have as many.
    pub(super) const fn max_table_shift(&self) -> u32 {
        self.hash_bits().count() - 2
    }

    /// Grows the pointer table one step further if that has begun, or if a leaf that is nearly
    /// full could not be split without. A table that is damaged stays as it is until a leaf has to
    /// be split.
    fn grow_ahead<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
        prefix_len: u32,
        free_chunks: u16,
    ) -> Result<(), ZapError<B::Error>> {
        let shift = self.header.table_shift;
        let close = prefix_len == shift && free_chunks < LOW_WATER;
        let growing = self.header.next_table.0 != 0;
        if (growing || close) && shift < self.max_table_shift() {
            match self.grow_table(blocks) {
                Err(ZapError::Corrupt { .. }) => Ok(()),
                grown => grown,
            }
        } else {
            Ok(())
        }
    }

    /// Writes the header over that in block 0.
    pub(super) fn write_header<B: ZapBlocksMut>(
        &mut self,
        blocks: &mut B,
    ) -> Result<(), ZapError<B::Error>> {
        let header = &self.header;
        let size = header.geometry.block_size();
        self.block.release();
        edit_block(blocks, BlockId(0), |bytes| {
            if bytes.len() != size {
                return Err(FormatError::field("fat ZAP", "block size", bytes.len() as u64));
            }
            header.encode(bytes, ByteOrder::NATIVE);
            Ok(())
        })
    }
}

const fn chains(normalization: Normalization) -> ChainOrder {
    match normalization {
        Normalization::NONE => ChainOrder::Any,
        _ => ChainOrder::ByCd,
    }
}

fn free_chunks<E>(leaf: &LeafBlock) -> Result<u16, ZapError<E>> {
    Ok(leaf.view().map_err(ZapError::corrupt(leaf.id))?.free_chunks())
}

pub(super) fn edit_leaf<B: ZapBlocksMut, R>(
    blocks: &mut B,
    id: BlockId,
    edit: impl FnOnce(&mut LeafMut<'_>) -> Result<R, LeafEditError>,
) -> Result<R, ZapError<B::Error>> {
    edit_block(blocks, id, |bytes| {
        let mut leaf = LeafMut::open(bytes, ByteOrder::NATIVE)?;
        edit(&mut leaf).map_err(|error| match error {
            LeafEditError::Full => FormatError::invalid("ZAP leaf", "free chunks are missing"),
            LeafEditError::Corrupt(error) => error,
        })
    })
}

fn corrupt_header<E>(problem: &'static str) -> ZapError<E> {
    ZapError::corrupt(BlockId(0))(FormatError::invalid("fat ZAP", problem))
}

pub(super) fn corrupt_leaf<E>(id: BlockId, problem: &'static str) -> ZapError<E> {
    ZapError::corrupt(id)(FormatError::invalid("ZAP leaf", problem))
}
