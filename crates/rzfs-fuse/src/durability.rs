//! Replies that promise durability, sent once it holds: to `fsync`, to synchronous writes, and to
//! all changes with `sync=always`.
//!
//! ```text
//! request ── a file ──┐
//! request ── a file ──┼─> one thread commits all pending, replies to them, and repeats
//! request ── a file ──┘
//! ```
//! So requests that wait for the disk take no thread from others, and all that arrive during one
//! commit share the next one.

use crate::answer::{Answer, errno};
use crate::panics::outlive;
use fuser::Errno;
use rzfs_format::ObjectId;
use rzfs_zpl::live::LiveFileSystem;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of requests that are answered together.
const MOST_TOGETHER: usize = 256;

/// Reports that a change is durable, or that it never will be.
pub(crate) type Promise = Box<dyn FnOnce(Answer<()>) + Send>;

struct Waiting {
    file_system: Arc<LiveFileSystem>,
    object: ObjectId,
    promise: Promise,
}

/// The requests that wait for changes to be durable. Its thread ends on drop.
#[derive(Debug)]
pub(crate) struct Durability {
    waiting: Mutex<Sender<Waiting>>,
}

impl Durability {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Waiting>();
        let work = move || answer_all(&receiver);
        std::thread::Builder::new().name("rzfs-fsync".to_owned()).spawn(work)?;
        Ok(Self { waiting: Mutex::new(sender) })
    }

    /// Replies when all earlier changes to a file and to names are durable.
    pub(crate) fn answer_when_durable(
        &self,
        file_system: &Arc<LiveFileSystem>,
        object: ObjectId,
        promise: Promise,
    ) {
        let waiting = Waiting { file_system: Arc::clone(file_system), object, promise };
        let sender = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(refused) = sender.send(waiting) {
            drop(sender);
            answer(vec![refused.0]);
        }
    }
}

/// Serves requests until all senders are gone.
fn answer_all(waiting: &Receiver<Waiting>) {
    while let Ok(first) = waiting.recv() {
        let file_system = Arc::clone(&first.file_system);
        let mut together = vec![first];
        let mut other = None;
        while together.len() < MOST_TOGETHER
            && let Ok(next) = waiting.try_recv()
        {
            if !Arc::ptr_eq(&next.file_system, &file_system) {
                other = Some(next);
                break;
            }
            together.push(next);
        }
        outlive(|| answer(together));
        outlive(|| answer(other.into_iter().collect()));
    }
}

/// Replies to requests about one file system.
fn answer(waiting: Vec<Waiting>) {
    let Some(first) = waiting.first() else { return };
    let objects: Vec<ObjectId> = waiting.iter().map(|waiting| waiting.object).collect();
    let result = match first.file_system.commit(&objects) {
        // Its subject went with the replaced contents.
        Err(error) if errno(&error) == Errno::ESTALE => Ok(()),
        result => result,
    };
    if let Err(error) = &result {
        tracing::error!(%error, errno = ?errno(error), "changes cannot be made durable");
    }
    // Acknowledged changes are lost: the pool takes no more changes.
    let durable = result.map_err(|_| Errno::EIO);
    waiting.into_iter().for_each(|waiting| (waiting.promise)(durable));
}
