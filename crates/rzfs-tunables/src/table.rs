//! The table.

use crate::row::Row;
use crate::unit::Unit;
use crate::value::Value;
use std::time::Duration;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Any number.
const ANY: std::ops::RangeInclusive<u64> = 0..=u64::MAX;
/// Most bytes that a request to a device or a block may have.
const LARGEST_BLOCK: u64 = 16 * MIB;

/// Makes the struct of values and the table of one list: what is said of a tunable in its
/// documentation is what lists and documents say.
macro_rules! tunables {
    ($(
        $section:literal {
            $( $(#[doc = $about:literal])+ $name:ident: $kind:ty = $default:expr, $unit:ident, $range:expr; )+
        }
    )+) => {
        /// A value for each tunable of [`TABLE`], which has their defaults and ranges.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Tunables {
            $($( $(#[doc = $about])+ pub $name: $kind, )+)+
        }

        impl Default for Tunables {
            fn default() -> Self {
                Self { $($( $name: Value::of_number($default, Unit::$unit), )+)+ }
            }
        }

        /// A row of [`TABLE`].
        pub type Tunable = Row<Tunables>;

        /// All tunables.
        pub static TABLE: &[Tunable] = &[
            $($( Tunable {
                name: stringify!($name),
                section: $section,
                unit: Unit::$unit,
                default: $default,
                range: $range,
                about: concat!($($about),+),
                get: |tunables| tunables.$name.number(Unit::$unit),
                put: |tunables, number| tunables.$name = Value::of_number(number, Unit::$unit),
            }, )+)+
        ];
    };
}

tunables! {
    "Memory" {
        /// Most bytes of blocks that are kept in memory, 32 MiB at least; 0: 512 MiB, or a quarter of
        /// what this process may have if that is less. OpenZFS's own choice is half of the machine's.
        zfs_arc_max: u64 = 0, Bytes, ANY;
        /// How much more it counts that metadata was forgotten and is wanted again than that data was.
        zfs_arc_meta_balance: u64 = 500, Percent, 1..=100_000;
        /// Blocks that are looked at under one lock when room is made.
        zfs_arc_evict_batch_limit: usize = 10, Count, 1..=10_000;
        /// How long what was read ahead because of a pattern is kept if possible.
        zfs_arc_min_prefetch_ms: Duration = 1000, Milliseconds, 0..=3_600_000;
        /// How long what was read ahead because it is known to be wanted is kept if possible.
        zfs_arc_min_prescient_prefetch_ms: Duration = 6000, Milliseconds, 0..=3_600_000;
        /// Most bytes of the pool's own metadata that every group needs and that stay in memory besides:
        /// a sixteenth of the cache at most.
        rzfs_mos_held_max: u64 = 50 * MIB, Bytes, ANY;
        /// Bytes of writes that are kept, of all devices together, until a flush confirms them: 2M of
        /// each at least.
        rzfs_vdev_unconfirmed_max: usize = 64 * MIB, Bytes, 0..=16 * GIB;
    }

    "Reading ahead" {
        /// Most readers in sequence that are followed in one object.
        zfetch_max_streams: usize = 8, Count, 1..=1024;
        /// How far to read ahead at first; each hit doubles it. A sixteenth of the cache at most.
        zfetch_min_distance: u64 = 4 * MIB, Bytes, 0..=GIB;
        /// How far data is read ahead at most. A quarter of the cache at most.
        zfetch_max_distance: u64 = 64 * MIB, Bytes, 1..=GIB;
        /// How far indirect blocks are read ahead at most, in bytes of the data below them.
        zfetch_max_idistance: u64 = 128 * MIB, Bytes, 0..=GIB;
        /// How far out of turn a read may come and still belong to a sequence.
        zfetch_max_reorder: u64 = 16 * MIB, Bytes, 0..=GIB;
        /// A sequence jumps over reads that are missing if these are at most this power of two's part
        /// of the way.
        zfetch_hole_shift: u32 = 2, Log2, 0..=63;
        /// How long a sequence has to be idle for another one to take its place.
        zfetch_min_sec_reap: Duration = 1, Seconds, 0..=3600;
        /// How long a sequence has to be idle to be forgotten.
        zfetch_max_sec_reap: Duration = 2, Seconds, 0..=3600;
    }

    "Devices" {
        /// Most bytes to which neighbouring requests to a rotating disk are joined.
        zfs_vdev_aggregation_limit: usize = MIB, Bytes, 0..=LARGEST_BLOCK;
        /// Most bytes to which neighbouring requests to other devices are joined.
        zfs_vdev_aggregation_limit_non_rotating: usize = 128 * KIB, Bytes, 0..=LARGEST_BLOCK;
        /// Most bytes nobody wants that are read to join two reads.
        zfs_vdev_read_gap_limit: usize = 32 * KIB, Bytes, 0..=LARGEST_BLOCK;
        /// Most writes of the intent log that a device is given at a time.
        zfs_vdev_sync_write_max_active: usize = 10, Count, 1..=1000;
        /// Most writes of a transaction group that a device is given at a time.
        zfs_vdev_async_write_max_active: usize = 10, Count, 1..=1000;
        /// Most ranges that a device is told at a time that they are free.
        zfs_vdev_trim_max_active: usize = 2, Count, 1..=1000;
        /// Most combinations of copies that are tried for a damaged block of a removed vdev.
        zfs_reconstruct_indirect_combinations_max: u64 = 4096, Count, ANY;
        /// Most combinations of columns that are tried for a block of a RAID-Z or dRAID vdev whose
        /// checksum is wrong: enough for all with two parity columns.
        rzfs_reconstruct_parity_combinations_max: u64 = 32_768, Count, ANY;
    }

    "Transaction groups" {
        /// How long a transaction group stays open if nothing hurries it: what is written is on disk
        /// after this time even if nobody asks for it.
        zfs_txg_timeout: Duration = 5, Seconds, 1..=86_400;
        /// Most bytes that are dirty, 1 MiB at least; whoever writes more waits. 0: a part of memory,
        /// which the next three say.
        zfs_dirty_data_max: u64 = 0, Bytes, ANY;
        /// The part of memory that may be dirty where zfs_dirty_data_max is 0.
        zfs_dirty_data_max_percent: u64 = 10, Percent, 1..=100;
        /// The most that zfs_dirty_data_max becomes where it is 0; where this is 0, too, it is 4 GiB or
        /// the part of memory that zfs_dirty_data_max_max_percent says, whichever is less.
        zfs_dirty_data_max_max: u64 = 0, Bytes, ANY;
        /// The part of memory that zfs_dirty_data_max_max is where it is 0.
        zfs_dirty_data_max_max_percent: u64 = 25, Percent, 1..=100;
        /// The part of zfs_dirty_data_max with which a group is written without waiting any longer.
        zfs_dirty_data_sync_percent: u64 = 20, Percent, 1..=100;
        /// The part of zfs_dirty_data_max from which on writers are slowed down.
        zfs_delay_min_dirty_percent: u64 = 60, Percent, 0..=100;
        /// How long a writer waits in the middle between there and zfs_dirty_data_max.
        zfs_delay_scale: Duration = 500_000, Nanoseconds, 0..=1_000_000_000;
        /// The longest that one transaction is held up.
        zfs_delay_max_ns: Duration = 100_000_000, Nanoseconds, 0..=10_000_000_000;
        /// Groups that `rzfs stats` remembers, with how long they took.
        zfs_txg_history: usize = 100, Count, 0..=100_000;
        /// Most blocks that files give up in one group: each is about 400 bytes of memory until it is
        /// written. OpenZFS bounds the same as a part of zfs_dirty_data_max.
        rzfs_per_txg_frees_max: u64 = 100_000, Count, 1000..=100_000_000;
        /// Most blocks of destroyed datasets that are freed in one group. OpenZFS has no such limit by
        /// default, but one on the time that it takes.
        zfs_async_block_max_blocks: usize = 100_000, Count, 1000..=100_000_000;
        /// Blocks in a part of a clone's list of its own blocks after which another one is begun.
        zfs_livelist_max_entries: u64 = 500_000, Count, 1..=u64::MAX;
        /// The pass of a sync from which on blocks that die are put off to the next group, in pools
        /// without log space maps.
        zfs_sync_pass_deferred_free: u32 = 2, Passes, 1..=50;
        /// The pass of a sync from which on new blocks are not compressed.
        zfs_sync_pass_dont_compress: u32 = 8, Passes, 1..=50;
        /// The pass of a sync from which on blocks of the same group are written again where they are.
        zfs_sync_pass_rewrite: u32 = 2, Passes, 1..=8;
    }

    "Intent log" {
        /// Most bytes of a block of the intent log; a multiple of 4K.
        zil_maxblocksize: u64 = 128 * KIB, Bytes, 8 * KIB..=128 * KIB;
        /// Writes of so many bytes go where the next group would have written them, and only their
        /// place is logged; not with a log device.
        zfs_immediate_write_sz: u64 = 32 * KIB, Bytes, ANY;
        /// More bytes than this are not logged: writing the group is sooner done.
        rzfs_zil_commit_max: u64 = 8 * MIB, Bytes, 0..=GIB;
        /// The same with a log device.
        rzfs_zil_commit_max_slog: u64 = 32 * MIB, Bytes, 0..=GIB;
    }

    "Dedup" {
        /// Groups after which a log of changed entries is moved to the tables, and in how many it is.
        zfs_dedup_log_txg_max: u64 = 8, Txgs, 1..=1_000_000;
        /// Fewest entries that a group moves.
        zfs_dedup_log_flush_entries_min: usize = 200, Count, 1..=100_000_000;
        /// Most memory for the logs of a table, 1M at least; 0: the part of memory that
        /// zfs_dedup_log_mem_max_percent says.
        zfs_dedup_log_mem_max: u64 = 0, Bytes, ANY;
        /// The part of memory for the logs of a table where zfs_dedup_log_mem_max is 0.
        zfs_dedup_log_mem_max_percent: u64 = 1, Percent, 1..=100;
    }

    "Allocation" {
        /// Bytes that each disk of a vdev gets before it is the next vdev's turn.
        metaslab_aliquot: u64 = MIB, Bytes, 1..=GIB;
        /// Whether vdevs with more free space get more.
        metaslab_bias_enabled: bool = 1, Flag, 0..=1;
        /// Without a free segment of so many bytes, a metaslab is filled by best fit.
        metaslab_df_alloc_threshold: u64 = 128 * KIB, Bytes, 0..=GIB;
        /// With less free space, a metaslab is filled by best fit.
        metaslab_df_free_pct: u64 = 4, Percent, 0..=100;
        /// Bytes that first fit looks through before best fit takes over.
        metaslab_df_max_search: u64 = 16 * MIB, Bytes, ANY;
        /// Segments that first fit looks at in any case.
        metaslab_min_search_count: usize = 100, Count, 0..=1_000_000;
        /// Smallest segments that are ordered by size: the exponent of their bytes.
        metaslab_by_size_min_shift: u32 = 14, Log2, 9..=24;
        /// A metaslab is left for a better one when its largest segment has become smaller by so many
        /// powers of two.
        zfs_metaslab_switch_threshold: u32 = 2, Log2, 1..=63;
        /// Groups for which a metaslab that nobody uses stays in memory.
        metaslab_unload_delay: u64 = 32, Txgs, ANY;
        /// The part of memory that metaslabs may take.
        zfs_metaslab_mem_limit: u64 = 25, Percent, 1..=100;
        /// Most metaslabs of a vdev that are brought into memory before they are wanted.
        metaslab_preload_limit: usize = 10, Count, 0..=1000;
        /// Metaslabs of a vdev that are tried before the next vdev is.
        zfs_metaslab_find_max_tries: usize = 100, Count, 1..=1_000_000;
        /// Whether all metaslabs are tried before a block is cut into pieces.
        zfs_metaslab_try_hard_before_gang: bool = 0, Flag, 0..=1;
        /// Some blocks of at least so many bytes are cut into pieces without need. For tests.
        metaslab_force_ganging: u64 = 16 * MIB + 1, Bytes, 16 * KIB..=u64::MAX;
        /// How many of them are: see metaslab_force_ganging.
        metaslab_force_ganging_pct: u64 = 3, Percent, 0..=100;
        /// Vdevs with less free space than this are avoided.
        zfs_mg_noalloc_threshold: u64 = 0, Percent, 0..=100;
        /// Vdevs that are more fragmented than this are avoided.
        zfs_mg_fragmentation_threshold: u64 = 95, Percent, 0..=100;
        /// The part of the special vdevs that small blocks of files leave for metadata.
        zfs_special_class_metadata_reserve_pct: u64 = 25, Percent, 0..=100;
        /// Whether indirect blocks of files go to the special vdevs.
        zfs_user_indirect_is_special: bool = 1, Flag, 0..=1;
        /// Whether dedup tables go to the special vdevs when there are none for dedup.
        zfs_ddt_data_is_special: bool = 1, Flag, 0..=1;
        /// Vdevs with more metaslabs than this keep one for the intent log.
        zfs_embedded_slog_min_ms: u64 = 64, Count, 1..=u64::MAX;
        /// Metaslabs of a vdev that are filled at the same time.
        spa_num_allocators: usize = 4, Count, 1..=64;
    }

    "Space maps" {
        /// A metaslab's map is written anew when it has this part of the bytes that it would have
        /// then.
        zfs_metaslab_condense_pct: u64 = 200, Percent, 100..=100_000;
        /// Maps with fewer blocks are not written anew.
        zfs_metaslab_condense_block_threshold: u64 = 4, Count, ANY;
        /// Most memory for changes that only the logs of all metaslabs have.
        zfs_unflushed_max_mem_amt: u64 = GIB, Bytes, ANY;
        /// The part of memory that these changes may take.
        zfs_unflushed_max_mem_ppm: u64 = 1000, Millionths, 0..=1_000_000;
        /// Blocks of logs that there may be for 100 metaslabs with changes in them.
        zfs_unflushed_log_block_pct: u64 = 400, Percent, ANY;
        /// Blocks of logs that there may be in any case.
        zfs_unflushed_log_block_min: u64 = 1000, Count, ANY;
        /// Most blocks of logs.
        zfs_unflushed_log_block_max: u64 = 131_072, Count, ANY;
        /// Most logs: one for each group.
        zfs_unflushed_log_txg_max: u64 = 1000, Count, ANY;
        /// Fewest metaslabs that are brought up to date by a group that changes anything.
        zfs_min_metaslabs_to_flush: u64 = 1, Count, ANY;
        /// Logs whose sizes tell how much the next group will add.
        zfs_max_log_walking: usize = 5, Count, 1..=1000;
        /// Whether an export leaves changes in the logs.
        zfs_keep_log_spacemaps_at_export: bool = 0, Flag, 0..=1;
    }

    "New vdevs" {
        /// Smallest sector that is chosen where the property ashift does not say: the exponent of its
        /// bytes.
        zfs_vdev_min_auto_ashift: u64 = 9, Log2, 9..=16;
        /// Largest sector that is chosen because a device says that it has such.
        zfs_vdev_max_auto_ashift: u64 = 14, Log2, 9..=16;
        /// Metaslabs that a vdev has at most while they are of the usual size.
        zfs_vdev_default_ms_count: u64 = 200, Count, 16..=131_072;
        /// The usual size of a metaslab: the exponent of its bytes.
        zfs_vdev_default_ms_shift: u32 = 29, Log2, 24..=40;
        /// Metaslabs that a vdev has at least, if it has room for them.
        zfs_vdev_min_ms_count: u64 = 16, Count, 1..=1000;
        /// The largest size of a metaslab, while there are not too many: the exponent of its bytes.
        zfs_vdev_max_ms_shift: u32 = 34, Log2, 24..=40;
        /// Most metaslabs of a vdev.
        zfs_vdev_ms_count_limit: u64 = 131_072, Count, 16..=131_072;
    }

    "Trimming and initializing" {
        /// Shorter free ranges are not told to devices.
        zfs_trim_extent_bytes_min: u64 = 32 * KIB, Bytes, ANY;
        /// Longer free ranges are told in parts.
        zfs_trim_extent_bytes_max: u64 = 128 * MIB, Bytes, 64 * KIB..=u64::MAX;
        /// Groups between two rounds of telling what was freed, with the property autotrim.
        zfs_trim_txg_batch: u64 = 32, Txgs, 1..=1_000_000;
        /// What free space is overwritten with: eight bytes.
        zfs_initialize_value: u64 = 0xdead_beef_dead_beee, Count, ANY;
        /// Bytes that are overwritten at once; a multiple of 64K.
        zfs_initialize_chunk_size: usize = MIB, Bytes, 64 * KIB..=LARGEST_BLOCK;
    }

    "Files" {
        /// The part of what fallocate asks for that has to be available.
        zfs_fallocate_reserve_percent: u64 = 110, Percent, 0..=10_000;
        /// Whether root, and who has the pool open, take, rename and destroy snapshots with mkdir,
        /// rename and rmdir in .zfs/snapshot.
        zfs_admin_snapshot: bool = 0, Flag, 0..=1;
    }

    "Import" {
        /// Top-level vdevs that may be missing from a pool that is opened; what is on them is lost.
        zfs_max_missing_tvds: usize = 0, Count, ANY;
    }

    "Several hosts" {
        /// How often each device shows that the pool is in use, with the property multihost.
        zfs_multihost_interval: Duration = 1000, Milliseconds, 100..=1_000_000;
        /// After how many intervals without success the pool is suspended; 0: never.
        zfs_multihost_fail_intervals: u16 = 10, Count, 0..=1000;
        /// How many intervals of the owner an import watches before it takes the pool over.
        zfs_multihost_import_intervals: u32 = 20, Count, 1..=1000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TunableError;

    #[test]
    fn names_are_unique_and_known_by_their_beginnings() {
        let mut names: Vec<_> = TABLE.iter().map(|one| one.name).collect();
        for name in &names {
            let is_known =
                ["zfs_", "zfetch_", "zil_", "zap_", "zio_", "metaslab_", "spa_", "dmu_", "rzfs_"]
                    .iter()
                    .any(|start| name.starts_with(start));
            assert!(is_known, "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
    }

    #[test]
    fn every_number_of_a_range_can_be_set_and_read() {
        for tunable in TABLE {
            let mut tunables = Tunables::default();
            assert_eq!(tunable.number(&tunables), tunable.default, "{}", tunable.name);
            assert!(tunable.range.contains(&tunable.default), "{}", tunable.name);
            for number in [*tunable.range.start(), *tunable.range.end()] {
                // Times of any number of nanoseconds are times, too.
                tunables.set(tunable.name, &number.to_string()).unwrap();
                assert_eq!(tunable.number(&tunables), number, "{}", tunable.name);
            }
            tunables.set(tunable.name, &tunable.default.to_string()).unwrap();
            assert_eq!(tunables, Tunables::default());
        }
    }

    #[test]
    fn mistakes_say_what_would_be_right() {
        let mistake = |name: &str, text: &str| {
            let mut tunables = Tunables::default();
            let error: TunableError = tunables.set(name, text).unwrap_err();
            assert_eq!(tunables, Tunables::default());
            error.to_string()
        };
        let cases = [
            ("zfs_arc_mx", "1G", "there is no tunable 'zfs_arc_mx'; did you mean 'zfs_arc_max'?"),
            ("xyz", "1", "there is no tunable 'xyz'; 'rzfs tunables' lists them"),
            ("zfs_arc_max", "1GX", "zfs_arc_max: '1GX' is not a number of bytes, like 128K"),
            ("zfs_txg_timeout", "1m", "zfs_txg_timeout: '1m' is not a number of seconds"),
            ("zfs_txg_timeout", "0", "zfs_txg_timeout: 0 is out of range: 1 to 86400 s"),
            ("metaslab_bias_enabled", "2", "metaslab_bias_enabled: '2' is not 0 or 1"),
            (
                "zfs_embedded_slog_min_ms",
                "0",
                "zfs_embedded_slog_min_ms: 0 is out of range: at least 1",
            ),
        ];
        for (name, text, expected) in cases {
            assert_eq!(mistake(name, text), expected);
        }
    }

    #[test]
    fn what_was_changed_is_known() {
        let mut tunables = Tunables::default();
        tunables.set("zfs_dirty_data_max", "1.5G").unwrap();
        let changed: Vec<_> = tunables.changed().map(|(one, number)| (one.name, number)).collect();
        assert_eq!(changed, [("zfs_dirty_data_max", 3 << 29)]);
    }
}
