//! Writing, in all possible ways.

use crate::mounted::Mounted;
use rustix::fs::{
    Advice, FallocateFlags, SeekFrom, XattrFlags, copy_file_range, fadvise, fallocate, getxattr,
    seek, setxattr,
};
use rustix::io::Errno;
use rzfs_testkit::SetWhenDropped;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCK: u64 = 128 << 10;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31 + at / 255 + seed) % 251) as u8).collect()
}

#[test]
fn what_is_written_is_read_again() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    let mut file = File::create(&path).unwrap();
    let mut expected = pattern(3_000_001, 1);
    file.write_all(&expected).unwrap();
    file.write_all_at(&pattern(5000, 2), 131_000).unwrap();
    expected[131_000..136_000].copy_from_slice(&pattern(5000, 2));
    assert!(fs::read(&path).unwrap() == expected);
    file.set_len(1_000_000).unwrap();
    file.set_len(1_500_000).unwrap();
    expected.truncate(1_000_000);
    expected.resize(1_500_000, 0);
    drop(file);
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(b"the end").unwrap();
    file.sync_all().unwrap();
    drop(file);
    expected.extend_from_slice(b"the end");
    assert!(fs::read(&path).unwrap() == expected);
    // The kernel's cache matches the data on disk.
    let mounted = mounted.again();
    assert!(fs::read(mounted.path("file")).unwrap() == expected);
    fs::copy(mounted.path("file"), mounted.path("copy")).unwrap();
    assert!(fs::read(mounted.path("copy")).unwrap() == expected);
    mounted.finish();
}

/// The kernel's page cache is never older than what was written.
#[test]
fn readers_see_what_is_written_to_a_new_file() {
    const READERS: usize = 2;
    let mounted = Mounted::new();
    let path = mounted.path("log");
    let log = File::create(&path).unwrap();
    let expected = pattern(400_000, 3);
    let is_finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let reader = File::open(&path).unwrap();
                let mut seen = vec![0; expected.len()];
                while !is_finished.load(Ordering::Relaxed) {
                    let len = reader.read_at(&mut seen, 0).unwrap();
                    assert!(seen[..len] == expected[..len], "stale pages below {len}");
                }
            });
        }
        let end = SetWhenDropped(&is_finished);
        let reader = File::open(&path).unwrap();
        for (index, piece) in expected.chunks(997).enumerate() {
            let at = (index * 997) as u64;
            log.write_all_at(piece, at).unwrap();
            let mut seen = vec![0; piece.len()];
            reader.read_exact_at(&mut seen, at).unwrap();
            assert!(seen == piece, "stale pages at {at}");
        }
        drop(end);
    });
    // Meanwhile, other pages of the same file are written through a mapping.
    let other = File::options().read(true).write(true).open(&path).unwrap();
    for round in 0..300_u32 {
        let word = round.to_le_bytes();
        log.write_all_at(&word, 8192).unwrap();
        other.write_all_at(&word, 8196).unwrap();
        let mut seen = [0; 8];
        other.read_exact_at(&mut seen, 8192).unwrap();
        assert_eq!(seen, [word, word].concat()[..]);
    }
    drop((log, other));
    mounted.finish();
}

#[test]
fn a_write_takes_capabilities_away() {
    /// `cap_net_raw=ep`, as the kernel stores it: revision 2, little-endian words.
    const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const NAME: &str = "security.capability";
    let mounted = Mounted::new();
    let path = mounted.path("program");
    let writer = File::create(&path).unwrap();
    for file in [&writer, &File::options().append(true).open(&path).unwrap()] {
        match setxattr(&path, NAME, &CAPABILITY, XattrFlags::empty()) {
            Err(Errno::PERM) => return println!("skipped: needs the right to set capabilities"),
            set => set.unwrap(),
        }
        let mut value = [0; 64];
        assert_eq!(getxattr(&path, NAME, &mut value), Ok(CAPABILITY.len()));
        file.write_all_at(b"other code", 0).unwrap();
        assert_eq!(getxattr(&path, NAME, &mut value), Err(Errno::NODATA));
    }
    drop(writer);
    mounted.finish();
}

