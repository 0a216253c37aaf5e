//! The amount of memory available.

use rzfs_tunables::Tunables;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Where Linux shows cgroups and their limits.
const GROUPS: &str = "/sys/fs/cgroup";

/// The cache size with plenty of memory.
const USUAL_CACHE: u64 = 512 << 20;
/// The minimum useful cache size: room for the largest block, and as much again for the metadata
/// leading to it.
const LEAST_CACHE: u64 = 32 << 20;

/// Bytes of memory available to this process: the machine's, or less if its cgroup (for instance a
/// container) has a limit. Looked up once.
pub(crate) fn available() -> u64 {
    static AVAILABLE: OnceLock<u64> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let info = rustix::system::sysinfo();
        let machine = (info.totalram as u64).saturating_mul(info.mem_unit.into());
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        limit(&groups, Path::new(GROUPS)).map_or(machine, |limit| limit.min(machine))
    })
}

/// Size of the block cache in bytes: 512 MiB by default, but at most a quarter of the memory.
pub(crate) fn cache(tunables: &Tunables) -> u64 {
    match tunables.zfs_arc_max {
        0 => USUAL_CACHE.min(available() / 4),
        bytes => bytes,
    }
    .max(LEAST_CACHE)
}

/// The lowest limit of a process's cgroups, as named in `/proc/self/cgroup`, and of their
/// ancestors.
fn limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let group = root.join(group.trim_start_matches('/'));
        let around = group.ancestors().take_while(|one| one.starts_with(&root));
        // A container may see its own cgroup as the root, named by its path outside.
        let around = around.chain(std::iter::once(root.as_path()));
        around.filter_map(|one| fs::read_to_string(one.join(file)).ok()?.trim().parse().ok()).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_all_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let set = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |groups: &str| limit(groups, root.path());
        assert_eq!(limit("0::/box/job\n"), None);
        set("box/memory.max", "400000000\n");
        set("box/job/memory.max", "max\n");
        assert_eq!(limit("0::/box/job\n"), Some(400_000_000));
        assert_eq!(limit("0::/\n"), None);
        set("memory/docker/memory.limit_in_bytes", "100000000\n");
        set("memory/memory.limit_in_bytes", "9223372036854771712\n");
        let both = "5:cpu,memory:/docker\n4:cpuset:/\n0::/box\n";
        assert_eq!(limit(both), Some(100_000_000));
        assert_eq!(limit("3:memory:/outside/of/it\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(limit("nonsense\n::\n\n"), None);
    }

    #[test]
    fn this_process_has_some() {
        assert!(available() > 16 << 20);
        let mut tunables = Tunables::default();
        assert!(cache(&tunables) <= USUAL_CACHE);
        tunables.zfs_arc_max = 1;
        assert_eq!(cache(&tunables), LEAST_CACHE);
    }
}
