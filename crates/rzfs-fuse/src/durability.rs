//! Answers to `fsync`, given when what they promise is true.
//!
//! ```text
//! request ── asks for its group to be written ──┐
//! request ── asks for its group to be written ──┼─> one thread waits for one group after the
//! request ── asks for its group to be written ──┘   other, and answers
//! ```
//! So those who wait for the disk take no thread from those who do not, and all that came while a
//! group was being written share the next one.

use crate::adapter::errno;
use fuser::{Errno, ReplyEmpty};
use rzfs_format::Txg;
use rzfs_zpl::live::LiveFileSystem;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

struct Waiting {
    file_system: Arc<LiveFileSystem>,
    txg: Txg,
    reply: ReplyEmpty,
}

/// The requests that wait for changes to be on disk. Its thread ends when it is dropped.
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
        std::thread::Builder::new().name("rzfs-fsync".to_owned()).spawn(move || {
            for Waiting { file_system, txg, reply } in receiver {
                match file_system.wait_synced(txg) {
                    Ok(()) => reply.ok(),
                    // What was acknowledged before is lost: the pool takes no changes any more.
                    Err(error) => {
                        tracing::error!(%error, "changes cannot be written");
                        reply.error(Errno::EIO);
                    }
                }
            }
        })?;
        Ok(Self { waiting: Mutex::new(sender) })
    }

    /// Answers when all that was done so far is on disk.
    pub(crate) fn answer_when_synced(&self, file_system: &Arc<LiveFileSystem>, reply: ReplyEmpty) {
        let txg = file_system.request_sync();
        let waiting = Waiting { file_system: Arc::clone(file_system), txg, reply };
        let sender = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(refused) = sender.send(waiting) {
            drop(sender);
            let Waiting { file_system, txg, reply } = refused.0;
            match file_system.wait_synced(txg) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        }
    }
}
