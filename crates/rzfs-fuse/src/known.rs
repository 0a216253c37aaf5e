//! The files that the kernel knows.
//!
//! ```text
//! reply that names a file  ──> remember: lookups + 1     first one: the file is held
//! FORGET n                 ──> forget:   lookups - n     none left: it is released
//! new contents             ──> the same files are held in them, the others are gone
//! ```
//! The kernel counts how often a reply has named a file to it, and reports when it has forgotten
//! the file. Until then the number stands for this file and no other, and the file outlives its
//! last name. The numbers of files that went with replaced contents are invalid: another file with
//! the same object gets another number meanwhile.

mod pages;

use self::pages::KernelPages;
use crate::answer::{Answer, errno};
use crate::inode::Inodes;
use fuser::{Errno, INodeNo};
use rzfs_format::ObjectId;
use rzfs_zpl::live::{Hold, LiveFileSystem};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use self::pages::Dropped;

const SHARDS: usize = 16;

#[derive(Debug)]
struct Entry {
    number: INodeNo,
    lookups: u64,
    pages: KernelPages,
    /// Whether the kernel may have a wrong length.
    is_resized: bool,
    /// Dropped when the kernel has forgotten the file.
    hold: Hold,
}

type Shard = HashMap<ObjectId, Entry>;

/// The files of one file system that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct KnownFiles {
    shards: [Mutex<Shard>; SHARDS],
    /// The lookup counts of files that are gone, by their numbers.
    gone: Mutex<HashMap<INodeNo, u64>>,
    /// Whether there are such files.
    has_gone: AtomicBool,
    /// Whether these contents have replaced others: only then files may be gone, or have numbers
    /// other than their objects'.
    is_successor: bool,
}

/// The fate of a known file when the contents are replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The file is unchanged.
    Same,
    /// The file is now this object, and something about it has changed.
    Changed(ObjectId),
    /// The file no longer exists.
    Gone,
}

/// Outdated knowledge of the kernel.
#[derive(Debug, Default)]
pub(crate) struct Outdated {
    /// Files with other contents or attributes, and files that are gone, by their numbers.
    pub(crate) files: Vec<INodeNo>,
    /// The holds on the files in the previous contents.
    pub(crate) holds: Vec<Hold>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KnownFiles {
    fn shard(&self, object: ObjectId) -> MutexGuard<'_, Shard> {
        let mixed = object.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        lock(&self.shards[mixed as usize % SHARDS])
    }

    fn has_gone(&self) -> bool {
        self.has_gone.load(Ordering::Acquire)
    }

    fn count_up(&self, object: ObjectId) -> Option<INodeNo> {
        let mut shard = self.shard(object);
        let entry = shard.get_mut(&object)?;
        entry.lookups = entry.lookups.saturating_add(1);
        Some(entry.number)
    }

    /// Counts a reply that names a file, before it is sent; returns its number.
    ///
    /// # Errors
    /// The file is gone.
    pub(crate) fn remember(
        &self,
        file_system: &Arc<LiveFileSystem>,
        object: ObjectId,
        inodes: &Inodes,
    ) -> Answer<INodeNo> {
        if let Some(number) = self.count_up(object) {
            return Ok(number);
        }
        // Held before the table is locked: opening a file may read it.
        let hold = file_system.hold(object).map_err(|error| errno(&error))?;
        let mut shard = self.shard(object);
        let (number, spare) = match shard.get_mut(&object) {
            Some(entry) => {
                entry.lookups = entry.lookups.saturating_add(1);
                (entry.number, Some(hold))
            }
            None => {
                let number = match self.is_successor {
                    true => {
                        let gone = lock(&self.gone);
                        inodes.free_number(object, |number| gone.contains_key(&number))
                    }
                    false => inodes.own_number(object),
                };
                let number = number.ok_or(Errno::ENFILE)?;
                let pages = KernelPages::default();
                shard.insert(object, Entry { number, lookups: 1, pages, is_resized: false, hold });
                (number, None)
            }
        };
        drop(shard);
        drop(spare);
        Ok(number)
    }

    /// The number of a known file, where it may differ from its object's.
    pub(crate) fn number(&self, object: ObjectId) -> Option<INodeNo> {
        if !self.is_successor {
            return None;
        }
        self.shard(object).get(&object).map(|entry| entry.number)
    }

    /// Whether a number is that of a file that is gone.
    pub(crate) fn is_gone(&self, number: INodeNo) -> bool {
        self.has_gone() && lock(&self.gone).contains_key(&number)
    }

    /// Whether the kernel knows a file.
    pub(crate) fn has(&self, object: ObjectId) -> bool {
        self.shard(object).contains_key(&object)
    }

