//! Counting blocks by type and level.

use rzfs_format::BlockPointer;
use rzfs_format::object_type::ObjectType;

/// Rows of the table: the 54 fixed object types, then three that only zdb has, then the total.
pub(super) const ROWS: usize = 58;
/// Index of the row of deferred frees.
pub(super) const DEFERRED: usize = 54;
/// Index of the row of objects with self-describing types.
pub(super) const OTHER: usize = 56;
/// Index of the total row.
pub(super) const TOTAL: usize = 57;
/// Levels that are counted, 0 to 11; [`ALL_LEVELS`] is their sum.
pub(super) const LEVELS: usize = 12;
/// Index of the sum of all levels.
pub(super) const ALL_LEVELS: usize = LEVELS;

const SECTOR_SHIFT: u32 = 9;
/// Buckets of the histogram of physical sizes: one per sector up to 128 KiB, and one for the rest.
const SIZE_BUCKETS: usize = (128 << 10 >> SECTOR_SHIFT) + 2;
/// Buckets of the histograms by powers of two, 512 bytes to 16 MiB.
pub(super) const POWER_BUCKETS: usize = 16;

/// Sums over blocks.
#[derive(Clone, Default, Debug)]
pub(super) struct Tally {
    pub(super) count: u64,
    pub(super) lsize: u64,
    pub(super) psize: u64,
    pub(super) asize: u64,
    /// Addresses of gang headers.
    pub(super) gangs: u64,
    /// Blocks with two or more copies on one vdev.
    pub(super) dittos: u64,
    /// Blocks by physical size in sectors; empty without blocks.
    pub(super) sizes: Vec<u64>,
}

/// Blocks by the power of two of a size: counts and bytes.
#[derive(Clone, Default, Debug)]
pub(super) struct PowerHistogram {
    pub(super) counts: [u64; POWER_BUCKETS],
    pub(super) bytes: [u64; POWER_BUCKETS],
}

impl PowerHistogram {
    fn record(&mut self, size: u64) {
        let power = size.max(1).ilog2().saturating_sub(SECTOR_SHIFT) as usize;
        let bucket = power.min(POWER_BUCKETS - 1);
        if let (Some(count), Some(bytes)) =
            (self.counts.get_mut(bucket), self.bytes.get_mut(bucket))
        {
            *count += 1;
            *bytes = bytes.saturating_add(size);
        }
    }
}

/// The row in which a block is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CountAs {
    /// By the type of its object.
    Type,
    /// Deferred frees.
    Deferred,
}

/// All counters of blocks.
#[derive(Clone, Debug)]
pub(super) struct BlockCounts {
    rows: Vec<Vec<Tally>>,
    pub(super) psizes: PowerHistogram,
    pub(super) lsizes: PowerHistogram,
    pub(super) asizes: PowerHistogram,
    /// Embedded pointers by payload size.
    pub(super) embedded_sizes: Vec<u64>,
    /// Embedded pointers by type of data.
    pub(super) embedded_kinds: [u64; 256],
}

impl Default for BlockCounts {
    fn default() -> Self {
        Self {
            rows: vec![vec![Tally::default(); LEVELS + 1]; ROWS],
            psizes: PowerHistogram::default(),
            lsizes: PowerHistogram::default(),
            asizes: PowerHistogram::default(),
            embedded_sizes: vec![0; BlockPointer::EMBEDDED_CAPACITY + 1],
            embedded_kinds: [0; 256],
        }
    }
}

/// Whether copies of a block share a vdev.
fn is_ditto(pointer: &BlockPointer) -> bool {
    let mut seen = [None; 3];
    for (slot, dva) in pointer.dvas().enumerate() {
        if seen.contains(&Some(dva.vdev())) {
            return true;
        }
        if let Some(place) = seen.get_mut(slot) {
            *place = Some(dva.vdev());
        }
    }
    false
}

/// Whether a block is metadata: above level 0, or of a type that is.
pub(super) fn is_metadata(pointer: &BlockPointer) -> bool {
    pointer.level().0 > 0 || pointer.object_type().is_ok_and(|kind| kind.is_metadata())
}

impl BlockCounts {
    /// The sums of metadata, over the fixed types that occupy space.
    pub(super) fn metadata(&self) -> Tally {
        let mut sum = Tally::default();
        for (row, levels) in self.rows.iter().enumerate().take(DEFERRED) {
            let object_type = u8::try_from(row).ok().and_then(|n| ObjectType::from_number(n).ok());
            let data = object_type.is_some_and(|object_type| !object_type.is_metadata());
            let first = usize::from(data);
            for tally in levels.iter().take(LEVELS).skip(first).filter(|tally| tally.asize > 0) {
                sum.add(tally);
            }
        }
        sum
    }

    /// The sums of a type and level.
    pub(super) fn tally(&self, row: usize, level: usize) -> Option<&Tally> {
        self.rows.get(row)?.get(level)
    }

    /// The sums of everything.
    pub(super) fn total(&self) -> Tally {
        self.tally(TOTAL, ALL_LEVELS).cloned().unwrap_or_default()
    }

    /// Counts a block that is not a hole.
    pub(super) fn record(&mut self, pointer: &BlockPointer, count_as: CountAs) {
        let number = usize::from(pointer.object_type_number());
        let row = match count_as {
            CountAs::Deferred => DEFERRED,
            CountAs::Type if number < DEFERRED => number,
            CountAs::Type => OTHER,
        };
        let level = usize::from(pointer.level().0.unsigned_abs()).min(LEVELS - 1);
        for (row, level) in [(row, level), (row, ALL_LEVELS), (TOTAL, level), (TOTAL, ALL_LEVELS)] {
            if let Some(tally) = self.rows.get_mut(row).and_then(|row| row.get_mut(level)) {
                tally.record(pointer);
            }
        }
        if pointer.is_embedded() {
            self.record_embedded(pointer);
            return;
        }
        self.psizes.record(pointer.physical_size());
        self.lsizes.record(pointer.logical_size());
        self.asizes.record(pointer.allocated_size());
    }

    fn record_embedded(&mut self, pointer: &BlockPointer) {
        let kind = (pointer.words()[6] >> 40 & 0xff) as usize;
        if let Some(count) = self.embedded_kinds.get_mut(kind) {
            *count += 1;
        }
        if let Some(count) = self.embedded_sizes.get_mut(pointer.embedded_size()) {
            *count += 1;
        }
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.lsize = self.lsize.saturating_add(other.lsize);
        self.psize = self.psize.saturating_add(other.psize);
        self.asize = self.asize.saturating_add(other.asize);
    }

    fn record(&mut self, pointer: &BlockPointer) {
        self.count += 1;
        self.lsize = self.lsize.saturating_add(pointer.logical_size());
        let psize = pointer.physical_size();
        self.psize = self.psize.saturating_add(psize);
        self.asize = self.asize.saturating_add(pointer.allocated_size());
        if pointer.is_gang() {
            self.gangs += pointer.dvas().filter(|dva| dva.is_gang()).count() as u64;
        }
        if is_ditto(pointer) {
            self.dittos += 1;
        }
        if self.sizes.is_empty() {
            self.sizes = vec![0; SIZE_BUCKETS];
        }
        let bucket = ((psize >> SECTOR_SHIFT) as usize).min(SIZE_BUCKETS - 1);
        if let Some(count) = self.sizes.get_mut(bucket) {
            *count += 1;
        }
    }
}
