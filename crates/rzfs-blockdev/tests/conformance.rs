//! The guarantees of every block device, checked on every backend by the same functions.

use bytes::Bytes;
use proptest::prelude::*;
use rzfs_blockdev::{
    Access, Backend, BlockDevice, CachedReads, Caching, CompletionQueue, DeviceError,
    DeviceGeometry, EngineOptions, FileDevice, IoBuffer, IoCompletion, IoEngine, IoOperation,
    IoRequest, MemoryDevice, OpenOptions, Simulation, read_exact_at, submit_awaited,
};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::NamedTempFile;

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// Bytes that differ from sector to sector and from byte to byte.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at ^ (at >> 9).wrapping_mul(0x9d) ^ (at >> 17)) as u8).collect()
}

/// A kind of device to be tested: makes one with given content.
struct Kind {
    name: &'static str,
    open: fn(&[u8], Access) -> Opened,
}

/// A device, and the file below it that lives as long.
struct Opened {
    device: Box<dyn BlockDevice>,
    file: Option<NamedTempFile>,
}

fn memory(content: &[u8], access: Access) -> Opened {
    Opened { device: Box::new(MemoryDevice::new("memory", content.to_vec(), access)), file: None }
}

fn file(content: &[u8], options: OpenOptions) -> Opened {
    // Not in /tmp, which may be a file system without O_DIRECT.
    let mut file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(content).unwrap();
    file.as_file().sync_all().unwrap();
    let device = Box::new(FileDevice::open(file.path(), &options).unwrap());
    Opened { device, file: Some(file) }
}

fn options(backend: Backend, caching: Caching, access: Access) -> OpenOptions {
    let engine = EngineOptions { backend, ..EngineOptions::default() };
    OpenOptions::new()
        .engine_options(engine)
        .caching(caching)
        .access(access)
        .cached_reads(CachedReads::Queued)
}

const KINDS: &[Kind] = &[
    Kind { name: "memory", open: memory },
    Kind {
        name: "simulated",
        open: |content, _| Opened {
            device: Box::new(Simulation::new(1).device("simulated", content.to_vec())),
            file: None,
        },
    },
    Kind {
        name: "buffered, read inline",
        open: |content, access| file(content, OpenOptions::new().access(access)),
    },
    Kind {
        name: "portable, buffered",
        open: |content, access| {
            file(content, options(Backend::Portable, Caching::Buffered, access))
        },
    },
    Kind {
        name: "portable, direct",
        open: |content, access| file(content, options(Backend::Portable, Caching::Direct, access)),
    },
    Kind {
        name: "io_uring, buffered",
        open: |content, access| file(content, options(Backend::IoUring, Caching::Buffered, access)),
    },
    Kind {
        name: "io_uring, direct",
        open: |content, access| file(content, options(Backend::IoUring, Caching::Direct, access)),
    },
];

/// The kinds that this kernel allows: in some containers there is no io_uring.
fn kinds() -> impl Iterator<Item = &'static Kind> {
    let ring = EngineOptions { backend: Backend::IoUring, ..EngineOptions::default() };
    let allowed = IoEngine::new(&ring);
    if let Err(error) = &allowed {
        println!("io_uring is not tested here: {error}");
    }
    KINDS.iter().filter(move |kind| allowed.is_ok() || !kind.name.starts_with("io_uring"))
}

fn each_kind(content: &[u8], access: Access, test: impl Fn(&dyn BlockDevice)) {
    for kind in kinds() {
        println!("{}", kind.name);
        test(&*(kind.open)(content, access).device);
        println!("{}, one by one in this thread", kind.name);
        test(&Performing((kind.open)(content, access).device));
    }
}

/// A device that performs everything sequentially in the calling thread.
#[derive(Debug)]
struct Performing(Box<dyn BlockDevice>);

impl BlockDevice for Performing {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        self.0.geometry()
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        for IoRequest { token, offset, operation } in requests {
            let result = self.0.perform(offset, operation);
            completions.push(IoCompletion { token, result });
        }
    }
}

