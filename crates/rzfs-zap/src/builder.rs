//! Builds the blocks of a ZAP from its entries.

use std::collections::BTreeMap;

use bytes::Bytes;
use rzfs_format::endian::FieldsMut;
use rzfs_format::zap::fat::{FatHeader, Geometry, PointerTable, ZapFlags};
use rzfs_format::zap::leaf::{ChainOrder, LeafBuilder};
use rzfs_format::zap::micro::{self, MicroEntry};
use rzfs_format::zap::{MAX_NAME_SIZE, MAX_VALUE_SIZE, ZapHash};
use rzfs_format::{BlockId, ByteOrder, FormatError};

use crate::entry::{KeyRef, ZapKey, integers};
use crate::{MemoryBlocks, Normalization, ZapValue};

/// Largest microzap unless one asks for more: `zap_micro_max_size`.
const MICRO_MAX_SIZE: usize = 128 << 10;
/// Blocks of a fat ZAP that could have been a microzap.
const FAT_BLOCK_SIZE: usize = 16 << 10;
/// Largest block of a fat ZAP that OpenZFS makes.
const FAT_MAX_BLOCK_SIZE: usize = 128 << 10;

/// Why a ZAP cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The same key was inserted twice.
    #[error("the key is there already")]
    Exists,
    /// The key is empty, contains NUL, is longer than names may be, or is of the wrong kind.
    #[error("the key is not one that the ZAP can have")]
    BadKey,
    /// The value has more than 8192 bytes, or it and its key do not fit in a leaf.
    #[error("the entry is too big")]
    TooBig,
    /// More entries share a hash than fit in one leaf.
    #[error("too many keys have the same hash")]
    TooManyCollisions,
    /// A block size or salt that the format does not have.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Collects entries, then lays them out as OpenZFS would: as a microzap if possible, else as a
/// fat ZAP. Collision differentiators follow the order of insertion.
#[derive(Debug, Clone)]
pub struct ZapBuilder {
    salt: u64,
    order: ByteOrder,
    normalization: Normalization,
    flags: ZapFlags,
    block_size: Option<usize>,
    micro_max: usize,
    /// By hash; the place in the list is the collision differentiator.
    entries: BTreeMap<ZapHash, Vec<(ZapKey, ZapValue)>>,
}

/// One entry, ready to be placed.
type Placed<'a> = (ZapHash, u32, &'a ZapKey, &'a ZapValue);

