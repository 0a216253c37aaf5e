//! From a target on the command line to an open file system or volume.

use super::arguments::PoolArguments;
use super::complaints::Complaints;
use crate::console::Failure;
use crate::mount::request::keys_of_process;
use crate::mount::{Attendant, read_named_keys};
use crate::source::{Advice, import_failure};
use rzfs::dsl::dataset::{Dataset, DatasetError, DatasetKind};
use rzfs::dsl::import::Discovery;
use rzfs::zpl::{ReadAhead, Volume, ZplError};
use rzfs::{File, FileError, FileTree, OpenError, Pool, PoolOptions, ShownPath};
use rzfs_server::request::NamedKey;
use rzfs_server::{KeyError, keys};
use std::ffi::OsStr;
use std::sync::Arc;

/// The format of a target.
const PLACES: &str = "a place is POOL/FILESYSTEM[@SNAPSHOT]:/PATH";

/// The pools of the targets of one command.
pub(super) struct Session<'a> {
    arguments: &'a PoolArguments,
    keys: Vec<NamedKey>,
    found: Discovery,
    pools: Vec<Pool>,
    /// Opened file systems, since the next target may be in the same.
    trees: Vec<FileTree>,
    read_ahead: Arc<ReadAhead>,
}

/// An opened target.
pub(super) enum Opened {
    /// A path in a file system.
    Path(FileTree, Vec<u8>),
    /// A volume; its name.
    Volume(String, File),
}

impl<'a> Session<'a> {
    /// Examines the devices.
    pub(super) fn begin(
        arguments: &'a PoolArguments,
        complaints: &mut Complaints<'_, '_>,
    ) -> Result<Self, Failure> {
        let keys = read_named_keys(&arguments.keys)?;
        let found = options(arguments).discover();
        // The other devices may suffice; if not, the import fails.
        for error in found.unopened() {
            complaints.console.complain(error);
        }
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        let read_ahead =
            ReadAhead::start(threads).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Self { arguments, keys, found, pools: Vec::new(), trees: Vec::new(), read_ahead })
    }

    /// Opens a target. `None` if it cannot be opened, which was reported.
    pub(super) fn open(
        &mut self,
        target: &OsStr,
        complaints: &mut Complaints<'_, '_>,
    ) -> Option<Opened> {
        match self.try_open(target.as_encoded_bytes(), complaints) {
            Ok(opened) => Some(opened),
            Err(Failure::Failed(message)) => {
                complaints.say(message);
                None
            }
            // All other failures below have been reported.
            Err(_) => None,
        }
    }

    fn try_open(
        &mut self,
        target: &[u8],
        complaints: &mut Complaints<'_, '_>,
    ) -> Result<Opened, Failure> {
        let shown = ShownPath(target);
        let candidates = candidates(target);
        // It is a path, or a file name after that of its file system.
        let is_place = candidates.len() > 1 || target.iter().all(|byte| !b"/:".contains(byte));
        let missing = || {
            let advice = if is_place { String::new() } else { format!("\n{PLACES}") };
            Failure::Failed(format!("cannot open '{shown}': dataset does not exist{advice}"))
        };
        if matches!(target.first(), None | Some(b'/' | b':' | b'@')) {
            return Err(Failure::Failed(format!("cannot open '{shown}': {PLACES}")));
        }
        for (name, path) in candidates {
            let pool_name = name.split(['/', '@']).next().unwrap_or_default();
            let index = self.pool(pool_name, complaints)?;
            let pool = self.pools.get(index).ok_or_else(missing)?;
            match pool.datasets().open(name) {
                Ok(dataset) => return self.open_dataset(index, &dataset, path, complaints),
                Err(DatasetError::NotFound { .. }) => {}
                Err(error) => return Err(Failure::Failed(format!("{name}: {error}"))),
            }
        }
        Err(missing())
    }

    /// The position of the pool with this name, which is opened if necessary.
    fn pool(&mut self, name: &str, complaints: &mut Complaints<'_, '_>) -> Result<usize, Failure> {
        if let Some(index) = self.pools.iter().position(|pool| pool.name() == name) {
            return Ok(index);
        }
        let pool = options(self.arguments).pool(name).open_among(&self.found);
        let pool = pool.map_err(|error| {
            Failure::Failed(match error {
                OpenError::Import(failure) => {
                    let forced = format!("rzfs {} -f", complaints.command());
                    import_failure(&failure, Advice::of_forced(&forced))
                }
                error => error.to_string(),
            })
        })?;
        keys::load_named(&pool, &self.keys).map_err(not_loaded)?;
        self.pools.push(pool);
        Ok(self.pools.len() - 1)
    }

    fn open_dataset(
        &mut self,
        pool: usize,
        dataset: &Dataset,
        path: Option<&[u8]>,
        complaints: &mut Complaints<'_, '_>,
    ) -> Result<Opened, Failure> {
        let name = dataset.name();
        if let Some(tree) = self.trees.iter().find(|tree| tree.dataset() == name) {
            return Ok(Opened::Path(tree.clone(), path.unwrap_or(b"/").to_vec()));
        }
        let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("{name}: {error}"));
        let mut attendant = Attendant::new(complaints.console);
        if !keys::obtain(dataset, keys_of_process(), &mut attendant).map_err(not_loaded)? {
            return Err(Failure::Failed(format!("cannot open '{name}': its key is not loaded")));
        }
        if dataset.kind().map_err(|error| failed(&error))? == DatasetKind::Volume {
            if path.is_some() {
                return Err(failed(&"is a volume, which has no files"));
            }
            let volume = Volume::of_dataset(dataset, Some(Arc::clone(&self.read_ahead)));
            let volume = volume.map_err(|error: ZplError| failed(&error))?;
            return Ok(Opened::Volume(name.to_owned(), File::of_volume(name, volume)));
        }
        let gone = || failed(&"the pool is gone");
        let pool = self.pools.get(pool).ok_or_else(gone)?;
        let tree = FileTree::of_dataset(pool, dataset, Some(Arc::clone(&self.read_ahead)));
        let tree = tree.map_err(|error: FileError| Failure::Failed(error.to_string()))?;
        self.trees.push(tree.clone());
        Ok(Opened::Path(tree, path.unwrap_or(b"/").to_vec()))
    }
}

