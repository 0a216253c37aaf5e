//! Writing, in all the ways that there are.

use crate::mounted::Mounted;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

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
    // The kernel's cache agrees with what is on disk.
    let mounted = mounted.again();
    assert!(fs::read(mounted.path("file")).unwrap() == expected);
    fs::copy(mounted.path("file"), mounted.path("copy")).unwrap();
    assert!(fs::read(mounted.path("copy")).unwrap() == expected);
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
    file.sync_all().unwrap();
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

/// Through a program, as a mapping in Rust is unsafe.
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
    File::open(&path).unwrap().sync_all().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let after = fs::metadata(&path).unwrap().blocks();
    assert!(before < 100 && after >= 2048, "{before} {after}");
    mounted.finish();
}
