//! Plans which file systems of a pool are mounted, and where.

use crate::protocol::Temporary;
use crate::request::Choice;
use rzfs_fuse::CoveredContents;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The mount point of file systems for mount(8).
pub(crate) const LEGACY: &str = "legacy";

/// The properties that decide about the mount of a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Its full name.
    pub(crate) name: String,
    /// Property `canmount`.
    pub(crate) canmount: String,
    /// Property `mountpoint`.
    pub(crate) mountpoint: String,
    /// Property `overlay`.
    pub(crate) underneath: CoveredContents,
}

/// The meaning of property `overlay` for the contents of a mount point.
pub(crate) fn underneath(overlay: &str) -> CoveredContents {
    if overlay == "off" { CoveredContents::Respected } else { CoveredContents::Hidden }
}

impl Candidate {
    /// Whether its properties name a place.
    fn has_mount_point(&self) -> bool {
        !matches!(self.mountpoint.as_str(), "none" | LEGACY)
    }

    /// Whether it is mounted automatically.
    fn is_automatic(&self) -> bool {
        self.canmount == "on" && self.has_mount_point()
    }

    /// Whether it may be mounted at all.
    fn is_possible(&self) -> bool {
        self.canmount != "off" && self.has_mount_point()
    }

    /// Whether the other has the same properties.
    fn is_like(&self, other: &Self) -> bool {
        (&self.canmount, &self.mountpoint) == (&other.canmount, &other.mountpoint)
    }
}

/// A planned mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlannedMount {
    /// The file system.
    pub(crate) dataset: String,
    /// Its place.
    pub(crate) mountpoint: PathBuf,
    /// Treatment of the contents of its directory.
    pub(crate) underneath: CoveredContents,
    /// The origin of its place.
    pub(crate) site: Site,
    /// Its temporary options.
    pub(crate) temporary: Temporary,
    /// The planned place of the mount that it has shared, if it goes into that again.
    pub(crate) shared: Option<PathBuf>,
}

/// The origin of a file system's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Site {
    /// The [`Placement`] of its pool.
    #[default]
    Placed,
    /// The mount command: its mount point is `legacy`.
    Named,
}

impl PlannedMount {
    /// One with the settings of its properties, at its pool's placement.
    pub(crate) fn new(dataset: String, mountpoint: PathBuf, underneath: CoveredContents) -> Self {
        let (site, temporary) = (Site::Placed, Temporary::default());
        Self { dataset, mountpoint, underneath, site, temporary, shared: None }
    }

    /// The order of mounting: parents first.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let depth = |mount: &Self| mount.mountpoint.components().count();
        depth(self).cmp(&depth(other)).then_with(|| self.mountpoint.cmp(&other.mountpoint))
    }

    /// Whether another one is mounted below it.
    pub(crate) fn surrounds(&self, other: &Self) -> bool {
        self.mountpoint != other.mountpoint && other.mountpoint.starts_with(&self.mountpoint)
    }
}

/// Where file systems are mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    /// The pool's root goes to a directory, and `POOL/a/b` to `a/b` below it.
    Directory(PathBuf),
    /// Every file system goes to its mount point; one without is left out.
    Properties {
        /// All mount points are below this directory (`altroot`).
        root: Option<PathBuf>,
    },
}

impl Placement {
    /// The place of a file system, and the treatment of the contents there.
    fn of(&self, pool: &str, candidate: &Candidate) -> (PathBuf, CoveredContents) {
        match self {
            Self::Properties { root } => {
                (below(root.as_deref(), &candidate.mountpoint), candidate.underneath)
            }
            // The user's choice overrides the property.
            Self::Directory(directory) => {
                let below = candidate.name.strip_prefix(pool).unwrap_or_default();
                let below = below.trim_start_matches('/');
                let place =
                    if below.is_empty() { directory.to_owned() } else { directory.join(below) };
                (place, CoveredContents::Hidden)
            }
        }
    }

    /// The place of a mount point, if properties determine places.
    pub(crate) fn of_mount_point(&self, mountpoint: &str) -> Option<PathBuf> {
        match self {
            Self::Directory(_) => None,
            Self::Properties { root } => Some(below(root.as_deref(), mountpoint)),
        }
    }
}

/// The place of a mount point below an alternate root.
fn below(root: Option<&Path>, mountpoint: &str) -> PathBuf {
    root.unwrap_or(Path::new("/")).join(below_root(Path::new(mountpoint)))
}

/// Plans mounts in a possible order: parents first.
pub(crate) fn plan(
    pool: &str,
    candidates: &[Candidate],
    placement: &Placement,
    choice: Choice,
) -> Vec<PlannedMount> {
    let has_directory = matches!(placement, Placement::Directory(_));
    let is_chosen = |candidate: &&Candidate| {
        let possible = has_directory || candidate.has_mount_point();
        possible && (candidate.is_automatic() || choice == Choice::All)
    };
    let place = |candidate: &Candidate| {
        let (mountpoint, underneath) = placement.of(pool, candidate);
        PlannedMount::new(candidate.name.clone(), mountpoint, underneath)
    };
    let mut mounts: Vec<_> = candidates.iter().filter(is_chosen).map(place).collect();
    mounts.sort_by(PlannedMount::order);
    mounts
}

