//! The tree made by the scripts of the golden pools, made here, compared with OpenZFS's: objects,
//! layouts of attributes, block sizes, directory formats.

use crate::operations::{make, new_file, put};
use crate::pool::Pool;
use rzfs_blockdev::OpenOptions;
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::Pool as ImportedPool;
use rzfs_dsl::import::{DeviceSource, Discovery, HostCheck, ImportOptions};
use rzfs_format::ObjectId;
use rzfs_format::acl::{PosixAcl, PosixEntry, PosixTag};
use rzfs_format::dirent::DirectoryEntry;
use rzfs_format::dnode::SLOT_SIZE;
use rzfs_format::object_type::ObjectType;
use rzfs_format::sa::{Attribute, SaBuffer, Schema};
use rzfs_format::znode::{DeviceNumber, Timestamp};
use rzfs_testkit::ReferencePool;
use rzfs_zpl::accounting::Owners;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, DnodeSize, LiveFileSystem, NewKind, TimeChange, XattrMode,
    XattrStore,
};
use rzfs_zpl::{AclType, FileSystem};
use std::collections::BTreeMap;
use std::path::Path;

fn import(name: &str) -> Option<ImportedPool> {
    let reference = ReferencePool::golden(name)?;
    let [image] = &reference.images().unwrap()[..] else { panic!("{name} has several images") };
    Some(import_from(image))
}

