//! The blocks of a label, each with the trailer that ties it to its place on the leaf.

use super::LabelError;
use bytes::Bytes;
use rzfs_blockdev::IoBuffer;
use rzfs_codec::checksum::{EmbeddedVerifier, generate_embedded};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::label::{
    BOOT_ENV_SIZE, CONFIG_SIZE, Multihost, RING_SIZE, TRAILER_SIZE, UberblockRing,
};
use rzfs_format::nvlist::{Encoding, NvList};
use rzfs_format::uberblock::{RaidzScratch, Uberblock};
use rzfs_format::{ByteOrder, Guid, Txg};
use std::io;

/// Where the version is in an uberblock.
const VERSION: std::ops::Range<usize> = 8..16;

/// `contents`, zeros, and a trailer for byte `offset` of the leaf.
fn sealed(contents: &[u8], size: usize, offset: u64) -> io::Result<Bytes> {
    let mut block = IoBuffer::padded(contents, size)?;
    let verifier = EmbeddedVerifier::Label { offset };
    generate_embedded(ChecksumFunction::Label, &mut block, verifier, ByteOrder::NATIVE)
        .map_err(io::Error::other)?;
    Ok(block.freeze())
}

/// The packed configuration of a leaf; it fits into a label.
#[derive(Clone, Debug)]
pub(super) struct ConfigBlock(Vec<u8>);

impl ConfigBlock {
    pub(super) fn new(leaf: Guid, config: &NvList) -> Result<Self, LabelError> {
        let packed = config.encode(Encoding::Xdr)?;
        let (size, room) = (packed.len(), CONFIG_SIZE - TRAILER_SIZE);
        if size > room { Err(LabelError::TooLarge { leaf, size, room }) } else { Ok(Self(packed)) }
    }

    /// The block for byte `offset` of the leaf.
    pub(super) fn at(&self, offset: u64) -> io::Result<Bytes> {
        sealed(&self.0, CONFIG_SIZE, offset)
    }
}

/// An empty boot environment for byte `offset` of the leaf.
pub(super) fn empty_boot_environment(offset: u64) -> io::Result<Bytes> {
    sealed(&[], BOOT_ENV_SIZE, offset)
}

/// A ring for byte `offset` of the leaf without a usable uberblock: one block, whose first slot has
/// the pool's current uberblock with a txg of 0, so that it does not count. A new pool has none
/// yet; its first slot only has the version.
pub(super) fn new_ring(
    version: u64,
    present: Option<&Uberblock>,
    offset: u64,
) -> io::Result<Bytes> {
    let contents = match present {
        Some(uberblock) => Uberblock { txg: Txg(0), ..uberblock.clone() }.encode(ByteOrder::NATIVE),
        None => {
            let mut contents = [0; Uberblock::SIZE];
            if let Some(word) = contents.get_mut(VERSION) {
                word.copy_from_slice(&version.to_ne_bytes());
            }
            contents
        }
    };
    sealed(&contents, RING_SIZE, offset)
}

/// An uberblock in its slot at byte `offset` of the leaf.
pub(super) fn slot(uberblock: &Uberblock, ring: UberblockRing, offset: u64) -> io::Result<Bytes> {
    sealed(&uberblock.encode(ByteOrder::NATIVE), ring.slot_size(), offset)
}

/// The slot of an uberblock, given by its txg. One written a second time in its txg, because the
/// scratch area of a RAID-Z expansion became valid, must not overwrite the first.
pub(super) fn slot_of(uberblock: &Uberblock, ring: UberblockRing, multihost: Multihost) -> usize {
    let is_second = uberblock.raidz_reflow.scratch() == Ok(RaidzScratch::Valid);
    let txg = uberblock.txg.get().saturating_sub(u64::from(is_second));
    ring.slot_of_txg(Txg(txg), multihost)
}
