//! The details shown for metaslabs.

use crate::Arguments;
use rzfs_dsl::pool::{MosStore, Pool};
use rzfs_metaslab::PoolMetaslabs;

/// The details shown for each metaslab besides its location and its map's statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Detail {
    /// The histogram in its map (`-mm`).
    pub(super) histogram: bool,
    /// Its free space (`-mmm`).
    pub(super) free: bool,
    /// The entries of its map (`-mmmm` or `-dddddd`).
    pub(super) entries: bool,
}

impl Detail {
    /// The details requested on the command line; `None` if it does not ask for metaslabs.
    pub(super) fn of(arguments: &Arguments) -> Option<Self> {
        let (metaslabs, datasets) = (arguments.metaslabs, arguments.datasets);
        (metaslabs > 0 || datasets >= 3).then_some(Self {
            histogram: metaslabs >= 2,
            free: metaslabs >= 3,
            entries: metaslabs >= 4 || datasets >= 6,
        })
    }
}

/// The input of a report.
pub(super) struct Report<'a> {
    pub(super) pool: &'a Pool,
    pub(super) metaslabs: &'a PoolMetaslabs,
    pub(super) store: MosStore,
    pub(super) detail: Detail,
}
