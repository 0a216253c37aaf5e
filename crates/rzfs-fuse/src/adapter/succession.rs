//! Replaces the contents of a mounted file system (rollback, receive).
//!
//! ```text
//! before   on disk ──┬─ differences in what the kernel knows ── names that lead elsewhere
//! after    on disk ──┘
//! the same file in both     keeps its number: open files continue with the new contents
//! a file that is gone       its number is invalid: ESTALE, and paths are looked up again
//! a directory on the way    stays for the kernel, as mounts below it would go with it: if
//! to another mount          both have it under different names, the file gets another number
//! ```

use super::changes::ACCESS_LIST;
use super::{Adapter, Answer, errno};
use crate::inode::{Adopted, Rights, Target};
use crate::known::{Fate, Outdated};
use crate::mount_points::{MountPath, Place};
use fuser::{Errno, FileAttr, FileType, Generation, INodeNo};
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zpl::live::LiveFileSystem;
use rzfs_zpl::{Attributes, ControlTree, DirCookie, FileSystem, Files, NameTarget};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::{Arc, RwLock};

/// Maximum number of names that the kernel is told to forget individually.
const MOST_NAMES: usize = 1 << 20;

const GROUP_BITS: u16 = 0o070;

/// If more than this many times the kernel's known files differ, all known files are compared.
const MOST_OTHERS: usize = 16;

/// Number of files whose attributes are read together.
const BATCH: usize = 256;

/// The differences between two contents, among the files that the kernel knows.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The fates of the files that are not the same.
    fates: BTreeMap<ObjectId, Fate>,
    /// Names that lead elsewhere, with the directories that they are in.
    names: Vec<(INodeNo, OsString)>,
    /// Files whose length has changed.
    resized: Vec<ObjectId>,
    /// The ones that have grown.
    longer: Vec<INodeNo>,
}

/// A directory on a path to a mount, as the kernel knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Step {
    name: OsString,
    pub(crate) inode: INodeNo,
    generation: Generation,
    kind: FileType,
    rights: Rights,
}

/// A path to a mount.
#[derive(Debug)]
pub(crate) struct Way {
    /// The last directory that both contents share.
    place: ObjectId,
    /// The remaining directories.
    covered: Vec<Step>,
}

/// The successor of an adapter.
pub(crate) struct Succession {
    pub(crate) adapter: Adapter,
    /// The directories that each path needs besides those on disk.
    pub(crate) ways: Vec<MountPath>,
    /// The state that the kernel must forget.
    pub(crate) outdated: Outdated,
    /// Further names that it must forget, with their directories.
    pub(crate) names: Vec<(INodeNo, OsString)>,
    /// Files whose growth the kernel must learn of.
    pub(crate) longer: Vec<INodeNo>,
}

