//! Invalidation of the kernel's caches.
//!
//! The kernel learns of most changes from replies to its requests. The others are:
//!
//! ```text
//! attributes that change with contents (set-user-id, set-group-id)   before the reply
//! times that change with flags                                       before the reply
//! pages below a write that bypassed them (O_DIRECT)                  before the reply, by a thread
//! pages changed through a mapping, which is refused                  after the reply, by a thread
//! pages over a hole, which may have been stored into (see seeking)   before the reply, by a thread
//! file systems added to and removed from the mount (see grafts)      by their caller
//! differences after an exchange of contents                          by the exchange
//! presence of `.zfs` in a root directory                             on a change of `snapdir`
//! ```
//! The kernel drops its pages when it sends such a write; if it does not wait for the reply
//! (asynchronous requests), a reader may have refilled them with the old contents. Dropping pages
//! waits for requests that fill or write them, so the threads that answer requests must not do it.
//! Those requests need in-flight slots of the kernel, so writes with delayed replies must not hold
//! all slots.

use crate::panics::outlive;
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Means "attributes only" in place of the start of a range.
const ATTRIBUTES: i64 = -1;

/// Maximum number of replies that wait for pages at once: a few of the slots that writes and
/// requests for pages share.
const MOST_HELD: usize = 32;

type Afterwards = Box<dyn FnOnce() + Send>;

struct Stale {
    inode: INodeNo,
    offset: u64,
    len: u64,
    afterwards: Afterwards,
}

/// The caches of the kernel for this mount.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelCache {
    notifier: Arc<OnceLock<Notifier>>,
}

impl KernelCache {
    /// Sets the connection to the kernel, before the first request.
    pub(crate) fn connect(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Makes the kernel ask again for the attributes and the ACL of a file when it next needs them.
    pub(crate) fn forget_attributes(&self, inode: INodeNo) {
        self.forget(inode, ATTRIBUTES, 0);
    }

    /// Makes the kernel ask again for everything about a file when it next needs it. Dirty pages
    /// are written first. Not for threads that answer requests.
    pub(crate) fn forget_contents(&self, inode: INodeNo) {
        self.forget(inode, 0, 0);
    }

    /// Makes the kernel forget a name and everything unused below it, and the listing of its
    /// directory. Not for threads that answer requests, as it waits for requests about the
    /// directory.
    pub(crate) fn forget_name(&self, directory: INodeNo, name: &OsStr) {
        self.forget_entry(directory, name);
        self.forget_contents(directory);
    }

    /// The same without the listing of the directory.
    pub(crate) fn forget_entry(&self, directory: INodeNo, name: &OsStr) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = notifier.inval_entry(directory, name) {
            tracing::debug!(%error, %directory, ?name, "the kernel keeps what is old");
        }
    }

    /// Makes the kernel ask again whether a root directory has a `.zfs`, and for its listing.
    pub(crate) fn forget_control(&self, root: INodeNo) {
        self.forget_name(root, OsStr::new(".zfs"));
    }

    /// Tells the kernel that a file has grown, by its last byte. The kernel asks for a known file's
    /// length when it must, but not before it appends, maps or sends the file.
    pub(crate) fn extend(&self, inode: INodeNo, offset: u64, last: u8) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = notifier.store(inode, offset, &[last]) {
            tracing::debug!(%error, %inode, "the kernel does not know how long it is");
        }
    }

    fn forget(&self, inode: INodeNo, offset: i64, len: i64) {
        let Some(notifier) = self.notifier.get() else { return };
        // This fails when the mount is ending, when no cache matters any more.
        if let Err(error) = notifier.inval_inode(inode, offset, len) {
            tracing::debug!(%error, %inode, "the kernel keeps what is old");
        }
    }
}

/// A thread that makes the kernel drop pages. It ends on drop.
#[derive(Debug)]
pub(crate) struct PageDropper {
    stale: Mutex<Sender<Stale>>,
    held: Arc<AtomicUsize>,
}

impl PageDropper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start(cache: KernelCache) -> io::Result<Self> {
        let (sender, receiver) = channel::<Stale>();
        let held = Arc::new(AtomicUsize::new(0));
        let waiting = Arc::clone(&held);
        let work = move || {
            for Stale { inode, offset, len, afterwards } in receiver {
                let (offset, len) = (i64::try_from(offset), i64::try_from(len));
                cache.forget(inode, offset.unwrap_or(i64::MAX), len.unwrap_or(i64::MAX));
                outlive(afterwards);
                waiting.fetch_sub(1, Ordering::AcqRel);
            }
        };
        std::thread::Builder::new().name("rzfs-pages".to_owned()).spawn(work)?;
        Ok(Self { stale: Mutex::new(sender), held })
    }

    /// Makes the kernel drop its pages of a range, then runs `afterwards`; right away if too many
    /// wait.
    pub(crate) fn drop_pages(
        &self,
        inode: INodeNo,
        (offset, len): (u64, u64),
        afterwards: impl FnOnce() + Send + 'static,
    ) {
        if self.has_room() {
            self.drop_pages_before(inode, (offset, len), afterwards);
        } else {
            afterwards();
            self.drop_pages_before(inode, (offset, len), || ());
        }
    }

    /// Whether not too many wait.
    pub(crate) fn has_room(&self) -> bool {
        self.held.load(Ordering::Acquire) < MOST_HELD
    }

    /// Makes the kernel drop its pages of a range, then runs `afterwards`, whoever else waits.
    pub(crate) fn drop_pages_before(
        &self,
        inode: INodeNo,
        (offset, len): (u64, u64),
        afterwards: impl FnOnce() + Send + 'static,
    ) {
        self.held.fetch_add(1, Ordering::AcqRel);
        let stale = Stale { inode, offset, len, afterwards: Box::new(afterwards) };
        let sender = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(refused) = sender.send(stale) {
            drop(sender);
            (refused.0.afterwards)();
            self.held.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
