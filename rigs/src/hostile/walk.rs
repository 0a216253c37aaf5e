//! Walks over a mount that nobody should trust, as any user would: looks, reads, opens, executes.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use xtask::process::{AS_NOBODY, Failure, outcome};

/// What a line of a finding begins with.
pub(super) const FOUND: &str = "found: ";
/// Entries of a directory that are looked at.
const ENTRIES: usize = 200;
/// How deep it goes: a directory may be in itself.
const DEPTH: usize = 8;
/// Files that are looked at.
const FILES: usize = 2000;
/// Bytes that are read of a file.
const READ: u64 = 64 << 10;
/// `O_NONBLOCK | O_NOFOLLOW`: named pipes have nobody at their other ends.
const CAREFULLY: i32 = 0o4000 | 0o400_000;

/// Whether devices and programs of the mount are to be of no use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    /// As with OpenZFS.
    Imported,
    /// They are anybody's.
    Nothing,
}

/// Walks, and tells what must not be.
pub(super) fn run(root: &Path, trust: Trust) -> Result<(), Failure> {
    for finding in walk(root, trust)? {
        println!("{FOUND}{finding}");
    }
    Ok(())
}

/// Errors are what one expects in such a place; what must not be is answered.
fn walk(root: &Path, trust: Trust) -> Result<Vec<String>, Failure> {
    let mut walker = Walker { trust, left: FILES, findings: Vec::new() };
    walker.directory(root, DEPTH)?;
    Ok(walker.findings)
}

struct Walker {
    trust: Trust,
    left: usize,
    findings: Vec<String>,
}

impl Walker {
    fn directory(&mut self, directory: &Path, depth: usize) -> Result<(), Failure> {
        let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
        for entry in entries.take(ENTRIES).flatten() {
            if self.left == 0 {
                return Ok(());
            }
            self.left -= 1;
            let path = entry.path();
            if path.parent() != Some(directory) {
                let name = entry.file_name();
                self.findings.push(format!("the name {name:?} leaves its directory"));
            }
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let kind = metadata.file_type();
            if kind.is_symlink() {
                // Where it leads is the business of whoever follows it.
                let _ = fs::read_link(&path);
            } else if kind.is_dir() && depth > 0 {
                self.directory(&path, depth - 1)?;
            } else if kind.is_file() {
                self.file(&path)?;
            } else if kind.is_char_device() || kind.is_block_device() {
                self.device(&path);
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let Ok(file) = open(path) else { return Ok(()) };
        let mut contents = Vec::new();
        let _ = file.take(READ).read_to_end(&mut contents);
        if self.trust == Trust::Nothing && contents.starts_with(b"\x7fELF") {
            self.program(path)?;
        }
        Ok(())
    }

    /// A program that says whose rights it has. It runs as an ordinary user.
    fn program(&mut self, path: &Path) -> Result<(), Failure> {
        let is_root = rustix::process::geteuid().is_root();
        let mut command = Command::new("timeout");
        command.arg("60");
        if is_root {
            command.args(AS_NOBODY);
        }
        let told = outcome(command.arg(path).arg("-u"))?;
        if told.status.success() && told.stdout.starts_with(b"0") {
            let path = path.display();
            self.findings.push(format!("{path} runs with the rights of root"));
        }
        Ok(())
    }

    fn device(&mut self, path: &Path) {
        if self.trust == Trust::Nothing && open(path).is_ok() {
            self.findings.push(format!("the device {} can be opened", path.display()));
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).custom_flags(CAREFULLY).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use xtask::process;

    #[test]
    fn programs_and_devices_that_can_be_used_are_found() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("SKIPPED: only root makes them");
        }
        let mut builder = tempfile::Builder::new();
        let builder = builder.permissions(Permissions::from_mode(0o755));
        // Where set-user-id bits count.
        let place = builder.tempdir_in("/var/tmp").unwrap();
        let (program, device) = (place.path().join("program"), place.path().join("device"));
        // By another process: none that a test starts may have the copy open when it is run.
        process::run(Command::new("cp").arg("/usr/bin/id").arg(&program)).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).unwrap();
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, &device, FileType::CharacterDevice, mode, makedev(1, 5)).unwrap();
        assert_eq!(walk(place.path(), Trust::Imported).unwrap(), [""; 0]);
        let mut found = walk(place.path(), Trust::Nothing).unwrap();
        found.sort();
        let device = format!("the device {} can be opened", device.display());
        let program = format!("{} runs with the rights of root", program.display());
        assert_eq!(found, [program, device]);
    }
}
