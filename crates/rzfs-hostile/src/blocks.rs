//! Damage that passes its checksum: blocks are changed after they were verified, before or after
//! they are decoded.
//!
//! What happens to a block depends on the seed and on its bookmark or place only, so that a case
//! is the same whatever the order in which blocks are read.

use crate::random::Random;
use crate::structures::{Structure, damage_gang_header, damage_intent_log, endless, raise_all};
use crate::victim::Victim;
use bytes::Bytes;
use rzfs_dmu::BlockInjector;
use rzfs_format::block_pointer::BlockPointer;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use std::sync::atomic::{AtomicU64, Ordering};

/// The target of an injector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aim {
    /// Contents of any blocks.
    Anything,
    /// Contents of blocks of one structure.
    Structure,
    /// Indirect blocks become endless trees.
    Endless,
    /// Stored bytes: compressed blocks, gang headers, intent logs.
    Stored,
}

/// Changes some blocks of a pool.
#[derive(Debug)]
pub struct HostileInjector {
    seed: u64,
    aim: Aim,
    structure: Structure,
    /// One of this many blocks is changed.
    one_of: u64,
    /// Blocks of objsets with lower numbers are left alone.
    first_objset: u64,
    changed: AtomicU64,
}

impl HostileInjector {
    /// An injector for this seed, which also determines how many blocks it changes, and whether
    /// those of the MOS are among them.
    #[must_use]
    pub fn new(aim: Aim, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let structure = random.pick(&Structure::ALL).copied().unwrap_or(Structure::Other);
        let rates: &[u64] = match aim {
            // Of one structure there are few blocks.
            Aim::Structure => &[1, 2, 5, 10],
            Aim::Endless => &[1, 2],
            Aim::Anything | Aim::Stored => &[3, 8, 20, 60],
        };
        let one_of = random.pick(rates).copied().unwrap_or(8);
        let first_objset = random.below(2);
        Self { seed, aim, structure, one_of, first_objset, changed: AtomicU64::new(0) }
    }

    /// Number of blocks that were changed so far.
    #[must_use]
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }

    /// Whether contents with this structure are changed.
    fn is_wanted(&self, structure: Structure) -> bool {
        match self.aim {
            Aim::Anything => true,
            Aim::Structure => structure == self.structure,
            Aim::Endless => matches!(structure, Structure::Indirect | Structure::Dnodes),
            Aim::Stored => false,
        }
    }
}

impl BlockInjector for HostileInjector {
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes {
        let Bookmark { objset, object, level, block: id } = bookmark;
        let structure = Structure::of(pointer);
        let level = i64::from(level.0).cast_unsigned();
        let mut random = Random::of_place(self.seed, &[objset.0, object.0, level, id.0]);
        // All indirect blocks of such a tree, or it would end.
        let all = self.aim == Aim::Endless && structure == Structure::Indirect;
        if objset.0 < self.first_objset
            || !self.is_wanted(structure)
            || (!all && !random.once_in(self.one_of))
            || block.is_empty()
        {
            return block;
        }
        self.changed.fetch_add(1, Ordering::Relaxed);
        let mut bytes = block.to_vec();
        let mut victim = Victim { bytes: &mut bytes, order: pointer.order() };
        if self.aim == Aim::Endless {
            match structure {
                Structure::Indirect => endless(&mut victim, pointer),
                _ => raise_all(&mut victim, &mut random),
            }
            return bytes.into();
        }
        for _ in 0..=random.below(3) {
            match self.aim {
                Aim::Anything if random.once_in(6) => victim.blind(&mut random),
                _ => structure.damage(&mut victim, bookmark, pointer, &mut random),
            }
        }
        bytes.into()
    }

    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        let dva = pointer.dvas().next().unwrap_or_default();
        let place = [u64::from(dva.vdev().get()), dva.offset(), stored.len() as u64];
        let mut random = Random::of_place(self.seed, &place);
        let is_log = pointer.object_type_number() == ObjectType::INTENT_LOG.number();
        // Gang headers and intent logs are rare.
        let one_of = if is_log || pointer.is_gang() { 3 } else { self.one_of };
        if self.aim != Aim::Stored || !random.once_in(one_of) || stored.is_empty() {
            return stored;
        }
        self.changed.fetch_add(1, Ordering::Relaxed);
        let mut bytes = stored.to_vec();
        let mut victim = Victim { bytes: &mut bytes, order: pointer.order() };
        for _ in 0..=random.below(3) {
            if is_log {
                damage_intent_log(&mut victim, pointer, &mut random);
            } else if pointer.is_gang() && (stored.len() as u64) < pointer.physical_size() {
                damage_gang_header(&mut victim, pointer, &mut random);
            } else if random.once_in(2) {
                // Sizes at the start of what is compressed.
                victim.put(random.index(8), &[random.hostile() as u8]);
            } else {
                victim.blind(&mut random);
            }
        }
        bytes.into()
    }
}
