//! Faults of a simulated device.

use super::random::Random;
use crate::IoOperation;
use std::ops::Range;

/// The kind of a fault. Error numbers are the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Reads fail with this error number.
    FailRead(i32),
    /// Reads succeed, with a changed byte in every sector that lies in the fault's range; always
    /// the same change for the same sector, so a retry does not help.
    CorruptRead,
    /// Writes change nothing and fail with this error number.
    FailWrite(i32),
    /// Writes change some of their sectors and fail with this error number.
    TearWrite(i32),
    /// Writes succeed, but nothing reaches the medium.
    LoseWrite,
    /// Writes succeed, but reach the medium this many bytes further on (or back), as far as that
    /// is still on the device.
    MisdirectWrite(i64),
    /// Flushes fail with this error number and make nothing durable. They have no range.
    FailFlush(i32),
    /// Flushes fail with this error number, and writes since the last one are lost: Linux reports a
    /// failed write-back once, and marks the pages clean. They have no range.
    DropOnFlush(i32),
    /// Flushes succeed, but make nothing durable. They have no range.
    LoseFlush,
    /// Discards change nothing and fail with this error number.
    FailDiscard(i32),
}

/// A fault of a simulated device, with its range and count.
#[derive(Clone, Debug)]
pub struct Fault {
    kind: FaultKind,
    range: Range<u64>,
    spare: u64,
    times: u64,
}

impl Fault {
    /// A fault that affects its operations everywhere and always.
    #[must_use]
    pub const fn new(kind: FaultKind) -> Self {
        Self { kind, range: 0..u64::MAX, spare: 0, times: u64::MAX }
    }

    /// Only operations that touch these bytes.
    #[must_use]
    pub const fn within(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// The first `operations` that would be affected are not.
    #[must_use]
    pub const fn after(mut self, operations: u64) -> Self {
        self.spare = operations;
        self
    }

    /// Affects only this many operations, then no more.
    #[must_use]
    pub const fn times(mut self, operations: u64) -> Self {
        self.times = operations;
        self
    }

    /// Whether the fault affects this operation now; counts down.
    pub(super) fn strikes(&mut self, offset: u64, operation: &IoOperation) -> bool {
        let end = offset.saturating_add(operation.len());
        let in_range = offset < self.range.end && self.range.start < end;
        let affected = match self.kind {
            FaultKind::FailRead(_) | FaultKind::CorruptRead => {
                matches!(operation, IoOperation::Read(_)) && in_range
            }
            FaultKind::FailWrite(_)
            | FaultKind::TearWrite(_)
            | FaultKind::LoseWrite
            | FaultKind::MisdirectWrite(_) => {
                matches!(operation, IoOperation::Write(_) | IoOperation::Gather(_)) && in_range
            }
            FaultKind::FailFlush(_) | FaultKind::DropOnFlush(_) | FaultKind::LoseFlush => {
                matches!(operation, IoOperation::Flush)
            }
            FaultKind::FailDiscard(_) => {
                matches!(operation, IoOperation::Discard { .. }) && in_range
            }
        };
        if !affected || self.times == 0 {
            return false;
        }
        if self.spare > 0 {
            self.spare -= 1;
            return false;
        }
        self.times -= 1;
        true
    }

    pub(super) const fn kind(&self) -> FaultKind {
        self.kind
    }

    /// Changes one byte in each sector of what was read at `offset` that lies in the range.
    pub(super) fn corrupt(&self, seed: u64, offset: u64, sector: u64, buffer: &mut [u8]) {
        let end = offset.saturating_add(buffer.len() as u64);
        for index in offset / sector..end.div_ceil(sector) {
            let mut random = Random::derive(seed, index);
            let at = index * sector + random.next() % sector;
            let change = (random.next() % 255) as u8 + 1;
            // A sector that is read, or lies in the range, only in part may keep its byte.
            let inside = self.range.contains(&at).then(|| at.checked_sub(offset)).flatten();
            let byte =
                inside.and_then(|at| usize::try_from(at).ok()).and_then(|at| buffer.get_mut(at));
            if let Some(byte) = byte {
                *byte ^= change;
            }
        }
    }
}
