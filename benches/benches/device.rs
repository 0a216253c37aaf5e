//! How fast do blocks come from a file: io_uring against threads, around and through the page
//! cache, small random reads and large sequential ones, one at a time and many at once?

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rzfs_blockdev::{
    Backend, BlockDevice, CachedReads, Caching, CompletionQueue, EngineOptions, FileDevice,
    IoBuffer, IoOperation, IoRequest, OpenOptions,
};
use std::hint::black_box;
use std::io::Write;
use std::sync::Arc;
use tempfile::NamedTempFile;

const SIZE: u64 = 256 << 20;

/// A file that has its blocks: a sparse one would measure the making of zeros.
fn image() -> NamedTempFile {
    let mut file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary file");
    let chunk: Vec<u8> = (0..1_u32 << 20).map(|at| (at ^ (at >> 8)) as u8).collect();
    for _ in 0..SIZE >> 20 {
        file.write_all(&chunk).expect("space for the image");
    }
    file.as_file().sync_all().expect("a synchronised image");
    file
}

/// Offsets that visit the device in no order.
struct Offsets(u64);

impl Offsets {
    fn random(&mut self, len: usize) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 16) % (SIZE / len as u64) * len as u64
    }

    fn sequential(&mut self, len: usize) -> u64 {
        self.0 = (self.0 + len as u64) % SIZE;
        self.0
    }
}

fn read_batch(
    device: &FileDevice,
    completions: &Arc<CompletionQueue>,
    depth: usize,
    len: usize,
    mut offset: impl FnMut() -> u64,
) {
    let requests = (0..depth).map(|token| IoRequest {
        token: token as u64,
        offset: offset(),
        operation: IoOperation::Read(IoBuffer::zeroed(len).expect("memory")),
    });
    device.submit(requests.collect(), completions);
    let mut left = depth;
    while left > 0 {
        for completion in completions.wait_many() {
            black_box(completion.result.expect("a read"));
            left -= 1;
        }
    }
}

fn device_reads(criterion: &mut Criterion) {
    let image = image();
    let completions = CompletionQueue::new();
    let devices = [
        ("io_uring direct", Backend::IoUring, Caching::Direct, CachedReads::Queued),
        ("threads direct", Backend::Portable, Caching::Direct, CachedReads::Queued),
        ("io_uring cached", Backend::IoUring, Caching::Buffered, CachedReads::Queued),
        ("threads cached", Backend::Portable, Caching::Buffered, CachedReads::Queued),
        ("inline cached", Backend::Portable, Caching::Buffered, CachedReads::Inline),
    ];
    for (name, len, depths) in
        [("random 4 KiB", 4096, [1, 64].as_slice()), ("sequential 1 MiB", 1 << 20, &[1, 8])]
    {
        let mut group = criterion.benchmark_group(format!("device/{name}"));
        group.sample_size(20);
        for (kind, backend, caching, cached_reads) in devices {
            let engine = EngineOptions { backend, ..EngineOptions::default() };
            let options = OpenOptions::new()
                .engine_options(engine)
                .caching(caching)
                .cached_reads(cached_reads);
            let Ok(device) = FileDevice::open(image.path(), &options) else { continue };
            for &depth in depths {
                group.throughput(Throughput::Bytes((depth * len) as u64));
                let id = BenchmarkId::new(kind, format!("depth {depth}"));
                let mut offsets = Offsets(0);
                group.bench_function(id, |bencher| {
                    bencher.iter(|| {
                        read_batch(&device, &completions, depth, len, || {
                            if len == 4096 { offsets.random(len) } else { offsets.sequential(len) }
                        });
                    });
                });
            }
        }
        group.finish();
    }
}

criterion_group!(benches, device_reads);
criterion_main!(benches);
