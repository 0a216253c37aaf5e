//! Where to look for devices, and opening what is found there (spec 01, section 9.2).

use rustix::io::Errno;
use rzfs_blockdev::{BlockDevice, FileDevice, FileIdentity, OpenError, OpenOptions};
use rzfs_format::label::LeafSize;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories searched by default, the ones with the better names first.
pub const DEFAULT_DIRECTORIES: [&str; 9] = [
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

/// A place to look for the devices of pools.
#[derive(Clone, Debug)]
pub enum DeviceSource {
    /// A device that is already open.
    Device(Arc<dyn BlockDevice>),
    /// A block device, a regular file, or a directory of such.
    Path(PathBuf),
}

impl DeviceSource {
    /// The directories searched by default.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        DEFAULT_DIRECTORIES.iter().map(|path| Self::Path(path.into())).collect()
    }
}

impl From<PathBuf> for DeviceSource {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<Arc<dyn BlockDevice>> for DeviceSource {
    fn from(device: Arc<dyn BlockDevice>) -> Self {
        Self::Device(device)
    }
}

/// An open device that is large enough for a vdev.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) size: LeafSize,
    /// All names under which it was found, in the order of the search; at least one.
    pub(super) paths: Vec<String>,
}

impl Candidate {
    fn new(device: Arc<dyn BlockDevice>, path: String) -> Option<Self> {
        let size = LeafSize::of_device(device.geometry().size)?;
        Some(Self { device, size, paths: vec![path] })
    }
}

/// The devices of the sources in their order, each once, and what could not be opened.
///
/// Explicitly named sources must exist and be a block device or file; in a directory everything
/// else is silently skipped.
pub(super) fn open(
    sources: &[DeviceSource],
    options: &OpenOptions,
) -> (Vec<Candidate>, Vec<OpenError>) {
    let mut search = Search { options, candidates: Vec::new(), known: HashMap::new() };
    let mut failures = Vec::new();
    for source in sources {
        match source {
            DeviceSource::Device(device) => {
                let candidate = Candidate::new(Arc::clone(device), device.name().to_owned());
                search.candidates.extend(candidate);
            }
            DeviceSource::Path(path) => search.path(path, &mut failures),
        }
    }
    (search.candidates, failures)
}

struct Search<'a> {
    options: &'a OpenOptions,
    candidates: Vec<Candidate>,
    /// Devices and files already seen, with their candidates if they are large enough.
    known: HashMap<FileIdentity, Option<usize>>,
}

impl Search<'_> {
    fn path(&mut self, path: &Path, failures: &mut Vec<OpenError>) {
        let fail = |source: io::Error| OpenError::new(path, source);
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => match directory(path) {
                Ok(entries) => entries.iter().for_each(|entry| {
                    if let Err(error) = self.entry(entry) {
                        tracing::debug!(path = %entry.display(), %error, "passed over");
                    }
                }),
                Err(error) => failures.push(fail(error)),
            },
            Ok(_) => failures.extend(self.entry(path).err()),
            Err(error) => failures.push(fail(error)),
        }
    }

    fn entry(&mut self, path: &Path) -> Result<(), OpenError> {
        let fail = |source: io::Error| OpenError::new(path, source);
        let metadata = fs::metadata(path).map_err(fail)?;
        let identity = FileIdentity::of(&metadata).ok_or_else(|| fail(Errno::NOTBLK.into()))?;
        let name = path.to_string_lossy().into_owned();
        if let Some(known) = self.known.get(&identity) {
            if let Some(candidate) = known.and_then(|index| self.candidates.get_mut(index)) {
                candidate.paths.push(name);
            }
            return Ok(());
        }
        let too_small = metadata.is_file() && LeafSize::of_device(metadata.len()).is_none();
        let candidate = if too_small {
            None
        } else {
            Candidate::new(Arc::new(FileDevice::open(path, self.options)?), name)
        };
        let index = candidate.map(|candidate| {
            self.candidates.push(candidate);
            self.candidates.len() - 1
        });
        self.known.insert(identity, index);
        Ok(())
    }
}

/// The entries of a directory by name.
fn directory(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries: io::Result<Vec<_>> =
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut entries = entries?;
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::label::MIN_LEAF_SIZE;
    use std::os::unix::fs::symlink;

    fn file(dir: &Path, name: &str, size: u64) -> PathBuf {
        let path = dir.join(name);
        fs::File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    #[test]
    fn a_directory_gives_its_large_files_once_each() {
        let dir = tempfile::tempdir().unwrap();
        let b = file(dir.path(), "b.img", MIN_LEAF_SIZE);
        file(dir.path(), "small", MIN_LEAF_SIZE - 1);
        fs::create_dir(dir.path().join("subdirectory")).unwrap();
        symlink(&b, dir.path().join("z.link")).unwrap();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        let (found, failures) = open(&[dir.path().to_path_buf().into()], &OpenOptions::new());
        assert!(failures.is_empty());
        assert_eq!(found.len(), 1);
        let names = [&b, &dir.path().join("z.link")].map(|path| path.display().to_string());
        assert_eq!(found[0].paths, names);
    }

    #[test]
    fn what_is_named_has_to_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let absent = dir.path().join("absent");
        let (found, failures) = open(&[absent.clone().into()], &OpenOptions::new());
        assert!(found.is_empty());
        assert_eq!(failures.len(), 1);
        assert_eq!(failures[0].path, absent);
    }

    #[test]
    fn what_is_named_has_to_be_a_device_or_file() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for special in [socket.as_path(), Path::new("/dev/null")] {
            let (found, failures) = open(&[special.to_owned().into()], &OpenOptions::new());
            assert!(found.is_empty());
            assert_eq!(failures.len(), 1);
            let reason = "neither a block device nor a regular file";
            let text = format!("cannot open {}: {reason}", special.display());
            assert_eq!(failures[0].to_string(), text);
        }
        // In a directory it is skipped.
        let (found, failures) = open(&[dir.path().to_owned().into()], &OpenOptions::new());
        assert!(found.is_empty() && failures.is_empty());
    }
}
