//! The grammar of the records of a stream (spec 08, section 1).
//!
//! ```text
//!         BEGIN                       END
//! Start ────────> Plain ─────────────────────────────────────> Done
//!   │                                                           ▲
//!   │ BEGIN of a package     END            BEGIN               │ END
//!   └──────────────> PackageHead ───> Package ───> Packaged     │
//!                                      │  ▲  └────────┼─────────┘
//!                                      │  └───────────┘ END
//! ```

use crate::error::Problem;
use rzfs_format::stream::{Record, StreamKind};

/// The position of a reader or writer in the grammar of a stream.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Nesting {
    /// Before the first record.
    #[default]
    Start,
    /// In a single stream.
    Plain,
    /// After the BEGIN of a package, before its END.
    PackageHead,
    /// Between the streams of a package.
    Package,
    /// In a stream of a package.
    Packaged,
    /// After the last record.
    Done,
    /// After an error.
    Failed,
}

impl Nesting {
    /// Whether records of a snapshot may appear here.
    #[must_use]
    pub const fn is_in_substream(self) -> bool {
        matches!(self, Self::Plain | Self::Packaged)
    }

    /// The position after this record: the only implementation of the grammar.
    ///
    /// # Errors
    /// [`Problem::Order`]: the record is out of place. [`Problem::Field`]: a BEGIN of unknown kind.
    pub(crate) fn after(self, record: &Record) -> Result<Self, Problem> {
        let order = Problem::Order { found: record.kind() };
        match (self, record) {
            (Self::Start | Self::Package, Record::Begin(begin)) => {
                match (self, begin.version.kind()) {
                    (Self::Start, Some(StreamKind::Substream)) => Ok(Self::Plain),
                    (Self::Start, Some(StreamKind::Package)) => Ok(Self::PackageHead),
                    (_, Some(StreamKind::Substream)) => Ok(Self::Packaged),
                    (_, Some(StreamKind::Package)) => Err(order),
                    (_, None) => Err(Problem::Field {
                        kind: record.kind(),
                        field: "header type",
                        value: begin.version.kind_number(),
                    }),
                }
            }
            (Self::Plain | Self::Package, Record::End(_)) => Ok(Self::Done),
            (Self::PackageHead | Self::Packaged, Record::End(_)) => Ok(Self::Package),
            (_, Record::Begin(_) | Record::End(_)) => Err(order),
            (Self::Plain | Self::Packaged, _) => Ok(self),
            _ => Err(order),
        }
    }
}
