//! How fast parity is generated and columns are reconstructed, by every kernel.
//!
//! Throughput is that of the data columns, parity not counted.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_benches::memory;
use rzfs_codec::parity::{Column, Kernel, generate_with, reconstruct_with};
use std::hint::black_box;
use std::time::Duration;

const DATA_COLUMNS: usize = 8;
/// Data of a stripe: a common record, a large one, and more than caches hold.
const SIZES: [usize; 3] = [128 << 10, 1 << 20, 256 << 20];

/// A stripe whose columns start at different places of a page, as they come from devices.
fn stripe(size: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let length = size / DATA_COLUMNS;
    let column = |column: usize| {
        (0..length).map(|index| ((index * 31 + column * 17) >> 3) as u8).collect::<Vec<u8>>()
    };
    let data: Vec<_> = (0..DATA_COLUMNS).map(column).collect();
    let mut parity = vec![vec![0; length]; 3];
    let columns: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut rows: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    rzfs_codec::parity::generate(&columns, &mut rows).expect("a valid stripe");
    (data, parity)
}

fn generate(criterion: &mut Criterion) {
    for size in SIZES {
        let (data, mut parity) = stripe(size);
        let columns: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        for kernel in Kernel::available() {
            let mut group = criterion.benchmark_group(format!("generate/{}", kernel.name()));
            group.throughput(Throughput::Bytes(size as u64));
            for (name, count) in [("p", 1), ("pq", 2), ("pqr", 3)] {
                let mut rows: Vec<&mut [u8]> =
                    parity.iter_mut().take(count).map(Vec::as_mut_slice).collect();
                group.bench_function(BenchmarkId::new(name, size), |bencher| {
                    bencher.iter(|| generate_with(kernel, black_box(&columns), &mut rows));
                });
            }
            group.finish();
        }
    }
}

fn reconstruct(criterion: &mut Criterion) {
    for size in SIZES {
        let (data, parity) = stripe(size);
        for kernel in Kernel::available() {
            let mut group = criterion.benchmark_group(format!("reconstruct/{}", kernel.name()));
            group.throughput(Throughput::Bytes(size as u64));
            for (name, used) in [
                ("p", &[0][..]),
                ("q", &[1]),
                ("r", &[2]),
                ("pq", &[0, 1]),
                ("pr", &[0, 2]),
                ("qr", &[1, 2]),
                ("pqr", &[0, 1, 2]),
            ] {
                let mut found = vec![vec![0; size / DATA_COLUMNS]; used.len()];
                let mut rooms = found.iter_mut();
                let rows = parity.iter().enumerate().map(|(row, bytes)| {
                    if used.contains(&row) { Column::Present(bytes) } else { Column::Absent }
                });
                let mut columns: Vec<Column<'_>> = rows.collect();
                columns.extend(data.iter().map(|bytes| match rooms.next() {
                    Some(room) => Column::Missing(room),
                    None => Column::Present(bytes),
                }));
                group.bench_function(BenchmarkId::new(name, size), |bencher| {
                    bencher.iter(|| reconstruct_with(kernel, 3, black_box(&mut columns)));
                });
                // Once more, for those that are not measured this time.
                reconstruct_with(kernel, 3, &mut columns).expect("the missing columns can be made");
                assert!(found.iter().zip(&data).all(|(found, good)| found == good), "{name}");
            }
            group.finish();
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500));
    targets = memory::bandwidth, generate, reconstruct
}
criterion_main!(benches);
