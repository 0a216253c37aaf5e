//! Random operations on a live file system compared with a simple model: every result, and every
//! tree, in memory and on disk as seen by the read-only file system.

use crate::pool::Pool;
use proptest::prelude::*;
use rzfs_dmu::Objset;
use rzfs_format::ObjectId;
use rzfs_format::acl::{Ace, PosixAcl, PosixEntry, PosixTag, trivial};
use rzfs_format::dirent::FileKind;
use rzfs_format::dnode::{DnodeFlags, SLOT_SIZE};
use rzfs_format::znode::DeviceNumber;
use rzfs_zpl::accounting::Owners;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, Hold, LiveFileSystem, LiveOptions, Named, NewFile,
    NewKind, RenameMode, WriteAt, XattrMode, XattrStore,
};
use rzfs_zpl::{DirCookie, FileSystem};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

const NAMES: [&str; 6] =
    ["a", "b", "c", "d", "a-name-of-more-than-fifty-bytes-that-no-microzap-has", "e"];
const XATTRS: [&str; 4] = ["user.one", "user.two", "trusted.three", "security.four"];
const ACCESS: &str = "system.posix_acl_access";

/// One operation. Numbers select among existing objects.
#[derive(Clone, Debug)]
enum Step {
    /// Makes a file of some kind.
    Create { directory: usize, name: usize, kind: u8, permissions: u32 },
    /// Writes bytes.
    Write { file: usize, offset: u64, len: usize, byte: u8 },
    /// Cuts or extends.
    Truncate { file: usize, size: u64 },
    /// Frees a range.
    Punch { file: usize, offset: u64, len: u64 },
    /// Adds a name.
    Link { file: usize, directory: usize, name: usize },
    /// Removes a name.
    Unlink { directory: usize, name: usize },
    /// Removes a directory.
    Rmdir { directory: usize, name: usize },
    /// Moves a name.
    Rename { from: (usize, usize), to: (usize, usize), mode: u8 },
    /// Changes the mode.
    Chmod { file: usize, permissions: u32 },
    /// Changes the owner.
    Chown { file: usize, uid: u32 },
    /// Sets an extended attribute.
    SetXattr { file: usize, name: usize, len: usize },
    /// Sets an access control list.
    SetAcl { file: usize, user: u32, permissions: u16 },
    /// Removes an extended attribute.
    RemoveXattr { file: usize, name: usize },
    /// Holds a file, so that it stays.
    Hold { file: usize },
    /// Releases the longest held file.
    Release,
    /// Writes everything to disk, and compares.
    Sync,
    /// Reopens the file system.
    Remount,
}

fn step() -> impl Strategy<Value = Step> {
    let index = 0..12_usize;
    let name = 0..NAMES.len();
    let place = (index.clone(), name.clone());
    prop_oneof![
        8 => (index.clone(), name.clone(), 0..8_u8, 0..0o1000_u32).prop_map(
            |(directory, name, kind, permissions)| Step::Create { directory, name, kind, permissions }
        ),
        5 => (index.clone(), 0..30_000_u64, 1..9000_usize, 1..255_u8)
            .prop_map(|(file, offset, len, byte)| Step::Write { file, offset, len, byte }),
        2 => (index.clone(), 0..40_000_u64).prop_map(|(file, size)| Step::Truncate { file, size }),
        2 => (index.clone(), 0..30_000_u64, 1..20_000_u64)
            .prop_map(|(file, offset, len)| Step::Punch { file, offset, len }),
        2 => (index.clone(), index.clone(), name.clone())
            .prop_map(|(file, directory, name)| Step::Link { file, directory, name }),
        3 => place.clone().prop_map(|(directory, name)| Step::Unlink { directory, name }),
        2 => place.clone().prop_map(|(directory, name)| Step::Rmdir { directory, name }),
        5 => (place.clone(), place, 0..4_u8)
            .prop_map(|(from, to, mode)| Step::Rename { from, to, mode }),
        2 => (index.clone(), 0..0o10000_u32)
            .prop_map(|(file, permissions)| Step::Chmod { file, permissions }),
        1 => (index.clone(), 0..3_u32).prop_map(|(file, uid)| Step::Chown { file, uid }),
        4 => (index.clone(), 0..XATTRS.len(), prop_oneof![3 => 0..300_usize, 1 => 300..60_000_usize])
            .prop_map(|(file, name, len)| Step::SetXattr { file, name, len }),
        1 => (index.clone(), 1..3_u32, 0..8_u16)
            .prop_map(|(file, user, permissions)| Step::SetAcl { file, user, permissions }),
        2 => (index.clone(), 0..XATTRS.len())
            .prop_map(|(file, name)| Step::RemoveXattr { file, name }),
        1 => index.prop_map(|file| Step::Hold { file }),
        1 => Just(Step::Release),
        3 => Just(Step::Sync),
        1 => Just(Step::Remount),
    ]
}

