//! The common state of all parts of zdb: streams, and formats of numbers and times.

use super::Arguments;
use crate::calendar::Calendar;
use crate::text::pointer::Compact;
use rzfs_format::BlockPointer;
use std::io::Write;

/// One run of zdb.
pub(crate) struct Session<'a> {
    /// The arguments.
    pub(crate) arguments: &'a Arguments,
    /// The report.
    pub(crate) out: &'a mut dyn Write,
    /// Progress and remarks.
    pub(crate) notes: &'a mut dyn Write,
    /// The format of times.
    pub(crate) calendar: Calendar,
}

impl Session<'_> {
    /// Formats a size in the requested style.
    pub(crate) fn number(&self, number: u64) -> String {
        self.arguments.number_style().show(number)
    }

    /// A block pointer in a list; all of its addresses are shown from six `d` on.
    pub(crate) fn compact<'a>(&self, pointer: &'a BlockPointer) -> Compact<'a> {
        let all = self.arguments.datasets > 5 && self.arguments.object_lookup == 0;
        let addresses = if all { usize::MAX } else { 1 };
        Compact { pointer, addresses, is_freed: false }
    }
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// No problems.
    Clean,
    /// Leaks or contradictions, as reported.
    Damaged,
    /// Blocks that cannot be read or have wrong checksums.
    Unreadable,
}

impl Verdict {
    /// The corresponding exit status.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Damaged => 2,
            Self::Unreadable => 3,
        }
    }
}
