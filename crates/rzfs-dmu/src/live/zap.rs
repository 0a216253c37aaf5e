//! The ZAP in a live object.
//!
//! A [`Zap`] is opened on the object and kept as long as the object is in use; a transaction
//! changes it through [`Zap::writer`] on the object's blocks [in the transaction](ZapTx). Its
//! holder synchronises writers and readers with a lock around it.

use super::{Extent, LiveObject, Transaction};
use crate::DmuError;
use bytes::Bytes;
use rzfs_format::{BlockId, ByteOrder};
use rzfs_zap::{BlockMut, NewZap, Zap, ZapBlocks, ZapBlocksMut, ZapError};
use std::fmt;
use std::ops::Range;

impl LiveObject {
    /// Opens the ZAP in the object.
    ///
    /// # Errors
    /// A block cannot be read or is not part of a ZAP.
    pub fn zap(&self) -> Result<Zap<Self>, ZapError<DmuError>> {
        Zap::open(self.clone())
    }

    /// Turns a new object into an empty ZAP.
    ///
    /// # Errors
    /// The object does not exist, or the ZAP cannot have this shape.
    pub fn create_zap(
        &self,
        tx: &dyn Transaction,
        new: &NewZap,
    ) -> Result<Zap<Self>, ZapError<DmuError>> {
        new.write_to(&mut self.zap_blocks(tx))?;
        self.zap()
    }

    /// The object's blocks in a transaction, for [`Zap::writer`].
    pub fn zap_blocks<'a>(&'a self, tx: &'a dyn Transaction) -> ZapTx<'a> {
        ZapTx { object: self, tx }
    }
}

impl ZapBlocks for LiveObject {
    type Error = DmuError;

    fn block_size(&self) -> usize {
        self.data_block_size().map_or(0, |size| size as usize)
    }

    fn block_count(&self) -> Result<u64, DmuError> {
        Ok(self.max_block_id()?.0.saturating_add(1))
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), DmuError> {
        let block = Self::read_block(self, id)?;
        Ok((block.data, block.order))
    }
}

/// The blocks of a live object that holds a ZAP, in a transaction.
#[derive(Clone, Copy)]
pub struct ZapTx<'a> {
    object: &'a LiveObject,
    tx: &'a dyn Transaction,
}

impl fmt::Debug for ZapTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZapTx")
            .field("object", &self.object.id())
            .field("txg", &self.tx.txg())
            .finish()
    }
}

impl ZapBlocks for ZapTx<'_> {
    type Error = DmuError;

    fn block_size(&self) -> usize {
        ZapBlocks::block_size(self.object)
    }

    fn block_count(&self) -> Result<u64, DmuError> {
        ZapBlocks::block_count(self.object)
    }

    fn read_block(&self, id: BlockId) -> Result<(Bytes, ByteOrder), DmuError> {
        ZapBlocks::read_block(self.object, id)
    }
}

impl ZapBlocksMut for ZapTx<'_> {
    fn modify_block<R>(
        &mut self,
        id: BlockId,
        edit: impl FnOnce(BlockMut<'_>) -> R,
    ) -> Result<R, DmuError> {
        self.object.modify_block(self.tx, id, |bytes, order| edit(BlockMut { bytes, order }))
    }

    fn write_block(&mut self, id: BlockId, contents: Bytes) -> Result<(), DmuError> {
        let offset = id.0.saturating_mul(ZapBlocks::block_size(self.object) as u64);
        self.object.write(self.tx, offset, &contents)
    }

    fn set_block_size(&mut self, size: usize) -> Result<(), DmuError> {
        self.object.set_data_block_size(self.tx, u32::try_from(size).unwrap_or(u32::MAX))
    }

    fn free_blocks(&mut self, blocks: Range<u64>) -> Result<(), DmuError> {
        let size = ZapBlocks::block_size(self.object) as u64;
        let count = blocks.end.saturating_sub(blocks.start);
        let len = if blocks.end >= ZapBlocks::block_count(self.object)? {
            Extent::ToEnd
        } else {
            Extent::Bytes(count.saturating_mul(size))
        };
        self.object.free(self.tx, blocks.start.saturating_mul(size), len)
    }
}
