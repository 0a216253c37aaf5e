//! Which file systems of a pool are mounted, and where.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::path::{Component, Path, PathBuf};

/// What decides about the mount of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Its full name.
    pub(crate) name: String,
    /// Property `canmount`.
    pub(crate) canmount: String,
    /// Property `mountpoint`.
    pub(crate) mountpoint: String,
}

/// A mount to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlannedMount {
    /// The file system.
    pub(crate) dataset: String,
    /// Where it goes.
    pub(crate) mountpoint: PathBuf,
}

impl PlannedMount {
    /// The order of mounting: those above come before those below.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let depth = |mount: &Self| mount.mountpoint.components().count();
        depth(self).cmp(&depth(other)).then_with(|| self.mountpoint.cmp(&other.mountpoint))
    }

    /// Whether another one is mounted somewhere below it.
    pub(crate) fn surrounds(&self, other: &Self) -> bool {
        self.mountpoint != other.mountpoint && other.mountpoint.starts_with(&self.mountpoint)
    }
}

/// How file systems are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Choice {
    /// Those that OpenZFS mounts by itself.
    Automatic,
    /// All of them.
    All,
}

/// Where file systems go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Placement {
    /// The pool's root goes to a directory, and `POOL/a/b` to `a/b` below it.
    Directory(PathBuf),
    /// Every file system goes to its mount point; one that has none is left out.
    Properties {
        /// All mount points are below this directory (`altroot`).
        root: Option<PathBuf>,
    },
}

/// Mounts in the order in which they have to be made: parents before what is below them.
pub(crate) fn plan(
    pool: &str,
    candidates: &[Candidate],
    placement: &Placement,
    choice: Choice,
) -> Vec<PlannedMount> {
    let has_directory = matches!(placement, Placement::Directory(_));
    let is_chosen = |candidate: &&Candidate| {
        let has_mountpoint = !matches!(candidate.mountpoint.as_str(), "none" | "legacy");
        let automatic = candidate.canmount == "on" && has_mountpoint;
        let possible = has_directory || has_mountpoint;
        possible && (automatic || choice == Choice::All)
    };
    let place = |candidate: &Candidate| {
        let mountpoint = match placement {
            Placement::Properties { root } => {
                let root = root.as_deref().unwrap_or(Path::new("/"));
                root.join(below_root(Path::new(&candidate.mountpoint)))
            }
            Placement::Directory(directory) => {
                let below = candidate.name.strip_prefix(pool).unwrap_or_default();
                let below = below.trim_start_matches('/');
                if below.is_empty() { directory.to_owned() } else { directory.join(below) }
            }
        };
        PlannedMount { dataset: candidate.name.clone(), mountpoint }
    };
    let mut mounts: Vec<_> = candidates.iter().filter(is_chosen).map(place).collect();
    mounts.sort_by(PlannedMount::order);
    mounts
}

/// A path from the root directory on, without `.` and `..`: above the root directory is itself, so
/// what a pool says of its mount points does not lead out of an alternate root.
fn below_root(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut below, component| {
        match component {
            Component::Normal(name) => below.push(name),
            Component::ParentDir => {
                below.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::CurDir => {}
        }
        below
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Vec<Candidate> {
        [
            ("tank", "on", "/tank"),
            ("tank/home", "on", "/home"),
            ("tank/home/ann", "on", "/home/ann"),
            ("tank/root", "noauto", "/"),
            ("tank/old", "on", "legacy"),
            ("tank/shelf", "off", "/shelf"),
        ]
        .map(|(name, canmount, mountpoint)| Candidate {
            name: name.into(),
            canmount: canmount.into(),
            mountpoint: mountpoint.into(),
        })
        .into()
    }

    fn planned(directory: Option<&str>, choice: Choice) -> Vec<(String, String)> {
        let placement = match directory {
            Some(directory) => Placement::Directory(directory.into()),
            None => Placement::Properties { root: None },
        };
        let mounts = plan("tank", &candidates(), &placement, choice);
        let text = |mount: PlannedMount| {
            (mount.dataset, mount.mountpoint.to_str().unwrap_or_default().to_owned())
        };
        mounts.into_iter().map(text).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn below_a_directory_names_are_paths() {
        let expected =
            [("tank", "/mnt"), ("tank/home", "/mnt/home"), ("tank/home/ann", "/mnt/home/ann")];
        assert_eq!(planned(Some("/mnt"), Choice::Automatic), pairs(&expected));
    }

    #[test]
    fn without_a_directory_properties_decide() {
        let expected = [("tank/home", "/home"), ("tank", "/tank"), ("tank/home/ann", "/home/ann")];
        assert_eq!(planned(None, Choice::Automatic), pairs(&expected));
        let all = planned(None, Choice::All);
        assert_eq!(all.first(), Some(&("tank/root".to_owned(), "/".to_owned())));
        assert!(!all.iter().any(|(name, _)| name == "tank/old"), "it has no mount point");
    }

    #[test]
    fn mount_points_can_be_below_another_root() {
        let placement = Placement::Properties { root: Some("/mnt".into()) };
        let mounts = plan("tank", &candidates(), &placement, Choice::Automatic);
        let places: Vec<_> = mounts.iter().map(|mount| mount.mountpoint.to_str()).collect();
        assert_eq!(places, ["/mnt/home", "/mnt/tank", "/mnt/home/ann"].map(Some));
    }

    #[test]
    fn mount_points_do_not_leave_the_root() {
        for (mountpoint, below) in [
            ("/../etc", "etc"),
            ("/a/../../etc", "etc"),
            ("/a/./b/../c//d/", "a/c/d"),
            ("/..", ""),
            ("/", ""),
            ("../etc", "etc"),
        ] {
            assert_eq!(below_root(Path::new(mountpoint)), Path::new(below), "{mountpoint}");
            let candidate = Candidate {
                name: "tank".into(),
                canmount: "on".into(),
                mountpoint: mountpoint.into(),
            };
            let placement = Placement::Properties { root: Some("/mnt".into()) };
            let mounts = plan("tank", &[candidate], &placement, Choice::Automatic);
            assert_eq!(mounts[0].mountpoint, Path::new("/mnt").join(below), "{mountpoint}");
        }
    }

    #[test]
    fn all_means_all() {
        assert_eq!(planned(Some("/mnt"), Choice::All).len(), 6);
    }
}
