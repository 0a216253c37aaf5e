//! What a property of datasets is besides its description.

use super::super::description::{Description, Editing};
use crate::features::Feature;

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

/// Which kinds of datasets have a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datasets(u8);

impl Datasets {
    /// Whether those of this kind do.
    #[must_use]
    pub const fn include(self, kind: DatasetKind) -> bool {
        let kind = match kind {
            DatasetKind::FileSystem => FILE_SYSTEMS,
            DatasetKind::Volume => VOLUMES,
            DatasetKind::Snapshot => SNAPSHOTS,
        };
        self.0 & kind.0 != 0
    }

    /// Whether bookmarks do.
    #[must_use]
    pub const fn include_bookmarks(self) -> bool {
        self.0 & BOOKMARKS.0 != 0
    }

    pub(super) const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }
}

pub(super) const FILE_SYSTEMS: Datasets = Datasets(1);
pub(super) const VOLUMES: Datasets = Datasets(2);
pub(super) const SNAPSHOTS: Datasets = Datasets(4);
const BOOKMARKS: Datasets = Datasets(8);
/// File systems and volumes.
pub(super) const HEADS: Datasets = FILE_SYSTEMS.and(VOLUMES);
/// File systems, and snapshots as far as they are of file systems.
pub(super) const WITH_FILES: Datasets = FILE_SYSTEMS.and(SNAPSHOTS);
/// All but bookmarks.
pub(super) const ALL: Datasets = HEADS.and(SNAPSHOTS);
pub(super) const ALL_AND_BOOKMARKS: Datasets = ALL.and(BOOKMARKS);

/// Where a dataset has a value from that it does not have itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// From its parent, at any time.
    Inherited,
    /// From its parent when it is created; from then on the value is its own.
    AtCreation,
    /// From nowhere: it has the default.
    Own,
}

/// Where the value of a property is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Storage {
    /// In the ZAP of properties of the dataset's directory, or of the snapshot, under its own name.
    Properties,
    /// In the master node of the file system, under this name.
    MasterNode(&'static str),
    /// In the ZAP of properties that the object set of a volume has, under this name.
    Volume(&'static str),
    /// It is the block size of the volume's data.
    VolumeBlockSize,
    /// In the key object of an encrypted dataset, under this name.
    KeyObject(&'static str),
    /// In the object of the dataset's directory, under this name.
    Directory(&'static str),
    /// It follows from other things.
    Computed,
}

/// What there is to know about a property of datasets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) description: Description,
    pub(super) datasets: Datasets,
    pub(super) inheritance: Inheritance,
    pub(super) storage: Storage,
    /// What any value needs.
    pub(super) feature: Option<Feature>,
}

impl Description {
    const fn of(self, datasets: Datasets, inheritance: Inheritance) -> Entry {
        let storage = match self.editing {
            Editing::Never => Storage::Computed,
            Editing::AtCreation | Editing::Always => Storage::Properties,
        };
        Entry { description: self, datasets, inheritance, storage, feature: None }
    }

    /// Sets which datasets have the property, whose value is only the dataset's own.
    pub(super) const fn own(self, datasets: Datasets) -> Entry {
        self.of(datasets, Inheritance::Own)
    }

    /// Sets which datasets have the property, and that children inherit it.
    pub(super) const fn inherited(self, datasets: Datasets) -> Entry {
        self.of(datasets, Inheritance::Inherited)
    }

    /// Says who has the property, and that children are created with their parent's value.
    pub(super) const fn inherited_once(self, datasets: Datasets) -> Entry {
        self.of(datasets, Inheritance::AtCreation)
    }
}

impl Entry {
    pub(super) const fn stored(self, storage: Storage) -> Self {
        Self { storage, ..self }
    }

    /// The feature that any value needs.
    pub(super) const fn needs(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }
}
