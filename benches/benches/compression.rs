//! How fast records are compressed and decompressed. Throughput is that of the uncompressed data.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_benches::memory;
use rzfs_codec::compress::{ZstdLevel, compress, decompress};
use rzfs_format::compression::CompressionFunction;
use std::hint::black_box;
use std::time::Duration;

const RECORD: usize = 128 << 10;

/// Text with repetitions at many distances: words of a small language in random order.
fn text() -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "pool", "vdev", "mirror", "dataset", "snapshot", "clone", "the", "of", "and", "block",
        "pointer", "checksum", "is", "verified", "scrub", "resilver",
    ];
    let mut state = 1_u64;
    let mut text = Vec::new();
    while text.len() < RECORD {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.extend_from_slice(WORDS[(state >> 60) as usize].as_bytes());
        match (state >> 40) & 0xf {
            0 => text.extend_from_slice(format!(" {:x}\n", (state >> 32) & 0xffff).as_bytes()),
            1 => text.extend_from_slice(&[0; 24]),
            _ => text.push(b' '),
        }
    }
    text.truncate(RECORD);
    text
}

fn compression(criterion: &mut Criterion) {
    let level = |number| ZstdLevel::from_number(number).expect("a valid level");
    let text = text();
    let mut group = criterion.benchmark_group("compression");
    group.throughput(Throughput::Bytes(RECORD as u64));
    for (name, function, level) in [
        ("lz4", CompressionFunction::Lz4, level(3)),
        ("zstd-3", CompressionFunction::Zstd, level(3)),
        ("zstd-fast-1", CompressionFunction::Zstd, level(103)),
        ("gzip-6", CompressionFunction::Gzip(6), level(3)),
        ("lzjb", CompressionFunction::Lzjb, level(3)),
        ("zle", CompressionFunction::Zle, level(3)),
    ] {
        let (mut stream, mut found) = (vec![0; RECORD + RECORD / 8], vec![0; RECORD]);
        let Some(length) = compress(function, level, &text, &mut stream) else { continue };
        println!("{name}: {RECORD} bytes to {length}");
        group.bench_function(BenchmarkId::new("compress", name), |bencher| {
            bencher.iter(|| compress(function, level, black_box(&text), &mut stream));
        });
        group.bench_function(BenchmarkId::new("decompress", name), |bencher| {
            bencher.iter(|| decompress(function, black_box(&stream[..length]), &mut found));
        });
        assert!(found == text, "{name}");
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = memory::bandwidth, compression
}
criterion_main!(benches);
