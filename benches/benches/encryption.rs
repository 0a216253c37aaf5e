//! How fast blocks are encrypted, decrypted and authenticated, by every suite.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_codec::crypto::DatasetKey;
use rzfs_format::ByteOrder;
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::object_type::ObjectType;
use std::hint::black_box;
use std::time::Duration;

fn encryption(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encryption");
    for size in [4 << 10, 128 << 10] {
        let mut block = vec![7; size];
        group.throughput(Throughput::Bytes(size as u64));
        for number in 3..=8 {
            let suite = EncryptionSuite::from_number(number).expect("a suite");
            let key = DatasetKey::from_random(suite, &[1; 32], &[2; 64]);
            let kind = ObjectType::PLAIN_FILE_CONTENTS;
            group.bench_function(BenchmarkId::new(suite.name(), size), |bencher| {
                bencher.iter(|| {
                    let block = black_box(&mut block);
                    key.encrypt_block(kind, ByteOrder::NATIVE, [3; 8], [4; 12], block)
                });
            });
        }
        let suite = EncryptionSuite::Aes256Gcm;
        let key = DatasetKey::from_random(suite, &[1; 32], &[2; 64]);
        group.bench_function(BenchmarkId::new("authenticate", size), |bencher| {
            bencher.iter(|| key.authentication_mac(black_box(&block)));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800));
    targets = encryption
}
criterion_main!(benches);