/// The visible state of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct File {
    kind: FileKind,
    permissions: u32,
    uid: u32,
    links: u64,
    /// Contents, or the target of a link.
    contents: Vec<u8>,
    pub(crate) names: BTreeMap<String, ObjectId>,
    parent: Option<ObjectId>,
    xattrs: BTreeMap<String, Vec<u8>>,
    acl: Vec<Ace>,
}

type Files = BTreeMap<ObjectId, File>;

impl File {
    fn new(kind: FileKind, permissions: u32, parent: ObjectId) -> Self {
        let is_directory = kind == FileKind::Directory;
        Self {
            kind,
            permissions,
            uid: 0,
            links: if is_directory { 2 } else { 1 },
            contents: if kind == FileKind::Symlink { b"target".to_vec() } else { Vec::new() },
            names: BTreeMap::new(),
            parent: is_directory.then_some(parent),
            xattrs: BTreeMap::new(),
            acl: trivial(kind, kind.mode_bits() | permissions),
        }
    }

    /// Sets the mode of a file, and the corresponding entries.
    fn set_mode(&mut self, permissions: u32) {
        self.permissions = permissions;
        self.acl = trivial(self.kind, self.kind.mode_bits() | permissions);
    }

    fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }
}

struct Model {
    root: ObjectId,
    files: Files,
    held: Vec<ObjectId>,
}

impl Model {
    fn pick(&self, index: usize, wanted: impl Fn(&File) -> bool) -> Option<ObjectId> {
        let fitting: Vec<_> =
            self.files.iter().filter(|(_, file)| wanted(file)).map(|(id, _)| *id).collect();
        fitting.get(index % fitting.len().max(1)).copied()
    }

    fn directory(&self, index: usize) -> ObjectId {
        self.pick(index, |file| file.is_directory() && file.links > 0).unwrap()
    }

    fn file(&mut self, id: ObjectId) -> &mut File {
        self.files.get_mut(&id).unwrap()
    }

    fn named(&self, directory: ObjectId, name: &str) -> Option<ObjectId> {
        self.files[&directory].names.get(name).copied()
    }

    fn is_inside(&self, mut at: ObjectId, outer: ObjectId) -> bool {
        while at != self.root {
            if at == outer {
                return true;
            }
            at = self.files[&at].parent.unwrap();
        }
        outer == self.root
    }

    fn add(&mut self, directory: ObjectId, name: &str, id: ObjectId) {
        self.file(directory).names.insert(name.to_owned(), id);
        if self.files[&id].is_directory() {
            self.file(directory).links += 1;
            self.file(id).parent = Some(directory);
        }
    }

    fn take(&mut self, directory: ObjectId, name: &str) -> ObjectId {
        let id = self.file(directory).names.remove(name).unwrap();
        if self.files[&id].is_directory() {
            self.file(directory).links -= 1;
        }
        id
    }

    /// Records that a file lost a name.
    fn lose(&mut self, id: ObjectId) {
        let file = self.file(id);
        file.links = if file.is_directory() { 0 } else { file.links - 1 };
        self.reap(id);
    }

    fn reap(&mut self, id: ObjectId) {
        if self.files[&id].links == 0 && !self.held.contains(&id) {
            self.files.remove(&id);
        }
    }

    fn unlink(&mut self, directory: ObjectId, name: &str, directories: bool) -> Result<(), i32> {
        let id = self.named(directory, name).ok_or(2)?;
        match (self.files[&id].is_directory(), directories) {
            (true, false) => return Err(21),
            (false, true) => return Err(20),
            _ if !self.files[&id].names.is_empty() => return Err(39),
            _ => {}
        }
        self.take(directory, name);
        self.lose(id);
        Ok(())
    }