/// The entries of a directory on disk.
fn entries(file_system: &FileSystem, directory: ObjectId) -> Answer<BTreeMap<Vec<u8>, ObjectId>> {
    let mut entries = BTreeMap::new();
    let listed = file_system.read_dir(directory, DirCookie::START, |entry| {
        let is_file = !matches!(entry.name, b"." | b"..");
        if is_file {
            entries.insert(entry.name.to_vec(), entry.object);
        }
        match entries.len() > MOST_NAMES {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    listed.map_err(|error| errno(&error))?;
    if entries.len() > MOST_NAMES { Err(Errno::E2BIG) } else { Ok(entries) }
}

/// Whether two states of an object are the same file.
fn is_same_file(before: &Attributes, after: &Attributes) -> bool {
    let identity = |one: &Attributes| (one.generation, one.kind, one.crtime);
    identity(before) == identity(after)
}

impl Adapter {
    /// Whether these contents have been replaced.
    pub(crate) fn is_superseded(&self) -> bool {
        self.head.live().is_some_and(|live| live.objset().is_superseded())
    }

    /// Compares the files that the kernel knows.
    ///
    /// # Errors
    /// A directory cannot be read, or there are too many entries.
    pub(crate) fn compare(&self, [before, after]: &[FileSystem; 2]) -> Answer<Comparison> {
        let (root, heir) = (before.root(), after.root());
        let mut fates = BTreeMap::from([(root, Fate::Changed(heir))]);
        let mut directories = vec![(root, heir)];
        let (mut resized, mut longer) = (Vec::new(), Vec::new());
        let changed = self.changed_known_files([before, after]);
        for batch in changed.chunks(BATCH) {
            before.prefetch_attributes(batch);
            after.prefetch_attributes(batch);
            for object in batch.iter().copied().filter(|object| *object != root) {
                let states = (before.attributes(object), after.attributes(object));
                let fate = match &states {
                    // Another object has become the root.
                    _ if object == heir => Fate::Gone,
                    (Ok(old), Ok(new)) if is_same_file(old, new) => {
                        if new.kind == FileKind::Directory && old != new {
                            directories.push((object, object));
                        }
                        if new.kind == FileKind::Regular && old.size != new.size {
                            resized.push(object);
                            if new.size > old.size {
                                longer.push(self.number(Target::Live(object))?);
                            }
                        }
                        Fate::Changed(object)
                    }
                    (Err(error), _) | (_, Err(error)) if !error.is_missing() => {
                        return Err(errno(error));
                    }
                    _ => Fate::Gone,
                };
                fates.insert(object, fate);
            }
        }
        let mut comparison = Comparison { fates, names: Vec::new(), resized, longer };
        for (directory, heir) in directories {
            let (old, new) = (entries(before, directory)?, entries(after, heir)?);
            let number = self.number_of_place(Place::Object(directory)).ok_or(Errno::ENFILE)?;
            comparison.add_names(number, &old, &new)?;
        }
        Ok(comparison)
    }

    /// The known files that may differ: searched for among all changed objects as long as these are
    /// not many more.
    fn changed_known_files(&self, [before, after]: [&FileSystem; 2]) -> Vec<ObjectId> {
        let known = self.known.all();
        let most = known.len().saturating_mul(MOST_OTHERS).max(BATCH);
        let mut differ = Vec::new();
        let changes = after.objset().changes_since(before.objset(), ObjectId(0));
        for (number, object) in changes.enumerate() {
            match object {
                Ok(object) if number < most => {
                    differ.extend(self.known.has(object).then_some(object));
                }
                Ok(_) => return known,
                Err(error) => {
                    tracing::debug!(%error, "everything counts as changed");
                    return known;
                }
            }
        }
        if before.root() != after.root() && self.known.has(after.root()) {
            differ.push(after.root());
        }
        differ
    }

    /// The directories on a path as the kernel knows them.
    ///
    /// # Errors
    /// There is no such directory.
    pub(crate) fn steps(&self, path: &Path) -> Answer<Vec<Step>> {
        let mut steps = Vec::new();
        let mut directory = INodeNo::ROOT;
        for component in path.components() {
            let Component::Normal(name) = component else { continue };
            let entry = self.look_up(directory, name.as_bytes())?;
            directory = entry.attributes.ino;
            // This lookup is not reported to the kernel.
            self.forget(directory, 1);
            let FileAttr { kind, uid, gid, perm, .. } = entry.attributes;
            // The group bits are the mask of an ACL, which is not checked here.
            let has_list = self.xattr(directory, ACCESS_LIST).is_ok();
            let permissions = if has_list { perm & !GROUP_BITS } else { perm };
            let rights = Rights { uid, gid, permissions };
            let (name, generation) = (name.to_owned(), entry.generation);
            steps.push(Step { name, inode: directory, generation, kind, rights });
        }
        Ok(steps)
    }

    /// Finds the directories of a path that the new contents lack or have as other files. Access to
    /// them is no wider than to their replacements.
    ///
    /// # Errors
    /// A mount point is not a directory.
    pub(crate) fn way(
        &self,
        mut steps: Vec<Step>,
        after: &FileSystem,
        with: &Comparison,
    ) -> Answer<Way> {
        let mut place = after.root();
        let mut kept = 0;
        for step in &steps {
            let found = match after.lookup(place, step.name.as_bytes()) {
                Ok(NameTarget::Object(found)) => found,
                _ => break,
            };
            let is_same = self.inodes.target(step.inode) == Some(Target::Live(found))
                && with.fate(found) != Fate::Gone;
            if !is_same {
                break;
            }
            (place, kept) = (found, kept + 1);
        }
        let mut covered = steps.split_off(kept);
        let mut beside = Some(place);
        for step in &mut covered {
            if step.kind != FileType::Directory {
                return Err(Errno::EBUSY);
            }
            let found = beside.and_then(|above| after.lookup(above, step.name.as_bytes()).ok());
            beside = match found {
                Some(NameTarget::Object(object)) => Some(object),
                Some(NameTarget::Control) | None => None,
            };
            if let Some(other) = beside.and_then(|object| after.attributes(object).ok()) {
                step.rights.permissions &= other.permissions;
            }
        }
        Ok(Way { place, covered })
    }

    /// Lets the directories that stay for the kernel on these paths keep their numbers and nothing
    /// else: their entries are forgotten, and the same file under another name in the new contents
    /// counts as unknown to the kernel.
    ///
    /// # Errors
    /// A directory cannot be read, or there are too many entries.
    pub(crate) fn set_apart(
        &self,
        ways: &[Way],
        before: &FileSystem,
        from: &mut Comparison,
    ) -> Answer<()> {
        let nothing = BTreeMap::new();
        for step in ways.iter().flat_map(|way| &way.covered) {
            let Some(Target::Live(object)) = self.inodes.target(step.inode) else { continue };
            if from.fates.insert(object, Fate::Gone) != Some(Fate::Gone) {
                from.add_names(step.inode, &entries(before, object)?, &nothing)?;
            }
        }
        Ok(())
    }

    /// Replaces these contents with new ones. No lookups may run meanwhile.
    pub(crate) fn succeed(
        &self,
        (head, control): (Arc<LiveFileSystem>, Option<ControlTree>),
        mut comparison: Comparison,
        ways: Vec<Way>,
    ) -> Succession {
        head.set_callers_wait();
        let files = Files::from(Arc::clone(&head));
        let before = self.mount_points();
        let mut mount_points = before.succeeded(&files);
        let mut adopted: Vec<Adopted> = Vec::new();
        let mut cover = |Way { place, covered }: Way| {
            let (mut place, mut way) = (Place::Object(place), MountPath::default());
            for Step { name, inode, generation, rights, .. } in covered {
                // There is no room only if there was none before.
                let Some(directory) = mount_points.cover(place, name.as_bytes()) else { break };
                if !adopted.iter().any(|one| one.directory == directory) {
                    adopted.push(Adopted { inode, generation, directory, rights });
                }
                way.directories.push(directory);
                place = Place::MountPoint(directory);
            }
            mount_points.lead_through(&way);
            way
        };
        let ways = ways.into_iter().map(&mut cover).collect();
        let kept: Vec<INodeNo> = adopted.iter().map(|one| one.inode).collect();
        let lost = self.inodes.adopted().iter().map(|one| one.inode);
        let lost: Vec<INodeNo> = lost.filter(|inode| !kept.contains(inode)).collect();
        let mut names = std::mem::take(&mut comparison.names);
        let of_mount = before.all_names().filter_map(|(place, name)| {
            Some((self.number_of_place(place)?, OsStr::from_bytes(name).to_owned()))
        });
        names.extend(of_mount);
        // The kernel must not forget a directory that is mounted on.
        names.retain(|(directory, name)| {
            let adopted = adopted.iter().find(|one| one.inode == *directory);
            let place = match (adopted, self.target(*directory)) {
                (Some(adopted), _) => Place::MountPoint(adopted.directory),
                (None, Ok(Target::Live(object))) => match comparison.fate(object) {
                    Fate::Changed(heir) => Place::Object(heir),
                    Fate::Same | Fate::Gone => Place::Object(object),
                },
                (None, _) => return true,
            };
            mount_points.lookup(place, name.as_bytes()).is_none()
        });
        let fate = |object| comparison.fate(object);
        let (known, mut outdated) = self.known.hand_over(&head, fate, (&kept, &lost));
        let Comparison { resized, longer, .. } = comparison;
        resized.into_iter().for_each(|object| known.note_resized(object));
        outdated.files.extend(&kept);
        // The kernel does not count lookups of its root directory.
        outdated.files.push(INodeNo::ROOT);
        let adapter = Self {
            inodes: self.inodes.succeeded(files.root(), adopted),
            head: files,
            control,
            mount_points: RwLock::new(Arc::new(mount_points)),
            known,
        };
        Succession { adapter, ways, outdated, names, longer }
    }
}

impl Comparison {
    fn fate(&self, object: ObjectId) -> Fate {
        self.fates.get(&object).copied().unwrap_or(Fate::Same)
    }

    /// Adds the names of a directory that lead elsewhere.
    fn add_names(
        &mut self,
        directory: INodeNo,
        old: &BTreeMap<Vec<u8>, ObjectId>,
        new: &BTreeMap<Vec<u8>, ObjectId>,
    ) -> Answer<()> {
        let differs = |name: &[u8], object: &ObjectId| {
            new.get(name) != Some(object) || self.fate(*object) == Fate::Gone
        };
        let gone = old.iter().filter(|(name, object)| differs(name, object));
        let come = new.iter().filter(|(name, _)| !old.contains_key(*name));
        let names: Vec<&Vec<u8>> = gone.chain(come).map(|(name, _)| name).collect();
        let name = |name: &Vec<u8>| (directory, OsStr::from_bytes(name).to_owned());
        let names = names.into_iter().map(name).collect::<Vec<_>>();
        self.names.extend(names);
        match self.names.len() > MOST_NAMES {
            true => Err(Errno::E2BIG),
            false => Ok(()),
        }
    }
}
