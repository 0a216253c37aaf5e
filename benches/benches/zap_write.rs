//! What does an entry cost that is added to a ZAP, looked up or removed, from the first to the
//! millionth? And what does the index of a microzap save?
//!
//! `insert/N` fills an empty ZAP with N names: a microzap up to 2047, fat beyond. `lookup/N`,
//! `replace/N` and `remove and insert/N` work on one with N names, at random places. `find/*`
//! compares the index with a walk over the entries, in full microzaps of 128 KiB and of 1 MiB.

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_format::ByteOrder;
use rzfs_format::zap::micro::MicroBlock;
use rzfs_zap::{MemoryBlocks, NewZap, Tunables, Zap};

const COUNTS: [u64; 7] = [1, 10, 100, 2047, 10_000, 100_000, 1_000_000];

fn names(count: u64) -> Vec<String> {
    (0..count).map(|number| format!("entry-number-{number}")).collect()
}

fn fill(names: &[String], tunables: Tunables) -> Zap<MemoryBlocks> {
    let mut zap = Zap::create(MemoryBlocks::empty(), &NewZap::new(0xce02_cf35)).expect("a ZAP");
    for (number, name) in (0..).zip(names) {
        zap.edit().tunables(tunables).insert(name, 1u64 << 63 | number).expect("a new name");
    }
    zap
}

/// Numbers below `count` in an order that no cache foresees.
fn scattered(count: u64) -> impl Iterator<Item = usize> {
    (0u64..).map(move |step| (step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % count) as usize)
}

fn insert(c: &mut Criterion) {
    let mut group = c.benchmark_group("insert");
    for count in COUNTS {
        let names = names(count);
        group.throughput(Throughput::Elements(count)).sample_size(10);
        group.bench_with_input(BenchmarkId::from_parameter(count), &names, |b, names| {
            b.iter_batched(|| (), |()| fill(names, Tunables::default()), BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn change(c: &mut Criterion) {
    for count in COUNTS {
        let names = names(count);
        let mut zap = fill(&names, Tunables::default());
        let mut group = c.benchmark_group("change");
        let mut order = scattered(count);
        let mut next = || &names[order.next().expect("endless")];
        group.bench_function(BenchmarkId::new("lookup", count), |b| {
            b.iter(|| zap.lookup_u64(next()));
        });
        group.bench_function(BenchmarkId::new("replace", count), |b| {
            b.iter(|| zap.edit().update(next(), 7).expect("a name"));
        });
        group.bench_function(BenchmarkId::new("remove and insert", count), |b| {
            b.iter(|| {
                let name = next();
                assert!(zap.edit().remove(name).expect("a ZAP"));
                zap.edit().insert(name, 7).expect("a new name");
            });
        });
        group.finish();
    }
}

fn scan(block: &Bytes, name: &[u8]) -> Option<u64> {
    let block = MicroBlock::decode(block, ByteOrder::NATIVE).ok()?;
    block.entries().flatten().find(|(_, entry)| entry.name == name).map(|(_, entry)| entry.value)
}

fn find(c: &mut Criterion) {
    let mut group = c.benchmark_group("find");
    for (count, micro_max_size) in [(2047, 128 << 10), (16_383, 1 << 20)] {
        let names = names(count);
        let tunables = Tunables { micro_max_size, ..Tunables::default() };
        let zap = fill(&names, tunables);
        let block = zap.blocks().blocks()[0].clone();
        let mut order = scattered(count);
        let mut next = || &names[order.next().expect("endless")];
        group.bench_function(BenchmarkId::new("index", count), |b| {
            b.iter(|| zap.lookup_u64(next()));
        });
        group.bench_function(BenchmarkId::new("scan", count), |b| {
            b.iter(|| scan(&block, next().as_bytes()));
        });
        let index = zap.memory_bytes() - block.len();
        println!("the index of {count} entries takes {index} bytes");
    }
    group.finish();
}

criterion_group!(benches, insert, change, find);
criterion_main!(benches);
