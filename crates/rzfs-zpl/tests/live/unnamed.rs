//! Files created without a name.

use crate::attributes::list;
use crate::golden_shapes::noise;
use crate::operations::{contents, make, new_file, put};
use crate::pool::Pool;
use rzfs_format::ObjectId;
use rzfs_format::acl::PosixTag;
use rzfs_format::znode::FileFlags;
use rzfs_zpl::live::{
    AttributeChange, Caller, Changes, FlagChange, NewFile, NewKind, Privilege, QuotaOwner,
    QuotaUnit, XattrMode,
};

const USER: Caller = Caller { uid: 1000, gid: 100, privilege: Privilege::Ordinary };

fn by_user(permissions: u32) -> NewFile<'static> {
    NewFile { caller: USER, ..new_file(NewKind::Regular, permissions) }
}

/// The number of objects on disk.
fn objects(pool: &Pool) -> usize {
    pool.on_disk().objects().count()
}

#[test]
fn it_inherits_what_other_files_do() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let directory = make(&fs, fs.root(), "dir", NewKind::Directory);
    let inherits = FlagChange { set: FileFlags::PROJINHERIT, clear: FileFlags::default() };
    let change = AttributeChange {
        gid: Some(7),
        permissions: Some(0o2775),
        project: Some(77),
        flags: Some(inherits),
        ..AttributeChange::default()
    };
    fs.set_attributes(directory, &change, Caller::SUPERUSER).unwrap();
    let extended = list(&[
        (PosixTag::UserObj, 7),
        (PosixTag::User(5), 6),
        (PosixTag::GroupObj, 5),
        (PosixTag::Mask, 7),
        (PosixTag::Other, 1),
    ]);
    let default = b"system.posix_acl_default";
    fs.set_xattr(directory, default, &extended.encode(), XattrMode::Any).unwrap();
    let new = NewFile { umask: 0o77, ..by_user(0o2664) };
    let named = fs.create(directory, b"named", &new).unwrap();
    let before = fs.attributes(directory).unwrap();
    let unnamed = fs.create_unnamed(directory, &new).unwrap();
    assert_eq!(fs.attributes(directory).unwrap(), before);
    let made = fs.attributes(unnamed.object()).unwrap();
    assert_eq!((named.links, made.links), (1, 0));
    assert_eq!((made.uid, made.gid, made.project), (1000, 7, 77));
    let inherited = |of: &rzfs_zpl::Attributes| (of.permissions, of.gid, of.project, of.flags);
    assert_eq!(inherited(&made), inherited(&named));
    let access = b"system.posix_acl_access";
    assert_eq!(
        fs.xattr(unnamed.object(), access).unwrap(),
        fs.xattr(named.object, access).unwrap()
    );
    fs.link(unnamed.object(), directory, b"now").unwrap();
    pool.sync();
    let on_disk = pool.reopened();
    let linked = on_disk.attributes(unnamed.object()).unwrap();
    assert_eq!((inherited(&linked), linked.links), (inherited(&named), 1));
}

#[test]
fn it_is_gone_when_nobody_has_it() {
    let mut pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    make(&fs, root, "other", NewKind::Regular);
    pool.sync();
    let (before, blocks) = (objects(&pool), pool.blocks());
    let file = fs.create_unnamed(root, &by_user(0o600)).unwrap();
    put(&fs, file.object(), 0, &noise(300_000));
    pool.sync();
    assert_eq!(objects(&pool), before + 1);
    assert_eq!(contents(&fs, file.object()).len(), 300_000);
    drop(file);
    pool.sync();
    assert_eq!((objects(&pool), pool.blocks()), (before, blocks));

    // A crash before it is released.
    let file = fs.create_unnamed(root, &by_user(0o600)).unwrap();
    put(&fs, file.object(), 0, &noise(300_000));
    pool.sync();
    let kept = file.object();
    let after = pool.remount(Pool::options());
    assert_eq!(after.drain_unlinked().unwrap(), 1);
    pool.sync();
    assert!(after.attributes(kept).is_err());
    assert_eq!((objects(&pool), pool.blocks()), (before, blocks));
    std::mem::forget(file);
}

#[test]
fn a_name_it_has_lost_again_is_its_last() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let file = fs.create_unnamed(root, &by_user(0o600)).unwrap();
    let object: ObjectId = file.object();
    assert_eq!(fs.link(object, root, b"name").unwrap().links, 1);
    fs.unlink(root, b"name").unwrap();
    assert_eq!(fs.attributes(object).unwrap().links, 0);
    assert_eq!(fs.link(object, root, b"again").unwrap().links, 1);
    drop(file);
    assert_eq!(fs.attributes(object).unwrap().links, 1);
    fs.unlink(root, b"again").unwrap();
    assert!(fs.attributes(object).is_err());
}

#[test]
fn it_is_refused_where_files_are() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let errno = |directory| fs.create_unnamed(directory, &by_user(0o600)).unwrap_err().errno();
    let file = make(&fs, root, "file", NewKind::Regular);
    assert_eq!(errno(file), 20);
    let gone = make(&fs, root, "gone", NewKind::Directory);
    let held = fs.hold(gone).unwrap();
    fs.rmdir(root, b"gone").unwrap();
    assert_eq!(errno(gone), 2);
    drop(held);
    fs.create(root, b"first", &by_user(0o600)).unwrap();
    fs.set_quota(QuotaOwner::User, QuotaUnit::Objects, 1000, Some(1)).unwrap();
    pool.sync();
    assert_eq!(errno(root), 122);
    fs.set_quota(QuotaOwner::User, QuotaUnit::Objects, 1000, None).unwrap();
    fs.create_unnamed(root, &by_user(0o600)).unwrap();
    fs.change_options(|options| options.changes = Changes::Refused);
    assert_eq!(errno(root), 30);
}