fn perform(
    device: &dyn BlockDevice,
    offset: u64,
    operation: IoOperation,
) -> Result<Option<IoBuffer>, DeviceError> {
    let completions = CompletionQueue::new();
    device.submit(vec![IoRequest { token: 7, offset, operation }], &completions);
    let completion = completions.wait();
    assert_eq!(completion.token, 7);
    completion.result
}

fn write(device: &dyn BlockDevice, offset: u64, bytes: Vec<u8>) -> Result<(), DeviceError> {
    perform(device, offset, IoOperation::Write(Bytes::from(bytes))).map(|_| ())
}

#[test]
fn any_range_can_be_read() {
    let content = pattern(300_000);
    each_kind(&content, Access::ReadOnly, |device| {
        assert_eq!(device.geometry().size, 300_000);
        let ranges = [
            (0, 1),
            (0, 4096),
            (511, 2),
            (4095, 4098),
            (4096, 8192),
            (512, 131_072),
            (1, 299_999),
            (299_999, 1),
            (299_008, 992),
            (0, 300_000),
            (300_000, 0),
        ];
        for (offset, len) in ranges {
            let read = read_exact_at(device, offset as u64, len).unwrap();
            assert!(*read == content[offset..offset + len], "{len} bytes at {offset}");
        }
    });
}

#[test]
fn buffers_of_the_device_are_used_again_and_again() {
    let content = pattern(2 << 20);
    each_kind(&content, Access::ReadOnly, |device| {
        let completions = CompletionQueue::new();
        let mut kept = Vec::new();
        for round in 0..20_usize {
            // More than a pool has, of every size, aligned and not.
            let sizes = [16_384, 9000, 131_072, 100_000, 1 << 20, 700_001];
            let ranges: Vec<_> = (0..40)
                .map(|number| {
                    let len = sizes[number % sizes.len()];
                    let offset = (number * 7919 + round * 4096) % ((2 << 20) - len);
                    (offset - offset % [1, 4096][number / sizes.len() % 2], len)
                })
                .collect();
            let requests = ranges.iter().enumerate().map(|(token, &(offset, len))| IoRequest {
                token: token as u64,
                offset: offset as u64,
                operation: IoOperation::Read(device.buffer(len).unwrap()),
            });
            device.submit(requests.collect(), &completions);
            for _ in 0..ranges.len() {
                let completion = completions.wait();
                let (offset, len) = ranges[completion.token as usize];
                let read = completion.result.unwrap().unwrap().freeze();
                assert!(read == content[offset..offset + len], "{len} bytes at {offset}");
                if completion.token == 2 {
                    kept.push((read, offset));
                }
            }
        }
        for (read, offset) in kept {
            assert!(read == content[offset..offset + read.len()]);
        }
    });
}

#[test]
fn reads_past_the_end_are_refused() {
    each_kind(&pattern(65_536), Access::ReadOnly, |device| {
        for (offset, len) in [(65_536, 1), (65_535, 2), (65_024, 1024), (u64::MAX, 1), (1 << 63, 9)]
        {
            let error = read_exact_at(device, offset, len).unwrap_err();
            assert_eq!(error.source.kind(), ErrorKind::UnexpectedEof);
            assert_eq!((error.offset, error.len, error.errno()), (offset, len as u64, EIO));
        }
    });
}

#[test]
fn a_file_that_shrank_ends_early() {
    for kind in kinds() {
        let opened = (kind.open)(&pattern(65_536), Access::ReadOnly);
        let Some(file) = &opened.file else { continue };
        file.as_file().set_len(10_000).unwrap();
        let error = read_exact_at(&*opened.device, 8192, 8192).unwrap_err();
        assert_eq!(error.source.kind(), ErrorKind::UnexpectedEof, "{}", kind.name);
        assert_eq!(*read_exact_at(&*opened.device, 9000, 1000).unwrap(), pattern(10_000)[9000..]);
    }
}

