//! Buffers registered with the kernel, so that a read need not look up and pin their pages.

use crate::IoBuffer;
use crate::pool::{BufferPool, SLOTS};
use io_uring::Submitter;
use std::sync::Arc;

/// Which of a pool's buffers are registered with the kernel.
pub(super) struct RegisteredBuffers {
    pool: Arc<BufferPool>,
    /// By slot; empty where the kernel offers no registration (before 5.19).
    states: Box<[Registration]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Registration {
    Unknown,
    Registered,
    Refused,
}

impl RegisteredBuffers {
    /// A table for the buffers of this pool.
    pub(super) fn new(submitter: &Submitter<'_>, pool: Arc<BufferPool>) -> Self {
        let slots = match submitter.register_buffers_sparse(u32::from(SLOTS)) {
            Ok(()) => usize::from(SLOTS),
            Err(error) => {
                tracing::debug!(%error, "io_uring without registered buffers");
                0
            }
        };
        Self { pool, states: vec![Registration::Unknown; slots].into() }
    }

    /// The index of the buffer in the kernel, which registers it on first use.
    pub(super) fn index(
        &mut self,
        submitter: &Submitter<'_>,
        buffer: &mut IoBuffer,
    ) -> Option<u16> {
        let slot = buffer.slot_of(&self.pool)?;
        let state = self.states.get_mut(usize::from(slot.0))?;
        if *state == Registration::Unknown {
            *state = register(submitter, slot.0, buffer);
        }
        (*state == Registration::Registered).then_some(slot.0)
    }
}

fn register(submitter: &Submitter<'_>, slot: u16, buffer: &mut IoBuffer) -> Registration {
    let whole = buffer.whole_mut();
    let place = libc::iovec { iov_base: whole.as_mut_ptr().cast(), iov_len: whole.len() };
    // SAFETY: the memory is valid now, and the kernel pins its pages. It is written to only by
    // reads with this index, which are made only into the buffer of this slot, while that lives
    // and always at this same address.
    match unsafe { submitter.register_buffers_update(u32::from(slot), &[place], None) } {
        Ok(()) => Registration::Registered,
        Err(error) => {
            tracing::debug!(%error, "cannot register a buffer");
            Registration::Refused
        }
    }
}
