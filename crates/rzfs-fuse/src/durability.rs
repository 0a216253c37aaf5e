//! Answers that promise that something is on disk, given when that is true: to `fsync`, to writes
//! of files that were opened for it, to all changes where the file system has it so
//! (`sync=always`).
//!
//! ```text
//! request ── a file ──┐
//! request ── a file ──┼─> one thread commits all that have come, answers them, and looks again
//! request ── a file ──┘
//! ```
//! So those who wait for the disk take no thread from those who do not, and all that came while
//! one commit was written share the next one.

use crate::answer::{Answer, errno};
use crate::panics::outlive;
use fuser::Errno;
use rzfs_format::ObjectId;
use rzfs_zpl::live::LiveFileSystem;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Most requests that are answered together.
const MOST_TOGETHER: usize = 256;

/// Says that something is durable, or that it never will be.
pub(crate) type Promise = Box<dyn FnOnce(Answer<()>) + Send>;

struct Waiting {
    file_system: Arc<LiveFileSystem>,
    object: ObjectId,
    promise: Promise,
}

/// The requests that wait for changes to be durable. Its thread ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Durability {
    waiting: Mutex<Sender<Waiting>>,
}

impl Durability {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = channel::<Waiting>();
        let work = move || answer_all(&receiver);
        std::thread::Builder::new().name("rzfs-fsync".to_owned()).spawn(work)?;
        Ok(Self { waiting: Mutex::new(sender) })
    }

    /// Answers when all that was done to a file so far, and to names, is durable.
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

/// Answers until nobody can ask any more.
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

/// Answers requests about one file system.
fn answer(waiting: Vec<Waiting>) {
    let Some(first) = waiting.first() else { return };
    let objects: Vec<ObjectId> = waiting.iter().map(|waiting| waiting.object).collect();
    let result = match first.file_system.commit(&objects) {
        // What it was about is gone with the contents before these.
        Err(error) if errno(&error) == Errno::ESTALE => Ok(()),
        result => result,
    };
    if let Err(error) = &result {
        tracing::error!(%error, errno = ?errno(error), "changes cannot be made durable");
    }
    // What was acknowledged before is lost: the pool takes no changes any more.
    let durable = result.map_err(|_| Errno::EIO);
    waiting.into_iter().for_each(|waiting| (waiting.promise)(durable));
}