#[test]
fn a_read_only_device_refuses_to_change() {
    let content = pattern(65_536);
    for kind in kinds().filter(|kind| kind.name != "simulated") {
        let opened = (kind.open)(&content, Access::ReadOnly);
        let device = &*opened.device;
        assert_eq!(write(device, 0, vec![0; 4096]).unwrap_err().errno(), EROFS);
        let pieces = IoOperation::Gather(vec![vec![0; 4096].into()]);
        assert_eq!(perform(device, 0, pieces).unwrap_err().errno(), EROFS);
        let discard = perform(device, 0, IoOperation::Discard { len: 4096 });
        assert_eq!(discard.unwrap_err().errno(), EROFS);
        assert!(perform(device, 0, IoOperation::Flush).unwrap().is_none());
        assert!(*read_exact_at(device, 0, content.len()).unwrap() == content);
    }
}

#[test]
fn writes_are_read_back() {
    let content = pattern(262_144);
    each_kind(&content, Access::ReadWrite, |device| {
        write(device, 8192, vec![0xab; 12_288]).unwrap();
        perform(device, 0, IoOperation::Flush).unwrap();
        assert_eq!(*read_exact_at(device, 8000, 13_000).unwrap(), {
            let mut expected = content[8000..21_000].to_vec();
            expected[192..12_480].fill(0xab);
            expected
        });
        // From memory that is not aligned as the device wants it.
        let source = Bytes::from(pattern(70_001)).slice(1..65_537);
        perform(device, 65_536, IoOperation::Write(source)).unwrap();
        assert!(*read_exact_at(device, 65_536, 65_536).unwrap() == pattern(65_537)[1..]);
    });
}

#[test]
fn pieces_are_written_one_behind_the_other() {
    let content = pattern(262_144);
    each_kind(&content, Access::ReadWrite, |device| {
        let buffer = IoBuffer::padded(&pattern(65_536), 65_536).unwrap().freeze();
        let unaligned = Bytes::from(pattern(20_001)).slice(1..8193);
        for pieces in [
            vec![buffer.slice(4096..8192), buffer.slice(32_768..65_536), buffer.slice(0..4096)],
            vec![buffer.slice(0..4096), unaligned.clone(), buffer.slice(8192..12_288)],
            // Whole sectors together, but not one by one.
            vec![buffer.slice(0..100), unaligned.slice(0..1000), buffer.slice(100..3096)],
            vec![Bytes::new(), buffer.slice(0..4096)],
            vec![buffer.slice(0..4096); 40],
        ] {
            let expected = pieces.concat();
            perform(device, 8192, IoOperation::Gather(pieces)).unwrap();
            assert!(*read_exact_at(device, 8192, expected.len()).unwrap() == expected);
        }
        let late = vec![buffer.slice(0..4096); 2];
        let error = perform(device, 258_048, IoOperation::Gather(late)).unwrap_err();
        assert_eq!((error.errno(), error.operation, error.len), (ENOSPC, "write", 8192));
        perform(device, 0, IoOperation::Gather(Vec::new())).unwrap();
    });
}

#[test]
fn writes_outside_the_device_or_of_half_sectors_are_refused() {
    let content = pattern(65_536);
    each_kind(&content, Access::ReadWrite, |device| {
        for (offset, len) in [(65_536, 4096), (61_440, 8192), (u64::MAX - 4095, 4096)] {
            assert_eq!(write(device, offset, vec![1; len]).unwrap_err().errno(), ENOSPC);
        }
        for (offset, len) in [(1, 4096), (0, 100), (100, 412)] {
            assert_eq!(write(device, offset, vec![1; len]).unwrap_err().errno(), EINVAL);
            let discard = perform(device, offset, IoOperation::Discard { len: len as u64 });
            assert_eq!(discard.unwrap_err().errno(), EINVAL);
        }
        assert!(*read_exact_at(device, 0, content.len()).unwrap() == content);
    });
}