    fn rename(
        &mut self,
        (from, old): (ObjectId, &str),
        (to, new): (ObjectId, &str),
        mode: RenameMode,
    ) -> Result<(), i32> {
        let source = self.named(from, old).ok_or(2)?;
        let target = self.named(to, new);
        let moves = from != to;
        let is_directory = |id: ObjectId| self.files[&id].is_directory();
        if moves && is_directory(source) && self.is_inside(to, source) {
            return Err(22);
        }
        if let (true, RenameMode::Exchange, Some(target)) = (moves, mode, target)
            && is_directory(target)
            && self.is_inside(from, target)
        {
            return Err(22);
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => return Err(17),
            (RenameMode::Exchange, None) => return Err(2),
            (_, Some(target)) if target == source => return Ok(()),
            (RenameMode::Exchange, Some(target)) => {
                self.take(from, old);
                self.take(to, new);
                self.add(from, old, target);
                self.add(to, new, source);
                return Ok(());
            }
            (_, Some(target)) => match (is_directory(source), is_directory(target)) {
                (true, false) => return Err(20),
                (false, true) => return Err(21),
                _ if !self.files[&target].names.is_empty() => return Err(39),
                _ => {
                    self.take(to, new);
                    self.lose(target);
                }
            },
            _ => {}
        }
        self.take(from, old);
        self.add(to, new, source);
        Ok(())
    }
}

/// Reads a file of either kind of file system.
pub(crate) trait Reader {
    fn file(&self, id: ObjectId) -> File;
}

macro_rules! reader {
    ($type:ty) => {
        impl Reader for $type {
            fn file(&self, id: ObjectId) -> File {
                let attributes = self.attributes(id).unwrap();
                let mut file = File::new(attributes.kind, attributes.permissions.into(), id);
                (file.uid, file.links, file.parent) = (attributes.uid, attributes.links, None);
                file.contents = match attributes.kind {
                    FileKind::Regular => {
                        let mut bytes = vec![0; attributes.size as usize];
                        assert_eq!(self.read(id, 0, &mut bytes).unwrap(), bytes.len());
                        let parts = self.read_segments(id, 0, attributes.size).unwrap();
                        assert_eq!(parts.concat(), bytes);
                        bytes
                    }
                    FileKind::Symlink => self.read_link(id).unwrap(),
                    _ => Vec::new(),
                };
                if attributes.kind == FileKind::Directory {
                    self.read_dir(id, DirCookie::START, |entry| {
                        let name = String::from_utf8(entry.name.to_vec()).unwrap();
                        match &*name {
                            "." => assert_eq!(entry.object, id),
                            ".." => file.parent = Some(entry.object),
                            _ => {
                                file.names.insert(name, entry.object);
                            }
                        }
                        ControlFlow::Continue(())
                    })
                    .unwrap();
                    assert_eq!(attributes.size, file.names.len() as u64 + 2);
                } else if attributes.kind == FileKind::Symlink
                    || attributes.kind == FileKind::Regular
                {
                    assert_eq!(attributes.size, file.contents.len() as u64);
                }
                for name in self.xattr_names(id).unwrap() {
                    let value = self.xattr(id, &name).unwrap();
                    file.xattrs.insert(String::from_utf8(name).unwrap(), value);
                }
                file.acl = self.acl(id).unwrap();
                file
            }
        }
    };
}

reader!(LiveFileSystem);
reader!(FileSystem);

/// Compares all linked files, and returns them.
fn compare(model: &Model, reader: &impl Reader) {
    for (id, expected) in model.files.iter().filter(|(_, file)| file.links > 0) {
        let mut found = reader.file(*id);
        if *id == model.root {
            found.parent = None;
        }
        assert_eq!(&found, expected, "object {id}");
    }
}

