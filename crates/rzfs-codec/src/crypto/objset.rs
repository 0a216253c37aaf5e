//! The MACs inside of an objset block (spec 04, section 19.11).
//!
//! The portable MAC covers what a raw send carries, the local one what belongs to this pool: the
//! flags and the accounting dnodes. Neither covers the log's header, so that a log can be claimed
//! without the key.

use super::dataset_key::HmacSha512;
use super::layout::{Core, PointerArea};
use super::record::PointerRecord;
use super::{CryptoError, CryptoVersion, DatasetKey};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use hmac::Mac;
use rzfs_format::dnode::SLOT_SIZE;
use rzfs_format::endian::Fields;
use rzfs_format::objset::{
    ACCOUNTING_OFFSETS, FLAGS_OFFSET, LOCAL_MAC_OFFSET, PORTABLE_MAC_OFFSET, TYPE_OFFSET,
};
use rzfs_format::{BlockPointer, ByteOrder, FormatError};

const WHAT: &str = "objset";
/// The flag without which nothing about accounting is authenticated.
const USER_ACCOUNTING_COMPLETE: u64 = 1;
/// Flags that a raw send carries: none.
const PORTABLE_FLAGS: u64 = 0;
const MAC_SIZE: usize = 32;

/// The two MACs of an objset block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjsetMacs {
    /// Over what a raw send carries.
    pub portable: [u8; MAC_SIZE],
    /// Over flags and accounting; zeros when there is no accounting.
    pub local: [u8; MAC_SIZE],
}

impl DatasetKey {
    /// The MACs that an objset block with these bytes should have.
    ///
    /// # Errors
    /// [`FormatError`] when the block is too short or a dnode in it does not fit its slot.
    pub fn objset_macs(&self, block: &[u8], order: ByteOrder) -> Result<ObjsetMacs, FormatError> {
        let fields = Fields::new(WHAT, block, order);
        let flags = fields.u64(FLAGS_OFFSET)?;

        let mut portable = self.hmac();
        portable.update(&fields.u64(TYPE_OFFSET)?.to_be_bytes());
        portable.update(&(flags & PORTABLE_FLAGS).to_le_bytes());
        update_dnode(&mut portable, self.version(), fields.sub("meta-dnode", 0, SLOT_SIZE)?)?;

        let mut local = self.hmac();
        local.update(&flags.to_le_bytes());
        let mut accounts = 0;
        for offset in ACCOUNTING_OFFSETS {
            if fields.len() < offset + SLOT_SIZE {
                break;
            }
            let dnode = fields.sub("accounting dnode", offset, SLOT_SIZE)?;
            if dnode.u8(0)? != 0 {
                update_dnode(&mut local, self.version(), dnode)?;
                accounts += 1;
            }
        }
        let has_local = flags & USER_ACCOUNTING_COMPLETE != 0 && accounts > 0;
        Ok(ObjsetMacs {
            portable: truncated(portable),
            local: if has_local { truncated(local) } else { [0; MAC_SIZE] },
        })
    }

    /// Verifies the MACs inside of an objset block.
    ///
    /// # Errors
    /// [`CryptoError::BadMac`], or [`CryptoError::Format`] when the block is no objset.
    pub fn verify_objset(&self, block: &[u8], order: ByteOrder) -> Result<(), CryptoError> {
        let fields = Fields::new(WHAT, block, order);
        let macs = self.objset_macs(block, order)?;
        let verify = |offset, mac: &[u8; MAC_SIZE], what| {
            verify_slices_are_equal(fields.bytes(offset, MAC_SIZE)?, mac)
                .map_err(|_| CryptoError::BadMac { what })
        };
        verify(PORTABLE_MAC_OFFSET, &macs.portable, "objset")?;
        if macs.local == [0; MAC_SIZE] {
            return Ok(());
        }
        verify(LOCAL_MAC_OFFSET, &macs.local, "objset's accounting")
    }
}

fn truncated(mac: HmacSha512) -> [u8; MAC_SIZE] {
    let mut bytes = [0; MAC_SIZE];
    bytes.copy_from_slice(&mac.finalize().into_bytes()[..MAC_SIZE]);
    bytes
}

/// A dnode of the objset block, its bonus left out.
fn update_dnode(
    mac: &mut HmacSha512,
    version: CryptoVersion,
    dnode: Fields<'_>,
) -> Result<(), FormatError> {
    let order = dnode.order();
    let bytes = dnode.bytes(0, dnode.len())?;
    let core = Core::decode(bytes, order)?;
    let area = PointerArea::of(bytes, &core)?;
    mac.update(&core.in_little_endian(order));
    let pointers = dnode.bytes(area.tree.start, area.tree.len())?;
    for pointer in pointers.chunks_exact(BlockPointer::SIZE) {
        mac.update(PointerRecord::decode(version, pointer, order)?.bytes());
    }
    if let Some(spill) = area.spill {
        let pointer = dnode.bytes(spill.start, spill.len())?;
        mac.update(PointerRecord::decode(version, pointer, order)?.bytes());
    }
    Ok(())
}
