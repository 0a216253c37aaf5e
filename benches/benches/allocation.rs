//! What does it cost to find a place for a block, and to keep the books of what is free?
//!
//! `allocate/*` gives space and takes it back, in a new pool and in one where every second block
//! of 8 KiB is free; `threads/*` does it on several threads. `txg/*` records a txg in which one
//! block dies in each of some metaslabs and as many are born, with log space maps and without. What
//! such a txg writes is printed: data blocks and headers (bonus buffers) of space maps, arrays and
//! logs, as a mean of the txgs after the logs have reached their usual number.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_format::{Dva, Txg, VdevId};
use rzfs_metaslab::allocator::{
    Activity, AllocationRequest, Availability, Content, Devices, LogFeature, Placement,
    SpaceFeatures, SpaceTunables, VdevRole, Writability,
};
use rzfs_metaslab::log::book::LogLimits;
use rzfs_metaslab::memory::SharedStore;
use rzfs_metaslab::{Allocator, AllocatorOptions, VdevGeometry};
use std::sync::Arc;

const ASHIFT: u32 = 12;
/// log2 of the bytes of a metaslab.
const SHIFT: u32 = 24;

struct Disks;

impl Devices for Disks {
    fn allocated_size(&self, _: VdevId, size: u64, _: Txg) -> Option<u64> {
        Some(size.next_multiple_of(1 << ASHIFT))
    }

    fn deflate_ratio(&self, _: VdevId) -> u64 {
        512
    }

    fn writability(&self, _: VdevId) -> Writability {
        Writability::Ready
    }
}

struct Pool {
    store: SharedStore,
    allocator: Allocator,
    txg: Txg,
}

impl Pool {
    fn new(metaslabs: u64, features: SpaceFeatures) -> Self {
        let store = SharedStore::default();
        // With the usual limits it takes a thousand txgs until the first log is freed.
        let logs = LogLimits { block_min: 20, txg_max: 100, ..LogLimits::default() };
        let allocator = Allocator::new(AllocatorOptions {
            tunables: SpaceTunables { logs, ..SpaceTunables::default() },
            features,
            devices: Arc::new(Disks),
            reader: Arc::new(store.clone()),
        });
        let geometry = VdevGeometry {
            vdev: VdevId(0),
            asize: metaslabs << SHIFT,
            ashift: ASHIFT,
            metaslab_shift: SHIFT,
            row_size: None,
        };
        allocator.add_vdev(geometry, VdevRole::default(), Availability::Now).expect("a vdev");
        Self { store, allocator, txg: Txg::INITIAL }
    }

    fn allocate(&self, size: u64, locality: u64) -> Dva {
        let request = AllocationRequest {
            size,
            copies: 1,
            content: Content::Data { special_up_to: 0 },
            placement: Placement::Block,
            locality,
        };
        self.allocator.allocate(&request, self.txg).expect("space")[0]
    }

    fn sync(&mut self, dying: &[Dva]) {
        let pass = self.allocator.begin_sync(self.txg).expect("a pass");
        for dva in dying {
            pass.free(*dva, Txg(1)).expect("it is allocated");
        }
        let pass = pass.sync(&mut self.store, Activity::Busy).expect("a store");
        pass.finish().expect("recorded").committed().expect("committed");
        self.txg = self.txg.next();
    }

    /// A pool in which every second block is free.
    fn aged(metaslabs: u64, size: u64) -> Self {
        let mut pool = Self::new(metaslabs, SpaceFeatures::NEW_POOL);
        let blocks = metaslabs << SHIFT >> size.ilog2();
        let mut dvas: Vec<Dva> = (0..blocks * 9 / 10).map(|_| pool.allocate(size, 0)).collect();
        dvas.sort_by_key(|dva| dva.offset());
        pool.sync(&[]);
        let dying: Vec<Dva> = dvas.into_iter().step_by(2).collect();
        pool.sync(&dying);
        pool.sync(&[]);
        pool.sync(&[]);
        pool
    }
}

fn give_and_take(pool: &Pool, size: u64, count: u64, locality: u64) {
    let dvas: Vec<Dva> = (0..count).map(|_| pool.allocate(size, locality)).collect();
    pool.allocator.unallocate(&dvas, pool.txg);
}

