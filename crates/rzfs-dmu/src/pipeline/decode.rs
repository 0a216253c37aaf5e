//! From the bytes of a device to the contents of a block: decryption, authentication,
//! decompression. Pure functions of a pointer, a key and bytes, which any thread may run.

use crate::injector::BlockInjector;
use crate::{Block, BlockError};
use bytes::Bytes;
use rzfs_cache::Ticket;
use rzfs_codec::compress;
use rzfs_codec::crypto::{self, DatasetKey};
use rzfs_format::block_pointer::Protection;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, FormatError};
use std::sync::Arc;

/// Device buffers are whole pages; contents that leave much of one unused are copied out.
const PAGE: usize = 4096;

/// A block that was read, with everything needed to decode it.
pub(super) struct Encoded {
    pub(super) pointer: BlockPointer,
    pub(super) bookmark: Bookmark,
    pub(super) key: Option<Arc<DatasetKey>>,
    pub(super) stored: Bytes,
    /// The cache's; waiters for the block get it as soon as it is decoded.
    pub(super) ticket: Option<Ticket<Block>>,
    pub(super) injector: Option<Arc<dyn BlockInjector>>,
}

impl Encoded {
    /// Decodes the block and puts it into the cache.
    pub(super) fn decode(self) -> Result<Block, BlockError> {
        let bp = &self.pointer;
        let mut data = decode(bp, self.key.as_deref(), self.stored)?;
        if let Some(injector) = &self.injector {
            data = injector.inject(self.bookmark, bp, data);
        }
        let block = Block { data, order: bp.order() };
        if let Some(ticket) = self.ticket {
            ticket.complete(block.clone());
        }
        Ok(block)
    }

    /// The approximate number of bytes to process.
    pub(super) fn effort(&self) -> u64 {
        let plain = self.pointer.compression().is_ok_and(|c| c == CompressionFunction::Off)
            && self.pointer.protection() != Protection::Encrypted;
        if plain { 0 } else { self.pointer.logical_size() }
    }
}

pub(super) fn is_dnode_block(bp: &BlockPointer) -> bool {
    bp.object_type_number() == ObjectType::DNODE.number()
}

/// Decrypts or authenticates, then decompresses.
fn decode(bp: &BlockPointer, key: Option<&DatasetKey>, stored: Bytes) -> Result<Bytes, BlockError> {
    let stored = match (bp.protection(), key) {
        (Protection::Encrypted, Some(key)) => {
            let mut plain = Vec::from(stored);
            key.decrypt_block(bp, &mut plain)?;
            Bytes::from(plain)
        }
        (Protection::Encrypted, None) if is_dnode_block(bp) => stored,
        (Protection::Encrypted, None) => return Err(BlockError::KeyNotLoaded),
        (Protection::Authenticated, Some(key)) => {
            key.authenticate_block(bp, &stored)?;
            stored
        }
        _ => stored,
    };
    let data = match bp.compression()? {
        CompressionFunction::Off if stored.len() as u64 != bp.logical_size() => {
            let size = bp.physical_size();
            return Err(FormatError::field("block pointer", "physical size", size).into());
        }
        CompressionFunction::Off if stored.len() % PAGE == 0 => stored,
        _ => decompress(bp, &stored)?,
    };
    match (bp.protection(), key) {
        (Protection::IndirectMac, Some(_)) => crypto::verify_indirect(bp, &data)?,
        (Protection::Objset, Some(key)) => key.verify_objset(&data, bp.order())?,
        _ => {}
    }
    Ok(data)
}

/// Decompresses into a new buffer.
pub(super) fn decompress(bp: &BlockPointer, stored: &[u8]) -> Result<Bytes, BlockError> {
    let size = bp.logical_size() as usize;
    let function = bp.compression()?;
    if function == CompressionFunction::Off {
        return Ok(Bytes::copy_from_slice(stored.get(..size).unwrap_or(stored)));
    }
    let mut data = vec![0; size];
    compress::decompress(function, stored, &mut data)?;
    Ok(Bytes::from(data))
}
