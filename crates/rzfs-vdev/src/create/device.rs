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

/// Where a device is looked for that is not named by an absolute path.
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

/// A device for a new vdev, open for writing and kept from other writers, unless it is somebody
/// else's already.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// The path that the configuration remembers.
    pub path: String,
    /// [`VdevKind::Disk`] or [`VdevKind::File`].
    pub kind: VdevKind,
    /// What tells it from all others.
    pub identity: FileIdentity,
    /// For reading only if somebody else writes it: it is good for [`VdevSpec::objections`] only.
    ///
    /// [`VdevSpec::objections`]: super::VdevSpec::objections
    pub access: Access,
    /// The device.
    pub device: Arc<dyn BlockDevice>,
}

/// Why a device cannot be had. The messages are OpenZFS's.
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
    /// It is mounted, or somebody writes it.
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
    /// Somebody has exchanged it since its name was looked up.
    #[error("cannot use '{path}': it is another file now")]
    Exchanged {
        /// Its path.
        path: String,
    },
    /// The file cannot be made.
    #[error("cannot create '{path}': {}", without_number(source))]
    Create {
        /// Its path.
        path: String,
        /// What the system says.
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

/// Opens devices by name, each once, and makes files that are not there.
///
/// Files that it has made are removed again when it is dropped, unless [`Self::keep_files`] was
/// called.
#[derive(Debug)]
pub struct DeviceOpener {
    options: OpenOptions,
    missing_file_size: Option<u64>,
    made: Vec<MadeFile>,
    opened: HashMap<FileIdentity, Arc<FileDevice>>,
}

impl DeviceOpener {
    /// An opener; `options` choose the engine, access is always for writing. A missing file with
    /// an absolute path is made, sparse, of `missing_file_size` bytes, if that is given.
    #[must_use]
    pub fn new(options: OpenOptions, missing_file_size: Option<u64>) -> Self {
        let options = options.access(Access::ReadWrite);
        Self { options, missing_file_size, made: Vec::new(), opened: HashMap::new() }
    }

    /// Opens the device of this name: an absolute path, or a name below `/dev`. A second name of
    /// an open device gives the same device.
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
                // Who may write the directory may have put another one there meanwhile.
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

    /// Keeps the files that were made.
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
                    // Whose it is says more; it cannot be written.
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
            // Nobody can be told; an empty file is left.
            let _ = made.remove();
        }
    }
}