fn allocate(c: &mut Criterion) {
    const COUNT: u64 = 1000;
    let mut group = c.benchmark_group("allocate");
    group.throughput(Throughput::Elements(COUNT)).sample_size(20);
    let new = Pool::new(200, SpaceFeatures::NEW_POOL);
    let aged = Pool::aged(16, 8 << 10);
    for size in [4 << 10, 8 << 10, 128 << 10] {
        group.bench_function(BenchmarkId::new("new pool", size), |b| {
            b.iter(|| give_and_take(&new, size, COUNT, 0));
        });
    }
    for size in [4 << 10, 8 << 10] {
        group.bench_function(BenchmarkId::new("aged pool", size), |b| {
            b.iter(|| give_and_take(&aged, size, COUNT, 0));
        });
    }
    group.finish();
    let mut group = c.benchmark_group("threads");
    for threads in [1, 2, 4] {
        group.throughput(Throughput::Elements(COUNT * threads)).sample_size(20);
        group.bench_function(BenchmarkId::from_parameter(threads), |b| {
            b.iter(|| {
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        let new = &new;
                        scope.spawn(move || give_and_take(new, 8 << 10, COUNT, thread));
                    }
                });
            });
        });
    }
    group.finish();
}

/// A pool of 2,000 half-full metaslabs, and its blocks by metaslab.
fn half_full(features: SpaceFeatures) -> (Pool, Vec<Vec<Dva>>) {
    const METASLABS: u64 = 2000;
    const SIZE: u64 = 128 << 10;
    let mut pool = Pool::new(METASLABS, features);
    let per_metaslab = 1 << SHIFT >> SIZE.ilog2();
    let mut blocks = vec![Vec::new(); METASLABS as usize];
    let mut dying = Vec::new();
    for number in 0..METASLABS * per_metaslab * 19 / 20 {
        let dva = pool.allocate(SIZE, 0);
        if number % 2 == 0 {
            blocks[(dva.offset() >> SHIFT) as usize].push(dva);
        } else {
            dying.push(dva);
        }
    }
    pool.sync(&[]);
    pool.sync(&dying);
    (pool, blocks)
}

/// One txg: a block dies in each of `touched` metaslabs, and as many are born.
fn busy_txg(pool: &mut Pool, blocks: &mut [Vec<Dva>], touched: usize, turn: &mut usize) {
    let mut dying = Vec::with_capacity(touched);
    while dying.len() < touched {
        *turn += 1;
        let of_metaslab = *turn % blocks.len();
        dying.extend(blocks[of_metaslab].pop());
    }
    for _ in 0..touched {
        let dva = pool.allocate(128 << 10, 0);
        blocks[(dva.offset() >> SHIFT) as usize].push(dva);
    }
    pool.sync(&dying);
}

fn txg(c: &mut Criterion) {
    let mut group = c.benchmark_group("txg");
    group.sample_size(10);
    let without = SpaceFeatures { logs: LogFeature::Disabled, ..SpaceFeatures::NEW_POOL };
    for (name, features) in [("with logs", SpaceFeatures::NEW_POOL), ("without logs", without)] {
        for touched in [50, 200, 1000, 1900] {
            let (mut pool, mut blocks) = half_full(features);
            let mut turn = 0;
            for _ in 0..150 {
                busy_txg(&mut pool, &mut blocks, touched, &mut turn);
            }
            const TXGS: u64 = 50;
            pool.store.lock().take_activity();
            for _ in 0..TXGS {
                busy_txg(&mut pool, &mut blocks, touched, &mut turn);
            }
            let activity = pool.store.lock().take_activity();
            let status = pool.allocator.log_status();
            println!(
                "{name}, {touched} metaslabs a txg: {} data blocks, {} headers, {} words; \
                 {} logs of {} blocks, {} bytes of unflushed changes",
                activity.blocks / TXGS,
                activity.bonuses / TXGS,
                activity.words / TXGS,
                status.logs,
                status.blocks,
                status.unflushed_memory,
            );
            group.throughput(Throughput::Elements(touched as u64));
            group.bench_function(BenchmarkId::new(name, touched), |b| {
                b.iter(|| busy_txg(&mut pool, &mut blocks, touched, &mut turn));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, allocate, txg);
criterion_main!(benches);