/// Checks that there are no unreferenced objects, ZAPs are valid, and the accounts are right.
fn check_objects(objset: &Objset, model: &Model) {
    let fs = FileSystem::open(objset.clone(), crate::pool::reading()).unwrap();
    let mut sums: BTreeMap<(ObjectId, String), u64> = BTreeMap::new();
    let (mut files, mut hidden, mut parents) = (BTreeSet::new(), 0_usize, 0_usize);
    for entry in objset.objects() {
        let entry = entry.unwrap();
        let object = objset.object(entry.id).unwrap();
        if object.object_type().is_zap() {
            assert_eq!(rzfs_zap::verify(&object).unwrap(), [], "object {}", entry.id);
        }
        let Some(owners) = Owners::of(&entry.dnode).unwrap() else { continue };
        let buffer = fs.schema().buffer(object.bonus()).unwrap();
        let flags = buffer.get(rzfs_format::sa::Attribute::Flags).unwrap().u64().unwrap();
        if flags & 1 == 0 {
            files.insert(entry.id);
            parents += usize::from(has_directory(&fs, &object));
        } else {
            hidden += 1;
        }
        for (id, owner) in [
            (ObjectId::USER_USED, owners.user.0),
            (ObjectId::GROUP_USED, owners.group.0),
            (ObjectId::PROJECT_USED, owners.project),
        ] {
            *sums.entry((id, format!("{owner:x}"))).or_default() +=
                entry.dnode.used + SLOT_SIZE as u64;
            *sums.entry((id, format!("obj-{owner:x}"))).or_default() += 1;
        }
    }
    assert_eq!(files, model.files.keys().copied().collect());
    assert!(hidden >= parents && (parents > 0 || hidden == 0), "{hidden} hidden of {parents}");
    let mut stored = BTreeMap::new();
    for id in ObjectId::ACCOUNTING {
        let object = objset.object(id).unwrap();
        assert_eq!(
            object.dnode().flags.0,
            DnodeFlags::USED_BYTES,
            "the accounts are in no account"
        );
        for entry in object.zap().unwrap().entries() {
            let entry = entry.unwrap();
            let name = String::from_utf8(entry.name().to_vec()).unwrap();
            stored.insert((id, name), entry.value.as_u64().unwrap());
        }
    }
    assert_eq!(sums, stored);
}

/// Whether a file has a directory of extended attributes.
fn has_directory(fs: &FileSystem, object: &rzfs_dmu::Object) -> bool {
    let schema = fs.schema();
    let spill = object.spill().unwrap();
    let bonus = schema.buffer(object.bonus()).unwrap();
    let spill = spill.as_ref().map(|block| schema.buffer(&block.data).unwrap());
    let mut buffers = [Some(bonus), spill].into_iter().flatten();
    buffers.any(|buffer| buffer.get(rzfs_format::sa::Attribute::Xattr).is_some())
}

struct Run {
    pool: Pool,
    options: LiveOptions,
    fs: Arc<LiveFileSystem>,
    model: Model,
    holds: Vec<Hold>,
}

impl Run {
    fn new(store: XattrStore) -> Self {
        let pool = Pool::ordinary();
        let mut options = Pool::options();
        options.xattr_store = store;
        options.reading.record_size = 4096;
        let fs = pool.open(options.clone());
        let root = fs.root();
        let mut file = File::new(FileKind::Directory, 0o755, root);
        file.parent = None;
        let model = Model { root, files: BTreeMap::from([(root, file)]), held: Vec::new() };
        Self { pool, options, fs, model, holds: Vec::new() }
    }

    fn sync(&mut self) {
        compare(&self.model, &*self.fs);
        self.pool.sync();
        compare(&self.model, &self.pool.reopened());
        compare(&self.model, &*self.fs);
        check_objects(&self.pool.on_disk(), &self.model);
    }

    fn perform(&mut self, step: &Step) {
        match *step {
            Step::Create { directory, name, kind, permissions } => {
                self.create(directory, NAMES[name], kind, permissions);
            }
            Step::Write { .. } | Step::Truncate { .. } | Step::Punch { .. } => {
                self.change_contents(step);
            }
            Step::Link { .. } | Step::Unlink { .. } | Step::Rmdir { .. } | Step::Rename { .. } => {
                self.change_names(step);
            }
            Step::Hold { file } => {
                let id = self.model.pick(file, |file| file.links > 0).unwrap();
                self.holds.push(self.fs.hold(id).unwrap());
                self.model.held.push(id);
            }
            Step::Release => {
                if !self.holds.is_empty() {
                    drop(self.holds.remove(0));
                    let id = self.model.held.remove(0);
                    if self.model.files.contains_key(&id) {
                        self.model.reap(id);
                    }
                }
            }
            Step::Sync => self.sync(),
            Step::Remount => {
                self.sync();
                // As if the process had ended: nothing is released.
                self.holds.drain(..).for_each(std::mem::forget);
                self.fs = self.pool.remount(self.options.clone());
                let unlinked = self.model.files.values().filter(|file| file.links == 0).count();
                assert_eq!(self.fs.drain_unlinked().unwrap(), unlinked);
                self.model.held.clear();
                self.model.files.retain(|_, file| file.links > 0);
            }
            _ => self.change_attributes(step),
        }
    }

