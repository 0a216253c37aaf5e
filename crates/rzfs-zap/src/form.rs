//! A ZAP of either form, without its blocks: what an open one knows.

use rzfs_format::zap::{HashBits, ZapForm};
use rzfs_format::{BlockId, FormatError};

use crate::entry::{KeyRef, ZapEntry};
use crate::fat::Fat;
use crate::first_block::FirstBlock;
use crate::matching::Matching;
use crate::micro::Micro;
use crate::{Normalization, ZapBlocks, ZapError, ZapValue};

#[derive(Debug)]
pub(crate) enum Form {
    Micro(Micro),
    Fat(Box<Fat>),
}

impl Form {
    pub(crate) fn open<B: ZapBlocks>(blocks: &B) -> Result<Self, ZapError<B::Error>> {
        let corrupt = ZapError::corrupt(BlockId(0));
        let count = blocks.block_count().map_err(ZapError::Blocks)?;
        let (block, order) = blocks.read_block(BlockId(0)).map_err(ZapError::Blocks)?;
        Ok(match ZapForm::of_block(&block, order).map_err(&corrupt)? {
            ZapForm::Micro if count != 1 => {
                return Err(corrupt(FormatError::field("microzap", "blocks", count)));
            }
            ZapForm::Micro => Self::Micro(Micro::open(block, order).map_err(&corrupt)?),
            ZapForm::Fat => Self::Fat(Box::new(Fat::open(block, order).map_err(&corrupt)?)),
        })
    }

    pub(crate) fn first_block(&mut self) -> &mut FirstBlock {
        match self {
            Self::Micro(micro) => micro.first_block(),
            Self::Fat(fat) => fat.first_block(),
        }
    }

    pub(crate) fn normalization(&self) -> Normalization {
        match self {
            Self::Micro(micro) => micro.normalization(),
            Self::Fat(fat) => fat.header.normalization,
        }
    }

    pub(crate) const fn hash_bits(&self) -> HashBits {
        match self {
            Self::Micro(_) => HashBits::Bits28,
            Self::Fat(fat) => fat.hash_bits(),
        }
    }

    /// The value of the entry with exactly this key.
    pub(crate) fn lookup<B: ZapBlocks>(
        &self,
        blocks: &B,
        key: KeyRef<'_>,
    ) -> Result<Option<ZapValue>, ZapError<B::Error>> {
        match (self, key) {
            (Self::Micro(micro), KeyRef::Name(name)) => {
                Ok(micro.lookup(blocks, name)?.map(ZapValue::from))
            }
            (Self::Micro(_), KeyRef::Words(_)) => Err(ZapError::KeyKind),
            (Self::Fat(fat), key) => fat.lookup(blocks, key),
        }
    }

    /// The first 64-bit integer of the value of the entry with exactly this key.
    pub(crate) fn lookup_u64<B: ZapBlocks>(
        &self,
        blocks: &B,
        key: KeyRef<'_>,
    ) -> Result<Option<u64>, ZapError<B::Error>> {
        match (self, key) {
            (Self::Micro(micro), KeyRef::Name(name)) => micro.lookup(blocks, name),
            (Self::Micro(_), KeyRef::Words(_)) => Err(ZapError::KeyKind),
            (Self::Fat(fat), key) => fat.lookup_number(blocks, key),
        }
    }

    /// The first entry, by cd, whose name matches.
    pub(crate) fn lookup_matching<B: ZapBlocks>(
        &self,
        blocks: &B,
        name: &[u8],
        matching: Matching,
    ) -> Result<Option<ZapEntry>, ZapError<B::Error>> {
        let comparison = self.comparison(matching)?;
        let wanted = comparison.normalize(name);
        let entries = self.with_hash_of(blocks, name)?;
        Ok(entries.into_iter().find(|entry| comparison.normalize(entry.name()) == wanted))
    }

    /// The number of entries whose names match.
    pub(crate) fn count_matching<B: ZapBlocks>(
        &self,
        blocks: &B,
        name: &[u8],
        matching: Matching,
    ) -> Result<usize, ZapError<B::Error>> {
        let comparison = self.comparison(matching)?;
        let wanted = comparison.normalize(name);
        let entries = self.with_hash_of(blocks, name)?;
        Ok(entries.iter().filter(|entry| comparison.normalize(entry.name()) == wanted).count())
    }

    /// The rules by which names are compared.
    fn comparison<E>(&self, matching: Matching) -> Result<Normalization, ZapError<E>> {
        let rules = self.normalization();
        match matching {
            Matching::Exact => Ok(Normalization::NONE),
            _ if rules.is_none() => Err(ZapError::NotNormalizing),
            Matching::Normalized => Ok(rules),
            Matching::NormalizedCase => Ok(rules.case_sensitive()),
        }
    }

    /// The entries whose names have the hash of this name, by ascending cd.
    fn with_hash_of<B: ZapBlocks>(
        &self,
        blocks: &B,
        name: &[u8],
    ) -> Result<Vec<ZapEntry>, ZapError<B::Error>> {
        match self {
            Self::Micro(micro) => micro.with_hash_of(blocks, name),
            Self::Fat(fat) => {
                let hash = fat.hash(KeyRef::Name(name)).ok_or(ZapError::KeyKind)?;
                fat.with_hash(blocks, hash)
            }
        }
    }
}
