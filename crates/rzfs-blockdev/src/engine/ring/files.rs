//! Files registered with the kernel, so that a request need not look one up.

use crate::open_file::OpenFile;
use io_uring::Submitter;
use rustix::fd::AsRawFd;
use std::collections::HashMap;

/// Maximum number of registered files; further ones work too, a little slower.
const SLOTS: u32 = 512;

/// How a request refers to its file.
pub(super) enum Target {
    Registered(u32),
    Plain(i32),
}

/// The file in each slot.
pub(super) struct RegisteredFiles {
    slots: HashMap<u64, u32>,
    free: Vec<u32>,
}

impl RegisteredFiles {
    /// An empty table; without slots where the kernel offers none.
    pub(super) fn new(submitter: &Submitter<'_>) -> Self {
        let free = match submitter.register_files_sparse(SLOTS) {
            Ok(()) => (0..SLOTS).rev().collect(),
            Err(error) => {
                tracing::debug!(%error, "io_uring without registered files");
                Vec::new()
            }
        };
        Self { slots: HashMap::new(), free }
    }

    /// The reference to a file, which is registered with its first request.
    pub(super) fn target(&mut self, submitter: &Submitter<'_>, file: &OpenFile) -> Target {
        let plain = file.fd().as_raw_fd();
        if let Some(&slot) = self.slots.get(&file.id()) {
            return Target::Registered(slot);
        }
        if file.is_retired() {
            return Target::Plain(plain);
        }
        let Some(slot) = self.free.pop() else { return Target::Plain(plain) };
        match submitter.register_files_update(slot, &[plain]) {
            Ok(_) => {
                self.slots.insert(file.id(), slot);
                Target::Registered(slot)
            }
            Err(error) => {
                tracing::debug!(%error, file = %file.name(), "cannot register the file");
                self.free.push(slot);
                Target::Plain(plain)
            }
        }
    }

    /// Releases a file; requests in flight keep it to their end.
    pub(super) fn forget(&mut self, submitter: &Submitter<'_>, file: u64) {
        let Some(slot) = self.slots.remove(&file) else { return };
        match submitter.register_files_update(slot, &[-1]) {
            Ok(_) => self.free.push(slot),
            // The slot is lost, but never used for another file by mistake.
            Err(error) => tracing::warn!(%error, "io_uring does not let go of a file"),
        }
    }
}
