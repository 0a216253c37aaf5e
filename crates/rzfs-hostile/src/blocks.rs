//! Damage that passes its checksum: blocks are changed after they were verified and decoded.
//!
//! What happens to a block depends on the seed and on its bookmark only, so that a case is the
//! same whatever the order in which blocks are read.

use crate::random::Random;
use bytes::Bytes;
use rzfs_dmu::BlockInjector;
use rzfs_format::block_pointer::BlockPointer;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a slot in a block of dnodes.
const DNODE_SLOT: usize = 512;
/// Bytes of the fields at the start of a dnode.
const DNODE_FIELDS: usize = 16;

/// Changes some blocks of a pool.
#[derive(Debug)]
pub struct HostileInjector {
    seed: u64,
    /// One block of this many is changed.
    one_of: u64,
    /// Blocks with lower numbers of objsets are left alone.
    first_objset: u64,
    changed: AtomicU64,
}

impl HostileInjector {
    /// An injector for this seed: how many blocks it changes, and whether those of the MOS are
    /// among them, is chance too.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let one_of = random.pick(&[3, 8, 20, 60]).copied().unwrap_or(8);
        let first_objset = random.below(2);
        Self { seed, one_of, first_objset, changed: AtomicU64::new(0) }
    }

    /// Number of blocks that were changed so far.
    #[must_use]
    pub fn changed(&self) -> u64 {
        self.changed.load(Ordering::Relaxed)
    }
}

impl BlockInjector for HostileInjector {
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes {
        let Bookmark { objset, object, level, block: id } = bookmark;
        let level = i64::from(level.0).cast_unsigned();
        let mut random = Random::of_place(self.seed, &[objset.0, object.0, level, id.0]);
        if objset.0 < self.first_objset || !random.once_in(self.one_of) || block.is_empty() {
            return block;
        }
        self.changed.fetch_add(1, Ordering::Relaxed);
        let mut bytes = block.to_vec();
        for _ in 0..=random.below(3) {
            damage(&mut bytes, pointer, &mut random);
        }
        bytes.into()
    }
}

fn damage(bytes: &mut [u8], pointer: &BlockPointer, random: &mut Random) {
    let kind = pointer.object_type_number();
    if random.once_in(6) {
        blind(bytes, random);
    } else if pointer.level().0 > 0 {
        indirect(bytes, pointer, random);
    } else if kind == ObjectType::DNODE.number() {
        let slots = bytes.len() / DNODE_SLOT;
        let at = random.index(slots) * DNODE_SLOT;
        dnode(bytes.get_mut(at..).unwrap_or_default(), random);
    } else if kind == ObjectType::OBJSET.number() {
        dnode(bytes, random);
    } else {
        number(bytes, random);
    }
}

/// Changes a pointer in an indirect block.
fn indirect(bytes: &mut [u8], own: &BlockPointer, random: &mut Random) {
    let pointers = bytes.len() / BlockPointer::SIZE;
    let at = random.index(pointers) * BlockPointer::SIZE;
    match random.below(6) {
        // A block that contains itself.
        0 => put(bytes, at, &own.encode(own.order())),
        1 => {
            let from = random.index(pointers) * BlockPointer::SIZE;
            bytes.copy_within(from..from + BlockPointer::SIZE, at);
        }
        // Sizes, type, level, checksum and compression are in one word.
        2 | 3 => word(bytes, at + 48, random),
        // Where it is.
        4 => word(bytes, at + 8 * random.index(6), random),
        _ => word(bytes, at + 8 * random.index(16), random),
    }
}

/// Changes the dnode at the start.
fn dnode(bytes: &mut [u8], random: &mut Random) {
    match random.below(4) {
        0 | 1 => {
            let value = random.hostile() as u8;
            put(bytes, random.index(DNODE_FIELDS), &[value]);
        }
        // Number of blocks, used space, then pointers and the bonus.
        2 => word(bytes, 16 + 8 * random.index(6), random),
        _ => word(bytes, 8 * random.index(DNODE_SLOT / 8), random),
    }
}

/// Changes a number of some width, most likely near the start, where headers are.
fn number(bytes: &mut [u8], random: &mut Random) {
    let width = random.pick(&[1, 2, 4, 8]).copied().unwrap_or(8);
    let extent = if random.once_in(2) { bytes.len().min(256) } else { bytes.len() };
    let at = random.index(extent / width) * width;
    let mut old = [0; 8];
    for (byte, other) in old.iter_mut().zip(bytes.get(at..).unwrap_or_default()) {
        *byte = *other;
    }
    let new = random.instead_of(u64::from_le_bytes(old)).to_le_bytes();
    put(bytes, at, new.get(..width).unwrap_or_default());
}

/// Changes bytes without regard to what they are.
fn blind(bytes: &mut [u8], random: &mut Random) {
    let (at, len) = (random.index(bytes.len()), 1 + random.index(64));
    let end = at.saturating_add(len).min(bytes.len());
    match random.below(4) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at..end].fill(0),
        2 => bytes[at..end].fill_with(|| random.draw() as u8),
        _ => {
            let from = random.index(bytes.len() - (end - at) + 1);
            bytes.copy_within(from..from + (end - at), at);
        }
    }
}

fn word(bytes: &mut [u8], at: usize, random: &mut Random) {
    let Some(old) = bytes.get(at..).and_then(|rest| rest.first_chunk()) else { return };
    let new = random.instead_of(u64::from_le_bytes(*old));
    put(bytes, at, &new.to_le_bytes());
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (byte, new) in bytes.iter_mut().skip(at).zip(value) {
        *byte = *new;
    }
}