/// The mounts due after a change.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct MountsAfterChange {
    /// Unaffected by the change: they keep their places.
    pub(crate) kept: Vec<PlannedMount>,
    /// These go where they belong now; with what was mounted of them before.
    pub(crate) placed: BTreeMap<String, Option<PlannedMount>>,
}

/// The mounts due after a change for which mounts were `ended`, with names mapped by `renamed`: all
/// former mounts that are still allowed; and file systems that have become automatic. Those
/// unmounted by the user stay so.
pub(crate) fn aftermath(
    before: &[Candidate],
    after: &[Candidate],
    ended: Vec<PlannedMount>,
    renamed: impl Fn(&str) -> String,
) -> MountsAfterChange {
    let before: BTreeMap<String, &Candidate> =
        before.iter().map(|one| (renamed(&one.name), one)).collect();
    let mut ended: BTreeMap<String, PlannedMount> =
        ended.into_iter().map(|mount| (renamed(&mount.dataset), mount)).collect();
    let mut aftermath = MountsAfterChange::default();
    for one in after {
        let earlier = before.get(&one.name);
        let is_as_before =
            earlier.is_some_and(|earlier| earlier.is_like(one) && earlier.name == one.name);
        match ended.remove(&one.name) {
            Some(mount) if is_as_before => aftermath.kept.push(mount),
            // A place named by the user is kept.
            Some(mount) if mount.site == Site::Named && one.mountpoint == LEGACY => {
                aftermath.kept.push(PlannedMount { dataset: one.name.clone(), ..mount });
            }
            // One that was only renamed was mounted by request (`rzfs mount --all`).
            Some(mount)
                if one.is_possible() || earlier.is_some_and(|earlier| earlier.is_like(one)) =>
            {
                aftermath.placed.insert(one.name.clone(), Some(mount));
            }
            Some(_) => {}
            None if one.is_automatic() && !earlier.is_some_and(|one| one.is_automatic()) => {
                aftermath.placed.insert(one.name.clone(), None);
            }
            None => {}
        }
    }
    aftermath
}

/// A path from the root, without `.` and `..`: the root is its own parent, so a pool's mount points
/// cannot escape an alternate root.
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
            underneath: CoveredContents::Hidden,
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
    fn a_change_brings_back_what_it_has_ended_and_what_has_got_a_place() {
        let file_system = |name: &str, canmount: &str, mountpoint: &str| Candidate {
            name: name.into(),
            canmount: canmount.into(),
            mountpoint: mountpoint.into(),
            underneath: CoveredContents::Hidden,
        };
        let mount = |name: &str, place: &str| {
            PlannedMount::new(name.into(), place.into(), CoveredContents::Hidden)
        };
        let named = |name: &str, place: &str| {
            let temporary = Temporary { readonly: Some(true), ..Temporary::default() };
            PlannedMount { site: Site::Named, temporary, ..mount(name, place) }
        };
        let before = [
            file_system("t", "on", "none"),
            file_system("t/inherits", "on", "none"),
            file_system("t/asked", "noauto", "none"),
            file_system("t/own", "on", "/own"),
            file_system("t/unmounted", "on", "/u"),
            file_system("t/goes", "on", "/goes"),
            file_system("t/moves", "on", "/moves"),
            file_system("t/moves/by-hand", "on", "legacy"),
            file_system("t/by-hand", "on", "legacy"),
        ];
        let after = [
            file_system("t", "on", "/t"),
            file_system("t/inherits", "on", "/t/inherits"),
            file_system("t/asked", "noauto", "/t/asked"),
            file_system("t/own", "on", "/own"),
            file_system("t/unmounted", "on", "/v"),
            file_system("t/goes", "off", "/goes"),
            file_system("t/moved", "noauto", "/moved"),
            file_system("t/moved/by-hand", "on", "legacy"),
            file_system("t/by-hand", "on", "/t/by-hand"),
        ];
        let ended = vec![
            mount("t/own", "/own"),
            mount("t/goes", "/goes"),
            mount("t/moves", "/moves"),
            named("t/moves/by-hand", "/mnt"),
            named("t/by-hand", "/media"),
        ];
        let names = |name: &str| name.replace("moves", "moved");
        let found = aftermath(&before, &after, ended, names);
        assert_eq!(found.kept, [mount("t/own", "/own"), named("t/moved/by-hand", "/mnt")]);
        let placed: Vec<_> = found.placed.keys().map(String::as_str).collect();
        assert_eq!(placed, ["t", "t/by-hand", "t/inherits", "t/moved"]);
        let by_hand = found.placed.get("t/by-hand").and_then(Option::as_ref);
        let asked = by_hand.and_then(|mount| mount.temporary.readonly);
        assert_eq!(asked, Some(true), "what was asked for stays so");
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
                underneath: CoveredContents::Hidden,
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