#[test]
fn holes_are_made_and_found() {
    let mounted = Mounted::new();
    let file = File::create(mounted.path("sparse")).unwrap();
    file.write_all_at(&pattern(BLOCK as usize, 1), 0).unwrap();
    file.write_all_at(b"far away", 1 << 40).unwrap();
    file.sync_all().unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(BLOCK));
    assert_eq!(seek(&file, SeekFrom::Data(BLOCK)), Ok(1 << 40));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 0, BLOCK).unwrap();
    fallocate(&file, FallocateFlags::ZERO_RANGE, (1 << 40) + 4, 1 << 20).unwrap();
    // fsync only writes to the log, so none of this is in its place on disk.
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(1 << 40));
    assert_eq!(file.metadata().unwrap().len(), (1 << 40) + 4 + (1 << 20));
    fallocate(&file, FallocateFlags::empty(), 1 << 41, 1).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 41) + 1);
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, BLOCK);
    assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
    drop(file);
    let mounted = mounted.again();
    let file = File::open(mounted.path("sparse")).unwrap();
    let mut bytes = [1; 8];
    file.read_exact_at(&mut bytes, 1 << 40).unwrap();
    assert_eq!(&bytes, b"far \0\0\0\0");
    assert!(file.metadata().unwrap().blocks() < 2000);
    drop(file);
    mounted.finish();
}

#[test]
fn a_new_sparse_file_is_copied_by_its_data() {
    let mounted = Mounted::new();
    let file = File::create(mounted.path("empty")).unwrap();
    file.set_len(1 << 42).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(0));
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    // Data, on disk or not, after holes, on disk or not.
    file.write_all_at(b"on disk", 3 * BLOCK).unwrap();
    file.write_all_at(&pattern(3 * BLOCK as usize, 1), 100 * BLOCK).unwrap();
    mounted.files().sync().unwrap();
    file.write_all_at(b"in memory", 1 << 41).unwrap();
    file.write_all_at(b"in memory", 4 * BLOCK).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 101 * BLOCK, BLOCK).unwrap();
    let mut at = 0;
    let mut found = Vec::new();
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(data)).unwrap();
        found.push((data, at));
    }
    let blocks = |first: u64, end: u64| (first * BLOCK, end * BLOCK);
    let far = (1 << 41) / BLOCK;
    let expected = [blocks(3, 5), blocks(100, 101), blocks(102, 103), blocks(far, far + 1)];
    assert_eq!(found, expected);
    assert_eq!(seek(&file, SeekFrom::Hole(101 * BLOCK + 5)), Ok(101 * BLOCK + 5));
    // The results are the same once it is on disk.
    mounted.files().sync().unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(5 * BLOCK)), Ok(100 * BLOCK));
    assert_eq!(seek(&file, SeekFrom::Hole(100 * BLOCK)), Ok(101 * BLOCK));
    drop(file);
    mounted.finish();
}

/// Writes a range repeatedly without waiting, while another thread reads its end through the page
/// cache. Once a write has finished, every reader sees it.
const ASYNCHRONOUS: &str = "
import ctypes, mmap, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
SIZE = 1 << 20
SETUP, SUBMIT, EVENTS = 206, 209, 208
context = ctypes.c_ulong()
if libc.syscall(SETUP, 8, ctypes.byref(context)):
    raise OSError(ctypes.get_errno(), 'io_setup')
