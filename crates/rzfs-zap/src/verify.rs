//! Holds the blocks of a ZAP against every rule of the format (spec 03, section 12.10).

mod distinct;
mod fat;
mod violation;

pub use violation::Violation;

use rzfs_format::zap::micro::{ENTRY_SIZE, MicroBlock};
use rzfs_format::zap::{HashBits, ZapForm, ZapHash};
use rzfs_format::{BlockId, ByteOrder, FormatError};

use crate::ZapBlocks;
use distinct::check_distinct;
use violation::MOST;

/// What a ZAP's blocks break; empty when they are sound. After a hundred violations no more are
/// looked for.
///
/// # Errors
/// When a block cannot be read.
pub fn verify<B: ZapBlocks>(blocks: &B) -> Result<Vec<Violation>, B::Error> {
    let mut found = Vec::new();
    let (bytes, order) = blocks.read_block(BlockId(0))?;
    match ZapForm::of_block(&bytes, order) {
        Ok(ZapForm::Micro) => {
            let count = blocks.block_count()?;
            if count != 1 {
                let source = FormatError::field("microzap", "blocks", count);
                found.push(Violation::Structure { block: BlockId(0), source });
            }
            micro(&bytes, order, &mut found)
                .unwrap_or_else(|source| found.push(Violation::in_first_block(source)));
        }
        Ok(ZapForm::Fat) => fat::verify(blocks, bytes, order, &mut found)?,
        Err(source) => found.push(Violation::in_first_block(source)),
    }
    found.truncate(MOST);
    Ok(found)
}

fn micro(bytes: &[u8], order: ByteOrder, found: &mut Vec<Violation>) -> Result<(), FormatError> {
    let view = MicroBlock::decode(bytes, order)?;
    let mut entries = Vec::new();
    for (slot, raw) in bytes.chunks_exact(ENTRY_SIZE).skip(1).enumerate() {
        match view.entry(slot) {
            Ok(Some(entry)) => {
                let normalized = view.normalization().normalize(entry.name);
                let hash = ZapHash::of_name(view.salt(), &normalized, HashBits::Bits28);
                entries.push((hash, entry.cd, entry.name.to_vec()));
            }
            Ok(None) if raw.iter().any(|&byte| byte != 0) => {
                let source = FormatError::field("microzap", "remains of a free entry", slot as u64);
                found.push(Violation::in_first_block(source));
            }
            Ok(None) => {}
            Err(source) => found.push(Violation::in_first_block(source)),
        }
    }
    check_distinct(BlockId(0), entries, found);
    Ok(())
}
