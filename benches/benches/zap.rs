//! Does the index of a microzap pay, and what does a lookup in a fat ZAP cost?
//!
//! `micro/*` compares a walk over the block's entries with a lookup through the index, and shows
//! what opening (checking, hashing, sorting) costs. `index/*` is the B-tree by itself.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use rzfs_format::ByteOrder;
use rzfs_format::zap::micro::MicroBlock;
use rzfs_zap::btree::BTree;
use rzfs_zap::{MemoryBlocks, Zap, ZapBuilder, ZapFlags};

const SIZES: [u64; 3] = [100, 1000, 4000];

fn name(number: u64) -> String {
    format!("entry-number-{number}")
}

fn build(count: u64, fat: bool) -> MemoryBlocks {
    let mut builder = ZapBuilder::new(0xce02_cf35);
    builder.micro_max_size(1 << 20);
    if fat {
        builder.fat(ZapFlags::NONE, 16384);
    }
    for number in 0..count {
        builder.insert_u64(name(number), number).expect("a new name");
    }
    builder.build().expect("entries that fit")
}

fn scan(block: &Bytes, name: &[u8]) -> Option<u64> {
    let block = MicroBlock::decode(block, ByteOrder::NATIVE).ok()?;
    block.entries().flatten().find(|(_, entry)| entry.name == name).map(|(_, entry)| entry.value)
}

fn micro(c: &mut Criterion) {
    let mut group = c.benchmark_group("micro");
    for count in SIZES {
        let blocks = build(count, false);
        let zap = Zap::open(&blocks).expect("a ZAP");
        let names: Vec<_> = (0..count).map(name).collect();
        let mut next = names.iter().cycle().step_by(7);
        group.bench_with_input(BenchmarkId::new("scan", count), &count, |b, _| {
            b.iter(|| scan(&blocks.blocks()[0], next.next().expect("endless").as_bytes()));
        });
        group.bench_with_input(BenchmarkId::new("lookup", count), &count, |b, _| {
            b.iter(|| zap.lookup_u64(next.next().expect("endless")));
        });
        group.bench_with_input(BenchmarkId::new("open", count), &count, |b, _| {
            b.iter(|| Zap::open(&blocks));
        });
        group.bench_with_input(BenchmarkId::new("list", count), &count, |b, _| {
            b.iter(|| zap.entries().map(|entry| entry.expect("whole").value.len()).sum::<usize>());
        });
    }
    group.finish();
}

fn fat(c: &mut Criterion) {
    let mut group = c.benchmark_group("fat");
    for count in [4000, 50_000] {
        let blocks = build(count, true);
        let zap = Zap::open(&blocks).expect("a ZAP");
        let names: Vec<_> = (0..count).map(name).collect();
        let mut next = names.iter().cycle().step_by(7);
        group.bench_with_input(BenchmarkId::new("lookup", count), &count, |b, _| {
            b.iter(|| zap.lookup_u64(next.next().expect("endless")));
        });
        group.bench_with_input(BenchmarkId::new("list", count), &count, |b, _| {
            b.iter(|| zap.entries().map(|entry| entry.expect("whole").value.len()).sum::<usize>());
        });
    }
    group.finish();
}

fn index(c: &mut Criterion) {
    let mut group = c.benchmark_group("index");
    let scattered: Vec<u64> =
        (0..2000u64).map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    let mut sorted = scattered.clone();
    sorted.sort_unstable();
    group.bench_function("insert 2000 in random order", |b| {
        b.iter_batched(
            || BTree::with_leaf_bytes(512),
            |mut tree| {
                for element in &scattered {
                    tree.insert(*element);
                }
                tree
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("build 2000 from sorted", |b| {
        b.iter(|| BTree::from_sorted(&sorted, 512));
    });
    let tree = BTree::from_sorted(&sorted, 512).expect("sorted");
    let mut next = scattered.iter().cycle();
    group.bench_function("seek in 2000", |b| {
        b.iter(|| tree.range_from(black_box(next.next().expect("endless"))).next());
    });
    group.bench_function("walk 2000", |b| b.iter(|| tree.iter().sum::<u64>()));
    group.finish();
    println!("2000 elements of 8 bytes take {} bytes packed", tree.memory_bytes());
}

criterion_group!(benches, micro, fat, index);
criterion_main!(benches);
