//! Opening: what is accepted, what is refused, and sharing of engines.

use rzfs_blockdev::{Access, BlockDevice, Caching, FileDevice, OpenOptions, read_exact_at};
use std::io::Write;
use tempfile::{NamedTempFile, TempDir};

const ENOENT: i32 = 2;
const ENOTBLK: i32 = 15;
const EISDIR: i32 = 21;

fn image() -> NamedTempFile {
    let mut file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&[0x5a; 65_536]).unwrap();
    file
}

fn refusal(path: impl AsRef<std::path::Path>) -> i32 {
    FileDevice::open(path, &OpenOptions::new()).unwrap_err().errno()
}

#[test]
fn only_files_and_block_devices_are_devices() {
    let directory = TempDir::new().unwrap();
    assert_eq!(refusal(directory.path()), EISDIR);
    assert_eq!(refusal(directory.path().join("nothing")), ENOENT);
    assert_eq!(refusal("/dev/null"), ENOTBLK);
    let fifo = directory.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(refusal(&fifo), ENOTBLK);
}

#[test]
fn a_refusal_names_the_path() {
    let error = FileDevice::open("/nonexistent/disk0", &OpenOptions::new()).unwrap_err();
    assert!(error.to_string().starts_with("cannot open /nonexistent/disk0: No such file"));
}

#[test]
fn a_file_has_sectors_of_512_bytes_and_goes_through_the_page_cache() {
    let image = image();
    let device = FileDevice::open(image.path(), &OpenOptions::new()).unwrap();
    let geometry = device.geometry();
    assert_eq!(
        (geometry.size, geometry.logical_sector, geometry.physical_sector),
        (65_536, 512, 512)
    );
    assert!(!device.is_direct());
    assert_eq!(device.access(), Access::ReadOnly);
    assert_eq!(device.name(), image.path().to_str().unwrap());
}

#[test]
fn a_file_opened_directly_has_sectors_that_suit_direct_transfers() {
    let image = image();
    let options = OpenOptions::new().caching(Caching::Direct);
    let device = FileDevice::open(image.path(), &options).unwrap();
    assert!(device.geometry().logical_sector >= 512);
    assert_eq!(*read_exact_at(&device, 1, 65_535).unwrap(), [0x5a; 65_535]);
}

#[test]
fn an_empty_file_has_nothing_to_read() {
    let file = NamedTempFile::new().unwrap();
    for caching in [Caching::Buffered, Caching::Direct] {
        let options = OpenOptions::new().caching(caching);
        let device = FileDevice::open(file.path(), &options).unwrap();
        assert_eq!(device.geometry().size, 0);
        assert!(read_exact_at(&device, 0, 0).unwrap().is_empty());
        assert!(read_exact_at(&device, 0, 1).is_err());
    }
}

#[test]
fn many_devices_share_the_engine_of_their_options() {
    let threads_before = threads();
    let options = OpenOptions::new().caching(Caching::Direct);
    let image = image();
    // More than the ring keeps registered.
    let devices: Vec<_> =
        (0..600).map(|_| FileDevice::open(image.path(), &options.clone()).unwrap()).collect();
    for device in &devices {
        assert_eq!(*read_exact_at(device, 512, 512).unwrap(), [0x5a; 512]);
    }
    // Other tests run beside this one; a thread for each device would show all the same.
    assert!(threads() < threads_before + 300);
    drop(devices);
    // Slots of dropped devices are reused, for the right file.
    let other = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    other.as_file().set_len(65_536).unwrap();
    let device = FileDevice::open(other.path(), &options).unwrap();
    assert_eq!(*read_exact_at(&device, 512, 512).unwrap(), [0; 512]);
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn a_file_has_one_writer_and_whoever_is_refused_is_told_who_that_is() {
    const EBUSY: i32 = 16;
    let image = image();
    let writable = OpenOptions::new().access(Access::ReadWrite);
    let writer = FileDevice::open(image.path(), &writable).unwrap();
    let link = image.path().with_extension("link");
    std::fs::hard_link(image.path(), &link).unwrap();
    for path in [image.path(), &link] {
        let refused = FileDevice::open(path, &writable).unwrap_err();
        assert_eq!((refused.errno(), refused.is_in_use()), (EBUSY, true));
        let processes: Vec<u32> = refused.holders.iter().map(|holder| holder.process).collect();
        assert_eq!(processes, [std::process::id()]);
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())));
    }
    std::fs::remove_file(link).unwrap();
    // Readers neither wait nor are in the way.
    let reader = FileDevice::open(image.path(), &OpenOptions::new()).unwrap();
    drop(writer);
    FileDevice::open(image.path(), &writable).unwrap();
    drop(reader);
}
