//! What a process is to serve, in a form that can be handed to the one in the background: paths are
//! absolute, options understood, files with keys read.

mod create;

pub use crate::service::Access;
pub use create::CreateRequest;

use crate::daemon::Input;
use crate::protocol::{Pair, Temporary};
use rzfs::setting::CacheFile;
use rzfs::{Secret, Tunables};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What a process in the background is to serve.
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
    /// What it needs of standard input. Keys of a [`CreateRequest`] and those that a command line
    /// names were read before.
    pub(crate) fn input(&self) -> Input {
        match self {
            Self::Import(request) if request.key_loading == KeyLoading::FilesAndInput => {
                Input::Shared
            }
            Self::Mount(_) | Self::Create(_) | Self::Import(_) => Input::Nothing,
        }
    }
}

/// What is to be mounted, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountRequest {
    /// Devices, images, or directories to search for them.
    pub devices: Vec<PathBuf>,
    /// Where the root of the pool goes; without, every file system goes to its mount point.
    pub directory: Option<PathBuf>,
    /// Name or guid of the pool.
    pub pool: Option<String>,
    /// Whether to import a pool that another system had last.
    pub force: bool,
    /// Which file systems.
    pub choice: Choice,
    /// Keys in files that the command line names.
    pub keys: Vec<NamedKey>,
    /// Who types passphrases.
    pub key_loading: KeyLoading,
    /// `-o`.
    pub options: MountOptions,
}

/// A pool that is to be imported until it is exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ImportRequest {
    /// Devices, images, or directories to search for them; else where OpenZFS looks.
    pub devices: Vec<PathBuf>,
    /// Name or guid of the pool.
    pub pool: String,
    /// The name that it gets.
    pub new_name: Option<String>,
    /// Whether it is one that was destroyed.
    pub destroyed: bool,
    /// Whether to import a pool that another system had last.
    pub force: bool,
    /// Whether log devices may be missing.
    pub missing_logs: bool,
    /// Whether its file systems are mounted.
    pub mounts: bool,
    /// Which keys are loaded.
    pub key_loading: KeyLoading,
    /// Whether it is imported to be changed.
    pub access: Access,
    /// What its mounts do otherwise than properties say.
    pub temporary: Temporary,
    /// The directory below which its file systems are mounted.
    pub alternate_root: Option<PathBuf>,
    /// Properties that it gets.
    pub properties: Vec<Pair>,
    /// What `cachefile` says of it while it is imported.
    pub cache_file: Option<CacheFile>,
    /// What of it is tuned.
    pub tunables: Tunables,
    /// The line for the pool's history.
    pub command: String,
}

/// Which keys are loaded, besides those that the command line names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KeyLoading {
    /// None.
    Nothing,
    /// Those in files that property `keylocation` names.
    Files,
    /// Those in files, and somebody at a terminal is asked for the others.
    FilesAndTerminal,
    /// Those in files, and the others come from standard input.
    FilesAndInput,
}

/// Mount options.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MountOptions {
    /// Whether anything is written.
    pub access: Access,
    /// Other users get in, as far as permissions let them.
    pub allow_other: bool,
    /// What of the pool is tuned.
    pub tunables: Tunables,
    /// This snapshot is mounted, and nothing else.
    pub snapshot: Option<String>,
    /// What mounts do otherwise than properties say; whether anything is written to the devices is
    /// up to `access`.
    pub temporary: Temporary,
}

/// How file systems are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Choice {
    /// Those that OpenZFS mounts by itself.
    Automatic,
    /// All of them.
    All,
}

/// A key from a file that a command line names. The command itself reads it: the file may be a pipe,
/// or a descriptor that the process in the background does not get.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedKey {
    /// The encryption root that it is for; without, every root that it fits.
    pub root: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// What is in it.
    pub key: Secret,
}
