//! The counters of a pool.

use rzfs_cache::{ArcStats, ZfetchStats};
use rzfs_dmu::txg::{DmuTxStats, TxgStats};
use rzfs_dsl::dataset::ObjsetStats;
use rzfs_dsl::live::ZilStats;
use rzfs_kstat::{Figure, Kstat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The counters of a pool since it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StatsReport {
    /// Groups of numbers.
    pub kstats: Vec<KstatReport>,
    /// The last transaction groups, the oldest first.
    pub txgs: Vec<TxgReport>,
}

/// A group of counters of a pool, or of one of its datasets.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KstatReport {
    /// The group.
    pub kind: KstatKind,
    /// The dataset, if they belong to one.
    pub objset: Option<ObjsetName>,
    /// The values, by the names of [`KstatKind::figures`].
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
    /// OpenZFS's letter for its state.
    pub state: char,
    /// The values, by the names of [`TxgReport::figures`].
    pub values: BTreeMap<String, u64>,
}

/// A group of counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KstatKind {
    /// The block cache.
    Arcstats,
    /// Prefetching.
    Zfetchstats,
    /// Transactions.
    DmuTx,
    /// Intent logs.
    Zil,
    /// Operations of users on a file system.
    Objset,
}

/// Counters of cache operations that no pool uses: always 0.
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

    /// The counters, in display order.
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
    /// The values, in display order.
    #[must_use]
    pub const fn figures() -> &'static [Figure] {
        TxgStats::FIGURES
    }
}
