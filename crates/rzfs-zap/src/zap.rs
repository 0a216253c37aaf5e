//! A ZAP of either kind.

use crate::ZapError;
use crate::entry::{Cookie, Position, ZapEntry, ZapKey, ZapValue};
use crate::fat::FatZap;
use crate::micro::MicroZap;
use bytes::Bytes;
use rzfs_format::zap::fat::KeyKind;
use rzfs_format::zap::name::Normalization;
use rzfs_format::zap::{BlockKind, HashBits, hash_name, hash_words};
use rzfs_format::{BlockId, ByteOrder, FormatError};
use std::collections::VecDeque;

/// The blocks that a ZAP lives in.
pub trait ZapBlocks {
    /// Why a block cannot be read.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Size of each block in bytes.
    fn block_size(&self) -> usize;

    /// How many blocks there are.
    fn block_count(&self) -> u64;

    /// Reads a block and tells its byte order.
    fn read_block(&self, block: BlockId) -> Result<(Bytes, ByteOrder), Self::Error>;
}

/// When a stored name is the one that is looked for (spec 03, section 12.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Matching {
    /// All bytes are equal.
    Exact,
    /// The normalised forms are equal, case folded if the ZAP does so.
    Normalized,
    /// The normalised forms are equal, case significant.
    NormalizedCase,
}

/// Sizes of a ZAP as `zdb` prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZapStatistics {
    /// Whether it is a micro ZAP.
    pub is_micro: bool,
    /// Bytes of a block.
    pub block_size: usize,
    /// Entries, as the header of a fat ZAP says.
    pub entries: u64,
    /// Leaves, as the header of a fat ZAP says.
    pub leaves: u64,
    /// Blocks of the fat ZAP.
    pub blocks: u64,
    /// log2 of the number of pointers in the table.
    pub table_shift: u32,
    /// What hashing starts with.
    pub salt: u64,
}

#[derive(Debug)]
enum Kind {
    Micro(MicroZap),
    Fat(FatZap),
}

/// An open ZAP.
///
/// It can be kept and shared; it shows the ZAP as it was when it was opened.
#[derive(Debug)]
pub struct Zap<B> {
    blocks: B,
    kind: Kind,
}

impl<B: ZapBlocks> Zap<B> {
    /// Opens a ZAP; the index of a micro ZAP is built here.
    pub fn open(blocks: B) -> Result<Self, ZapError<B::Error>> {
        let (block, order) = blocks.read_block(BlockId(0)).map_err(ZapError::Blocks)?;
        let corrupt = ZapError::corrupt(BlockId(0));
        let kind = match BlockKind::of(&block, order).map_err(&corrupt)? {
            BlockKind::Micro if blocks.block_count() == 1 => {
                Kind::Micro(MicroZap::open(block, order).map_err(corrupt)?)
            }
            BlockKind::Header => Kind::Fat(FatZap::open(block, order).map_err(corrupt)?),
            BlockKind::Micro => {
                return Err(corrupt(FormatError::invalid("micro ZAP", "more than one block")));
            }
            BlockKind::Leaf => {
                return Err(corrupt(FormatError::invalid("ZAP", "a leaf in place of the header")));
            }
        };
        Ok(Self { blocks, kind })
    }

    /// The blocks.
    #[must_use]
    pub fn blocks(&self) -> &B {
        &self.blocks
    }

    /// How names are normalised before they are compared.
    #[must_use]
    pub fn normalization(&self) -> Normalization {
        match &self.kind {
            Kind::Micro(micro) => micro.header.normalization,
            Kind::Fat(fat) => fat.header.normalization,
        }
    }

    fn hash_bits(&self) -> HashBits {
        match &self.kind {
            Kind::Micro(_) => HashBits::Bits28,
            Kind::Fat(fat) => fat.header.hash_bits,
        }
    }