#[test]
fn a_discard_touches_only_its_range() {
    let content = pattern(65_536);
    each_kind(&content, Access::ReadWrite, |device| {
        perform(device, 8192, IoOperation::Discard { len: 16_384 }).unwrap();
        assert!(*read_exact_at(device, 0, 8192).unwrap() == content[..8192]);
        assert!(*read_exact_at(device, 24_576, 40_960).unwrap() == content[24_576..]);
    });
}

#[test]
fn a_batch_larger_than_any_queue_is_answered_once_each() {
    let content = pattern(1 << 20);
    each_kind(&content, Access::ReadOnly, |device| {
        let completions = CompletionQueue::new();
        let requests = (0..5000_u64).map(|token| IoRequest {
            token,
            offset: token * 199,
            operation: IoOperation::Read(device.buffer(777).unwrap()),
        });
        device.submit(requests.collect(), &completions);
        let mut seen = vec![false; 5000];
        let mut count = 0;
        while count < 5000 {
            for completion in completions.wait_many() {
                let token = completion.token as usize;
                let read = completion.result.unwrap().unwrap();
                assert!(*read == content[token * 199..token * 199 + 777], "{token}");
                assert!(!std::mem::replace(&mut seen[token], true), "{token} answered twice");
                count += 1;
            }
        }
        assert!(completions.try_take().is_none());
    });
}

#[test]
fn many_threads_share_a_device() {
    let content = pattern(1 << 20);
    each_kind(&content, Access::ReadOnly, |device| {
        std::thread::scope(|scope| {
            for thread in 0..8_usize {
                let content = &content;
                scope.spawn(move || {
                    for round in 0..200 {
                        let offset = (thread * 104_729 + round * 5_003) % 1_000_000;
                        let read = read_exact_at(device, offset as u64, 4096).unwrap();
                        assert!(*read == content[offset..offset + 4096]);
                    }
                });
            }
        });
    });
}

#[test]
fn requests_in_flight_are_answered_when_the_device_is_dropped() {
    let content = pattern(1 << 20);
    for kind in kinds() {
        let opened = (kind.open)(&content, Access::ReadOnly);
        let completions = CompletionQueue::new();
        let requests = (0..1000_u64).map(|token| IoRequest {
            token,
            offset: token * 1000,
            operation: IoOperation::Read(IoBuffer::zeroed(8192).unwrap()),
        });
        opened.device.submit(requests.collect(), &completions);
        drop(opened);
        for _ in 0..1000 {
            let completion = completions.wait();
            let start = completion.token as usize * 1000;
            let read = completion.result.unwrap().unwrap();
            assert!(*read == content[start..start + 8192], "{}", kind.name);
        }
    }
}

/// An operation of the random test, in units of 4096 bytes for what changes the device.
#[derive(Clone, Debug)]
enum Random {
    Read { offset: usize, len: usize },
    Write { sector: usize, sectors: usize, byte: u8 },
    Flush,
}

const SIZE: usize = 256 << 10;
const SECTOR: usize = 4096;

fn random_operation() -> impl Strategy<Value = Random> {
    prop_oneof![
        4 => (0..SIZE, 0..40_000_usize)
            .prop_map(|(offset, len)| Random::Read { offset, len: len.min(SIZE - offset) }),
        4 => (0..SIZE / SECTOR, 1..8_usize, any::<u8>()).prop_map(|(sector, sectors, byte)| {
            Random::Write { sector, sectors: sectors.min(SIZE / SECTOR - sector), byte }
        }),
        1 => Just(Random::Flush),
    ]
}

