//! Damage described by a fuzzer: a list of patches, which the harness makes pass all checksums.
//!
//! ```text
//! patch    0 kind  1 width  2 index (2)  4 place (4)  8 value (8)      little-endian
//! kinds    0 contents of a block  1 bytes as they are stored  2 a block's contents elsewhere in it
//!          3 configuration in the labels  4 a word of the newest uberblock  5 a device's bytes
//! ```
//! An index counts the blocks of an undamaged pool, in the order of their bookmarks, or the reads
//! from its devices.

use crate::labels::{patch_config, patch_uberblock};
use crate::victim::Victim;
use bytes::Bytes;
use parking_lot::Mutex;
use rzfs_dmu::BlockInjector;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, ByteOrder};
use rzfs_testkit::{Damage, OverlayDevice};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

/// Maximum number of patches in an input.
const MAX_PATCHES: usize = 64;

/// The target of a patch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PatchKind {
    Contents,
    Stored,
    Copy,
    Config,
    Uberblock,
    Device,
}

/// One change of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patch {
    kind: PatchKind,
    width: u8,
    index: u16,
    place: u32,
    value: u64,
}

impl Patch {
    /// Bytes of a patch.
    pub const SIZE: usize = 16;

    /// The patches in an input.
    #[must_use]
    pub fn parse_all(input: &[u8]) -> Vec<Self> {
        let (patches, _) = input.as_chunks::<{ Self::SIZE }>();
        patches.iter().take(MAX_PATCHES).map(Self::parse).collect()
    }

    fn parse(bytes: &[u8; Self::SIZE]) -> Self {
        let [kind, width, low, high, a, b, c, d, value @ ..] = *bytes;
        Self {
            kind: match kind % 8 {
                0..=2 => PatchKind::Contents,
                3 => PatchKind::Stored,
                4 => PatchKind::Copy,
                5 => PatchKind::Config,
                6 => PatchKind::Uberblock,
                _ => PatchKind::Device,
            },
            width,
            index: u16::from_le_bytes([low, high]),
            place: u32::from_le_bytes([a, b, c, d]),
            value: u64::from_le_bytes(value),
        }
    }

    /// The bytes of the value that are written.
    fn bytes(&self) -> Vec<u8> {
        let value = self.value.to_le_bytes();
        value.into_iter().take(1 << (self.width % 4)).collect()
    }

    /// Changes labels and devices, if these are the target.
    pub(crate) fn apply_to_devices(
        &self,
        overlays: &[Arc<OverlayDevice>],
        reads: &[Vec<Range<u64>>],
    ) {
        let place = self.place as usize;
        match self.kind {
            PatchKind::Config => {
                overlays.iter().for_each(|device| patch_config(device, place, &self.bytes()));
            }
            PatchKind::Uberblock => {
                overlays.iter().for_each(|device| patch_uberblock(device, place, self.value));
            }
            PatchKind::Device => {
                for (overlay, reads) in overlays.iter().zip(reads) {
                    let Some(read) = nth(reads, self.index) else { continue };
                    let len = (read.end - read.start).max(1);
                    let at = read.start + u64::from(self.place) % len;
                    let bytes = self.bytes();
                    let end = (at + bytes.len() as u64).min(read.end);
                    overlay.damage(at..end, Damage::Bytes(bytes));
                }
            }
            PatchKind::Contents | PatchKind::Stored | PatchKind::Copy => {}
        }
    }

    /// Changes the contents of a block.
    fn apply(&self, victim: &mut Victim<'_>) {
        let len = victim.len().max(1);
        let place = self.place as usize % len;
        match self.kind {
            PatchKind::Copy => {
                let from = self.value as usize % len;
                victim.copy(from, place, 1 << (self.width % 10));
            }
            _ => victim.put(place, &self.bytes()),
        }
    }
}

fn nth<T>(of: &[T], index: u16) -> Option<&T> {
    of.get(usize::from(index) % of.len().max(1))
}

/// Where a block is stored: vdev, offset, bytes.
type Place = (u32, u64, usize);

/// The blocks of an undamaged pool.
#[derive(Debug, Default)]
pub(crate) struct BlockList {
    contents: Vec<Bookmark>,
    stored: Vec<Place>,
}

/// Learns which blocks a pool has.
#[derive(Debug, Default)]
pub(crate) struct BlockRecorder {
    contents: Mutex<BTreeSet<Bookmark>>,
    stored: Mutex<BTreeSet<Place>>,
}

impl BlockRecorder {
    pub(crate) fn blocks(&self) -> BlockList {
        BlockList {
            contents: self.contents.lock().iter().copied().collect(),
            stored: self.stored.lock().iter().copied().collect(),
        }
    }
}

fn place_of(pointer: &BlockPointer, stored: &Bytes) -> Place {
    let dva = pointer.dvas().next().unwrap_or_default();
    (dva.vdev().get(), dva.offset(), stored.len())
}

impl BlockInjector for BlockRecorder {
    fn inject(&self, bookmark: Bookmark, _: &BlockPointer, block: Bytes) -> Bytes {
        self.contents.lock().insert(bookmark);
        block
    }

    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        self.stored.lock().insert(place_of(pointer, &stored));
        stored
    }
}

/// Applies patches to blocks.
#[derive(Debug)]
pub(crate) struct PatchInjector {
    contents: HashMap<Bookmark, Vec<Patch>>,
    stored: HashMap<Place, Vec<Patch>>,
}

impl PatchInjector {
    pub(crate) fn new(blocks: Arc<BlockList>, patches: &[Patch]) -> Self {
        let mut injector = Self { contents: HashMap::new(), stored: HashMap::new() };
        for patch in patches {
            match patch.kind {
                PatchKind::Contents | PatchKind::Copy => {
                    if let Some(bookmark) = nth(&blocks.contents, patch.index) {
                        injector.contents.entry(*bookmark).or_default().push(*patch);
                    }
                }
                PatchKind::Stored => {
                    if let Some(place) = nth(&blocks.stored, patch.index) {
                        injector.stored.entry(*place).or_default().push(*patch);
                    }
                }
                PatchKind::Config | PatchKind::Uberblock | PatchKind::Device => {}
            }
        }
        injector
    }
}

fn patched(patches: Option<&Vec<Patch>>, block: Bytes) -> Bytes {
    let Some(patches) = patches else { return block };
    let mut bytes = block.to_vec();
    let mut victim = Victim { bytes: &mut bytes, order: ByteOrder::Little };
    patches.iter().for_each(|patch| patch.apply(&mut victim));
    bytes.into()
}

impl BlockInjector for PatchInjector {
    fn inject(&self, bookmark: Bookmark, _: &BlockPointer, block: Bytes) -> Bytes {
        patched(self.contents.get(&bookmark), block)
    }

    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        patched(self.stored.get(&place_of(pointer, &stored)), stored)
    }
}
