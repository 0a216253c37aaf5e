//! What a pool counts.

use rzfs_cache::{ArcStats, ZfetchStats};
use rzfs_dmu::txg::{DmuTxStats, TxgStats};
use rzfs_dsl::dataset::ObjsetStats;
use rzfs_dsl::live::ZilStats;
use rzfs_kstat::{Figure, Kstat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a pool has counted since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StatsReport {
    /// Groups of numbers.
    pub kstats: Vec<KstatReport>,
    /// The last transaction groups, the oldest first.
    pub txgs: Vec<TxgReport>,
}

/// A group of numbers of a pool, or of one of its datasets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KstatReport {
    /// Which group.
    pub kind: KstatKind,
    /// Whose numbers they are, if they are a dataset's.
    pub objset: Option<ObjsetName>,
    /// The numbers, by the names of [`KstatKind::figures`].
    pub values: BTreeMap<String, u64>,
}

/// A dataset.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ObjsetName {
    /// Its object in the MOS.
    pub id: u64,
    /// Its name.
    pub name: String,
}

/// A transaction group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TxgReport {
    /// Its number.
    pub txg: u64,
    /// OpenZFS's letter for how far it has come.
    pub state: char,
    /// The numbers, by the names of [`TxgReport::figures`].
    pub values: BTreeMap<String, u64>,
}

/// Which group of numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KstatKind {
    /// The cache of blocks.
    Arcstats,
    /// Reading ahead.
    Zfetchstats,
    /// Transactions.
    DmuTx,
    /// Intent logs.
    Zil,
    /// What users do to a file system.
    Objset,
}

/// What the cache could do and no pool asks for: it would always be 0.
const UNUSED: [&str; 7] = [
    "uncached_hits",
    "uncached_size",
    "uncached_data",
    "uncached_metadata",
    "prescient_prefetch",
    "demand_hit_prescient_prefetch",
    "demand_iohit_prescient_prefetch",
];

impl KstatKind {
    /// OpenZFS's name for the group; without the number of the dataset.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arcstats => ArcStats::NAME,
            Self::Zfetchstats => ZfetchStats::NAME,
            Self::DmuTx => DmuTxStats::NAME,
            Self::Zil => ZilStats::NAME,
            Self::Objset => ObjsetStats::NAME,
        }
    }

    /// What its numbers are, in the order in which they are shown.
    pub fn figures(self) -> impl Iterator<Item = &'static Figure> {
        let figures = match self {
            Self::Arcstats => ArcStats::FIGURES,
            Self::Zfetchstats => ZfetchStats::FIGURES,
            Self::DmuTx => DmuTxStats::FIGURES,
            Self::Zil => ZilStats::FIGURES,
            Self::Objset => ObjsetStats::FIGURES,
        };
        figures.iter().filter(|figure| !UNUSED.contains(&figure.name))
    }
}

impl KstatReport {
    /// OpenZFS's name for the group.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.objset {
            Some(objset) => format!("{}-0x{:x}", self.kind.name(), objset.id),
            None => self.kind.name().to_owned(),
        }
    }
}

impl TxgReport {
    /// What the numbers are, in the order in which they are shown.
    #[must_use]
    pub const fn figures() -> &'static [Figure] {
        TxgStats::FIGURES
    }
}
