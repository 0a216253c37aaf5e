//! What all parts of zdb share: where to write, how numbers and times look.

use super::Arguments;
use crate::calendar::Calendar;
use crate::text::pointer::Compact;
use rzfs_format::BlockPointer;
use std::io::Write;

/// One run of zdb.
pub(crate) struct Session<'a> {
    /// What was asked for.
    pub(crate) arguments: &'a Arguments,
    /// The report.
    pub(crate) out: &'a mut dyn Write,
    /// Progress and remarks.
    pub(crate) notes: &'a mut dyn Write,
    /// How times look.
    pub(crate) calendar: Calendar,
}

impl Session<'_> {
    /// A size as the command line wants it.
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

/// What a run found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Nothing wrong.
    Clean,
    /// Leaks or contradictions, as the report says.
    Damaged,
    /// Blocks that cannot be read or do not have their checksums.
    Unreadable,
}

impl Verdict {
    /// The exit status that says so.
    #[must_use]
    pub const fn exit_status(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Damaged => 2,
            Self::Unreadable => 3,
        }
    }
}
