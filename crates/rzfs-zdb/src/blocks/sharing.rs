//! Blocks with several references: deduplicated and cloned ones take their space once.
//!
//! The tables have the number of references of a block. All but the last one visited save its
//! space; the last one claims it. So a reference missing in the tables shows up as a block on
//! claimed space, and a surplus one as a leak.

use crate::cloning::CloneTables;
use crate::dedup::DedupTables;
use crate::error::ZdbError;
use rzfs_dsl::pool::Pool;
use rzfs_format::{BlockPointer, Txg, VdevId};
use std::collections::HashMap;

use super::count::is_metadata;

/// References not visited yet, and the space saved by sharing.
#[derive(Default)]
pub(super) struct Sharing {
    /// By first address and physical birth: references not yet visited.
    dedup: HashMap<([u64; 2], Txg), u64>,
    /// By vdev and offset of the first address: references not yet visited, minus one.
    clones: HashMap<(VdevId, u64), u64>,
    pub(super) dedup_bytes: u64,
    pub(super) dedup_references: u64,
    pub(super) clone_bytes: u64,
    pub(super) clone_references: u64,
}

/// Whether a reference to a block claims its space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reference {
    /// It claims the block's space.
    Owner,
    /// Another reference does.
    Shared,
}

impl Sharing {
    /// Reads the dedup tables and the block reference tables of a pool. Memory use is about 50
    /// bytes for each entry with several references.
    pub(super) fn load(pool: &Pool) -> Result<Self, ZdbError> {
        let mut sharing = Self::default();
        for table in DedupTables::open(pool)?.tables() {
            table.visit(pool, &mut |_, value| {
                for slot in value.used_slots().filter(|slot| slot.references > 1) {
                    sharing.dedup.insert((slot.dvas[0].0, slot.birth), slot.references);
                }
            })?;
        }
        for table in CloneTables::open(pool)?.tables() {
            table.visit(pool, &mut |offset, references| {
                if references > 0 {
                    sharing.clones.insert((table.vdev(), offset), references);
                }
            })?;
        }
        Ok(sharing)
    }

    /// Visits a reference to a block that is neither a hole nor embedded.
    pub(super) fn visit(&mut self, pointer: &BlockPointer) -> Reference {
        let Some(dva) = pointer.dvas().next() else { return Reference::Owner };
        if pointer.is_dedup()
            && let Some(rest) = self.dedup.get_mut(&(dva.0, pointer.physical_birth()))
        {
            *rest = rest.saturating_sub(1);
            if *rest == 0 {
                self.dedup.remove(&(dva.0, pointer.physical_birth()));
                return Reference::Owner;
            }
            self.dedup_references += 1;
            self.dedup_bytes = self.dedup_bytes.saturating_add(pointer.allocated_size());
            return Reference::Shared;
        }
        if !is_metadata(pointer)
            && let Some(rest) = self.clones.get_mut(&(dva.vdev(), dva.offset()))
        {
            *rest -= 1;
            if *rest == 0 {
                self.clones.remove(&(dva.vdev(), dva.offset()));
            }
            self.clone_references += 1;
            self.clone_bytes = self.clone_bytes.saturating_add(pointer.allocated_size());
            return Reference::Shared;
        }
        Reference::Owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::Dva;

    fn block(offset: u64, dedup: bool) -> BlockPointer {
        let mut words = [0; 16];
        words[..2].copy_from_slice(&Dva::new(VdevId(0), offset, 4096, false).0);
        words[6] = 7 | 7 << 16 | 2 << 32 | 8 << 40 | 19 << 48 | 1 << 63 | u64::from(dedup) << 62;
        words[10] = 5;
        BlockPointer::from_words(words)
    }

    #[test]
    fn the_last_reference_owns_the_space() {
        let mut sharing = Sharing::default();
        let shared = block(0x1000, true);
        let key = (shared.dvas().next().unwrap().0, Txg(5));
        sharing.dedup.insert(key, 3);
        sharing.clones.insert((VdevId(0), 0x8000), 1);
        let visits = [0, 1, 2].map(|_| sharing.visit(&shared));
        assert_eq!(visits, [Reference::Shared, Reference::Shared, Reference::Owner]);
        assert_eq!((sharing.dedup_references, sharing.dedup_bytes), (2, 8192));
        // The table does not know of a fourth reference: it claims again and fails.
        assert_eq!(sharing.visit(&shared), Reference::Owner);

        let clone = block(0x8000, false);
        assert_eq!(sharing.visit(&clone), Reference::Shared);
        assert_eq!(sharing.visit(&clone), Reference::Owner);
        assert_eq!((sharing.clone_references, sharing.clone_bytes), (1, 4096));
        assert_eq!(sharing.visit(&block(0x2000, true)), Reference::Owner);
    }

    #[test]
    fn metadata_is_never_cloned() {
        let mut sharing = Sharing::default();
        sharing.clones.insert((VdevId(0), 0x8000), 1);
        let mut indirect = block(0x8000, false);
        indirect.words_mut()[6] |= 1 << 56;
        assert_eq!(sharing.visit(&indirect), Reference::Owner);
    }
}
