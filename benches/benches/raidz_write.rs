//! How fast are 128 KiB blocks written one behind the other: to a raidz2 of six devices, to a
//! mirror of two, and to one device?
//!
//! A gibibyte goes to devices in memory in batches of 8 MiB, as a txg hands it over: parity, layout
//! and queues are measured, and one copy into the device.

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_blockdev::{Access, BlockDevice, IoBuffer, MemoryDevice};
use rzfs_format::{Dva, Guid, Txg, VdevId};
use rzfs_vdev::{BlockWrite, Coverage, TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::sync::Arc;

const DEVICE: usize = 96 << 20;
const BLOCK: usize = 128 << 10;
const BATCH: usize = 64;
/// A gibibyte.
const BATCHES: u64 = (1 << 30) / (BLOCK * BATCH) as u64;
/// After so many batches it begins anew, which the devices do not notice.
const LAP: u64 = 6;
const BIRTH: Txg = Txg(10);

fn tree(kind: VdevKind, children: u64) -> VdevTree {
    let leaf = |child| VdevConfig::new(VdevKind::File, Guid(100 + child));
    let space = (DEVICE - (4 << 20) - (512 << 10)) as u64;
    let (mut top, asize) = match kind {
        VdevKind::File => (leaf(0), space),
        VdevKind::Raidz => {
            let mut top = VdevConfig::new(kind, Guid(2));
            top.nparity = Some(2);
            (top.with_children((0..children).map(leaf)), space * children)
        }
        _ => (VdevConfig::new(kind, Guid(2)).with_children((0..children).map(leaf)), space),
    };
    top.top.ashift = Some(12);
    top.top.asize = Some(asize);
    let devices: HashMap<Guid, Arc<dyn BlockDevice>> = (0..children)
        .map(|child| {
            let device = MemoryDevice::new("memory", vec![0; DEVICE], Access::ReadWrite);
            (Guid(100 + child), Arc::new(device) as Arc<dyn BlockDevice>)
        })
        .collect();
    let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([top]);
    VdevTree::open(root, &devices, TreeOptions::default()).expect("a tree")
}

fn write_gibibyte(tree: &VdevTree, block: &Bytes) {
    let asize = tree.allocated_size(VdevId(0), BLOCK as u64, BIRTH).expect("a vdev");
    for batch in 0..BATCHES {
        let first = batch % LAP * BATCH as u64;
        let writes = (first..first + BATCH as u64).map(|number| BlockWrite {
            dva: Dva::new(VdevId(0), number * asize, asize, false),
            birth: BIRTH,
            data: block.clone(),
        });
        let results = tree.write(writes.collect());
        assert!(results.iter().all(|result| matches!(result, Ok(Coverage::Full))));
    }
    assert!(tree.flush().is_empty());
}

fn sequential(criterion: &mut Criterion) {
    let data: Vec<u8> = (0..BLOCK as u64).map(|at| ((at * 0x9e37) >> 5) as u8).collect();
    let block = IoBuffer::padded(&data, BLOCK).expect("memory").freeze();
    let mut group = criterion.benchmark_group("write_1gib");
    group.throughput(Throughput::Bytes(1 << 30)).sample_size(10);
    for (name, kind, children) in [
        ("raidz2 of 6", VdevKind::Raidz, 6),
        ("mirror of 2", VdevKind::Mirror, 2),
        ("one device", VdevKind::File, 1),
    ] {
        let tree = tree(kind, children);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| write_gibibyte(&tree, &block));
        });
    }
    group.finish();
}

criterion_group!(benches, sequential);
criterion_main!(benches);
