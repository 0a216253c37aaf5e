//! Positions in a pool walk.

use rzfs_format::units::Bookmark;
use rzfs_format::{ObjsetId, Txg};

/// A part of a pool that has blocks, in walk order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// Deferred frees, and blocks of destroyed snapshots.
    FreeLists,
    /// The remains of datasets being destroyed in the background.
    Destroyed,
    /// Blocks of destroyed clones that only their livelists still list.
    DeletedLivelists,
    /// The meta object set.
    Mos,
    /// All heads and snapshots, and the intent logs of heads.
    Datasets,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 5] =
        [Self::FreeLists, Self::Destroyed, Self::DeletedLivelists, Self::Mos, Self::Datasets];

    /// Whether its blocks are free, though not yet reusable.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::FreeLists | Self::Destroyed | Self::DeletedLivelists)
    }
}

/// The next block of a pool walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Position {
    /// An entry of the free lists, counted over all of them.
    FreeLists {
        /// Its number.
        entry: u64,
    },
    /// A block of a destroyed dataset.
    Destroyed {
        /// The index of the dataset in the list.
        entry: u64,
        /// The block; the first one not freed if `None`.
        next: Option<Bookmark>,
    },
    /// A block of the livelists, counted over all of them.
    DeletedLivelists {
        /// Its number.
        entry: u64,
    },
    /// A block of the MOS.
    Mos {
        /// The block; the first one if `None`.
        next: Option<Bookmark>,
    },
    /// A block of an intent log, or one that its records point to.
    Log {
        /// The dataset.
        dataset: DatasetPlace,
        /// The number of the block.
        block: u64,
    },
    /// A block of a dataset.
    Dataset {
        /// The dataset.
        dataset: DatasetPlace,
        /// The block.
        next: Bookmark,
    },
}

/// The place of a dataset among all. Blocks of its previous snapshot are older than its own, so
/// this orders each dataset after that snapshot.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct DatasetPlace {
    /// Its blocks were born after this txg.
    pub born_after: Txg,
    /// Its number.
    pub objset: ObjsetId,
}

impl Position {
    /// The start of a part.
    pub(super) const fn start_of(part: Part) -> Self {
        match part {
            Part::FreeLists => Self::FreeLists { entry: 0 },
            Part::Destroyed => Self::Destroyed { entry: 0, next: None },
            Part::DeletedLivelists => Self::DeletedLivelists { entry: 0 },
            Part::Mos => Self::Mos { next: None },
            Part::Datasets => {
                Self::start_of_dataset(DatasetPlace { born_after: Txg(0), objset: ObjsetId::MOS })
            }
        }
    }

    pub(super) const fn start_of_dataset(dataset: DatasetPlace) -> Self {
        Self::Log { dataset, block: 0 }
    }

    /// The part of the position.
    #[must_use]
    pub const fn part(self) -> Part {
        match self {
            Self::FreeLists { .. } => Part::FreeLists,
            Self::Destroyed { .. } => Part::Destroyed,
            Self::DeletedLivelists { .. } => Part::DeletedLivelists,
            Self::Mos { .. } => Part::Mos,
            Self::Log { .. } | Self::Dataset { .. } => Part::Datasets,
        }
    }
}
