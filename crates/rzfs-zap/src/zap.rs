//! An open ZAP of either form.

use rzfs_format::zap::{HashBits, ZapForm, ZapHash};
use rzfs_format::{BlockId, FormatError};

use crate::cookie::{Cookie, Position};
use crate::entry::{KeyRef, ZapEntry};
use crate::fat::{Fat, LeafBlock};
use crate::micro::Micro;
use crate::statistics::{self, MicroStatistics, ZapStatistics};
use crate::{Normalization, ZapBlocks, ZapError, ZapValue};

/// An open ZAP.
///
/// Opening a microzap reads and indexes all of it; opening a fat ZAP reads its header. What is
/// read later comes from the blocks again, so the object must not change while it is open.
#[derive(Debug)]
pub struct Zap<B> {
    blocks: B,
    form: Form,
}

#[derive(Debug)]
enum Form {
    Micro(Micro),
    Fat(Box<Fat>),
}

/// When a name matches the name of an entry (spec 03, section 12.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Matching {
    /// When the bytes are equal.
    Exact,
    /// When the normalised forms are equal, by all rules of the ZAP.
    Normalized,
    /// When the normalised forms are equal and so is the case of letters.
    NormalizedCase,
}

impl<B: ZapBlocks> Zap<B> {
    /// Opens the ZAP that an object's blocks hold.
    pub fn open(blocks: B) -> Result<Self, ZapError<B::Error>> {
        let corrupt = ZapError::corrupt(BlockId(0));
        let (block, order) = blocks.read_block(BlockId(0)).map_err(ZapError::Blocks)?;
        let form = match ZapForm::of_block(&block, order).map_err(&corrupt)? {
            ZapForm::Micro if blocks.block_count() != 1 => {
                return Err(corrupt(FormatError::field(
                    "microzap",
                    "blocks",
                    blocks.block_count(),
                )));
            }
            ZapForm::Micro => Form::Micro(Micro::open(block, order).map_err(&corrupt)?),
            ZapForm::Fat => Form::Fat(Box::new(Fat::open(block, order).map_err(&corrupt)?)),
        };
        Ok(Self { blocks, form })
    }

    /// The form on disk.
    #[must_use]
    pub const fn form(&self) -> ZapForm {
        match self.form {
            Form::Micro(_) => ZapForm::Micro,
            Form::Fat(_) => ZapForm::Fat,
        }
    }

    /// The number of entries, as recorded.
    #[must_use]
    pub fn entry_count(&self) -> u64 {
        match &self.form {
            Form::Micro(micro) => micro.len() as u64,
            Form::Fat(fat) => fat.header.entries,
        }
    }

    /// How names are normalised.
    #[must_use]
    pub fn normalization(&self) -> Normalization {
        match &self.form {
            Form::Micro(micro) => micro.normalization(),
            Form::Fat(fat) => fat.header.normalization,
        }
    }

    /// The salt of the hash.
    #[must_use]
    pub fn salt(&self) -> u64 {
        match &self.form {
            Form::Micro(micro) => micro.salt(),
            Form::Fat(fat) => fat.header.salt,
        }
    }

    /// Bits of the hash that count; what cookies need.
    #[must_use]
    pub const fn hash_bits(&self) -> HashBits {
        match &self.form {
            Form::Micro(_) => HashBits::Bits28,
            Form::Fat(fat) => fat.hash_bits(),
        }
    }

