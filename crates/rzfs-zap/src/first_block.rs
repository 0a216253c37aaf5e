//! The first block of a ZAP, which an open one keeps.
//!
//! Lookups in a microzap and in a fat ZAP with an embedded pointer table would read it each time.
//! A writer lets go of it, because a block that someone holds is copied when it is changed, and
//! takes it again when it is done.

use std::borrow::Cow;

use bytes::Bytes;
use rzfs_format::{BlockId, ByteOrder};

use crate::{ZapBlocks, ZapError};

/// What a block contains.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) bytes: Bytes,
    pub(crate) order: ByteOrder,
}

/// The first block, if it is kept.
#[derive(Debug)]
pub(crate) struct FirstBlock(Option<Contents>);

impl FirstBlock {
    pub(crate) const fn new(contents: Contents) -> Self {
        Self(Some(contents))
    }

    /// The block: the one kept, else as it is read.
    pub(crate) fn get<B: ZapBlocks>(
        &self,
        blocks: &B,
    ) -> Result<Cow<'_, Contents>, ZapError<B::Error>> {
        match &self.0 {
            Some(contents) => Ok(Cow::Borrowed(contents)),
            None => {
                let (bytes, order) = blocks.read_block(BlockId(0)).map_err(ZapError::Blocks)?;
                Ok(Cow::Owned(Contents { bytes, order }))
            }
        }
    }

    /// Releases the block.
    pub(crate) fn release(&mut self) {
        self.0 = None;
    }

    /// Keeps the block again. One that cannot be read now is read when it is needed.
    pub(crate) fn keep<B: ZapBlocks>(&mut self, blocks: &B) {
        if self.0.is_none() {
            let read = blocks.read_block(BlockId(0)).ok();
            self.0 = read.map(|(bytes, order)| Contents { bytes, order });
        }
    }
}