/// Imports the pool in an image.
pub(crate) fn import_from(image: &Path) -> ImportedPool {
    let sources = [DeviceSource::Path(image.to_owned())];
    let found = Discovery::search(&sources, &OpenOptions::new());
    let [discovered] = found.pools() else { panic!("{image:?}: {:?}", found.pools()) };
    let options = ImportOptions { host_check: HostCheck::Override, ..ImportOptions::default() };
    ImportedPool::import(discovered, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// The compared properties of an object: everything but numbers, times and block locations.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Shape {
    object_type: u8,
    slots: u8,
    bonus: (u8, usize),
    block_size: u32,
    last_block: u64,
    layouts: Vec<Vec<String>>,
    lengths: Vec<Vec<usize>>,
    spill_size: Option<u64>,
    flags: u64,
    size: u64,
    links: u64,
    mode: u64,
    directory: Option<String>,
}

fn layout(schema: &Schema, buffer: &SaBuffer<'_>) -> Vec<String> {
    let name = |number| schema.registry.get(number).unwrap().name.clone();
    let names = buffer.layout().attributes().map(|number| String::from_utf8(name(number)).unwrap());
    names.collect()
}

fn shape(schema: &Schema, object: &Object) -> Shape {
    let dnode = object.dnode();
    let bonus = schema.buffer(object.bonus()).unwrap();
    let spill = object.spill().unwrap();
    let spill_buffer = spill.as_ref().map(|block| schema.buffer(&block.data).unwrap());
    let buffers: Vec<_> = [Some(bonus), spill_buffer].into_iter().flatten().collect();
    let number = |attribute: Attribute| bonus.get(attribute).unwrap().u64().unwrap();
    let directory = (object.object_type() == ObjectType::DIRECTORY_CONTENTS).then(|| {
        let zap = object.zap().unwrap();
        format!("{:?} with {} entries", zap.form(), zap.entry_count())
    });
    Shape {
        object_type: dnode.object_type.number(),
        slots: dnode.slots,
        bonus: (dnode.bonus_type.number(), dnode.bonus.len()),
        block_size: dnode.data_block_size,
        last_block: dnode.max_block_id.0,
        layouts: buffers.iter().map(|buffer| layout(schema, buffer)).collect(),
        lengths: buffers
            .iter()
            .map(|buffer| buffer.values().map(|value| value.bytes.len()).collect())
            .collect(),
        spill_size: dnode.spill.as_ref().map(|pointer| pointer.logical_size()),
        flags: number(Attribute::Flags),
        size: number(Attribute::Size),
        links: number(Attribute::Links),
        mode: number(Attribute::Mode),
        directory,
    }
}

/// The shapes of all files, by path; extended attributes stored as files are below their owner.
fn shapes(objset: &Objset, fs: &FileSystem) -> BTreeMap<String, Shape> {
    fn visit(
        objset: &Objset,
        schema: &Schema,
        id: ObjectId,
        path: String,
        out: &mut BTreeMap<String, Shape>,
    ) {
        let object = objset.object(id).unwrap();
        out.insert(path.clone(), shape(schema, &object));
        let bonus = schema.buffer(object.bonus()).unwrap();
        let spill = object.spill().unwrap();
        let spill = spill.as_ref().map(|block| schema.buffer(&block.data).unwrap());
        let xattr = [Some(bonus), spill].into_iter().flatten();
        let xattr = xattr.filter_map(|buffer| buffer.get(Attribute::Xattr)).next();
        if let Some(directory) = xattr.map(|value| ObjectId(value.u64().unwrap())) {
            visit(objset, schema, directory, format!("{path}@"), out);
        }
        if object.object_type() == ObjectType::DIRECTORY_CONTENTS {
            for entry in object.zap().unwrap().entries() {
                let entry = entry.unwrap();
                let to = DirectoryEntry::decode(entry.value.as_u64().unwrap()).object;
                let name = String::from_utf8_lossy(entry.name()).into_owned();
                visit(objset, schema, to, format!("{path}/{name}"), out);
            }
        }
    }
    let mut out = BTreeMap::new();
    visit(objset, fs.schema(), fs.root(), String::new(), &mut out);
    out
}

/// Incompressible bytes.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

fn text(len: usize) -> Vec<u8> {
    b"the quick brown fox jumps over the lazy dogs\n".iter().copied().cycle().take(len).collect()
}

fn file(fs: &LiveFileSystem, directory: ObjectId, name: &str, contents: &[u8]) -> ObjectId {
    let new = new_file(NewKind::Regular, 0o644);
    let object = fs.create(directory, name.as_bytes(), &new).unwrap().object;
    // As the tools write: chunks of 128 KiB.
    for (index, piece) in contents.chunks(128 << 10).enumerate() {
        put(fs, object, index as u64 * (128 << 10), piece);
    }
    object
}

/// `small_tree` of the scripts, step by step.
pub(crate) fn small_tree(fs: &LiveFileSystem) {
    let root = fs.root();
    let dir = make(fs, root, "dir", NewKind::Directory);
    let sub = make(fs, dir, "sub", NewKind::Directory);
    let deep = make(fs, sub, "deep", NewKind::Directory);
    let empty = make(fs, root, "empty", NewKind::Directory);
    let zero = file(fs, root, "zero", b"");
    let one = file(fs, root, "one", b"x");
    let mut named = BTreeMap::new();
    for len in [111, 511, 512, 513, 4096, 131_071, 131_072, 131_073] {
        named.insert(len, file(fs, root, &format!("b{len}"), &noise(len)));
    }
    file(fs, root, "text200k", &text(200_000));
    file(fs, root, "text1m", &text(1 << 20));
    file(fs, dir, "text300k", &text(300_000));
    let sparse = file(fs, root, "sparse", b"");
    put(fs, sparse, 2000 * 4096, &noise(4096));
    let hole = file(fs, root, "hole40m", b"");
    fs.truncate(hole, 40 << 20, Caller::SUPERUSER).unwrap();
    put(fs, hole, 30 << 20, b"end");
    let punched = file(fs, root, "punched", &text(400_000));
    fs.allocate(punched, 131_072, 131_072, Allocation::Punch, Caller::SUPERUSER).unwrap();
    let link = |name: &str, target: &[u8]| {
        let new = new_file(NewKind::Symlink(target), 0o777);
        fs.create(root, name.as_bytes(), &new).unwrap();
    };
    link("sym", b"one");
    link("symlong", &[&b"/"[..], &[b'a'; 300]].concat());
    fs.link(named[&4096], dir, b"hardlink").unwrap();
    let device = |major, minor| DeviceNumber { major, minor };
    for (name, kind) in [
        ("fifo", NewKind::Fifo),
        ("chr", NewKind::CharDevice(device(1, 3))),
        ("blk", NewKind::BlockDevice(device(259, 70000))),
    ] {
        fs.create(root, name.as_bytes(), &new_file(kind, 0o644)).unwrap();
    }
    let change = |object, change: AttributeChange| {
        fs.set_attributes(object, &change, Caller::SUPERUSER).unwrap();
    };
    let mode = |bits| AttributeChange { permissions: Some(bits), ..AttributeChange::default() };
    change(one, mode(0o4755));
    change(empty, mode(0o1777));
    let owner = AttributeChange { uid: Some(1234), gid: Some(4321), ..AttributeChange::default() };
    change(named[&513], owner);
    let time = TimeChange::At(Timestamp { seconds: 981_173_106, nanoseconds: 0 });
    let times =
        AttributeChange { atime: Some(time), mtime: Some(time), ..AttributeChange::default() };
    change(zero, times);
    file(fs, root, "na\u{ef}ve \u{2603} name", b"u");
    file(fs, root, &"L".repeat(255), b"l");
    file(fs, deep, "leaf", b"d");
}

/// `xattrs` of the scripts.
pub(crate) fn xattrs(fs: &LiveFileSystem) {
    let object = |name: &str| match fs.lookup(fs.root(), name.as_bytes()).unwrap() {
        rzfs_zpl::NameTarget::Object(object) => object,
        rzfs_zpl::NameTarget::Control => panic!("{name}"),
    };
    let set = |file: &str, name: &str, value: &[u8]| {
        fs.set_xattr(object(file), name.as_bytes(), value, XattrMode::Any).unwrap();
    };
    set("one", "user.a", b"1");
    set("one", "user.big", &[b'B'; 3000]);
    set("b512", "user.huge", &[b'H'; 40000]);
    set("dir", "security.test", b"s");
    set("sym", "trusted.t", b"t");
    if fs.options().reading.acl_type == AclType::Off {
        return;
    }
    let list = |entries: &[(PosixTag, u16)]| {
        let entry = |&(tag, permissions)| PosixEntry { tag, permissions };
        PosixAcl(entries.iter().map(entry).collect()).encode()
    };
    let (owner, group, other) = (PosixTag::UserObj, PosixTag::GroupObj, PosixTag::Other);
    let access = list(&[
        (owner, 6),
        (PosixTag::User(99), 4),
        (group, 4),
        (PosixTag::Group(77), 7),
        (PosixTag::Mask, 7),
        (other, 4),
    ]);
    set("b511", "system.posix_acl_access", &access);
    let default =
        list(&[(owner, 7), (PosixTag::User(5), 6), (group, 5), (PosixTag::Mask, 7), (other, 5)]);
    set("dir", "system.posix_acl_default", &default);
}

fn compare(dataset: &str, acls: AclType, store: XattrStore, dnode_size: DnodeSize) {
    let Some(imported) = import("g01-default") else { return };
    let golden = imported.datasets().open(dataset).unwrap();
    let golden_fs = FileSystem::of_dataset(&golden, imported.version()).unwrap();
    let expected = shapes(golden_fs.objset(), &golden_fs);

    let pool = Pool::ordinary();
    let mut options = Pool::options();
    options.xattr_store = store;
    options.dnode_size = dnode_size;
    options.reading.acl_type = acls;
    let fs = pool.open(options);
    small_tree(&fs);
    xattrs(&fs);
    pool.sync();
    let made = shapes(&pool.on_disk(), &pool.reopened());
    let mut wrong = Vec::new();
    for (path, expected) in &expected {
        if path.starts_with("/many") {
            continue;
        }
        match made.get(path) {
            // The root has directories made only by the script.
            Some(made) if path.is_empty() => {
                assert_eq!((&made.layouts, made.slots), (&expected.layouts, expected.slots));
            }
            Some(made) if made == expected => {}
            other => wrong.push(format!("{path}:\n  made     {other:?}\n  expected {expected:?}")),
        }
    }
    wrong.extend(made.keys().filter(|path| !expected.contains_key(*path)).cloned());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_small_tree_is_what_openzfs_makes_of_it() {
    compare("g01/sa@s1", AclType::Posix, XattrStore::SystemAttribute, DnodeSize::LEGACY);
}

#[test]
fn so_it_is_with_attributes_in_directories() {
    compare("g01/xdir", AclType::Posix, XattrStore::Directory, DnodeSize::LEGACY);
}

#[test]
fn so_it_is_with_large_dnodes() {
    compare("g01/ldn", AclType::Off, XattrStore::SystemAttribute, DnodeSize::AUTO);
}

/// OpenZFS's usage of users, groups and projects equals the sum over its dnodes.
#[test]
fn accounting_is_that_of_openzfs() {
    let Some(imported) = import("g01-default") else { return };
    for dataset in ["g01/sa", "g01/xdir", "g01/ldn", "g01"] {
        let objset = imported.datasets().open(dataset).unwrap().open_objset().unwrap();
        let mut sums: BTreeMap<(ObjectId, String), u64> = BTreeMap::new();
        for entry in objset.objects() {
            let dnode = entry.unwrap().dnode;
            let Some(owners) = Owners::of(&dnode).unwrap() else { continue };
            for (id, owner) in [
                (ObjectId::USER_USED, owners.user.0),
                (ObjectId::GROUP_USED, owners.group.0),
                (ObjectId::PROJECT_USED, owners.project),
            ] {
                *sums.entry((id, format!("{owner:x}"))).or_default() +=
                    dnode.used + SLOT_SIZE as u64;
                *sums.entry((id, format!("obj-{owner:x}"))).or_default() += 1;
            }
        }
        let mut stored = BTreeMap::new();
        for id in ObjectId::ACCOUNTING {
            for entry in objset.object(id).unwrap().zap().unwrap().entries() {
                let entry = entry.unwrap();
                let name = String::from_utf8(entry.name().to_vec()).unwrap();
                stored.insert((id, name), entry.value.as_u64().unwrap());
            }
        }
        assert_eq!(sums, stored, "{dataset}");
    }
}
