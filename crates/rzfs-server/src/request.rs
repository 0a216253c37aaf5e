//! Requests to serve a pool, in a form that can be passed to a background process: paths are
//! absolute, options parsed, key files read.

mod create;

pub use crate::service::Access;
pub use create::CreateRequest;

use crate::daemon::Input;
use crate::protocol::{Pair, Temporary};
use rzfs::setting::CacheFile;
use rzfs::{Secret, Tunables};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A request to a background process.
#[derive(Debug, Serialize, Deserialize)]
pub enum ServeRequest {
    /// A pool, as long as it is mounted.
    Mount(MountRequest),
    /// A new pool.
    Create(CreateRequest),
    /// A pool.
    Import(ImportRequest),
}

impl ServeRequest {
    /// Its use of standard input. Keys of a [`CreateRequest`] and those named on a command line
    /// have been read before.
    pub(crate) fn input(&self) -> Input {
        match self {
            Self::Import(request) if request.key_loading == KeyLoading::FilesAndInput => {
                Input::Shared
            }
            Self::Mount(_) | Self::Create(_) | Self::Import(_) => Input::Nothing,
        }
    }
}

/// A pool to be mounted, and its options.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountRequest {
    /// Devices, images, or directories to search for them.
    pub devices: Vec<PathBuf>,
    /// The directory for the root of the pool; without, every file system goes to its mount point.
    pub directory: Option<PathBuf>,
    /// Name or guid of the pool.
    pub pool: Option<String>,
    /// Whether to import a pool last used by another system.
    pub force: bool,
    /// The choice of file systems.
    pub choice: Choice,
    /// Keys in files named on the command line.
    pub keys: Vec<NamedKey>,
    /// The source of further keys.
    pub key_loading: KeyLoading,
    /// `-o`.
    pub options: MountOptions,
}

/// A pool to be imported until it is exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportRequest {
    /// Devices, images, or directories to search for them; by default OpenZFS's.
    pub devices: Vec<PathBuf>,
    /// Name or guid of the pool.
    pub pool: String,
    /// Its new name.
    pub new_name: Option<String>,
    /// Whether to import a destroyed pool.
    pub destroyed: bool,
    /// Whether to import a pool last used by another system.
    pub force: bool,
    /// Whether log devices may be missing.
    pub missing_logs: bool,
    /// Whether its file systems are mounted.
    pub mounts: bool,
    /// Which keys are loaded.
    pub key_loading: KeyLoading,
    /// Whether to open it for writing.
    pub access: Access,
    /// The temporary options of its mounts.
    pub temporary: Temporary,
    /// The directory below which its file systems are mounted.
    pub alternate_root: Option<PathBuf>,
    /// Properties to set.
    pub properties: Vec<Pair>,
    /// Its property `cachefile` while it is imported.
    pub cache_file: Option<CacheFile>,
    /// Its tunables.
    pub tunables: Tunables,
    /// The line for the pool's history.
    pub command: String,
}

/// Which keys are loaded, besides those named on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KeyLoading {
    /// None.
    Nothing,
    /// Those in files that property `keylocation` names.
    Files,
    /// Those in files, and the others from the terminal.
    FilesAndTerminal,
    /// Those in files, and the others from standard input.
    FilesAndInput,
}

/// Mount options.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MountOptions {
    /// Whether to open the pool for writing.
    pub access: Access,
    /// Admit other users, as far as permissions allow.
    pub allow_other: bool,
    /// The pool's tunables.
    pub tunables: Tunables,
    /// Mount only this snapshot.
    pub snapshot: Option<String>,
    /// Temporary options of mounts; `access` decides whether devices are written.
    pub temporary: Temporary,
}

/// The choice of file systems.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Choice {
    /// Those that OpenZFS mounts automatically.
    Automatic,
    /// All of them.
    All,
}

/// A key from a file named on a command line. The command itself reads it: the file may be a pipe,
/// or a descriptor that the background process does not get.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedKey {
    /// Its encryption root; without, every root that it fits.
    pub root: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// The contents.
    pub key: Secret,
}