    /// Records that the kernel gets pages of a file, before they are read.
    pub(crate) fn note_pages(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).get_mut(&object) {
            entry.pages.get();
        }
    }

    /// Whether the kernel may have pages of a file.
    pub(crate) fn has_pages(&self, object: ObjectId) -> bool {
        self.shard(object).get(&object).is_some_and(|entry| entry.pages != KernelPages::None)
    }

    /// Whether data stored into pages of a file may belong to previous contents; the caller then
    /// discards it.
    pub(crate) fn discards_stores(&self, object: ObjectId) -> bool {
        let give_up = |entry: &mut Entry| entry.pages.give_up();
        self.is_successor && self.shard(object).get_mut(&object).is_some_and(give_up)
    }

    /// Records that the kernel has dropped the pages of a file.
    pub(crate) fn note_dropped(&self, object: ObjectId) -> Dropped {
        let mut shard = self.shard(object);
        shard.get_mut(&object).map_or(Dropped::Done, |entry| entry.pages.note_dropped())
    }

    /// Records that the kernel may have a wrong length of a file.
    pub(crate) fn note_resized(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).get_mut(&object) {
            entry.is_resized = true;
        }
    }

    /// Records that the kernel knows the length of a file.
    pub(crate) fn clear_resized(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).get_mut(&object) {
            entry.is_resized = false;
        }
    }

    /// Whether the kernel may have a wrong length of a file.
    pub(crate) fn is_resized(&self, object: ObjectId) -> bool {
        self.is_successor && self.shard(object).get(&object).is_some_and(|entry| entry.is_resized)
    }

    /// Returns the numbers of files with pages in the kernel, which is about to drop them.
    pub(crate) fn take_pages(&self) -> Vec<INodeNo> {
        let mut numbers = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            let with_pages = shard
                .values_mut()
                .filter_map(|entry| entry.pages.begin_to_drop().then_some(entry.number));
            numbers.extend(with_pages);
        }
        numbers
    }

    /// What is stored into pages from now on belongs to these contents.
    pub(crate) fn keep_stores(&self) {
        for shard in &self.shards {
            for entry in lock(shard).values_mut() {
                entry.pages.keep_stores();
            }
        }
    }

    /// All known files.
    pub(crate) fn all(&self) -> Vec<ObjectId> {
        let objects = |shard: &Mutex<Shard>| lock(shard).keys().copied().collect::<Vec<_>>();
        self.shards.iter().flat_map(objects).collect()
    }

    /// Drops `lookups` references to a file that is gone; returns whether it is.
    pub(crate) fn forget_gone(&self, number: INodeNo, lookups: u64) -> bool {
        if !self.has_gone() {
            return false;
        }
        let mut gone = lock(&self.gone);
        let Some(left) = gone.get_mut(&number) else { return false };
        *left = left.saturating_sub(lookups);
        if *left == 0 {
            gone.remove(&number);
            self.has_gone.store(!gone.is_empty(), Ordering::Release);
        }
        true
    }

    /// Drops `lookups` references to a file.
    pub(crate) fn forget(&self, object: ObjectId, lookups: u64) {
        let mut shard = self.shard(object);
        let Some(entry) = shard.get_mut(&object) else { return };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        let forgotten = if entry.lookups == 0 { shard.remove(&object) } else { None };
        drop(shard);
        // Releasing an unlinked file reclaims it.
        drop(forgotten);
    }

    /// Hands the known files over to new contents. No lookups may run meanwhile. `kept` numbers go
    /// on standing for something else, `lost` ones become invalid.
    pub(crate) fn hand_over(
        &self,
        live: &Arc<LiveFileSystem>,
        fate: impl Fn(ObjectId) -> Fate,
        (kept, lost): (&[INodeNo], &[INodeNo]),
    ) -> (Self, Outdated) {
        let heir = Self { is_successor: true, ..Self::default() };
        let mut outdated = Outdated::default();
        let mut gone = std::mem::take(&mut *lock(&self.gone));
        // The kernel's lookup counts of these are unknown.
        gone.extend(lost.iter().map(|number| (*number, u64::MAX)));
        for shard in &self.shards {
            for (object, entry) in std::mem::take(&mut *lock(shard)) {
                let Entry { number, lookups, mut pages, is_resized, hold } = entry;
                outdated.holds.push(hold);
                let (successor, is_changed) = match fate(object) {
                    Fate::Same => (live.hold(object).ok(), false),
                    Fate::Changed(successor) => (live.hold(successor).ok(), true),
                    Fate::Gone => (None, true),
                };
                if is_changed || successor.is_none() {
                    outdated.files.push(number);
                }
                if let Some(hold) = successor {
                    if is_changed {
                        pages.outdate();
                    }
                    let object = hold.object();
                    let entry = Entry { number, lookups, pages, is_resized, hold };
                    heir.shard(object).insert(object, entry);
                } else if !kept.contains(&number) {
                    gone.insert(number, lookups);
                }
            }
        }
        heir.has_gone.store(!gone.is_empty(), Ordering::Release);
        *lock(&heir.gone) = gone;
        (heir, outdated)
    }

    /// Releases all files: on unmount the kernel does not report those it knows.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let files = std::mem::take(&mut *lock(shard));
            drop(files);
        }
    }
}
