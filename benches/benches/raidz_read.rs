//! How fast are 128 KiB blocks of a raidz2 of six devices read: healthy, with one or two devices
//! missing, with silent damage that only the checksum tells, and expanded from five devices?

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_blockdev::{Access, BlockDevice, MemoryDevice};
use rzfs_codec::checksum::{Salt, checksum};
use rzfs_codec::parity;
use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};
use rzfs_format::label::START_SIZE;
use rzfs_format::{ByteOrder, Dva, Guid, Txg, VdevId};
use rzfs_vdev::raidz::RaidzGeometry;
use rzfs_vdev::{BlockRead, TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

const CHILDREN: usize = 6;
const DEVICE: usize = 64 << 20;
const BLOCK: usize = 128 << 10;
const BLOCKS: u64 = 64;
const BIRTH: Txg = Txg(10);

/// What is wrong with the pool.
#[derive(Clone, Copy)]
enum Case {
    Healthy,
    Expanded,
    Missing(usize),
    Silent(usize),
}

fn fletcher4(data: &[u8]) -> ChecksumValue {
    checksum(ChecksumFunction::Fletcher4, ByteOrder::NATIVE, data, &Salt::new([0; 32]))
}

/// A pool of blocks, and their checksums.
fn pool(case: Case) -> (VdevTree, Vec<(Dva, ChecksumValue)>) {
    let expansions = if matches!(case, Case::Expanded) { vec![Txg(100)] } else { Vec::new() };
    let geometry = RaidzGeometry::new(12, 2, CHILDREN, expansions.clone(), None).expect("a raidz");
    let mut contents = vec![vec![0; DEVICE]; CHILDREN];
    let mut blocks = Vec::new();
    let asize = geometry.allocated_size(BLOCK as u64, BIRTH);
    for number in 0..BLOCKS {
        let data: Vec<u8> =
            (0..BLOCK as u64).map(|at| ((at * 0x9e37 + number * 77) >> 5) as u8).collect();
        let map = geometry.map(number * asize, BLOCK, BIRTH);
        let mut store = |index: usize, bytes: &[u8]| {
            let column = map.columns[index];
            let start = (START_SIZE + column.offset) as usize;
            contents[column.child][start..start + bytes.len()].copy_from_slice(bytes);
        };
        for stripe in &map.stripes {
            let part = |index: usize| {
                let column = map.columns[index];
                &data[column.start..column.start + column.len]
            };
            let columns: Vec<&[u8]> = stripe.data_columns().map(part).collect();
            let mut rows = vec![vec![0; columns[0].len()]; stripe.parity];
            let mut slices: Vec<&mut [u8]> = rows.iter_mut().map(Vec::as_mut_slice).collect();
            parity::generate(&columns, &mut slices).expect("parity");
            stripe.parity_columns().zip(&rows).for_each(|(index, row)| store(index, row));
            stripe.data_columns().zip(columns).for_each(|(index, column)| store(index, column));
        }
        blocks.push((Dva::new(VdevId(0), number * asize, asize, false), fletcher4(&data)));
    }
    if let Case::Silent(damaged) = case {
        contents[..damaged].iter_mut().for_each(|content| content.fill(0xa5));
    }
    let missing = if let Case::Missing(missing) = case { missing } else { 0 };
    let devices: HashMap<Guid, Arc<dyn BlockDevice>> = (100..)
        .map(Guid)
        .zip(contents)
        .skip(missing)
        .map(|(guid, content)| {
            let device = MemoryDevice::new("memory", content, Access::ReadOnly);
            (guid, Arc::new(device) as Arc<dyn BlockDevice>)
        })
        .collect();
    let leaf = |child| VdevConfig::new(VdevKind::File, Guid(100 + child));
    let mut top =
        VdevConfig::new(VdevKind::Raidz, Guid(2)).with_children((0..CHILDREN as u64).map(leaf));
    top.nparity = Some(2);
    top.raidz_expand_txgs = expansions;
    top.top.ashift = Some(12);
    top.top.asize = Some((DEVICE as u64 - START_SIZE - (512 << 10)) * CHILDREN as u64);
    let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([top]);
    (VdevTree::open(root, &devices, TreeOptions::default()).expect("a tree"), blocks)
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("raidz2_6_read_128k");
    group.throughput(Throughput::Bytes(BLOCKS * BLOCK as u64));
    for (name, case) in [
        ("healthy", Case::Healthy),
        ("expanded", Case::Expanded),
        ("one_missing", Case::Missing(1)),
        ("two_missing", Case::Missing(2)),
        ("one_silent", Case::Silent(1)),
        ("two_silent", Case::Silent(2)),
    ] {
        let (tree, blocks) = pool(case);
        let verifiers: Vec<_> = blocks
            .iter()
            .map(|(_, expected)| move |data: &[u8]| fletcher4(data) == *expected)
            .collect();
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                let reads = blocks.iter().zip(&verifiers).map(|((dva, _), verify)| BlockRead {
                    dva: *dva,
                    size: BLOCK as u64,
                    birth: BIRTH,
                    verify,
                });
                for result in tree.read(reads.collect()) {
                    black_box(result.expect("a block"));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
