//! Parameters of allocation and of keeping its books: those of the table of tunables, without the
//! prefixes of their names.

use crate::free_space::FitLimits;
use crate::layout::LayoutLimits;
use crate::log::book::LogLimits;
use crate::space_map::append::{HeaderForm, MapFeatures};
use rzfs_format::space_map::SpaceMapVersion;
use rzfs_tunables::Tunables;

/// Parameters of a pool's allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceTunables {
    /// `metaslab_df_*`, `metaslab_by_size_min_shift`: which part of a metaslab is taken.
    pub fit: FitLimits,
    /// `zfs_vdev_*_ms_*`: how large the metaslabs of new vdevs are.
    pub layout: LayoutLimits,
    /// `zfs_unflushed_log_*`: how many logs there may be.
    pub logs: LogLimits,
    /// `zfs_unflushed_max_mem_amt`: bytes of memory for changes that only logs have.
    pub unflushed_max_mem_amt: u64,
    /// `zfs_unflushed_max_mem_ppm`: the same in millionths of physical memory.
    pub unflushed_max_mem_ppm: u64,
    /// `zfs_keep_log_spacemaps_at_export`: an export does not flush.
    pub keep_log_spacemaps_at_export: bool,
    /// `zfs_metaslab_condense_pct`: a map is condensed when its size is at least this percentage of
    /// the condensed size.
    pub condense_pct: u64,
    /// `zfs_metaslab_condense_block_threshold`: maps with fewer blocks are not condensed.
    pub condense_block_threshold: u64,
    /// `metaslab_aliquot`: bytes per disk before the next vdev's turn.
    pub aliquot: u64,
    /// `metaslab_bias_enabled`: emptier vdevs get more.
    pub bias_enabled: bool,
    /// `zfs_metaslab_switch_threshold`: an active metaslab is left when the size of its largest
    /// segment has decreased by this many powers of two.
    pub switch_threshold: u32,
    /// `metaslab_unload_delay`: txgs for which an unused metaslab stays loaded.
    pub unload_delay: u64,
    /// `zfs_metaslab_mem_limit`: percent of physical memory for loaded metaslabs.
    pub mem_limit: u64,
    /// `metaslab_preload_limit`: metaslabs of a group that are loaded ahead.
    pub preload_limit: usize,
    /// `zfs_metaslab_find_max_tries`: metaslabs of a group that are tried before the next group.
    pub find_max_tries: usize,
    /// `zfs_metaslab_try_hard_before_gang`: all metaslabs are tried before a block is split.
    pub try_hard_before_gang: bool,
    /// `metaslab_force_ganging`: of allocations of at least this many bytes ...
    pub force_ganging: u64,
    /// `metaslab_force_ganging_pct`: ... this percentage fails, which tests gang blocks.
    pub force_ganging_pct: u64,
    /// `zfs_mg_noalloc_threshold`: vdevs with less free space, in percent, are avoided.
    pub mg_noalloc_threshold: u64,
    /// `zfs_mg_fragmentation_threshold`: vdevs that are more fragmented are avoided.
    pub mg_fragmentation_threshold: u64,
    /// `zfs_special_class_metadata_reserve_pct`: percentage of special vdevs kept for metadata.
    pub special_class_metadata_reserve_pct: u64,
    /// `zfs_user_indirect_is_special`: indirect blocks of files go to the special class.
    pub user_indirect_is_special: bool,
    /// `zfs_ddt_data_is_special`: dedup tables go to the special class if there is no other.
    pub ddt_data_is_special: bool,
    /// `zfs_embedded_slog_min_ms`: vdevs with more metaslabs reserve one for the intent log.
    pub embedded_slog_min_ms: u64,
    /// `spa_num_allocators`: metaslabs of a group that are in use at the same time.
    pub num_allocators: usize,
    /// Bytes of physical memory, which other limits are shares of.
    pub physical_memory: u64,
}

