//! A pool and its mounts.

use super::MountOptions;
use super::plan::PlannedMount;
use crate::console::{Console, Failure};
use crate::daemon::{Completeness, Mounted};
use rzfs::Pool;
use rzfs::protocol::{Answer, MountReport, Refusal, Request};
use rzfs::service::PoolService;
use rzfs_dsl::dataset::Dataset;
use rzfs_fuse::{Access, InUse, Mount, Nested};
use rzfs_zpl::{
    ControlTree, DatasetSnapshots, FileCaches, FileSystem, FileSystemOptions, ReadAhead,
};
use std::any::Any;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long to wait for the last answers of a mount that was detached.
const PATIENCE: Duration = Duration::from_millis(500);

/// A pool with at least one mount.
#[derive(Debug)]
pub(super) struct MountedPool {
    completeness: Completeness,
    /// Nothing when it is unmounted.
    open: RwLock<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    service: PoolService,
    /// In the order of mounting.
    mounts: Vec<DatasetMount>,
}

#[derive(Debug)]
struct DatasetMount {
    dataset: String,
    mount: Mount,
    /// The datasets that share the mount, and where in it they are.
    grafted: Vec<(String, PathBuf)>,
    /// The directory was made for the mount.
    is_made: bool,
}

/// What all mounts of a pool share.
struct Common<'a> {
    pool_version: u64,
    read_ahead: Arc<ReadAhead>,
    caches: FileCaches,
    threads: usize,
    options: &'a MountOptions,
    while_mounted: Arc<dyn Any + Send + Sync>,
}

impl MountedPool {
    /// Mounts what is planned. What cannot be mounted is complained about, unless it is
    /// everything.
    pub(super) fn mount(
        pool: Pool,
        planned: &[(Dataset, PlannedMount)],
        options: &MountOptions,
        while_mounted: Arc<dyn Any + Send + Sync>,
        console: &mut Console<'_>,
    ) -> Result<Self, Failure> {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let read_ahead = ReadAhead::start(threads).map_err(super::failed)?;
        let pool_version = pool.version();
        let caches = FileCaches::default();
        let common = Common { pool_version, read_ahead, caches, threads, options, while_mounted };
        let nesting = Nesting::possible(options);
        let (mut mounts, mut failures) = (Vec::new(), Vec::new());
        for one in planned {
            let is_inner = planned.iter().any(|other| other.1.surrounds(&one.1));
            if nesting == Nesting::Grafts && is_inner {
                continue;
            }
            let inside = planned.iter().filter(|other| one.1.surrounds(&other.1)).collect();
            match common.mount(one, inside, nesting, &mut failures) {
                Ok(mount) => mounts.push(mount),
                Err(message) => failures.push(message),
            }
        }
        for message in &failures {
            console.complain(message);
        }
        if mounts.is_empty() {
            return Err(Failure::Told);
        }
        let completeness = match failures.is_empty() {
            true => Completeness::Complete,
            false => Completeness::Partial,
        };
        let open = Open { service: PoolService::new(pool), mounts };
        Ok(Self { completeness, open: RwLock::new(Some(open)) })
    }

    /// Whether everything is mounted that was planned.
    pub(super) const fn completeness(&self) -> Completeness {
        self.completeness
    }
}

/// How file systems get into others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Nesting {
    /// Each has a mount of its own.
    Mounts,
    /// They share the mount of the outermost.
    Grafts,
}

impl Nesting {
    /// Only root can mount on a mount that is closed to all but its owner: `fusermount3` acts for
    /// the owner, but with the rights of root, which the kernel keeps out.
    fn possible(options: &MountOptions) -> Self {
        match options.allow_other || rustix::process::geteuid().is_root() {
            true => Self::Mounts,
            false => Self::Grafts,
        }
    }
}

/// A file system and where it goes.
type Planned = (Dataset, PlannedMount);

