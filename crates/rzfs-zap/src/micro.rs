//! Micro ZAPs: one block and an index over it.
//!
//! The block's entries are in no order. The index, built when the ZAP is opened, orders them by
//! hash and collision differentiator in eight bytes each:
//!
//! ```text
//! 63          32 31            16 15     0
//! | hash, upper | differentiator | entry |
//! ```

use crate::entry::Position;
use bytes::Bytes;
use rzfs_format::zap::micro::{self, MicroEntry, MicroHeader};
use rzfs_format::zap::{HashBits, hash_name};
use rzfs_format::{ByteOrder, FormatError};

#[derive(Debug)]
pub(crate) struct MicroZap {
    block: Bytes,
    order: ByteOrder,
    pub(crate) header: MicroHeader,
    index: Box<[u64]>,
}

impl MicroZap {
    pub(crate) fn open(block: Bytes, order: ByteOrder) -> Result<Self, FormatError> {
        let header = micro::decode_header(&block, order)?;
        let mut index = Vec::new();
        for number in 0..micro::capacity(block.len()) {
            let Some(entry) = micro::entry(&block, order, number)? else { continue };
            let name = header.normalization.normalize(entry.name);
            let hash = hash_name(header.salt, &name, HashBits::Bits28);
            let differentiator = u64::from(entry.differentiator);
            index.push(hash | differentiator << 16 | number as u64);
        }
        index.sort_unstable();
        let key = |element: &u64| element >> 16;
        if index.windows(2).any(|pair| matches!(pair, [a, b] if key(a) == key(b))) {
            return Err(FormatError::invalid("micro ZAP", "two entries with the same position"));
        }
        Ok(Self { block, order, header, index: index.into() })
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) fn block_size(&self) -> usize {
        self.block.len()
    }

    /// The entries with this hash, by differentiator.
    pub(crate) fn with_hash(&self, hash: u64) -> impl Iterator<Item = MicroEntry<'_>> {
        let start = self.index.partition_point(|element| *element < hash);
        let elements = self.index.get(start..).unwrap_or_default().iter();
        elements.take_while(move |element| HashBits::Bits28.keep(**element) == hash).filter_map(
            |element| {
                let number = (element & 0xffff) as usize;
                micro::entry(&self.block, self.order, number).ok().flatten()
            },
        )
    }

    /// The first entry at or behind a position.
    pub(crate) fn at(&self, position: Position) -> Option<(Position, MicroEntry<'_>)> {
        if position.differentiator > 0xffff {
            let hash = position.hash.checked_add(1 << 36)?;
            return self.at(Position { hash, differentiator: 0 });
        }
        let wanted = position.hash | u64::from(position.differentiator) << 16;
        let start = self.index.partition_point(|element| *element < wanted);
        let element = self.index.get(start)?;
        let entry = micro::entry(&self.block, self.order, (element & 0xffff) as usize);
        let entry = entry.ok().flatten()?;
        let hash = HashBits::Bits28.keep(*element);
        Some((Position { hash, differentiator: entry.differentiator }, entry))
    }
}
