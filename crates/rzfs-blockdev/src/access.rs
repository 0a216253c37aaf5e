//! Access rights of a device, and how it is opened.

use crate::IoOperation;
use std::io;

/// Access rights of an open device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Access {
    /// Reads only; nothing more is requested from the system, so nothing can be damaged by mistake.
    #[default]
    ReadOnly,
    /// Reads, writes, discards.
    ReadWrite,
}

impl Access {
    /// Refuses writes and discards on a read-only device, with `EROFS`.
    pub(crate) fn check(self, operation: &IoOperation) -> io::Result<()> {
        match (self, operation) {
            (
                Self::ReadOnly,
                IoOperation::Write(_) | IoOperation::Gather(_) | IoOperation::Discard { .. },
            ) => Err(rustix::io::Errno::ROFS.into()),
            _ => Ok(()),
        }
    }
}