    /// Bytes of memory that keeping this open takes, the shared block of a microzap included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.form {
                Form::Micro(micro) => micro.memory_bytes(),
                Form::Fat(fat) => size_of::<Fat>() + fat.header.geometry.block_size(),
            }
    }

    /// The blocks that it was opened on.
    #[must_use]
    pub const fn blocks(&self) -> &B {
        &self.blocks
    }

    /// The value of the entry with exactly this name.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        let name = name.as_ref();
        match &self.form {
            Form::Micro(micro) => {
                let found = micro.lookup(name).map_err(ZapError::corrupt(BlockId(0)))?;
                Ok(found.map(ZapValue::from))
            }
            Form::Fat(fat) => fat.lookup(&self.blocks, KeyRef::Name(name)),
        }
    }

    /// The 64-bit integer that the entry with exactly this name has for its value; the first one
    /// if there are several.
    pub fn lookup_u64(&self, name: impl AsRef<[u8]>) -> Result<Option<u64>, ZapError<B::Error>> {
        let name = name.as_ref();
        match &self.form {
            Form::Micro(micro) => micro.lookup(name).map_err(ZapError::corrupt(BlockId(0))),
            Form::Fat(fat) => fat.lookup_number(&self.blocks, KeyRef::Name(name)),
        }
    }

    /// The value of the entry whose key is exactly this array of numbers.
    pub fn lookup_words(&self, words: &[u64]) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        match &self.form {
            Form::Micro(_) => Err(ZapError::KeyKind),
            Form::Fat(fat) => fat.lookup(&self.blocks, KeyRef::Words(words)),
        }
    }

    /// The first entry, by collision differentiator, whose name matches.
    ///
    /// # Errors
    /// [`ZapError::NotNormalizing`] when the ZAP does not normalise and the match is not exact.
    pub fn lookup_matching(
        &self,
        name: &[u8],
        matching: Matching,
    ) -> Result<Option<ZapEntry>, ZapError<B::Error>> {
        let rules = self.normalization();
        let comparison = match matching {
            Matching::Exact => Normalization::NONE,
            _ if rules.is_none() => return Err(ZapError::NotNormalizing),
            Matching::Normalized => rules,
            Matching::NormalizedCase => rules.case_sensitive(),
        };
        let wanted = comparison.normalize(name);
        for entry in self.with_hash_of(name)? {
            let entry = entry?;
            if comparison.normalize(entry.name()) == wanted {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The entries whose names have the hash of this name, by ascending cd.
    fn with_hash_of(&self, name: &[u8]) -> Result<EntryResults<'_, B::Error>, ZapError<B::Error>> {
        match &self.form {
            Form::Micro(micro) => {
                let corrupt = ZapError::corrupt(BlockId(0));
                Ok(Box::new(micro.with_hash_of(name).map(move |entry| entry.map_err(&corrupt))))
            }
            Form::Fat(fat) => {
                let hash = fat.hash(KeyRef::Name(name)).ok_or(ZapError::KeyKind)?;
                Ok(Box::new(fat.with_hash(&self.blocks, hash)?.into_iter().map(Ok)))
            }
        }
    }

    /// All entries, in the order of cookies.
    pub fn entries(&self) -> Entries<'_, B> {
        self.entries_from(Cookie::START)
    }

    /// The entries from a position on, in the order of cookies: by hash, then by collision
    /// differentiator.
    pub fn entries_from(&self, cookie: Cookie) -> Entries<'_, B> {
        let state = match (&self.form, Position::from_cookie(cookie, self.hash_bits())) {
            (_, None) => State::Done,
            (Form::Micro(micro), Some(position)) => State::Micro(Box::new(micro.from(position))),
            (Form::Fat(fat), Some(position)) => State::Seek(fat, position),
        };
        Entries { blocks: &self.blocks, state }
    }

    /// Statistics for `zdb`; reads all of the ZAP.
    pub fn statistics(&self) -> Result<ZapStatistics, ZapError<B::Error>> {
        match &self.form {
            Form::Micro(micro) => Ok(ZapStatistics::Micro(MicroStatistics {
                block_size: micro.block_size(),
                entries: micro.len(),
            })),
            Form::Fat(fat) => {
                let statistics = statistics::of_fat(fat, &self.blocks)?;
                Ok(ZapStatistics::Fat(Box::new(statistics)))
            }
        }
    }
}

type EntryResults<'z, E> = Box<dyn Iterator<Item = Result<ZapEntry, ZapError<E>>> + 'z>;

/// Iterator over the entries of a ZAP, in the order of cookies.
///
/// An entry that cannot be decoded is an error between the others; after a leaf that cannot be
/// read there is nothing more.
pub struct Entries<'z, B> {
    blocks: &'z B,
    state: State<'z>,
}

type MicroEntries<'z> = Box<dyn Iterator<Item = Result<ZapEntry, FormatError>> + Send + 'z>;

enum State<'z> {
    Micro(MicroEntries<'z>),
    /// The leaf with this position is to be read.
    Seek(&'z Fat, Position),
    /// Entries of a leaf that are yet to be yielded.
    Leaf(&'z Fat, LeafBlock, std::vec::IntoIter<rzfs_format::zap::leaf::LeafEntry>),
    Done,
}

impl<'z, B: ZapBlocks> Entries<'z, B> {
    fn read_leaf(&self, fat: &'z Fat, position: Position) -> Result<State<'z>, ZapError<B::Error>> {
        let leaf = fat.leaf(self.blocks, position.hash)?;
        let found = fat.sorted(&leaf, position).map_err(ZapError::corrupt(leaf.id))?;
        Ok(State::Leaf(fat, leaf, found.into_iter()))
    }

    /// What comes after a leaf: the one with the next hashes, if there are any.
    fn after_leaf(fat: &'z Fat, leaf: &LeafBlock) -> Result<State<'z>, FormatError> {
        let last = leaf.view()?.last_hash();
        Ok(match last.0.checked_add(1) {
            Some(next) => State::Seek(fat, Position { hash: ZapHash(next), cd: 0 }),
            None => State::Done,
        })
    }

    /// One step: an entry, an error, or nothing yet.
    fn step(&mut self) -> Option<Result<ZapEntry, ZapError<B::Error>>> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done => None,
            State::Micro(mut entries) => {
                let entry = entries.next()?;
                self.state = State::Micro(entries);
                Some(entry.map_err(ZapError::corrupt(BlockId(0))))
            }
            State::Seek(fat, position) => match self.read_leaf(fat, position) {
                Ok(state) => {
                    self.state = state;
                    None
                }
                Err(error) => Some(Err(error)),
            },
            State::Leaf(fat, leaf, mut entries) => {
                let Some(entry) = entries.next() else {
                    return match Self::after_leaf(fat, &leaf) {
                        Ok(state) => {
                            self.state = state;
                            None
                        }
                        Err(error) => Some(Err(ZapError::corrupt(leaf.id)(error))),
                    };
                };
                let decoded = leaf.view().and_then(|view| fat.entry(&view, &entry));
                let decoded = decoded.map_err(ZapError::corrupt(leaf.id));
                self.state = State::Leaf(fat, leaf, entries);
                Some(decoded)
            }
        }
    }
}

impl<B: ZapBlocks> Iterator for Entries<'_, B> {
    type Item = Result<ZapEntry, ZapError<B::Error>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.step() {
                return Some(item);
            }
            if matches!(self.state, State::Done) {
                return None;
            }
        }
    }
}
