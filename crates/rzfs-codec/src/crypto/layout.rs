//! Which parts of a block are encrypted, and which only authenticated.
//!
//! Most blocks are encrypted whole. A dnode block keeps what a pool needs to know without a key
//! (sizes, block pointers), a log block what claiming it needs; of both, the readable rest is
//! additional authenticated data, with what may change masked.

mod dnode_block;
mod log_block;
mod parts;

pub(super) use dnode_block::{Core, PointerArea};
pub(super) use log_block::MAC as LOG_MAC;

use super::{CryptoError, CryptoVersion};
use parts::Parts;
use rzfs_format::ByteOrder;
use rzfs_format::object_type::ObjectType;
use std::cell::RefCell;
#[cfg(test)]
use std::ops::Range;

/// How the blocks of a type are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// Everything is encrypted.
    Whole,
    /// Of the dnodes, the bonus buffers of encrypted types.
    DnodeBlock,
    /// Of the records, the bodies.
    LogBlock,
}

impl Layout {
    pub(super) fn of(object_type: ObjectType) -> Self {
        match object_type {
            ObjectType::DNODE => Self::DnodeBlock,
            ObjectType::INTENT_LOG => Self::LogBlock,
            _ => Self::Whole,
        }
    }

    /// Runs `cipher` over the block's message and additional data, and puts the message back.
    pub(super) fn process<T>(
        self,
        version: CryptoVersion,
        order: ByteOrder,
        block: &mut [u8],
        cipher: impl FnOnce(&[u8], &mut [u8]) -> Result<T, CryptoError>,
    ) -> Result<T, CryptoError> {
        if self == Self::Whole {
            return cipher(&[], block);
        }
        SCRATCH.with_borrow_mut(|parts| {
            parts.clear();
            match self {
                Self::DnodeBlock => dnode_block::take_apart(version, order, block, parts)?,
                _ => log_block::take_apart(order, block, parts)?,
            }
            for range in &parts.encrypted {
                parts.message.extend_from_slice(block.get(range.clone()).unwrap_or_default());
            }
            let result = cipher(&parts.aad, &mut parts.message)?;
            let mut message = &parts.message[..];
            for range in &parts.encrypted {
                let room = block.get_mut(range.clone()).unwrap_or_default();
                if let Some((piece, rest)) = message.split_at_checked(room.len()) {
                    room.copy_from_slice(piece);
                    message = rest;
                }
            }
            Ok(result)
        })
    }
}

thread_local! {
    /// Memory of the last block; the next one of this thread needs as much.
    static SCRATCH: RefCell<Parts> = RefCell::default();
}

#[cfg(test)]
pub(super) fn parts_of(
    layout: Layout,
    version: CryptoVersion,
    order: ByteOrder,
    block: &[u8],
) -> Result<(Vec<u8>, Vec<Range<usize>>), CryptoError> {
    let mut parts = Parts::default();
    match layout {
        Layout::DnodeBlock => dnode_block::take_apart(version, order, block, &mut parts)?,
        _ => log_block::take_apart(order, block, &mut parts)?,
    }
    Ok((parts.aad, parts.encrypted))
}
