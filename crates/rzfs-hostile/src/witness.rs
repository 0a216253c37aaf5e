//! Silent damage: a block read without an error must have the written contents.
//!
//! The contents of an undamaged pool are remembered by location and birth. When only devices are
//! damaged, every block returned under the same identity must be the same.

use bytes::Bytes;
use parking_lot::Mutex;
use rzfs_dmu::BlockInjector;
use rzfs_format::BlockPointer;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::units::Bookmark;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A block: vdev, offset, birth, properties (sizes, compression, type, level).
type Identity = (u32, u64, u64, u64);

/// Hashes of contents.
pub(crate) type Contents = HashMap<Identity, u64>;

/// `None` when the right contents are unknown.
fn identity(pointer: &BlockPointer) -> Option<Identity> {
    let dva = pointer.dvas().next()?;
    let checked = pointer.checksum_function().is_ok_and(|f| f != ChecksumFunction::Off);
    let properties = pointer.words().get(6).copied().unwrap_or_default();
    checked.then(|| (dva.vdev().get(), dva.offset(), pointer.physical_birth().0, properties))
}

fn digest(block: &Bytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    block.hash(&mut hasher);
    hasher.finish()
}

/// Learns the contents of an undamaged pool.
#[derive(Debug, Default)]
pub(crate) struct ContentsRecorder(Mutex<Contents>);

impl ContentsRecorder {
    pub(crate) fn contents(&self) -> Contents {
        std::mem::take(&mut self.0.lock())
    }
}

impl BlockInjector for ContentsRecorder {
    fn inject(&self, _: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes {
        if let Some(identity) = identity(pointer) {
            self.0.lock().insert(identity, digest(&block));
        }
        block
    }
}

/// Compares contents with the right ones.
#[derive(Debug)]
pub(crate) struct Witness {
    contents: Arc<Contents>,
    wrong: AtomicU64,
}

impl Witness {
    pub(crate) fn new(contents: Arc<Contents>) -> Self {
        Self { contents, wrong: AtomicU64::new(0) }
    }

    /// Number of blocks with wrong contents.
    pub(crate) fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }
}

impl BlockInjector for Witness {
    fn inject(&self, _: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes {
        let known = identity(pointer).and_then(|identity| self.contents.get(&identity));
        if known.is_some_and(|known| *known != digest(&block)) {
            self.wrong.fetch_add(1, Ordering::Relaxed);
        }
        block
    }
}

/// One injector, then another.
pub(crate) struct Chained(pub(crate) Arc<dyn BlockInjector>, pub(crate) Arc<dyn BlockInjector>);

impl BlockInjector for Chained {
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes {
        self.1.inject(bookmark, pointer, self.0.inject(bookmark, pointer, block))
    }

    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        self.1.inject_stored(pointer, self.0.inject_stored(pointer, stored))
    }
}