/// With the memory of a machine of 8 GiB.
impl From<&Tunables> for SpaceTunables {
    fn from(tunables: &Tunables) -> Self {
        Self {
            fit: FitLimits::from(tunables),
            layout: LayoutLimits::from(tunables),
            logs: LogLimits::from(tunables),
            unflushed_max_mem_amt: tunables.zfs_unflushed_max_mem_amt,
            unflushed_max_mem_ppm: tunables.zfs_unflushed_max_mem_ppm,
            keep_log_spacemaps_at_export: tunables.zfs_keep_log_spacemaps_at_export,
            condense_pct: tunables.zfs_metaslab_condense_pct,
            condense_block_threshold: tunables.zfs_metaslab_condense_block_threshold,
            aliquot: tunables.metaslab_aliquot,
            bias_enabled: tunables.metaslab_bias_enabled,
            switch_threshold: tunables.zfs_metaslab_switch_threshold,
            unload_delay: tunables.metaslab_unload_delay,
            mem_limit: tunables.zfs_metaslab_mem_limit,
            preload_limit: tunables.metaslab_preload_limit,
            find_max_tries: tunables.zfs_metaslab_find_max_tries,
            try_hard_before_gang: tunables.zfs_metaslab_try_hard_before_gang,
            force_ganging: tunables.metaslab_force_ganging,
            force_ganging_pct: tunables.metaslab_force_ganging_pct,
            mg_noalloc_threshold: tunables.zfs_mg_noalloc_threshold,
            mg_fragmentation_threshold: tunables.zfs_mg_fragmentation_threshold,
            special_class_metadata_reserve_pct: tunables.zfs_special_class_metadata_reserve_pct,
            user_indirect_is_special: tunables.zfs_user_indirect_is_special,
            ddt_data_is_special: tunables.zfs_ddt_data_is_special,
            embedded_slog_min_ms: tunables.zfs_embedded_slog_min_ms,
            num_allocators: tunables.spa_num_allocators,
            physical_memory: 8 << 30,
        }
    }
}

impl Default for SpaceTunables {
    fn default() -> Self {
        Self::from(&Tunables::default())
    }
}

impl SpaceTunables {
    /// Most bytes of memory for changes that only logs have.
    #[must_use]
    pub fn unflushed_memory_limit(&self) -> u64 {
        let share = u128::from(self.physical_memory) * u128::from(self.unflushed_max_mem_ppm);
        let share = u64::try_from(share / 1_000_000).unwrap_or(u64::MAX);
        share.min(self.unflushed_max_mem_amt)
    }

    /// Most bytes of memory for loaded metaslabs.
    #[must_use]
    pub const fn loaded_memory_limit(&self) -> u64 {
        (self.physical_memory / 100).saturating_mul(self.mem_limit)
    }
}

/// Whether changes go to a log (feature `log_spacemap`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogFeature {
    /// Every metaslab's own map gets its changes at once.
    Disabled,
    /// The first txg that changes anything makes the feature active.
    Enabled,
    /// The pool's ZAP of logs exists.
    Active,
}

/// What a pool's features allow space accounting to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceFeatures {
    /// Form of space maps (features `spacemap_histogram` and `spacemap_v2`).
    pub maps: MapFeatures,
    /// Log space maps; not without `spacemap_v2`.
    pub logs: LogFeature,
    /// Whether obsolete parts of removed vdevs are noted (feature `obsolete_counts`).
    pub obsolete: ObsoleteFeature,
}

/// Whether obsolete parts of removed vdevs are noted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ObsoleteFeature {
    /// They are dropped.
    Disabled,
    /// They go to the vdev's obsolete space map.
    Enabled,
}

impl SpaceFeatures {
    /// All features enabled, as in a new pool.
    pub const NEW_POOL: Self = Self {
        maps: MapFeatures { header: HeaderForm::Histogram, version: SpaceMapVersion::Two },
        logs: LogFeature::Enabled,
        obsolete: ObsoleteFeature::Enabled,
    };

    /// No feature enabled, as in pools of versions up to 28.
    pub const NONE: Self = Self {
        maps: MapFeatures { header: HeaderForm::V0, version: SpaceMapVersion::One },
        logs: LogFeature::Disabled,
        obsolete: ObsoleteFeature::Disabled,
    };

    /// Bytes of a block of a metaslab's own map.
    #[must_use]
    pub const fn map_block_size(&self) -> u32 {
        match self.logs {
            LogFeature::Disabled => 16 << 10,
            LogFeature::Enabled | LogFeature::Active => LARGE_BLOCK_SIZE,
        }
    }
}

/// Bytes of a block of logs, checkpoint maps, obsolete maps and arrays of unflushed txgs.
pub(crate) const LARGE_BLOCK_SIZE: u32 = 128 << 10;
