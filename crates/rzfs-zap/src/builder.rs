//! Builds the blocks of a ZAP in memory.

use std::convert::Infallible;

use rzfs_format::ByteOrder;
use rzfs_format::zap::fat::ZapFlags;

use crate::{KeyRef, MemoryBlocks, NewZap, Normalization, Tunables, Zap, ZapError, ZapValue};

/// Why a ZAP cannot be built.
pub type BuildError = ZapError<Infallible>;

/// Collects entries in the blocks that a [`crate::ZapWriter`] makes of them: a microzap if
/// possible, else a fat ZAP. Collision differentiators follow the order of insertion.
#[derive(Debug)]
pub struct ZapBuilder {
    new: NewZap,
    order: ByteOrder,
    tunables: Tunables,
    /// Made with the first entry.
    zap: Option<Zap<MemoryBlocks>>,
}

impl ZapBuilder {
    /// An empty ZAP with this salt, made odd.
    #[must_use]
    pub fn new(salt: u64) -> Self {
        Self {
            new: NewZap::new(salt),
            order: ByteOrder::NATIVE,
            tunables: Tunables::default(),
            zap: None,
        }
    }

    /// The byte order; the machine's unless set.
    pub fn order(&mut self, order: ByteOrder) -> &mut Self {
        self.order = order;
        self
    }

    /// How names are normalised. To be set before entries are inserted.
    pub fn normalization(&mut self, normalization: Normalization) -> &mut Self {
        self.new = self.new.normalization(normalization);
        self
    }

    /// Makes a fat ZAP with these flags and blocks of this size, whatever its entries are. To be
    /// set before entries are inserted.
    pub fn fat(&mut self, flags: ZapFlags, block_size: usize) -> &mut Self {
        self.new = self.new.fat(flags, block_size);
        self
    }

    /// Largest size of a microzap in bytes; up to 1 MiB with the feature `large_microzap`.
    pub fn micro_max_size(&mut self, bytes: usize) -> &mut Self {
        self.tunables.micro_max_size = bytes;
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
        let zap = match &mut self.zap {
            Some(zap) => zap,
            none => none.insert(Zap::create(MemoryBlocks::empty(), &self.new)?),
        };
        zap.edit().tunables(self.tunables).insert(key, value)
    }

    /// The blocks of the ZAP.
    pub fn build(&self) -> Result<MemoryBlocks, BuildError> {
        let blocks = match &self.zap {
            Some(zap) => zap.blocks().clone(),
            None => Zap::create(MemoryBlocks::empty(), &self.new)?.into_blocks(),
        };
        blocks.in_order(self.order)
    }
}
