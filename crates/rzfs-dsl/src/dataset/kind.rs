//! Kinds of datasets.

/// What a dataset is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DatasetKind {
    /// A file system.
    FileSystem,
    /// A volume.
    Volume,
    /// A snapshot of a file system or volume.
    Snapshot,
}

impl DatasetKind {
    /// The word that the `type` property shows.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FileSystem => "filesystem",
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
        }
    }
}