fn not_loaded(error: KeyError) -> Failure {
    Failure::Failed(error.to_string())
}

fn options(arguments: &PoolArguments) -> PoolOptions {
    let options = PoolOptions::new().device_paths(&arguments.devices);
    if arguments.force { options.force() } else { options }
}

/// The ways to split a target into dataset and path, the shortest dataset first: dataset names may
/// contain colons too.
fn candidates(target: &[u8]) -> Vec<(&str, Option<&[u8]>)> {
    let divided = target.windows(2).enumerate().filter(|(_, pair)| pair == b":/").map(|(at, _)| at);
    let mut candidates: Vec<_> = divided.filter_map(|at| target.split_at_checked(at)).collect();
    if let Some(name) = target.strip_suffix(b":") {
        candidates.push((name, b":/"));
    }
    candidates.push((target, b""));
    let candidates = candidates.into_iter().filter_map(|(name, rest)| {
        Some((std::str::from_utf8(name).ok()?, rest.strip_prefix(b":")))
    });
    candidates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_dataset_and_a_path() {
        let whole = |target: &'static str| candidates(target.as_bytes());
        assert_eq!(whole("a/b@c:/d/e")[0], ("a/b@c", Some(&b"/d/e"[..])));
        assert_eq!(whole("a/vol"), [("a/vol", None)]);
        assert_eq!(whole("a:"), [("a", Some(&b"/"[..])), ("a:", None)]);
        let odd = whole("a:/b:/c");
        assert_eq!(odd[..2], [("a", Some(&b"/b:/c"[..])), ("a:/b", Some(&b"/c"[..]))]);
        assert!(candidates(b"\xff:/x").is_empty());
    }
}