/// Runs batches on a device and on a plain vector. Within a batch reads come first and writes
/// that overlap are left out, since their order is not defined.
fn run_batches(device: &dyn BlockDevice, mut model: Vec<u8>, batches: &[Vec<Random>]) {
    for batch in batches {
        let completions = CompletionQueue::new();
        let mut reads = BTreeMap::new();
        let mut requests = Vec::new();
        for (token, operation) in batch.iter().enumerate() {
            if let Random::Read { offset, len } = *operation {
                reads.insert(token as u64, offset..offset + len);
                let operation = IoOperation::Read(IoBuffer::zeroed(len).unwrap());
                requests.push(IoRequest { token: token as u64, offset: offset as u64, operation });
            }
        }
        let expected = requests.len();
        device.submit(requests, &completions);
        for _ in 0..expected {
            let completion = completions.wait();
            let read = completion.result.unwrap().unwrap();
            assert!(*read == model[reads[&completion.token].clone()]);
        }
        let mut taken = [false; SIZE / SECTOR];
        let mut requests = Vec::new();
        for (token, operation) in batch.iter().enumerate() {
            let (offset, operation) = match *operation {
                Random::Read { .. } => continue,
                Random::Flush => (0, IoOperation::Flush),
                Random::Write { sector, sectors, byte } => {
                    let sectors = sector..sector + sectors;
                    if taken[sectors.clone()].contains(&true) {
                        continue;
                    }
                    taken[sectors.clone()].fill(true);
                    let bytes = sectors.start * SECTOR..sectors.end * SECTOR;
                    model[bytes.clone()].fill(byte);
                    (bytes.start, IoOperation::Write(vec![byte; bytes.len()].into()))
                }
            };
            requests.push(IoRequest { token: token as u64, offset: offset as u64, operation });
        }
        let expected = requests.len();
        device.submit(requests, &completions);
        for _ in 0..expected {
            assert!(completions.wait().result.unwrap().is_none());
        }
    }
    assert!(*read_exact_at(device, 0, SIZE).unwrap() == model);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn random_batches_act_as_on_plain_memory(
        batches in prop::collection::vec(prop::collection::vec(random_operation(), 0..40), 0..6)
    ) {
        let content = pattern(SIZE);
        each_kind(&content, Access::ReadWrite, |device| {
            run_batches(device, content.clone(), &batches);
        });
    }
}

/// A device that counts its calls by kind.
#[derive(Debug)]
struct Counting {
    device: MemoryDevice,
    submitted: AtomicUsize,
    performed: AtomicUsize,
}

impl BlockDevice for Counting {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        self.device.geometry()
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        self.submitted.fetch_add(requests.len(), Ordering::Relaxed);
        self.device.submit(requests, completions);
    }

    fn perform(
        &self,
        offset: u64,
        operation: IoOperation,
    ) -> Result<Option<IoBuffer>, DeviceError> {
        self.performed.fetch_add(1, Ordering::Relaxed);
        self.device.perform(offset, operation)
    }
}

#[test]
fn only_what_is_waited_for_alone_is_performed() {
    let device = Counting {
        device: MemoryDevice::new("memory", pattern(8192), Access::ReadOnly),
        submitted: AtomicUsize::new(0),
        performed: AtomicUsize::new(0),
    };
    let ask = |offsets: &[u64], awaited: usize| {
        let completions = CompletionQueue::new();
        let request = |offset: &u64| {
            let operation = IoOperation::Read(IoBuffer::zeroed(512).unwrap());
            IoRequest { token: *offset, offset: *offset, operation }
        };
        let requests = offsets.iter().map(request).collect();
        submit_awaited(vec![(&device, requests)], awaited, &completions);
        for _ in offsets {
            let IoCompletion { token, result } = completions.wait();
            let from = token as usize;
            assert_eq!(result.unwrap().unwrap()[..], pattern(8192)[from..from + 512]);
        }
        assert!(completions.try_take().is_none());
        let counts = [&device.submitted, &device.performed];
        counts.map(|count| count.swap(0, Ordering::Relaxed))
    };
    assert_eq!(ask(&[1024], 1), [0, 1]);
    assert_eq!(ask(&[0, 512], 2), [2, 0]);
    assert_eq!(ask(&[512], 2), [1, 0], "another one is on its way");
}
