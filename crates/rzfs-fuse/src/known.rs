//! The files that the kernel knows.
//!
//! ```text
//! answer that names a file ──> remember: lookups + 1     first one: the file is held
//! FORGET n                 ──> forget:   lookups - n     none left: it is let go
//! other contents           ──> the same files are held in them, the others are gone
//! ```
//! The kernel counts how often an answer has named a file to it, and says so when it has forgotten
//! the file. Until then the number of the file stands for this file and no other, and the file
//! lives on when its last name goes. The numbers of files that are gone with the contents that they
//! were in stand for nothing: another file of the same object gets another number meanwhile.

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
    /// Whether the kernel may take it for longer or shorter than it is.
    is_resized: bool,
    /// Dropped when the kernel has forgotten the file.
    hold: Hold,
}

type Shard = HashMap<ObjectId, Entry>;

/// The files of one file system that the kernel knows.
#[derive(Debug, Default)]
pub(crate) struct KnownFiles {
    shards: [Mutex<Shard>; SHARDS],
    /// How often answers have named files that are gone, by their numbers.
    gone: Mutex<HashMap<INodeNo, u64>>,
    /// Whether some are gone.
    has_gone: AtomicBool,
    /// Whether there were other contents before: only then some are gone, and some have other numbers
    /// than their objects say.
    is_successor: bool,
}

/// What becomes of a known file when there are other contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// It is in them as it was.
    Same,
    /// It is in them as this object; something of it is another.
    Changed(ObjectId),
    /// It is not in them.
    Gone,
}

/// What the kernel knows that is not so any more.
#[derive(Debug, Default)]
pub(crate) struct Outdated {
    /// Files with other contents or attributes, and files that are gone, by their numbers.
    pub(crate) files: Vec<INodeNo>,
    /// What kept the files in the contents before.
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

    /// Notes that an answer names a file, before it is given; tells its number.
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

    /// The number of a file that the kernel knows, where it may be another one than its object says.
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

    /// Notes that the kernel gets pages of a file, before they are read.
    pub(crate) fn note_pages(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).get_mut(&object) {
            entry.pages.get();
        }
    }

    /// Whether the kernel may have pages of a file.
    pub(crate) fn has_pages(&self, object: ObjectId) -> bool {
        self.shard(object).get(&object).is_some_and(|entry| entry.pages != KernelPages::None)
    }

    /// Whether what was stored into pages of a file may be of contents before these; who asks gives it
    /// up if it may.
    pub(crate) fn gives_up(&self, object: ObjectId) -> bool {
        let give_up = |entry: &mut Entry| entry.pages.give_up();
        self.is_successor && self.shard(object).get_mut(&object).is_some_and(give_up)
    }

    /// Notes that the kernel has dropped the pages of a file.
    pub(crate) fn note_dropped(&self, object: ObjectId) -> Dropped {
        let mut shard = self.shard(object);
        shard.get_mut(&object).map_or(Dropped::Done, |entry| entry.pages.note_dropped())
    }

    /// Notes that the kernel may take a file for longer or shorter than it is.
    pub(crate) fn note_resized(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).get_mut(&object) {
            entry.is_resized = true;
        }
    }

    /// Notes that the kernel knows how long a file is.
    pub(crate) fn clear_resized(&self, object: ObjectId) {
        if let Some(entry) = self.shard(object).get_mut(&object) {
            entry.is_resized = false;
        }
    }

    /// Whether the kernel may take a file for longer or shorter than it is.
    pub(crate) fn is_resized(&self, object: ObjectId) -> bool {
        self.is_successor && self.shard(object).get(&object).is_some_and(|entry| entry.is_resized)
    }

    /// The numbers of the files of which the kernel may have pages. It is about to drop them.
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
    pub(crate) fn keep_all_pages(&self) {
        for shard in &self.shards {
            for entry in lock(shard).values_mut() {
                entry.pages.keep_all_pages();
            }
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<ObjectId> {
        let objects = |shard: &Mutex<Shard>| lock(shard).keys().copied().collect::<Vec<_>>();
        self.shards.iter().flat_map(objects).collect()
    }

    /// Takes back so many lookups of a file that is gone; says whether it is.
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

    /// Takes back so many lookups of a file.
    pub(crate) fn forget(&self, object: ObjectId, lookups: u64) {
        let mut shard = self.shard(object);
        let Some(entry) = shard.get_mut(&object) else { return };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        let forgotten = if entry.lookups == 0 { shard.remove(&object) } else { None };
        drop(shard);
        // Letting go of a file without names reclaims it.
        drop(forgotten);
    }

    /// Hands what is known over to other contents. Nobody looks anything up meanwhile. `kept` are numbers
    /// that go on standing for something else, `lost` such that stand for nothing from now on.
    pub(crate) fn hand_over(
        &self,
        live: &Arc<LiveFileSystem>,
        fate: impl Fn(ObjectId) -> Fate,
        (kept, lost): (&[INodeNo], &[INodeNo]),
    ) -> (Self, Outdated) {
        let heir = Self { is_successor: true, ..Self::default() };
        let mut outdated = Outdated::default();
        let mut gone = std::mem::take(&mut *lock(&self.gone));
        // The kernel does not say how often it knows these.
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

    /// Lets all files go: the kernel says nothing of those that it knows when it is unmounted.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let files = std::mem::take(&mut *lock(shard));
            drop(files);
        }
    }
}
