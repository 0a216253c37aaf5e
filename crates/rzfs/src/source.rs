//! Pools and keys as the command line names them.

use rzfs_blockdev::OpenOptions;
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError, KeyStatus};
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportFailure, ImportOptions};
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

/// Where to find a pool, and how to unlock it.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// Import the pool even if another system had it last.
    #[arg(short, long)]
    force: bool,
    /// The pool's name or guid, where the devices have several.
    #[arg(short, long, value_name = "POOL")]
    pool: Option<String>,
    /// A file with the key of an encryption root; without FS for every root that it fits.
    #[arg(short, long = "key", value_name = "[FS=]KEYFILE")]
    keys: Vec<KeyFile>,
}

/// A key file, and the encryption root that it is for.
#[derive(Clone, Debug)]
struct KeyFile {
    root: Option<String>,
    path: PathBuf,
}

impl FromStr for KeyFile {
    type Err = std::convert::Infallible;

    fn from_str(argument: &str) -> Result<Self, Self::Err> {
        Ok(match argument.split_once('=') {
            Some((root, path)) if !root.contains('/') || !root.starts_with(['.', '/']) => {
                Self { root: Some(root.to_owned()), path: path.into() }
            }
            _ => Self { root: None, path: argument.into() },
        })
    }
}

/// Why a pool cannot be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    #[error("no pools available to import")]
    NoPools,
    #[error("cannot import '{name}': no such pool available")]
    NoSuchPool { name: String },
    #[error("the devices have several pools ({}): choose one with --pool", names.join(", "))]
    SeveralPools { names: Vec<String> },
    #[error(transparent)]
    Import(#[from] ImportFailure),
    #[error("{path}: {source}", path = path.display())]
    KeyFile { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

impl Source {
    /// Imports the pool on these devices (or images, or directories of them) read-only.
    pub(crate) fn import(
        &self,
        devices: &[PathBuf],
        arc_max: Option<u64>,
    ) -> Result<Pool, SourceError> {
        let sources: Vec<_> = devices.iter().cloned().map(DeviceSource::Path).collect();
        let found = Discovery::search(&sources, &OpenOptions::new());
        for error in found.unopened() {
            eprintln!("{error}");
        }
        let candidates: Vec<_> = match &self.pool {
            Some(name) => found.matching(name).collect(),
            None => found.pools().iter().collect(),
        };
        let pool = match (candidates.as_slice(), &self.pool) {
            ([pool], _) => *pool,
            ([], Some(name)) => return Err(SourceError::NoSuchPool { name: name.clone() }),
            ([], None) => return Err(SourceError::NoPools),
            (several, _) => {
                let names = several.iter().map(|pool| pool.name().to_owned()).collect();
                return Err(SourceError::SeveralPools { names });
            }
        };
        let mut options = ImportOptions::default();
        if self.force {
            options.host_check = HostCheck::Override;
        }
        if let Some(arc_max) = arc_max {
            options.arc_max = arc_max;
        }
        Ok(Pool::import(pool, &options)?)
    }

    /// Loads the keys that were named into the encryption roots that they fit.
    pub(crate) fn load_keys(&self, datasets: &[Dataset]) -> Result<(), SourceError> {
        for key in &self.keys {
            let path = key.path.clone();
            let input =
                std::fs::read(&key.path).map_err(|source| SourceError::KeyFile { path, source })?;
            for dataset in datasets {
                if dataset.key_status()? != KeyStatus::Unavailable {
                    continue;
                }
                let Some(root) = dataset.encryption_root()? else { continue };
                match (&key.root, root.load_key(&input)) {
                    (Some(name), Err(error)) if name == root.name() => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