impl ZapBuilder {
    /// An empty ZAP with this salt.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self {
            salt,
            order: ByteOrder::NATIVE,
            normalization: Normalization::NONE,
            flags: ZapFlags::NONE,
            block_size: None,
            micro_max: MICRO_MAX_SIZE,
            entries: BTreeMap::new(),
        }
    }

    /// The byte order; the machine's unless set.
    pub fn order(&mut self, order: ByteOrder) -> &mut Self {
        self.order = order;
        self
    }

    /// How names are normalised. To be set before entries are inserted.
    pub fn normalization(&mut self, normalization: Normalization) -> &mut Self {
        self.normalization = normalization;
        self
    }

    /// Makes a fat ZAP with these flags and blocks of this size, whatever its entries are. To be
    /// set before entries are inserted.
    pub fn fat(&mut self, flags: ZapFlags, block_size: usize) -> &mut Self {
        self.flags = flags;
        self.block_size = Some(block_size);
        self
    }

    /// Largest size of a microzap in bytes; up to 1 MiB with the feature `large_microzap`.
    pub fn micro_max_size(&mut self, bytes: usize) -> &mut Self {
        self.micro_max = bytes.min(micro::MAX_BLOCK_SIZE);
        self
    }

    /// Adds a name with a number.
    pub fn insert_u64(&mut self, name: impl AsRef<[u8]>, value: u64) -> Result<(), BuildError> {
        self.insert(name, value)
    }

    /// Adds a name with a value.
    pub fn insert(
        &mut self,
        name: impl AsRef<[u8]>,
        value: impl Into<ZapValue>,
    ) -> Result<(), BuildError> {
        self.insert_key(KeyRef::Name(name.as_ref()), value.into())
    }

    /// Adds a key that is an array of numbers.
    pub fn insert_words(
        &mut self,
        words: &[u64],
        value: impl Into<ZapValue>,
    ) -> Result<(), BuildError> {
        self.insert_key(KeyRef::Words(words), value.into())
    }

    fn insert_key(&mut self, key: KeyRef<'_>, value: ZapValue) -> Result<(), BuildError> {
        let hash = self.hash(key)?;
        if value.len() * value.integer_size().bytes() > MAX_VALUE_SIZE {
            return Err(BuildError::TooBig);
        }
        let same = self.entries.entry(hash).or_default();
        if same.iter().any(|(other, _)| other.as_ref() == key) {
            return Err(BuildError::Exists);
        }
        let key = match key {
            KeyRef::Name(name) => ZapKey::Name(Bytes::copy_from_slice(name)),
            KeyRef::Words(words) => ZapKey::Words(words.into()),
        };
        same.push((key, value));
        Ok(())
    }

    fn hash(&self, key: KeyRef<'_>) -> Result<ZapHash, BuildError> {
        let bits = self.flags.hash_bits();
        match key {
            KeyRef::Name(name) => {
                let fits = !name.is_empty() && name.len() < MAX_NAME_SIZE && !name.contains(&0);
                if self.flags.word_keys() || !fits {
                    return Err(BuildError::BadKey);
                }
                Ok(ZapHash::of_name(self.salt, &self.normalization.normalize(name), bits))
            }
            KeyRef::Words(words) if self.flags.word_keys() => match words.first() {
                None => Err(BuildError::BadKey),
                Some(&word) if self.flags.pre_hashed() => Ok(bits.truncate(word)),
                Some(_) => Ok(ZapHash::of_words(self.salt, words, bits)),
            },
            KeyRef::Words(_) => Err(BuildError::BadKey),
        }
    }

    /// The blocks of the ZAP.
    pub fn build(&self) -> Result<MemoryBlocks, BuildError> {
        if self.salt == 0 {
            return Err(FormatError::field("ZAP", "salt", self.salt).into());
        }
        match self.micro_size() {
            Some(size) => Ok(self.build_micro(size)),
            None => self.build_fat(),
        }
    }

    fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        self.entries.iter().flat_map(|(hash, same)| {
            same.iter().enumerate().map(|(cd, (key, value))| (*hash, cd as u32, key, value))
        })
    }

    /// Bytes of the block if a microzap can have all entries.
    fn micro_size(&self) -> Option<usize> {
        let size = (self.placed().count() + 1) * micro::ENTRY_SIZE;
        let size = size.next_multiple_of(512);
        // A leaf of the fat ZAP that this may become has to hold all entries of one hash.
        let chunks = Geometry::of_block_size(FAT_BLOCK_SIZE).ok()?.chunks();
        let fits = self.block_size.is_none()
            && size <= self.micro_max
            && self.entries.values().all(|same| same.len() * 5 < chunks)
            && self.placed().all(|(_, _, key, value)| {
                key.as_name().is_some_and(|name| name.len() < micro::NAME_SIZE)
                    && value.as_u64().is_some()
                    && value.integer_size().bytes() == 8
            });
        fits.then_some(size)
    }

    fn build_micro(&self, size: usize) -> MemoryBlocks {
        let mut block = vec![0; size];
        micro::encode_header(&mut block, self.order, self.salt, self.normalization);
        for (index, (_, cd, key, value)) in self.placed().enumerate() {
            let value = value.as_u64().unwrap_or_default();
            let entry = MicroEntry { name: key.as_name().unwrap_or_default(), cd, value };
            micro::encode_entry(&mut block, self.order, index, entry);
        }
        MemoryBlocks::new(size, self.order, vec![block.into()])
    }

    fn build_fat(&self) -> Result<MemoryBlocks, BuildError> {
        let block_size = self.block_size.unwrap_or(FAT_BLOCK_SIZE);
        if block_size > FAT_MAX_BLOCK_SIZE {
            return Err(FormatError::field("fat ZAP", "block size", block_size as u64).into());
        }
        let geometry = Geometry::of_block_size(block_size)?;
        let entries: Vec<_> = self.placed().collect();
        let mut leaves = Vec::new();
        self.split(geometry, &entries, 0, 0, &mut leaves)?;
        let longest = leaves.iter().map(|leaf| leaf.prefix_len).max().unwrap_or(0);
        let table_shift = longest.max(geometry.embedded_shift());
        let table_blocks = if table_shift == geometry.embedded_shift() {
            0
        } else {
            1 << (table_shift - geometry.embedded_shift() - 1)
        };
        let first_table = 1 + leaves.len() as u64;
        let header = FatHeader {
            geometry,
            table: match table_blocks {
                0 => PointerTable::Embedded,
                blocks => PointerTable::External { first: BlockId(first_table), blocks },
            },
            table_shift,
            next_table: BlockId(0),
            blocks_copied: 0,
            free_block: BlockId(first_table + table_blocks),
            leaves: leaves.len() as u64,
            entries: entries.len() as u64,
            salt: self.salt,
            normalization: self.normalization,
            flags: self.flags,
        };
        let mut table = vec![0; 8 << table_shift];
        let mut fields = FieldsMut::new(&mut table, self.order);
        for (block, leaf) in leaves.iter().enumerate() {
            let spread = table_shift - leaf.prefix_len;
            for index in leaf.prefix << spread..(leaf.prefix + 1) << spread {
                fields.set_u64(index as usize * 8, block as u64 + 1);
            }
        }
        let mut head = vec![0; geometry.block_size()];
        header.encode(&mut head, self.order);
        if table_blocks == 0 {
            head[geometry.block_size() / 2..].copy_from_slice(&table);
            table.clear();
        }
        let mut blocks = vec![Bytes::from(head)];
        blocks.extend(leaves.into_iter().map(|leaf| leaf.block));
        blocks.extend(table.chunks(geometry.block_size()).map(Bytes::copy_from_slice));
        Ok(MemoryBlocks::new(geometry.block_size(), self.order, blocks))
    }

    /// Makes the leaf of a prefix, or two of the prefixes one bit longer if the entries do not
    /// fit.
    fn split(
        &self,
        geometry: Geometry,
        entries: &[Placed<'_>],
        prefix: u64,
        prefix_len: u32,
        leaves: &mut Vec<BuiltLeaf>,
    ) -> Result<(), BuildError> {
        if let Some(block) = self.build_leaf(geometry, entries, prefix, prefix_len)? {
            leaves.push(BuiltLeaf { prefix, prefix_len, block });
            return Ok(());
        }
        if prefix_len + 2 >= self.flags.hash_bits().count() {
            return Err(BuildError::TooManyCollisions);
        }
        let bit = 63 - prefix_len;
        let middle = entries.partition_point(|(hash, ..)| hash.0 >> bit & 1 == 0);
        let (zeros, ones) = entries.split_at(middle);
        self.split(geometry, zeros, prefix << 1, prefix_len + 1, leaves)?;
        self.split(geometry, ones, prefix << 1 | 1, prefix_len + 1, leaves)
    }

    /// One leaf; `None` when the entries do not fit.
    fn build_leaf(
        &self,
        geometry: Geometry,
        entries: &[Placed<'_>],
        prefix: u64,
        prefix_len: u32,
    ) -> Result<Option<Bytes>, BuildError> {
        let mut leaf = LeafBuilder::new(geometry, self.order, prefix, prefix_len);
        let mut by_cd: Vec<_> = entries.iter().collect();
        by_cd.sort_by_key(|(_, cd, ..)| std::cmp::Reverse(*cd));
        for (hash, cd, key, value) in by_cd {
            let (name, data) = (key.as_ref().stored(), value.to_big_endian());
            if LeafBuilder::chunks_for(name.len(), data.len()) > geometry.chunks() {
                return Err(BuildError::TooBig);
            }
            let name = integers(key.as_ref().integer_size(), &name);
            if leaf.add(*hash, *cd, name, integers(value.integer_size(), &data)).is_err() {
                return Ok(None);
            }
        }
        let chains = if self.normalization.is_none() { ChainOrder::Any } else { ChainOrder::ByCd };
        Ok(Some(leaf.finish(chains).into()))
    }
}

struct BuiltLeaf {
    prefix: u64,
    prefix_len: u32,
    block: Bytes,
}