    /// Number of entries; a fat ZAP's is what its header says.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        match &self.kind {
            Kind::Micro(micro) => micro.len() as u64,
            Kind::Fat(fat) => fat.header.entry_count,
        }
    }

    /// Sizes.
    #[must_use]
    pub fn statistics(&self) -> ZapStatistics {
        match &self.kind {
            Kind::Micro(micro) => ZapStatistics {
                is_micro: true,
                block_size: micro.block_size(),
                entries: micro.len() as u64,
                leaves: 0,
                blocks: 1,
                table_shift: 0,
                salt: micro.header.salt,
            },
            Kind::Fat(fat) => ZapStatistics {
                is_micro: false,
                block_size: 1 << fat.header.block_shift,
                entries: fat.header.entry_count,
                leaves: fat.header.leaf_count,
                blocks: fat.header.free_block.0,
                table_shift: fat.header.table_shift,
                salt: fat.header.salt,
            },
        }
    }

    /// The value of a name, all bytes equal.
    pub fn lookup(&self, name: &[u8]) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        Ok(self.lookup_matching(name, Matching::Exact)?.map(|entry| entry.value))
    }

    /// The value of a name, all bytes equal, whose value is a 64-bit integer; the first one if
    /// there are several.
    pub fn lookup_u64(&self, name: &[u8]) -> Result<Option<u64>, ZapError<B::Error>> {
        let value = self.lookup(name)?;
        value.map(|value| value.first_u64().ok_or(ZapError::ValueKind)).transpose()
    }

    /// The entry of a name. Of several that match, the one with the lowest collision
    /// differentiator.
    pub fn lookup_matching(
        &self,
        name: &[u8],
        matching: Matching,
    ) -> Result<Option<ZapEntry>, ZapError<B::Error>> {
        let normalization = self.normalization();
        if matching != Matching::Exact && normalization.is_none() {
            return Err(ZapError::NotNormalizing);
        }
        let hashed = normalization.normalize(name);
        let comparison = match matching {
            Matching::Exact => Normalization::NONE,
            Matching::Normalized => normalization,
            Matching::NormalizedCase => normalization.case_sensitive(),
        };
        let wanted = comparison.normalize(name);
        let matches = |stored: &[u8]| comparison.normalize(stored) == wanted;
        match &self.kind {
            Kind::Micro(micro) => {
                let hash = hash_name(micro.header.salt, &hashed, HashBits::Bits28);
                let found = micro.with_hash(hash).find(|entry| matches(entry.name));
                Ok(found.map(|entry| {
                    let differentiator = entry.differentiator;
                    let at = Position { hash, differentiator };
                    self.entry(ZapKey::Name(entry.name.to_vec()), ZapValue::One(entry.value), at)
                }))
            }
            Kind::Fat(fat) => {
                if fat.header.keys != KeyKind::Name {
                    return Err(ZapError::KeyKind);
                }
                let hash = hash_name(fat.header.salt, &hashed, fat.header.hash_bits);
                self.find_in_leaf(fat, hash, |key| key.as_name().is_some_and(matches))
            }
        }
    }

    /// The value of a key that is an array of words.
    pub fn lookup_words(&self, words: &[u64]) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        let Kind::Fat(fat) = &self.kind else { return Err(ZapError::KeyKind) };
        let bits = fat.header.hash_bits;
        let hash = match fat.header.keys {
            KeyKind::Name => return Err(ZapError::KeyKind),
            KeyKind::Words => hash_words(fat.header.salt, words, bits),
            KeyKind::PreHashedWords => bits.keep(words.first().copied().unwrap_or_default()),
        };
        let found = self.find_in_leaf(fat, hash, |key| key.as_words() == Some(words))?;
        Ok(found.map(|entry| entry.value))
    }

    /// The first entry (by collision differentiator) with this hash whose key `matches`.
    fn find_in_leaf(
        &self,
        fat: &FatZap,
        hash: u64,
        matches: impl Fn(&ZapKey) -> bool,
    ) -> Result<Option<ZapEntry>, ZapError<B::Error>> {
        let block = fat.leaf_of(&self.blocks, hash)?;
        let corrupt = ZapError::corrupt(block.id);
        let leaf = block.leaf()?;
        let mut best: Option<(Position, ZapKey, _)> = None;
        for entry in leaf.chain(hash) {
            let entry = entry.map_err(&corrupt)?;
            let at = Position { hash, differentiator: entry.differentiator };
            if entry.hash != hash || best.as_ref().is_some_and(|(before, ..)| *before <= at) {
                continue;
            }
            let key = fat.key(&leaf, &entry).map_err(&corrupt)?;
            if matches(&key) {
                best = Some((at, key, entry));
            }
        }
        let Some((at, key, entry)) = best else { return Ok(None) };
        let value = FatZap::value(&leaf, &entry).map_err(corrupt)?;
        Ok(Some(self.entry(key, value, at)))
    }

    fn entry(&self, key: ZapKey, value: ZapValue, at: Position) -> ZapEntry {
        ZapEntry { key, value, next: at.cookie_behind(self.hash_bits()) }
    }

    /// All entries in the order of their hashes. An error ends the iteration.
    pub fn entries(&self) -> Entries<'_, B> {
        self.entries_from(Cookie::START)
    }

    /// The entries from a position on, in the order of their hashes. An error ends the iteration.
    pub fn entries_from(&self, cookie: Cookie) -> Entries<'_, B> {
        let position = Position::from_cookie(cookie, self.hash_bits());
        Entries { zap: self, position, found: VecDeque::new() }
    }
}

/// An iteration over entries; see [`Zap::entries`].
#[derive(Debug)]
pub struct Entries<'a, B> {
    zap: &'a Zap<B>,
    /// Where to go on once `found` is used up; `None` is the end.
    position: Option<Position>,
    found: VecDeque<ZapEntry>,
}

impl<B: ZapBlocks> Entries<'_, B> {
    fn advance(&mut self, from: Position) -> Result<(), ZapError<B::Error>> {
        match &self.zap.kind {
            Kind::Micro(micro) => {
                if let Some((at, entry)) = micro.at(from) {
                    let key = ZapKey::Name(entry.name.to_vec());
                    self.found.push_back(self.zap.entry(key, ZapValue::One(entry.value), at));
                    let differentiator = at.differentiator + 1;
                    self.position = Some(Position { differentiator, ..at });
                }
                Ok(())
            }
            Kind::Fat(fat) => {
                let block = fat.leaf_of(&self.zap.blocks, from.hash)?;
                let corrupt = ZapError::corrupt(block.id);
                let leaf = block.leaf()?;
                for entry in FatZap::ordered(&leaf, from).map_err(&corrupt)? {
                    let key = fat.key(&leaf, &entry).map_err(&corrupt)?;
                    let value = FatZap::value(&leaf, &entry).map_err(&corrupt)?;
                    let at = Position { hash: entry.hash, differentiator: entry.differentiator };
                    self.found.push_back(self.zap.entry(key, value, at));
                }
                let next = leaf.next_leaf_hash();
                self.position = next.map(|hash| Position { hash, differentiator: 0 });
                Ok(())
            }
        }
    }
}

impl<B: ZapBlocks> Iterator for Entries<'_, B> {
    type Item = Result<ZapEntry, ZapError<B::Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.found.is_empty() {
            let from = self.position.take()?;
            if let Err(error) = self.advance(from) {
                self.found.clear();
                self.position = None;
                return Some(Err(error));
            }
        }
        self.found.pop_front().map(Ok)
    }
}
