//! The rules of a fat ZAP.

use bytes::Bytes;
use rzfs_format::zap::MAX_VALUE_SIZE;
use rzfs_format::zap::fat::PointerTable;
use rzfs_format::{BlockId, ByteOrder, FormatError};

use super::distinct::check_distinct;
use super::violation::{MOST, Violation};
use crate::fat::{Fat, LeafBlock};
use crate::{KeyRef, ZapBlocks};

struct Walk<'a, B> {
    fat: Fat,
    blocks: &'a B,
    found: &'a mut Vec<Violation>,
    leaves: u64,
    entries: u64,
}

pub(super) fn verify<B: ZapBlocks>(
    blocks: &B,
    first: Bytes,
    order: ByteOrder,
    found: &mut Vec<Violation>,
) -> Result<(), B::Error> {
    let fat = match Fat::open(first, order) {
        Ok(fat) => fat,
        Err(source) => {
            found.push(Violation::in_first_block(source));
            return Ok(());
        }
    };
    if let Err(error) = fat.check_writable(blocks) {
        found.push(Violation::of(error, BlockId(0))?);
    }
    let mut walk = Walk { fat, blocks, found, leaves: 0, entries: 0 };
    walk.table()?;
    walk.next_table()?;
    let header = &walk.fat.header;
    if walk.found.len() < MOST && header.leaves != walk.leaves {
        walk.found.push(Violation::Leaves { recorded: header.leaves, found: walk.leaves });
    }
    if walk.found.len() < MOST && header.entries != walk.entries {
        walk.found.push(Violation::Entries { recorded: header.entries, found: walk.entries });
    }
    Ok(())
}

impl<B: ZapBlocks> Walk<'_, B> {
    /// Goes through the pointer table, from leaf to leaf. A pointer to a leaf of other hashes is
    /// passed over; one inside the range of a leaf that refers elsewhere is found with the range.
    fn table(&mut self) -> Result<(), B::Error> {
        let end = 1 << self.fat.header.table_shift;
        let mut index = 0;
        while index < end && self.found.len() < MOST {
            let mut next = index + 1;
            match self.fat.leaf_at(self.blocks, index) {
                Ok(leaf) => {
                    let pointers = self.fat.pointers_of_leaf(&leaf);
                    if pointers.start != index || pointers.is_empty() {
                        self.found.push(Violation::Pointer { index, leaf: leaf.id });
                    } else {
                        next = pointers.end;
                        match self.fat.all_point_to(self.blocks, pointers, leaf.id) {
                            Ok(true) => {}
                            Ok(false) => {
                                self.found.push(Violation::Pointer { index, leaf: leaf.id })
                            }
                            Err(error) => self.found.push(Violation::of(error, leaf.id)?),
                        }
                        self.leaf(&leaf);
                    }
                }
                Err(error) => self.found.push(Violation::of(error, BlockId(0))?),
            }
            index = next;
        }
        Ok(())
    }

    fn leaf(&mut self, leaf: &LeafBlock) {
        self.leaves += 1;
        if let Err(source) = self.entries_of(leaf) {
            self.found.push(Violation::Structure { block: leaf.id, source });
        }
    }

    fn entries_of(&mut self, leaf: &LeafBlock) -> Result<(), FormatError> {
        let view = leaf.view()?;
        view.check(self.fat.key_kind())?;
        let mut entries = Vec::new();
        for bucket in 0..view.geometry().buckets() {
            for entry in view.bucket(bucket, self.fat.key_kind()) {
                let entry = entry?;
                if entry.value.len() > MAX_VALUE_SIZE {
                    return Err(FormatError::field("ZAP entry", "value length", entry.value.count));
                }
                let whole = self.fat.entry(&view, &entry)?;
                let wanted = self.fat.hash(KeyRef::from(&whole.key)).unwrap_or_default();
                if wanted != entry.hash {
                    let (block, stored) = (leaf.id, entry.hash);
                    self.found.push(Violation::Hash { block, stored, wanted });
                }
                entries.push((entry.hash, entry.cd, view.read(entry.name)?));
            }
        }
        self.entries += entries.len() as u64;
        check_distinct(leaf.id, entries, self.found);
        Ok(())
    }

    /// While the table grows, what was copied to the next has to be the same.
    fn next_table(&mut self) -> Result<(), B::Error> {
        let header = &self.fat.header;
        let PointerTable::External { blocks: count, .. } = header.table else { return Ok(()) };
        if header.next_table.0 == 0 {
            return Ok(());
        }
        for copied in 0..header.blocks_copied.min(count) {
            match self.fat.is_copied(self.blocks, copied) {
                Ok(true) => {}
                Ok(false) => self.found.push(Violation::Copy { copied }),
                Err(error) => self.found.push(Violation::of(error, BlockId(0))?),
            }
            if self.found.len() >= MOST {
                break;
            }
        }
        Ok(())
    }
}
