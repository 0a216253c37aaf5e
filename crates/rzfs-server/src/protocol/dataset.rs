//! Datasets and their properties, as `zfs` shows them.

use super::Temporary;
use serde::{Deserialize, Serialize};

/// What a dataset is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DatasetKind {
    /// A file system.
    Filesystem,
    /// A volume.
    Volume,
    /// A snapshot of either.
    Snapshot,
    /// A bookmark.
    Bookmark,
}

impl DatasetKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Filesystem, Self::Volume, Self::Snapshot, Self::Bookmark];

    /// The value of property `type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Bookmark => "bookmark",
        }
    }
}

/// Which properties of each dataset to report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// Every native property that applies, in the order of `zfs get all`, then user properties.
    All,
    /// These; one that does not apply is left out of a report.
    Named(Vec<String>),
}

/// Which datasets of a pool to report, and what of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatasetQuery {
    /// Full names: file systems, volumes, snapshots, bookmarks. Empty means the whole pool.
    pub names: Vec<String>,
    /// Levels below each name: 0 is only the named ones, none is no limit. Snapshots and
    /// bookmarks count as one level below their dataset.
    pub depth: Option<u32>,
    /// Kinds to report when walking; a named dataset is reported only if its kind is among them.
    pub kinds: Vec<DatasetKind>,
    /// Which properties.
    pub properties: Selection,
}

/// The answer to a [`DatasetQuery`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct DatasetListing {
    /// Datasets, no name twice, in the order of `zfs list`: by name, snapshots of a dataset after
    /// it in the order of their creation, then its bookmarks, then its children.
    pub datasets: Vec<DatasetReport>,
    /// Names that could not be opened.
    pub failures: Vec<DatasetFailure>,
}

/// A name of a query that could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DatasetFailure {
    /// The name as asked for.
    pub name: String,
    /// The reason, in OpenZFS's words: `dataset does not exist`.
    pub reason: String,
}

/// A dataset.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DatasetReport {
    /// Full name.
    pub name: String,
    /// What it is.
    pub kind: DatasetKind,
    /// Txg of its creation.
    pub created: u64,
    /// Whether it is being received, or was received only partially.
    #[serde(default)]
    pub inconsistent: bool,
    /// The requested properties that apply.
    pub properties: Vec<PropertyReport>,
}

impl DatasetReport {
    /// The property of this name.
    #[must_use]
    pub fn property(&self, name: &str) -> Option<&PropertyReport> {
        self.properties.iter().find(|property| property.name == name)
    }
}

/// A property's value.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PropertyValue {
    /// There is none; shown as `-`.
    Unset,
    /// A number: bytes, a count, a guid, seconds since the epoch, hundredths of a ratio.
    Number(u64),
    /// A word of the property's vocabulary, or text.
    Text(String),
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PropertySource {
    /// It is computed.
    None,
    /// Not set.
    Default,
    /// Set here.
    Local,
    /// Set on this ancestor.
    Inherited(String),
    /// Came with a send stream.
    Received,
    /// Holds for this mount only.
    Temporary,
}

/// A property.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PropertyReport {
    /// Its full name.
    pub name: String,
    /// Its value in force.
    pub value: PropertyValue,
    /// Where that comes from.
    pub source: PropertySource,
    /// The value that a send stream brought, in force or not.
    pub received: Option<PropertyValue>,
}

/// A hold of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HoldReport {
    /// The snapshot.
    pub snapshot: String,
    /// The tag.
    pub tag: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
}

/// A mounted file system.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountReport {
    /// The dataset.
    pub dataset: String,
    /// Where.
    pub mountpoint: String,
    /// Its temporary options.
    pub temporary: Temporary,
}
