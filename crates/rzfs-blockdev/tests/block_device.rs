//! Real block devices, with the kernel's loop driver. That takes root; without it, or without
//! loop devices, there is nothing to test, and with `CI=true` that is a failure.

use rzfs_blockdev::{
    Access, Backend, BlockDevice, CompletionQueue, EngineOptions, FileDevice, IoOperation,
    IoRequest, OpenOptions, read_exact_at,
};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

const EBUSY: i32 = 16;

/// A loop device over a file; detached when dropped.
struct LoopDevice {
    path: String,
    _file: NamedTempFile,
}

impl LoopDevice {
    /// A device with this content; `None`, with a note, where there can be none.
    fn new(content: &[u8], sector: u32) -> Option<Self> {
        match Self::try_new(content, sector) {
            Ok(device) => Some(device),
            Err(reason) => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{reason}");
                eprintln!("no loop device, nothing is tested: {reason}");
                None
            }
        }
    }

    fn try_new(content: &[u8], sector: u32) -> Result<Self, String> {
        let mut file = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        file.write_all(content).unwrap();
        file.as_file().sync_all().unwrap();
        let output = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(file.path())
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let path = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Ok(Self { path, _file: file })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

/// Opens a device. Other searches for a free loop device briefly claim this one.
fn open(path: &str, backend: Backend, access: Access) -> FileDevice {
    const PATIENCE: Duration = Duration::from_secs(5);
    let engine = EngineOptions { backend, ..EngineOptions::default() };
    let options = OpenOptions::new().access(access).engine_options(engine);
    let start = Instant::now();
    loop {
        match FileDevice::open(path, &options) {
            Err(error) if error.errno() == EBUSY && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn a_block_device_is_read_and_written_directly_whatever_its_sector() {
    let content: Vec<u8> = (0..1_u32 << 20).map(|at| (at ^ (at >> 9)) as u8).collect();
    for sector in [512, 4096] {
        let Some(disk) = LoopDevice::new(&content, sector) else { return };
        for backend in [Backend::Portable, Backend::IoUring] {
            let device = open(&disk.path, backend, Access::ReadOnly);
            assert!(device.is_direct());
            let geometry = device.geometry();
            assert_eq!((geometry.size, geometry.logical_sector), (1 << 20, sector));
            for (offset, len) in [(0, 4096), (513, 1), (4095, 9000), ((1 << 20) - 7, 7)] {
                let read = read_exact_at(&device, offset as u64, len).unwrap();
                assert_eq!(*read, content[offset..offset + len]);
            }
            drop(device);

            let device = open(&disk.path, backend, Access::ReadWrite);
            let completions = CompletionQueue::new();
            let bytes = content[8192..16_384].to_vec().into();
            let write = IoRequest { token: 1, offset: 8192, operation: IoOperation::Write(bytes) };
            device.submit(vec![write], &completions);
            completions.wait().result.unwrap();
            let flush = IoRequest { token: 2, offset: 0, operation: IoOperation::Flush };
            let discard =
                IoRequest { token: 3, offset: 0, operation: IoOperation::Discard { len: 4096 } };
            device.submit(vec![flush, discard], &completions);
            for _ in 0..2 {
                completions.wait().result.unwrap();
            }
            assert_eq!(*read_exact_at(&device, 4096, 12_288).unwrap(), content[4096..16_384]);
            let zeros = vec![0; 4096];
            assert_eq!(*read_exact_at(&device, 0, 4096).unwrap(), zeros);
            // Put back for the next backend.
            let bytes = content[..4096].to_vec().into();
            let write = IoRequest { token: 4, offset: 0, operation: IoOperation::Write(bytes) };
            device.submit(vec![write], &completions);
            completions.wait().result.unwrap();
        }
    }
}

#[test]
fn a_device_open_for_writing_is_claimed_until_it_is_dropped() {
    let Some(disk) = LoopDevice::new(&[0; 65_536], 512) else { return };
    for backend in [Backend::Portable, Backend::IoUring] {
        for _ in 0..20 {
            let device = open(&disk.path, backend, Access::ReadWrite);
            read_exact_at(&device, 0, 4096).unwrap();
            let again = OpenOptions::new().access(Access::ReadWrite);
            assert_eq!(FileDevice::open(&disk.path, &again).unwrap_err().errno(), EBUSY);
            FileDevice::open(&disk.path, &OpenOptions::new()).unwrap();
        }
    }
}

/// The system reports where the file of a loop device was. Another one may be there by now.
#[test]
fn a_file_that_only_has_the_name_of_a_devices_file_is_not_claimed() {
    let Some(device) = LoopDevice::new(&[7; 1 << 20], 512) else { return };
    let path = device._file.path().to_owned();
    let claimed = open(&device.path, Backend::Portable, Access::ReadWrite);
    let refused = FileDevice::open(&path, &OpenOptions::new().access(Access::ReadWrite));
    assert_eq!(refused.unwrap_err().errno(), EBUSY, "it is the device's");
    drop(claimed);

    std::fs::remove_file(&path).unwrap();
    let mut other = path.into_os_string();
    other.push(" (deleted)");
    let other = std::path::PathBuf::from(other);
    std::fs::write(&other, [7; 1 << 20]).unwrap();
    let _open = open(&device.path, Backend::Portable, Access::ReadWrite);
    let opened = FileDevice::open(&other, &OpenOptions::new().access(Access::ReadWrite));
    std::fs::remove_file(&other).unwrap();
    opened.unwrap();
}