    fn create(&mut self, directory: usize, name: &str, kind: u8, permissions: u32) {
        let directory = self.model.directory(directory);
        let device = DeviceNumber { major: 1, minor: 2 };
        let (kind, new) = match kind {
            0 => (FileKind::Symlink, NewKind::Symlink(b"target")),
            1 => (FileKind::CharDevice, NewKind::CharDevice(device)),
            2 => (FileKind::Fifo, NewKind::Fifo),
            3 | 4 => (FileKind::Directory, NewKind::Directory),
            _ => (FileKind::Regular, NewKind::Regular),
        };
        let new = NewFile { kind: new, permissions, umask: 0, caller: Caller::SUPERUSER };
        let made = self.fs.create(directory, name.as_bytes(), &new);
        let made = made.map_err(|error| error.errno());
        if self.model.named(directory, name).is_some() {
            assert_eq!(made.map(|_| ()), Err(17));
            return;
        }
        let id = made.unwrap().object;
        let mut file = File::new(kind, permissions, directory);
        if kind == FileKind::Directory {
            // The group is the same; the bit for that is inherited.
            file.set_mode(permissions | self.model.files[&directory].permissions & 0o2000);
        }
        assert!(self.model.files.insert(id, file).is_none(), "object {id} is in use");
        self.model.add(directory, name, id);
    }

    fn change_contents(&mut self, step: &Step) {
        let (Step::Write { file, .. } | Step::Truncate { file, .. } | Step::Punch { file, .. }) =
            *step
        else {
            return;
        };
        let Some(id) = self.model.pick(file, |file| file.kind == FileKind::Regular) else { return };
        let contents = &mut self.model.file(id).contents;
        match *step {
            Step::Write { offset, len, byte, .. } => {
                let data = vec![byte; len];
                let at = WriteAt::Offset(offset);
                assert_eq!(self.fs.write(id, at, &data, Caller::SUPERUSER).unwrap(), (offset, len));
                let end = offset as usize + len;
                contents.resize(contents.len().max(end), 0);
                contents[offset as usize..end].copy_from_slice(&data);
            }
            Step::Truncate { size, .. } => {
                self.fs.truncate(id, size, Caller::SUPERUSER).unwrap();
                contents.resize(size as usize, 0);
            }
            Step::Punch { offset, len, .. } => {
                let punch = Allocation::Punch;
                self.fs.allocate(id, offset, len, punch, Caller::SUPERUSER).unwrap();
                let size = contents.len();
                let range = (offset as usize).min(size)..((offset + len) as usize).min(size);
                contents[range].fill(0);
            }
            _ => {}
        }
    }

    fn change_names(&mut self, step: &Step) {
        let (fs, model) = (&self.fs, &mut self.model);
        match *step {
            Step::Link { file, directory, name } => {
                let wanted = |file: &File| file.links > 0 && !file.is_directory();
                let Some(id) = model.pick(file, wanted) else { return };
                let (directory, name) = (model.directory(directory), NAMES[name]);
                let linked = fs.link(id, directory, name.as_bytes()).map_err(|error| error.errno());
                match model.named(directory, name) {
                    Some(_) => assert_eq!(linked.map(|_| ()), Err(17)),
                    None => {
                        linked.unwrap();
                        model.file(id).links += 1;
                        model.add(directory, name, id);
                    }
                }
            }
            Step::Unlink { directory, name } => {
                let (directory, name) = (model.directory(directory), NAMES[name]);
                let result = fs.unlink(directory, name.as_bytes()).map_err(|error| error.errno());
                assert_eq!(result, model.unlink(directory, name, false));
            }
            Step::Rmdir { directory, name } => {
                let (directory, name) = (model.directory(directory), NAMES[name]);
                let result = fs.rmdir(directory, name.as_bytes()).map_err(|error| error.errno());
                assert_eq!(result, model.unlink(directory, name, true));
            }
            Step::Rename { from, to, mode } => {
                let mode = match mode {
                    0 => RenameMode::NoReplace,
                    1 => RenameMode::Exchange,
                    _ => RenameMode::Replace,
                };
                let from = (model.directory(from.0), NAMES[from.1]);
                let to = (model.directory(to.0), NAMES[to.1]);
                let named = |(directory, name): (ObjectId, &'static str)| Named {
                    directory,
                    name: name.as_bytes(),
                };
                let result = fs.rename(named(from), named(to), mode, Caller::SUPERUSER);
                let result = result.map_err(|error| error.errno());
                assert_eq!(result, model.rename(from, to, mode), "{step:?}");
            }
            _ => {}
        }
    }

