//! What is shown of metaslabs.

use crate::Arguments;
use rzfs_dsl::pool::{MosStore, Pool};
use rzfs_metaslab::PoolMetaslabs;

/// What is shown of each metaslab beside its place and its map's figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Detail {
    /// The histogram that its map keeps (`-mm`).
    pub(super) histogram: bool,
    /// What is free in it (`-mmm`).
    pub(super) free: bool,
    /// The entries of its map (`-mmmm` or `-dddddd`).
    pub(super) entries: bool,
}

impl Detail {
    /// What the command line asks for; `None` if it does not ask for metaslabs.
    pub(super) fn of(arguments: &Arguments) -> Option<Self> {
        let (metaslabs, datasets) = (arguments.metaslabs, arguments.datasets);
        (metaslabs > 0 || datasets >= 3).then_some(Self {
            histogram: metaslabs >= 2,
            free: metaslabs >= 3,
            entries: metaslabs >= 4 || datasets >= 6,
        })
    }
}

/// What a report is about.
pub(super) struct Report<'a> {
    pub(super) pool: &'a Pool,
    pub(super) metaslabs: &'a PoolMetaslabs,
    pub(super) store: MosStore,
    pub(super) detail: Detail,
}
