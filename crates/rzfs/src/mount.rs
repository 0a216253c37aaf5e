//! `rzfs mount`: every file system of a pool below a directory.

use crate::source::{Source, SourceError};
use rzfs_dsl::Pool;
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, KeyStatus};
use rzfs_fuse::{Access, Mount, MountError, MountOptions};
use rzfs_zpl::{ControlTree, DatasetSnapshots, FileSystem, ReadAhead, ZplError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How often to look whether somebody else has ended the mounts.
const POLL: Duration = Duration::from_millis(250);

/// Arguments of `rzfs mount`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Mount also what has canmount=off or noauto, or mountpoint=none or legacy.
    #[arg(short, long)]
    all: bool,
    /// Let other users in, as far as the files' permissions let them.
    #[arg(long)]
    allow_other: bool,
    /// Most bytes of block contents to keep in memory.
    #[arg(long, value_name = "BYTES")]
    arc_max: Option<u64>,
    /// Devices or images of the pool, or directories that have them; then the directory to mount
    /// below.
    #[arg(required = true, num_args = 2.., value_name = "DEVICE... DIR")]
    paths: Vec<PathBuf>,
}

/// Why nothing is mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    FileSystem(Box<ZplError>),
    #[error(transparent)]
    Mount(#[from] MountError),
    #[error("cannot wait for signals: {0}")]
    Signals(#[from] io::Error),
    #[error("nothing to mount: a directory is needed behind the devices")]
    NoDirectory,
}

impl From<ZplError> for Failure {
    fn from(error: ZplError) -> Self {
        Self::FileSystem(Box::new(error))
    }
}

/// Mounts, and unmounts at SIGINT or SIGTERM.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let Some((directory, devices)) = arguments.paths.split_last() else {
        return Err(Failure::NoDirectory);
    };
    let pool = arguments.source.import(devices, arguments.arc_max)?;
    if pool.unreplayed_logs().is_ok_and(|logs| !logs.is_empty()) {
        eprintln!(
            "{}: the intent log was not replayed; this is the pool as of txg {}",
            pool.name(),
            pool.txg()
        );
    }
    let datasets = pool.datasets().root()?.descendants()?;
    arguments.source.load_keys(&datasets)?;
    let mut mounts = Vec::new();
    let result =
        mount_all(arguments, &pool, &datasets, directory, &mut mounts).and_then(|()| wait(&mounts));
    // The deepest first.
    while let Some(mount) = mounts.pop() {
        if !mount.is_finished() {
            mount.unmount()?;
        }
    }
    result
}

fn mount_all(
    arguments: &Arguments,
    pool: &Pool,
    datasets: &[Dataset],
    directory: &Path,
    mounts: &mut Vec<Mount>,
) -> Result<(), Failure> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let read_ahead = ReadAhead::start(threads)?;
    for dataset in datasets {
        if dataset.kind()? != DatasetKind::FileSystem || !(arguments.all || mounts_itself(dataset)?)
        {
            continue;
        }
        if dataset.key_status()? == KeyStatus::Unavailable {
            eprintln!("{}: left out, its key is not loaded", dataset.name());
            continue;
        }
        let mut options = rzfs_zpl::FileSystemOptions::of_dataset(dataset, pool.version())?;
        options.read_ahead = Some(Arc::clone(&read_ahead));
        let objset = dataset.open_objset()?;
        let file_system = Arc::new(FileSystem::open(objset, options)?);
        let snapshots =
            DatasetSnapshots::new(dataset.clone(), pool.version(), Some(Arc::clone(&read_ahead)));
        let control = ControlTree::new(Arc::clone(&file_system), Box::new(snapshots));
        let access = if arguments.allow_other { Access::Everyone } else { Access::Owner };
        let options = MountOptions { source: dataset.name().to_owned(), access, threads };
        let place = place_of(directory, dataset);
        match Mount::new(file_system, Some(control), &place, &options) {
            Ok(mount) => mounts.push(mount),
            // The pool's own root has to be there, the rest is mounted as far as it goes.
            Err(error) if mounts.is_empty() => return Err(error.into()),
            Err(error) => eprintln!("{}: {error}", dataset.name()),
        }
    }
    Ok(())
}

/// Whether `zfs mount -a` would mount it.
fn mounts_itself(dataset: &Dataset) -> Result<bool, DatasetError> {
    let at = dataset.text("mountpoint")?;
    Ok(dataset.text("canmount")? == "on" && at != "none" && at != "legacy")
}

/// `POOL/a/b` goes to `DIR/a/b`.
fn place_of(directory: &Path, dataset: &Dataset) -> PathBuf {
    match dataset.name().split_once('/') {
        Some((_, below)) => directory.join(below),
        None => directory.to_owned(),
    }
}

/// Waits for a signal, or until somebody has unmounted everything.
fn wait(mounts: &[Mount]) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        loop {
            tokio::select! {
                _ = interrupt.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
                () = tokio::time::sleep(POLL) => {
                    if mounts.iter().all(Mount::is_finished) {
                        return Ok(());
                    }
                }
            }
        }
    })
}
