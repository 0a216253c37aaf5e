//! How many blocks an insertion writes, for those who reserve room for it beforehand.

use rzfs_format::zap::fat::PointerTable;

use crate::fat::Fat;
use crate::form::Form;
use crate::micro::{Micro, Room};
use crate::writer::FAT_BLOCK_SIZE;
use crate::{KeyRef, Tunables, ZapValue};

/// Blocks that a transaction has to hold so that one entry can be added.
///
/// A full leaf is split once in both numbers. It is split again, with two more blocks written
/// each time, when all its entries agree in the next bit of their hashes too: for a leaf of 16 KiB
/// with 212 names of one kind that is once in 2^211 times, unless someone chose the names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InsertCost {
    /// Bytes of each block.
    pub block_size: usize,
    /// Blocks that are written unless the pointer table has to double at once.
    pub usual: u64,
    /// Blocks that are written at most, with one split.
    pub most: u64,
}

impl InsertCost {
    /// Bytes of the blocks that are written at most, with one split.
    #[must_use]
    pub const fn most_bytes(&self) -> u64 {
        self.most.saturating_mul(self.block_size as u64)
    }
}

impl Form {
    pub(crate) fn insert_cost(
        &self,
        key: KeyRef<'_>,
        value: &ZapValue,
        tunables: &Tunables,
    ) -> InsertCost {
        match self {
            Self::Micro(micro) => of_micro(micro, key, value, tunables),
            Self::Fat(fat) => of_fat(fat),
        }
    }
}

fn of_micro(micro: &Micro, key: KeyRef<'_>, value: &ZapValue, tunables: &Tunables) -> InsertCost {
    let room = match key {
        KeyRef::Name(name) if Micro::number(name, value).is_some() => {
            micro.room_for(micro.hash(name), tunables.micro_max_size)
        }
        _ => Room::OnlyInFat,
    };
    match room {
        Room::Free => InsertCost { block_size: micro.block_size(), usual: 1, most: 1 },
        Room::AfterGrowth(block_size) => InsertCost { block_size, usual: 1, most: 1 },
        Room::OnlyInFat => {
            // The header, and leaves that are half full or more; most entries take three chunks,
            // none takes more than five.
            let entries = micro.len() as u64 + 1;
            let leaves = |chunks: u64| 2 * (entries * chunks).div_ceil(638);
            let (usual, most) = (1 + leaves(3), 2 + leaves(5));
            InsertCost { block_size: FAT_BLOCK_SIZE, usual, most }
        }
    }
}

fn of_fat(fat: &Fat) -> InsertCost {
    let block_size = fat.header.geometry.block_size();
    // The header and two leaves.
    let base = 3;
    match fat.header.table {
        // The table is in the header, or moves to a block.
        PointerTable::Embedded => InsertCost { block_size, usual: base + 1, most: base + 1 },
        // A pointer is stored, in the next table too, and a block of the table is copied to two;
        // at most all of both tables is written.
        PointerTable::External { blocks, .. } => InsertCost {
            block_size,
            usual: base + (1 + 1 + 2).min(3 * blocks),
            most: base + blocks.saturating_mul(3),
        },
    }
}
