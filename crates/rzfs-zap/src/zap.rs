//! An open ZAP of either form.

use rzfs_format::zap::{HashBits, ZapForm};

use crate::cookie::Cookie;
use crate::create::NewZap;
use crate::entries::Entries;
use crate::entry::{KeyRef, ZapEntry};
use crate::fat::Fat;
use crate::form::Form;
use crate::statistics::{self, MicroStatistics, ZapStatistics};
use crate::{
    InsertCost, Matching, Normalization, Tunables, ZapBlocks, ZapBlocksMut, ZapError, ZapValue,
    ZapWriter,
};

/// An open ZAP.
///
/// Opening a microzap reads and indexes all of it; opening a fat ZAP reads its header. What is
/// read later comes from the blocks again, so the object must not change while it is open, except
/// through a [`Self::writer`].
///
/// Any number of threads may read at once; a writer is alone. Whoever owns the object holds the
/// two apart with a lock around the `Zap`, so that readers and writer share one index.
#[derive(Debug)]
pub struct Zap<B> {
    blocks: B,
    form: Form,
}

impl<B> Zap<B> {
    /// A writer that changes the ZAP through the blocks of a transaction. They are those of the
    /// same object, and what is written there is seen by reads of the blocks that the ZAP was
    /// opened on.
    pub fn writer<W: ZapBlocksMut>(&mut self, blocks: W) -> ZapWriter<'_, W> {
        ZapWriter::new(&mut self.form, blocks)
    }
}

impl<B: ZapBlocksMut> Zap<B> {
    /// Makes an object a ZAP without entries.
    pub fn create(mut blocks: B, new: &NewZap) -> Result<Self, ZapError<B::Error>> {
        new.write_to(&mut blocks)?;
        Self::open(blocks)
    }

    /// A writer that changes the ZAP through the blocks that it was opened on.
    pub fn edit(&mut self) -> ZapWriter<'_, &mut B> {
        ZapWriter::new(&mut self.form, &mut self.blocks)
    }
}

impl<B: ZapBlocks> Zap<B> {
    /// Opens the ZAP that an object's blocks hold.
    pub fn open(blocks: B) -> Result<Self, ZapError<B::Error>> {
        let form = Form::open(&blocks)?;
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
        self.form.normalization()
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
        self.form.hash_bits()
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

    /// What adding this entry would write; nothing is read to tell.
    pub fn insert_cost<'k>(
        &self,
        key: impl Into<KeyRef<'k>>,
        value: &ZapValue,
        tunables: &Tunables,
    ) -> InsertCost {
        self.form.insert_cost(key.into(), value, tunables)
    }

    /// The blocks that it was opened on.
    #[must_use]
    pub const fn blocks(&self) -> &B {
        &self.blocks
    }

    /// Closes the ZAP and gives the blocks back.
    #[must_use]
    pub fn into_blocks(self) -> B {
        self.blocks
    }

    /// The value of the entry with exactly this name.
    pub fn lookup(&self, name: impl AsRef<[u8]>) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        self.form.lookup(&self.blocks, KeyRef::Name(name.as_ref()))
    }

    /// The 64-bit integer that the entry with exactly this name has for its value; the first one
    /// if there are several.
    pub fn lookup_u64(&self, name: impl AsRef<[u8]>) -> Result<Option<u64>, ZapError<B::Error>> {
        self.form.lookup_u64(&self.blocks, KeyRef::Name(name.as_ref()))
    }

    /// The value of the entry whose key is exactly this array of numbers.
    pub fn lookup_words(&self, words: &[u64]) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        self.form.lookup(&self.blocks, KeyRef::Words(words))
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
        self.form.lookup_matching(&self.blocks, name, matching)
    }

    /// Whether several entries match a name: then which of them [`Self::lookup_matching`] finds
    /// depends on the order in which they were made.
    ///
    /// # Errors
    /// As for [`Self::lookup_matching`].
    pub fn is_ambiguous(
        &self,
        name: &[u8],
        matching: Matching,
    ) -> Result<bool, ZapError<B::Error>> {
        Ok(self.form.count_matching(&self.blocks, name, matching)? > 1)
    }

    /// All entries, in the order of cookies.
    pub fn entries(&self) -> Entries<'_, B> {
        self.entries_from(Cookie::START)
    }

    /// The entries from a position on, in the order of cookies: by hash, then by collision
    /// differentiator.
    pub fn entries_from(&self, cookie: Cookie) -> Entries<'_, B> {
        Entries::new(&self.form, &self.blocks, cookie)
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
