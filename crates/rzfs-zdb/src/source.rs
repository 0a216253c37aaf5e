//! Opens the pool given on the command line.

use super::Arguments;
use super::error::ZdbError;
use rzfs::{load_matching_key, plain_file};
use rzfs_blockdev::{OpenOptions, without_number};
use rzfs_dsl::import::{
    ActivityCheck, DeviceSource, Discovery, HostCheck, ImportOptions, ImportTarget,
    LoadVerification, MissingLogs, RewindPolicy, SelectError,
};
use rzfs_dsl::pool::Pool;
use rzfs_format::Txg;
use rzfs_format::nvlist::NvList;
use std::path::{Path, PathBuf};

/// OpenZFS's cache file of imported pools.
const DEFAULT_CACHE_FILE: &str = "/etc/zfs/zpool.cache";

/// Larger than any cache file, in bytes; real ones have kilobytes.
const MAX_CACHE_FILE: u64 = 64 << 20;

/// The pool of a dataset's name.
pub(crate) fn pool_name(target: &str) -> &str {
    target.split(['/', '@', '#']).next().unwrap_or(target)
}

/// The cache file for a command line.
pub(crate) fn cache_file(arguments: &Arguments) -> &Path {
    arguments.cache_file.as_deref().unwrap_or(Path::new(DEFAULT_CACHE_FILE))
}

/// Reads a cache file: a list of the configurations of pools.
pub(crate) fn read_cache_file(path: &Path) -> Result<NvList, ZdbError> {
    let open = |reason: String| ZdbError::Open { path: path.to_owned(), reason };
    let bytes =
        plain_file::read(path, MAX_CACHE_FILE).map_err(|error| open(without_number(&error)))?;
    NvList::decode(&bytes).map_err(|error| open(error.to_string()))
}

/// Opens the pool with this name or guid, according to the command line.
pub(crate) fn open(arguments: &Arguments, name: &str) -> Result<Pool, ZdbError> {
    open_target(arguments, name, target(arguments))
}

/// Loads a key wherever it fits: a passphrase, or a key in hex digits.
pub(crate) fn load_key(pool: &Pool, key: &str) -> Result<(), ZdbError> {
    let mut loaded = load_matching_key(pool, key.as_bytes())?;
    if let Some(raw) = hex(key) {
        loaded += load_matching_key(pool, &raw)?;
    }
    if loaded == 0 {
        return Err(ZdbError::Usage(format!("the key fits no dataset of '{}'", pool.name())));
    }
    Ok(())
}

/// The bytes given by pairs of digits.
fn hex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    if digits.len().is_multiple_of(2) { pairs.map(byte).collect() } else { None }
}

fn target(arguments: &Arguments) -> ImportTarget {
    match arguments.txg {
        _ if arguments.checkpoint > 0 => ImportTarget::Checkpoint,
        Some(txg) => ImportTarget::Txg(Txg(txg)),
        None => ImportTarget::Newest,
    }
}

fn open_target(arguments: &Arguments, name: &str, target: ImportTarget) -> Result<Pool, ZdbError> {
    let sources = sources(arguments, name)?;
    let discovery = Discovery::search(&sources, &OpenOptions::default());
    let matching: Vec<_> = discovery.matching(name).collect();
    let select = |source| ZdbError::Select { name: name.to_owned(), source };
    let name_of = || name.to_owned();
    let discovered = match matching.as_slice() {
        [] => {
            let not_found = || select(SelectError::NotFound { name: name_of() });
            // Missing default places are not reported.
            let unopened = discovery.unopened().first().filter(|_| !arguments.paths.is_empty());
            return Err(unopened.cloned().map_or_else(not_found, ZdbError::Device));
        }
        [one] => one,
        several => {
            let guids = several.iter().map(|pool| pool.guid()).collect();
            return Err(select(SelectError::Ambiguous { name: name_of(), guids }));
        }
    };
    Pool::import(discovered, &options(arguments, target))
        .map_err(|source| ZdbError::Import { name: name_of(), source: Box::new(source) })
}

/// Import options for examining damage: no host or activity check prevents it, and missing logs or
/// damaged data are accepted.
fn options(arguments: &Arguments, target: ImportTarget) -> ImportOptions {
    ImportOptions {
        target,
        rewind: match (arguments.extreme_rewind, arguments.rewind) {
            (1.., _) => RewindPolicy::Extreme,
            (_, 1..) => RewindPolicy::Rewind,
            _ => RewindPolicy::Never,
        },
        host_check: HostCheck::Override,
        activity: ActivityCheck::Skip,
        missing_logs: MissingLogs::Ignore,
        verification: LoadVerification::None,
        ..ImportOptions::default()
    }
}

/// The devices of the pool: in the given directories, else in the default ones, else from the cache
/// file.
fn sources(arguments: &Arguments, name: &str) -> Result<Vec<DeviceSource>, ZdbError> {
    if !arguments.paths.is_empty() {
        return Ok(arguments.paths.iter().cloned().map(DeviceSource::from).collect());
    }
    if arguments.exported > 0 {
        return Ok(DeviceSource::defaults());
    }
    let not_found = || ZdbError::Select {
        name: name.to_owned(),
        source: SelectError::NotFound { name: name.to_owned() },
    };
    let cache = read_cache_file(cache_file(arguments)).map_err(|_| not_found())?;
    let config = cache.list(name).map_err(|_| not_found())?;
    let mut paths = Vec::new();
    if let Ok(tree) = config.list("vdev_tree") {
        collect_paths(tree, &mut paths);
    }
    Ok(paths.into_iter().map(DeviceSource::from).collect())
}

fn collect_paths(vdev: &NvList, paths: &mut Vec<PathBuf>) {
    if let Ok(path) = vdev.string("path") {
        paths.push(PathBuf::from(path.to_text().into_owned()));
    }
    for list in ["children", "l2cache", "spares"] {
        for child in vdev.lists(list).unwrap_or_default() {
            collect_paths(child, paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_names() {
        for (target, pool) in
            [("tank", "tank"), ("tank/", "tank"), ("tank/a@b", "tank"), ("tank@s", "tank")]
        {
            assert_eq!(pool_name(target), pool);
        }
    }
}