impl Common<'_> {
    /// Mounts a file system; `inside` are those that go below it. What cannot be grafted is added
    /// to `failures`.
    fn mount(
        &self,
        (dataset, plan): &Planned,
        inside: Vec<&Planned>,
        nesting: Nesting,
        failures: &mut Vec<String>,
    ) -> Result<DatasetMount, String> {
        let name = dataset.name();
        let cannot = |error: &dyn Display| format!("cannot mount '{name}': {error}");
        let (file_system, control) = self.open(dataset).map_err(|error| cannot(&error))?;
        let (directory, is_made) = place(&plan.mountpoint)
            .map_err(|error| cannot(&format_args!("{}: {error}", plan.mountpoint.display())))?;
        let mut options = rzfs_fuse::MountOptions {
            source: name.to_owned(),
            access: if self.options.allow_other { Access::Everyone } else { Access::Owner },
            restrictions: rzfs_fuse::Restrictions::default(),
            threads: self.threads,
            mount_points: Vec::new(),
            while_mounted: Some(Arc::clone(&self.while_mounted)),
        };
        let (mut grafted, mut reports) = (Vec::new(), Vec::new());
        match nesting {
            Nesting::Mounts => options.mount_points = next_below(plan, &inside),
            Nesting::Grafts => {
                for (dataset, inner) in inside {
                    match self.graft(dataset, inner, plan) {
                        Ok(nested) => {
                            reports.push((dataset.name().to_owned(), nested.path.clone()));
                            grafted.push(nested);
                        }
                        Err(message) => failures.push(message),
                    }
                }
            }
        }
        let mount = Mount::with_nested(file_system, control, grafted, &directory, &options);
        let mount = mount.map_err(|error| cannot(&error))?;
        Ok(DatasetMount { dataset: name.to_owned(), mount, grafted: reports, is_made })
    }

    fn graft(
        &self,
        dataset: &Dataset,
        plan: &PlannedMount,
        outer: &PlannedMount,
    ) -> Result<Nested, String> {
        let cannot = |error: &dyn Display| format!("cannot mount '{}': {error}", dataset.name());
        let (file_system, control) = self.open(dataset).map_err(|error| cannot(&error))?;
        let path = plan.mountpoint.strip_prefix(&outer.mountpoint);
        let path = path.map_err(|error| cannot(&error))?.to_owned();
        Ok(Nested { path, file_system: file_system.into(), control })
    }

    /// Opens a file system, with its `.zfs` unless it is a snapshot.
    fn open(
        &self,
        dataset: &Dataset,
    ) -> Result<(Arc<FileSystem>, Option<ControlTree>), Box<dyn std::error::Error>> {
        let mut options = FileSystemOptions::of_dataset(dataset, self.pool_version)?;
        options.read_ahead = Some(Arc::clone(&self.read_ahead));
        options.caches = self.caches.clone();
        let file_system = Arc::new(FileSystem::open(dataset.open_objset()?, options)?);
        let control = (!dataset.is_snapshot()).then(|| {
            let read_ahead = Some(Arc::clone(&self.read_ahead));
            let (version, caches) = (self.pool_version, self.caches.clone());
            let snapshots = DatasetSnapshots::new(dataset.clone(), version, read_ahead, caches);
            ControlTree::new(Arc::clone(&file_system), Box::new(snapshots))
        });
        Ok((file_system, control))
    }
}

/// Where below a mount the next mounts are: relative paths.
fn next_below(outer: &PlannedMount, inside: &[&Planned]) -> Vec<PathBuf> {
    let is_next = |one: &&&Planned| !inside.iter().any(|between| between.1.surrounds(&one.1));
    let paths = inside.iter().filter(is_next).map(|one| one.1.mountpoint.as_path());
    let relative = paths.filter_map(|path| path.strip_prefix(&outer.mountpoint).ok());
    relative.map(Path::to_owned).collect()
}

/// The directory to mount at, without symbolic links, and whether it had to be made.
fn place(directory: &Path) -> std::io::Result<(PathBuf, bool)> {
    let is_missing = !directory.try_exists()?;
    if is_missing {
        std::fs::create_dir_all(directory)?;
    }
    Ok((directory.canonicalize()?, is_missing))
}

impl Mounted for MountedPool {
    fn answer(&self, request: Request) -> Answer {
        match self.open.read().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(open) => open.service.answer(&request, &open.reports()),
            None => Answer::Failed(Refusal { message: "the pool is unmounted".to_owned() }),
        }
    }

    fn unmount(&self, force: bool) -> Result<(), Refusal> {
        let mut state = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = state.as_mut() {
            open.unmount(if force { InUse::Detach } else { InUse::Refuse })?;
        }
        *state = None;
        Ok(())
    }
}

impl Open {
    fn reports(&self) -> Vec<MountReport> {
        let report = |dataset: &str, directory: &Path| MountReport {
            dataset: dataset.to_owned(),
            mountpoint: directory.to_string_lossy().into_owned(),
        };
        let mut reports = Vec::new();
        for one in self.mounts.iter().filter(|one| !one.mount.is_finished()) {
            let directory = one.mount.directory();
            reports.push(report(&one.dataset, directory));
            let grafted = one.grafted.iter();
            reports.extend(grafted.map(|(name, path)| report(name, &directory.join(path))));
        }
        reports
    }

    /// Ends the mounts, the deepest first. Those that are gone when one is in use stay so.
    fn unmount(&mut self, in_use: InUse) -> Result<(), Refusal> {
        while let Some(last) = self.mounts.last() {
            last.mount.request_unmount(in_use).map_err(|error| Refusal {
                message: match error.is_in_use() {
                    true => format!(
                        "cannot unmount '{}': pool or dataset is busy",
                        error.directory().display()
                    ),
                    false => error.to_string(),
                },
            })?;
            self.mounts.pop().into_iter().for_each(DatasetMount::finish);
        }
        Ok(())
    }
}

impl DatasetMount {
    /// Waits for the last answers, and removes the directory if it was made for the mount.
    fn finish(self) {
        let directory = self.mount.directory().to_owned();
        let start = Instant::now();
        while !self.mount.is_finished() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.mount.abandon();
        if self.is_made {
            // Somebody may have put something there.
            let _ = std::fs::remove_dir(directory);
        }
    }
}
