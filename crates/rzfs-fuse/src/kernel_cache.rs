//! What the kernel keeps, and is told to forget.
//!
//! The kernel learns of most changes by the answers to what it asked for. Here is the rest:
//!
//! ```text
//! attributes that change with contents (set-user-id, set-group-id)   before the answer
//! times that change with flags                                       before the answer
//! pages below a write that went past them (O_DIRECT)                 before the answer, by a thread
//! pages that a mapping has changed, which is refused                 after the answer, by a thread
//! file systems that come into the mount and go (see grafts)          by who lets them
//! what differs when a file system gets other contents                by who exchanges them
//! whether `.zfs` is in a root directory                              when property `snapdir` changes
//! ```
//! The kernel drops its pages when it sends such a write; if it does not wait for the answer
//! (asynchronous requests), somebody may have read the old contents meanwhile. Dropping pages waits
//! for requests that fill or write them, so the threads that answer requests must not do it. Such
//! requests need slots of those that the kernel has in flight, so not all slots may be held by
//! writes whose answers wait.

use crate::panics::outlive;
use fuser::{INodeNo, Notifier};
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Says "attributes only" where the beginning of a range of contents is expected.
const ATTRIBUTES: i64 = -1;

/// Answers that wait for pages at the same time: a few of the slots that writes and requests for
/// pages share.
const MOST_HELD: usize = 32;

type Afterwards = Box<dyn FnOnce() + Send>;

struct Stale {
    inode: INodeNo,
    offset: u64,
    len: u64,
    afterwards: Afterwards,
}

/// The caches of the kernel that has the mount.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelCache {
    notifier: Arc<OnceLock<Notifier>>,
}

impl KernelCache {
    /// The way to the kernel, once there is one: before the first request.
    pub(crate) fn connect(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Has the kernel ask for the attributes of a file, and for its list of access rights, when it
    /// needs them the next time.
    pub(crate) fn forget_attributes(&self, inode: INodeNo) {
        self.forget(inode, ATTRIBUTES, 0);
    }

    /// Has the kernel ask for everything about a file when it needs it the next time. What is
    /// changed in its pages is written before. Not for threads that answer requests.
    pub(crate) fn forget_contents(&self, inode: INodeNo) {
        self.forget(inode, 0, 0);
    }

    /// Has the kernel forget what a name leads to, and all that is below and not in use; and the
    /// names of the directory that it is in. Not for threads that answer requests, as it waits for
    /// those about the directory.
    pub(crate) fn forget_name(&self, directory: INodeNo, name: &OsStr) {
        self.forget_entry(directory, name);
        self.forget_contents(directory);
    }

    /// The same, but for the other names of the directory.
    pub(crate) fn forget_entry(&self, directory: INodeNo, name: &OsStr) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = notifier.inval_entry(directory, name) {
            tracing::debug!(%error, %directory, ?name, "the kernel keeps what is old");
        }
    }

    /// Has the kernel ask whether there is a `.zfs` in a root directory, and what else is in it.
    pub(crate) fn forget_control(&self, root: INodeNo) {
        self.forget_name(root, OsStr::new(".zfs"));
    }

    /// Has the kernel know that a file is longer than it was, by its last byte. It looks for the length of a
    /// file that it remembers when it has to, but not before it appends, maps or sends it.
    pub(crate) fn extend(&self, inode: INodeNo, offset: u64, last: u8) {
        let Some(notifier) = self.notifier.get() else { return };
        if let Err(error) = notifier.store(inode, offset, &[last]) {
            tracing::debug!(%error, %inode, "the kernel does not know how long it is");
        }
    }

    fn forget(&self, inode: INodeNo, offset: i64, len: i64) {
        let Some(notifier) = self.notifier.get() else { return };
        // It fails when the mount is ending, and nobody keeps anything.
        if let Err(error) = notifier.inval_inode(inode, offset, len) {
            tracing::debug!(%error, %inode, "the kernel keeps what is old");
        }
    }
}

/// A thread that has the kernel drop pages. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PageDropper {
    stale: Mutex<Sender<Stale>>,
    held: Arc<AtomicUsize>,
}

impl PageDropper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread to give.
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

    /// Has the kernel drop its pages of a range, then does something; before that already when too
    /// many wait.
    pub(crate) fn drop_pages(
        &self,
        inode: INodeNo,
        (offset, len): (u64, u64),
        afterwards: impl FnOnce() + Send + 'static,
    ) {
        let afterwards: Afterwards = if self.held.fetch_add(1, Ordering::AcqRel) < MOST_HELD {
            Box::new(afterwards)
        } else {
            afterwards();
            Box::new(|| ())
        };
        let stale = Stale { inode, offset, len, afterwards };
        let sender = self.stale.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(refused) = sender.send(stale) {
            drop(sender);
            (refused.0.afterwards)();
            self.held.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
