//! Names of vdevs as `zpool` shows them (spec 09, section 2.2).

use crate::getopt::Word;
use crate::table::on_one_line;
use rzfs_server::protocol::VdevReport;

/// The format of leaf names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct NameStyle {
    /// `-g`: guids instead of names.
    pub(crate) guid: bool,
    /// `-L`: paths with symbolic links resolved.
    pub(crate) resolved: bool,
    /// `-P`: full paths.
    pub(crate) full_path: bool,
}

impl NameStyle {
    /// The format for the options `-g`, `-L` and `-P` and the environment (spec 09, section 6).
    pub(crate) fn of(words: &[Word]) -> Self {
        let is_set = |letter, variable| {
            let environment = std::env::var(variable).unwrap_or_default().to_lowercase();
            let on = environment.parse::<i64>().is_ok_and(|number| number > 0)
                || environment.starts_with(['y', 't'])
                || environment == "on";
            words.contains(&Word::Flag(letter)) || on
        };
        Self {
            guid: is_set('g', "ZPOOL_VDEV_NAME_GUID"),
            resolved: is_set('L', "ZPOOL_VDEV_NAME_FOLLOW_LINKS"),
            full_path: is_set('P', "ZPOOL_VDEV_NAME_PATH"),
        }
    }

    /// The name of a vdev.
    pub(crate) fn name(self, vdev: &VdevReport) -> String {
        let path = vdev.path.as_deref().filter(|_| is_leaf(vdev));
        // A misplaced device is shown by guid: its path may be another's.
        if self.guid || (vdev.not_present && path.is_some()) {
            return vdev.guid.to_string();
        }
        let Some(path) = path else { return interior_name(vdev) };
        let resolved = self.resolved.then(|| std::fs::canonicalize(path).ok()).flatten();
        let path = resolved
            .and_then(|path| path.into_os_string().into_string().ok())
            .unwrap_or_else(|| path.to_owned());
        // A name must not start rows of a table.
        let path = on_one_line(&path);
        if self.full_path || vdev.kind == "file" {
            return path;
        }
        short_disk_name(&path, vdev.whole_disk)
    }
}

fn is_leaf(vdev: &VdevReport) -> bool {
    matches!(vdev.kind.as_str(), "disk" | "file" | "dspare")
}

fn interior_name(vdev: &VdevReport) -> String {
    let id = vdev.id;
    match vdev.kind.as_str() {
        "raidz" => format!("raidz{}-{id}", vdev.parity),
        "draid" => format!(
            "draid{}:{}d:{}c:{}s-{id}",
            vdev.parity, vdev.draid_data, vdev.draid_children, vdev.draid_spares
        ),
        kind => format!("{kind}-{id}"),
    }
}

/// The name of a disk without its directory, and without the number of the partition that OpenZFS
/// made on a whole disk.
fn short_disk_name(path: &str, whole_disk: bool) -> String {
    let directory = [
        "/dev/disk/by-vdev/",
        "/dev/disk/by-partlabel/",
        "/dev/disk/by-partuuid/",
        "/dev/disk/by-label/",
        "/dev/disk/by-uuid/",
        "/dev/disk/by-id/",
        "/dev/disk/by-path/",
        "/dev/mapper/",
        "/dev/",
    ]
    .into_iter()
    .find_map(|directory| path.strip_prefix(directory));
    let name = directory.unwrap_or(path);
    if whole_disk { without_partition(name).to_owned() } else { name.to_owned() }
}

/// Maps `sda1` to `sda`, `nvme0n1p1` to `nvme0n1`, `x-part1` to `x`.
fn without_partition(name: &str) -> &str {
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if disk.len() == name.len() {
        return name;
    }
    if let Some(disk) = disk.strip_suffix("-part") {
        return disk;
    }
    if let Some(numbered) = disk.strip_suffix('p')
        && numbered.ends_with(|c: char| c.is_ascii_digit())
    {
        return numbered;
    }
    let plain = ["sd", "hd", "vd", "xvd"].iter().any(|prefix| disk.starts_with(prefix));
    if plain { disk } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vdev(kind: &str, path: Option<&str>) -> VdevReport {
        VdevReport {
            kind: kind.into(),
            guid: 77,
            path: path.map(str::to_owned),
            ..VdevReport::default()
        }
    }

    #[test]
    fn interior_vdevs_are_named_by_kind_and_number() {
        let style = NameStyle::default();
        let raidz = VdevReport { parity: 2, id: 1, ..vdev("raidz", None) };
        assert_eq!(style.name(&raidz), "raidz2-1");
        let draid = VdevReport {
            parity: 2,
            draid_data: 4,
            draid_children: 8,
            draid_spares: 1,
            ..vdev("draid", None)
        };
        assert_eq!(style.name(&draid), "draid2:4d:8c:1s-0");
        assert_eq!(style.name(&vdev("indirect", None)), "indirect-0");
        assert_eq!(NameStyle { guid: true, ..style }.name(&draid), "77");
    }

    #[test]
    fn disks_lose_directory_and_partition() {
        let style = NameStyle::default();
        let whole = |path| VdevReport { whole_disk: true, ..vdev("disk", Some(path)) };
        for (path, name) in [
            ("/dev/sda1", "sda"),
            ("/dev/nvme0n1p1", "nvme0n1"),
            ("/dev/disk/by-id/ata-X-part1", "ata-X"),
            ("/dev/mapper/crypt1", "crypt1"),
        ] {
            assert_eq!(style.name(&whole(path)), name);
            assert_eq!(NameStyle { full_path: true, ..style }.name(&whole(path)), path);
        }
        assert_eq!(style.name(&vdev("disk", Some("/dev/sda1"))), "sda1");
        assert_eq!(style.name(&vdev("file", Some("/dev/shm/x1"))), "/dev/shm/x1");
    }

    #[test]
    fn missing_devices_go_by_guid() {
        let missing = VdevReport { not_present: true, ..vdev("file", Some("/tmp/a")) };
        assert_eq!(NameStyle::default().name(&missing), "77");
        assert_eq!(NameStyle::default().name(&vdev("dspare", Some("draid2-0-0"))), "draid2-0-0");
    }
}