direct = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
plain = os.open(sys.argv[1], os.O_RDONLY)
page = mmap.mmap(-1, SIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
done = False
def read():
    while not done:
        os.pread(plain, 4096, SIZE - 4096)
reader = threading.Thread(target=read)
reader.start()
try:
    for round in range(1, 61):
        page[SIZE - 4096:SIZE - 4092] = struct.pack('<I', round)
        block = ctypes.create_string_buffer(struct.pack('<QIiHhIQQqQII', 0, 0, 0, 1, 0, direct, address, SIZE, 0, 0, 0, 0))
        list = (ctypes.c_void_p * 1)(ctypes.addressof(block))
        assert libc.syscall(SUBMIT, context, 1, list) == 1
        events = ctypes.create_string_buffer(32)
        assert libc.syscall(EVENTS, context, 1, 1, events, None) == 1
        seen = struct.unpack('<I', os.pread(plain, 4, SIZE - 4096))[0]
        if seen != round:
            sys.exit(f'{seen} is read after {round} was written')
finally:
    done = True
    reader.join()
";

#[test]
fn nobody_reads_what_was_there_before_an_asynchronous_write() {
    if !cfg!(target_arch = "x86_64") {
        return println!("skipped: the numbers of system calls are others here");
    }
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, vec![0; 2 << 20]).unwrap();
    let output = Command::new("python3").args(["-c", ASYNCHRONOUS]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    mounted.finish();
}

/// One process stores to the start of pages through a mapping, another copies to the rest of them.
const COPY_BESIDE_A_MAPPING: &str = "
import mmap, os, sys
PAGES, ROUNDS = 4, 400
path, offset, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fd = os.open(path, os.O_RDWR)
child = os.fork()
if child == 0:
    while True:
        for page in range(PAGES):
            os.copy_file_range(fd, fd, length, 4096 * PAGES, page * 4096 + offset)
pages = mmap.mmap(fd, 4096 * PAGES)
lost = 0
for round in range(ROUNDS):
    at = round % PAGES * 4096
    stored = round.to_bytes(4, 'little') * 128
    pages[at:at + 512] = stored
    pages.flush(at, 4096)
    lost += pages[at:at + 512] != stored or os.pread(fd, 512, at) != stored
os.kill(child, 9)
os.wait()
sys.exit(f'{lost} of {ROUNDS} are lost' if lost else 0)
";

#[test]
fn a_copy_takes_nothing_that_others_have_stored_in_its_pages() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    fs::write(&path, vec![7; 64 << 10]).unwrap();
    for (offset, length) in [(2048, 512), (512, 3584)] {
        let mut python = Command::new("python3");
        python.args(["-c", COPY_BESIDE_A_MAPPING]).arg(&path);
        let output = python.args([offset, length].map(|n: u32| n.to_string())).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    mounted.finish();
}

/// In Python, since a mapping in Rust is unsafe.
const SHARED_MAPPING: &str = "
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
with mmap.mmap(fd, 0) as m:
    for at in range(0, len(m), 4096):
        m[at:at + 4] = (at // 4096).to_bytes(4, 'little')
    assert os.pread(fd, 4, 8192) == (2).to_bytes(4, 'little')
    os.pwrite(fd, b'written', 4096 + 100)
    assert m[4196:4203] == b'written'
    if sys.argv[2] == 'msync':
        m.flush()
os.close(fd)
";

#[test]
fn shared_mappings_are_files() {
    let mounted = Mounted::new();
    for synced in ["msync", "no"] {
        let path = mounted.path(synced);
        fs::write(&path, vec![9; 1 << 20]).unwrap();
        let mut python = Command::new("python3");
        python.args(["-c", SHARED_MAPPING]).arg(&path).arg(synced);
        assert!(python.status().unwrap().success());
    }
    let mounted = mounted.again();
    for synced in ["msync", "no"] {
        let bytes = fs::read(mounted.path(synced)).unwrap();
        for (page, bytes) in bytes.chunks(4096).enumerate() {
            assert_eq!(bytes[..4], (page as u32).to_le_bytes(), "page {page}, {synced}");
            assert_eq!(bytes[4], 9);
        }
        assert_eq!(&bytes[4196..4203], b"written");
    }
    mounted.finish();
}

/// What is stored through a mapping, and not written back yet, is no hole for who copies by data.
const SEEKS_BESIDE_A_MAPPING: &str = "
import mmap, os, sys
BLOCK = 128 << 10
writer = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(writer, 64 * BLOCK)
pages = mmap.mmap(writer, 64 * BLOCK)
reader = os.open(sys.argv[1], os.O_RDONLY)
def found():
    at, all = 0, []
    while True:
        try:
            data = os.lseek(reader, at, os.SEEK_DATA)
        except OSError:
            return all
        at = os.lseek(reader, data, os.SEEK_HOLE)
        all.append((data // BLOCK, at // BLOCK))
def store(block):
    pages[block * BLOCK + 5000:block * BLOCK + 5005] = b'hello'
assert found() == [], found()
store(9)
assert found() == [(9, 10)], found()
store(10)
store(40)
store(63)
assert os.lseek(reader, 9 * BLOCK, os.SEEK_HOLE) == 11 * BLOCK
assert found() == [(9, 11), (40, 41), (63, 64)], found()
store(0)
assert os.lseek(reader, 0, os.SEEK_HOLE) == BLOCK
store(1)
assert os.lseek(reader, BLOCK // 2, os.SEEK_DATA) == BLOCK // 2
assert found() == [(0, 2), (9, 11), (40, 41), (63, 64)], found()
assert pages[9 * BLOCK + 5000:9 * BLOCK + 5005] == b'hello'
";

#[test]
fn what_is_stored_through_a_mapping_is_no_hole() {
    let mounted = Mounted::new();
    let mut python = Command::new("python3");
    python.args(["-c", SEEKS_BESIDE_A_MAPPING]).arg(mounted.path("file"));
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    mounted.finish();
}

#[test]
fn space_is_told_once_it_is_known() {
    let mounted = Mounted::new();
    let path = mounted.path("file");
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(1 << 20)
    .collect();
    fs::write(&path, noise).unwrap();
    let before = fs::metadata(&path).unwrap().blocks();
    mounted.files().sync().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let after = fs::metadata(&path).unwrap().blocks();
    assert!(before < 100 && after >= 2048, "{before} {after}");
    mounted.finish();
}

/// Copies a range with the system call, repeated as often as needed.
fn copy_range(from: (&File, u64), to: (&File, u64), len: usize) -> Result<usize, Errno> {
    let (mut from_offset, mut to_offset) = (from.1, to.1);
    let mut done = 0;
    while done < len {
        let offsets = (Some(&mut from_offset), Some(&mut to_offset));
        match copy_file_range(from.0, offsets.0, to.0, offsets.1, len - done)? {
            0 => break,
            copied => done += copied,
        }
    }
    Ok(done)
}

#[test]
fn ranges_of_files_are_copied() {
    let mounted = Mounted::new();
    let source = File::create(mounted.path("source")).unwrap();
    let blocks = 4 * BLOCK as usize;
    let contents = pattern(blocks + 1000, 5);
    source.write_all_at(&contents, 0).unwrap();
    // A hole, followed by data.
    source.write_all_at(b"behind the hole", 9 * BLOCK).unwrap();
    source.sync_all().unwrap();
    // Data that is not on disk yet.
    source.write_all_at(b"dirty", 2 * BLOCK).unwrap();
    drop(source);
    let source = File::open(mounted.path("source")).unwrap();
    let expected = fs::read(mounted.path("source")).unwrap();
    let end = expected.len();
    for (number, (from, to, len)) in [
        (0, 0, end),
        (0, 0, end + 5000),
        (0, BLOCK as usize, 3 * BLOCK as usize),
        (1000, 0, blocks),
        (1000, 1000, blocks),
        (BLOCK as usize, 0, BLOCK as usize + 17),
        (end - 3, 7, 100),
        (end, 0, 100),
    ]
    .into_iter()
    .enumerate()
    {
        let path = mounted.path(&format!("copy-{number}"));
        let copy = File::create(&path).unwrap();
        let len_there = len.min(end - from);
        let copied = copy_range((&source, from as u64), (&copy, to as u64), len);
        assert_eq!(copied, Ok(len_there), "{number}");
        let mut model = vec![0; if len_there > 0 { to + len_there } else { 0 }];
        if len_there > 0 {
            model[to..].copy_from_slice(&expected[from..from + len_there]);
        }
        assert!(fs::read(&path).unwrap() == model, "{number}");
    }
    // Within one file.
    let both = File::options().read(true).write(true).open(mounted.path("source")).unwrap();
    let apart = (20 * BLOCK, BLOCK as usize);
    assert_eq!(copy_range((&both, 0), (&both, apart.0), apart.1), Ok(apart.1));
    let overlapping = copy_range((&both, 0), (&both, BLOCK / 2), BLOCK as usize);
    assert_eq!(overlapping, Err(Errno::INVAL));
    let read_only = copy_range((&source, 0), (&source, 30 * BLOCK), 10);
    assert_eq!(read_only, Err(Errno::BADF));
    drop((source, both));
    let mounted = mounted.again();
    let now = fs::read(mounted.path("source")).unwrap();
    assert!(now[..end] == expected[..]);
    assert!(now[20 * BLOCK as usize..] == expected[..BLOCK as usize]);
    assert!(fs::read(mounted.path("copy-0")).unwrap() == expected);
    mounted.finish();
}

#[test]
fn nobody_waits_for_who_reserves_much_and_so_for_a_transaction_group() {
    let mounted = Mounted::new();
    // At least as many as there are threads.
    let files = ["a", "b", "c", "d"].map(|name| mounted.path(name));
    files.iter().for_each(|file| fs::write(file, b"contents").unwrap());
    let [path, ..] = files.clone();
    // More than half of the free space; the latest writes may not be counted yet.
    let space = rustix::fs::statvfs(&path).unwrap();
    let len = space.f_bavail * space.f_frsize / 5 * 3;
    // The group cannot be written to disk.
    let held = mounted.pool().engine().begin(&[]).unwrap();
    let reserving = files.map(|path| {
        let file = File::options().write(true).open(path).unwrap();
        thread::spawn(move || fallocate(&file, FallocateFlags::KEEP_SIZE, 0, len))
    });
    thread::sleep(Duration::from_millis(300));
    let reading = thread::spawn(move || {
        let mut file = File::open(path).unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        let mut contents = Vec::new();
        file.read_to_end(&mut contents).unwrap();
        contents
    });
    let begun = Instant::now();
    while !reading.is_finished() && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
    }
    let was_read = reading.is_finished();
    let still_reserving = reserving.iter().filter(|one| !one.is_finished()).count();
    drop(held);
    assert!(was_read, "who reads waits for those who reserve");
    assert_eq!(still_reserving, 4);
    assert_eq!(reading.join().unwrap(), b"contents");
    for one in reserving {
        one.join().unwrap().unwrap();
    }
    mounted.finish();
}
