//! Finding and opening the devices of new vdevs (spec 07, sections 3.3 and 3.4).

use crate::config::VdevKind;
use crate::label::DeviceUse;
use rzfs_blockdev::{
    Access, BlockDevice, FileDevice, FileIdentity, MadeFile, OpenError, OpenOptions, without_number,
};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Directories searched for devices without an absolute path.
const DIRECTORIES: [&str; 8] = [
    "/dev",
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
];

/// A device for a new vdev, open for writing and locked against other writers, unless it is already
/// in use.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// The path recorded in the configuration.
    pub path: String,
    /// [`VdevKind::Disk`] or [`VdevKind::File`].
    pub kind: VdevKind,
    /// Identifies it among all devices.
    pub identity: FileIdentity,
    /// Read-only if it has another writer: then it is only good for [`VdevSpec::objections`].
    ///
    /// [`VdevSpec::objections`]: super::VdevSpec::objections
    pub access: Access,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

/// Why a device cannot be opened. The messages are OpenZFS's.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenFailure {
    /// Nothing has this name.
    #[error(
        "cannot open '{name}': no such device in /dev\nmust be a full path or shorthand device name"
    )]
    NoSuchDevice {
        /// The name.
        name: String,
    },
    /// It is neither a block device nor a regular file.
    #[error("cannot use '{path}': must be a block device or regular file")]
    NotADevice {
        /// Its path.
        path: String,
    },
    /// It is mounted, or open for writing elsewhere.
    #[error("{path} is in use{}", describe(*signature))]
    InUse {
        /// Its path.
        path: String,
        /// What it seems to hold.
        signature: Option<&'static str>,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// It was exchanged after its name was looked up.
    #[error("cannot use '{path}': it is another file now")]
    Exchanged {
        /// Its path.
        path: String,
    },
    /// The file cannot be created.
    #[error("cannot create '{path}': {}", without_number(source))]
    Create {
        /// Its path.
        path: String,
        /// The error of the system.
        source: Arc<io::Error>,
    },
}

fn is_labelled(device: &FileDevice) -> bool {
    DeviceUse::of(device) != DeviceUse::Unlabelled
}

fn describe(signature: Option<&str>) -> String {
    let name = signature.unwrap_or("unknown");
    format!(" and contains a {name} filesystem.")
}

/// The kind of vdev that a block device or regular file can be.
const fn kind_of(identity: FileIdentity) -> VdevKind {
    match identity {
        FileIdentity::BlockDevice { .. } => VdevKind::Disk,
        FileIdentity::RegularFile { .. } => VdevKind::File,
    }
}

/// Opens devices by name, each once, and creates missing files.
///
/// Files it has created are removed when it is dropped, unless [`Self::keep_files`] was called.
#[derive(Debug)]
pub struct DeviceOpener {
    options: OpenOptions,
    missing_file_size: Option<u64>,
    made: Vec<MadeFile>,
    opened: HashMap<FileIdentity, Arc<FileDevice>>,
}

impl DeviceOpener {
    /// An opener; `options` select the engine, access is always for writing. A missing file with an
    /// absolute path is created, sparse, of `missing_file_size` bytes, if given.
    #[must_use]
    pub fn new(options: OpenOptions, missing_file_size: Option<u64>) -> Self {
        let options = options.access(Access::ReadWrite);
        Self { options, missing_file_size, made: Vec::new(), opened: HashMap::new() }
    }

    /// Opens the device of this name: an absolute path, or a name below `/dev`. A second name of an
    /// open device returns the same device.
    ///
    /// # Errors
    /// [`OpenFailure`].
    pub fn open(&mut self, name: &str) -> Result<NewDevice, OpenFailure> {
        let path = self.find(name)?;
        let fail = |source: io::Error| OpenError::new(&path, source);
        let metadata = fs::metadata(&path).map_err(fail)?;
        let text = path.to_string_lossy().into_owned();
        let Some(identity) = FileIdentity::of(&metadata) else {
            return Err(OpenFailure::NotADevice { path: text });
        };
        let is_other = |made: &MadeFile| made.path() == path && !made.is(identity);
        if self.made.iter().any(is_other) {
            return Err(OpenFailure::Exchanged { path: text });
        }
        let known = self.opened.get(&identity).cloned();
        let device = match known {
            Some(device) => device,
            None => {
                let device = self.open_path(&path, text.clone())?;
                // A user with write access to the directory may have exchanged the file meanwhile.
                if FileIdentity::of(&device.metadata().map_err(fail)?) != Some(identity) {
                    return Err(OpenFailure::Exchanged { path: text });
                }
                device
            }
        };
        self.opened.insert(identity, Arc::clone(&device));
        let (kind, access) = (kind_of(identity), device.access());
        Ok(NewDevice { path: text, kind, identity, access, device })
    }

    /// Keeps the created files.
    pub fn keep_files(&mut self) {
        self.made.clear();
    }

    fn open_path(&self, path: &Path, text: String) -> Result<Arc<FileDevice>, OpenFailure> {
        match FileDevice::open(path, &self.options) {
            Ok(device) => Ok(Arc::new(device)),
            Err(error) if error.is_in_use() => {
                let readable = self.options.clone().access(Access::ReadOnly);
                let device = FileDevice::open(path, &readable).ok();
                match device {
                    // The owner in its label is more informative; it cannot be written.
                    Some(device) if path.is_file() && is_labelled(&device) => Ok(Arc::new(device)),
                    device => {
                        let signature = device.and_then(|device| super::signature(&device));
                        Err(OpenFailure::InUse { path: text, signature })
                    }
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn find(&mut self, name: &str) -> Result<PathBuf, OpenFailure> {
        let path = Path::new(name);
        if !path.is_absolute() {
            let places = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
            let found = places.into_iter().find(|place| place.exists());
            return found.ok_or_else(|| OpenFailure::NoSuchDevice { name: name.to_owned() });
        }
        if let Some(size) = self.missing_file_size.filter(|_| !path.exists()) {
            let made = MadeFile::create(path, size).map_err(|source| OpenFailure::Create {
                path: name.to_owned(),
                source: Arc::new(source),
            })?;
            self.made.push(made);
        }
        Ok(path.to_owned())
    }
}

impl Drop for DeviceOpener {
    fn drop(&mut self) {
        for made in &self.made {
            // The error cannot be reported; an empty file is left.
            let _ = made.remove();
        }
    }
}