    fn change_attributes(&mut self, step: &Step) {
        let (fs, model) = (&self.fs, &mut self.model);
        match *step {
            Step::Chmod { file, permissions } => {
                let id = model.pick(file, |file| file.kind != FileKind::Symlink).unwrap();
                let change = AttributeChange {
                    permissions: Some(permissions),
                    ..AttributeChange::default()
                };
                fs.set_attributes(id, &change, Caller::SUPERUSER).unwrap();
                let file = model.file(id);
                file.set_mode(permissions);
                if let Some(value) = file.xattrs.get_mut(ACCESS) {
                    let mut list = PosixAcl::decode(value).unwrap();
                    list.set_mode(permissions);
                    *value = list.encode();
                }
            }
            Step::Chown { file, uid } => {
                let id = model.pick(file, |_| true).unwrap();
                let change = AttributeChange { uid: Some(uid), ..AttributeChange::default() };
                let attributes = fs.set_attributes(id, &change, Caller::SUPERUSER).unwrap();
                let file = model.file(id);
                file.uid = uid;
                let executable = file.permissions & 0o010 != 0;
                let goes = if executable { 0o6000 } else { 0o4000 };
                if !file.is_directory() && file.permissions & goes != 0 {
                    file.set_mode(file.permissions & !goes);
                }
                assert_eq!(u32::from(attributes.permissions), file.permissions);
            }
            Step::SetXattr { file, name, len } => {
                let wanted =
                    |file: &File| matches!(file.kind, FileKind::Regular | FileKind::Directory);
                let id = model.pick(file, wanted).unwrap();
                let value = vec![len as u8; len];
                fs.set_xattr(id, XATTRS[name].as_bytes(), &value, XattrMode::Any).unwrap();
                model.file(id).xattrs.insert(XATTRS[name].to_owned(), value);
            }
            Step::SetAcl { file, user, permissions } => {
                let id = model.pick(file, |file| file.kind != FileKind::Symlink).unwrap();
                let entry = |tag, permissions| PosixEntry { tag, permissions };
                let list = PosixAcl(vec![
                    entry(PosixTag::UserObj, 6),
                    entry(PosixTag::User(user), permissions),
                    entry(PosixTag::GroupObj, 4),
                    entry(PosixTag::Mask, permissions),
                    entry(PosixTag::Other, 1),
                ]);
                let value = list.encode();
                fs.set_xattr(id, ACCESS.as_bytes(), &value, XattrMode::Any).unwrap();
                let file = model.file(id);
                file.permissions = file.permissions & 0o7000 | list.mode();
                file.xattrs.insert(ACCESS.to_owned(), value);
            }
            Step::RemoveXattr { file, name } => {
                let wanted =
                    |file: &File| matches!(file.kind, FileKind::Regular | FileKind::Directory);
                let id = model.pick(file, wanted).unwrap();
                let result = fs.remove_xattr(id, XATTRS[name].as_bytes());
                let expected = model.file(id).xattrs.remove(XATTRS[name]).map(|_| ()).ok_or(61);
                assert_eq!(result.map_err(|error| error.errno()), expected);
            }
            _ => {}
        }
    }
}

fn run(store: XattrStore, steps: &[Step]) {
    let mut run = Run::new(store);
    for step in steps {
        run.perform(step);
    }
    run.sync();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 300, ..Default::default() })]

    #[test]
    fn a_file_system_behaves_like_its_model(steps in proptest::collection::vec(step(), 1..80)) {
        run(XattrStore::SystemAttribute, &steps);
    }

    #[test]
    fn so_it_does_with_attributes_in_directories(steps in proptest::collection::vec(step(), 1..80)) {
        run(XattrStore::Directory, &steps);
    }
}
