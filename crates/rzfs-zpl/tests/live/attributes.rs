//! Attributes, extended attributes and access control lists.

use crate::operations::{contents, make, new_file, put};
use crate::pool::Pool;
use rzfs_format::acl::{PosixAcl, PosixEntry, PosixTag, trivial};
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::{FileFlags, Timestamp};
use rzfs_zpl::ZplError;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, FlagChange, NewFile, NewKind, Privilege, TimeChange,
    WriteAt, XattrMode, XattrStore,
};

const USER: Caller = Caller { uid: 1000, gid: 100, privilege: Privilege::Ordinary };

pub(crate) fn list(entries: &[(PosixTag, u16)]) -> PosixAcl {
    let entry = |&(tag, permissions)| PosixEntry { tag, permissions };
    PosixAcl(entries.iter().map(entry).collect())
}

#[test]
fn modes_owners_times_and_projects_change() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let file = make(&fs, fs.root(), "file", NewKind::Regular);
    let time = Timestamp { seconds: -5, nanoseconds: 6 };
    let change = AttributeChange {
        permissions: Some(0o6755),
        atime: Some(TimeChange::At(time)),
        project: Some(77),
        ..AttributeChange::default()
    };
    let attributes = fs.set_attributes(file, &change, Caller::SUPERUSER).unwrap();
    assert_eq!((attributes.permissions, attributes.atime), (0o6755, time));
    assert_eq!(attributes.project, 77);
    let owner = AttributeChange { uid: Some(5), gid: Some(6), ..AttributeChange::default() };
    let attributes = fs.set_attributes(file, &owner, Caller::SUPERUSER).unwrap();
    assert_eq!((attributes.uid, attributes.gid, attributes.permissions), (5, 6, 0o755));
    pool.sync();
    let on_disk = pool.reopened();
    assert_eq!(on_disk.attributes(file).unwrap(), fs.attributes(file).unwrap());
    assert_eq!(on_disk.acl(file).unwrap(), trivial(FileKind::Regular, 0o755));
    assert!(on_disk.attributes(file).unwrap().flags.contains(FileFlags::NO_EXECS_DENIED));

    let used = |key: &str, id| {
        let object = pool.on_disk().object(id).unwrap();
        object.zap().unwrap().lookup_u64(key).unwrap()
    };
    use rzfs_format::ObjectId;
    assert_eq!(used("obj-5", ObjectId::USER_USED), Some(1));
    assert_eq!(used("obj-6", ObjectId::GROUP_USED), Some(1));
    assert_eq!(used("obj-4d", ObjectId::PROJECT_USED), Some(1));
    assert_eq!(used("5", ObjectId::USER_USED), Some(512));
    assert_eq!(used("obj-0", ObjectId::USER_USED), Some(1));
}

#[test]
fn immutable_files_stay_what_they_are() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let file = make(&fs, root, "file", NewKind::Regular);
    put(&fs, file, 0, b"contents");
    let flags = |set, clear| AttributeChange {
        flags: Some(FlagChange { set, clear }),
        ..AttributeChange::default()
    };
    let none = FileFlags::default();
    fs.set_attributes(file, &flags(FileFlags::IMMUTABLE, none), Caller::SUPERUSER).unwrap();
    let denied = |result: Result<(), ZplError>| assert_eq!(result.unwrap_err().errno(), 1);
    denied(fs.write(file, WriteAt::End, b"x", Caller::SUPERUSER).map(|_| ()));
    denied(fs.truncate(file, 0, Caller::SUPERUSER));
    denied(fs.unlink(root, b"file"));
    denied(fs.link(file, root, b"other").map(|_| ()));
    denied(fs.set_xattr(file, b"user.a", b"b", XattrMode::Any));
    let mode = AttributeChange { permissions: Some(0), ..AttributeChange::default() };
    denied(fs.set_attributes(file, &mode, Caller::SUPERUSER).map(|_| ()));
    fs.set_attributes(file, &flags(FileFlags::APPENDONLY, FileFlags::IMMUTABLE), Caller::SUPERUSER)
        .unwrap();
    denied(fs.write(file, WriteAt::Offset(3), b"x", Caller::SUPERUSER).map(|_| ()));
    assert_eq!(fs.write(file, WriteAt::End, b"!", Caller::SUPERUSER).unwrap(), (8, 1));
    denied(fs.unlink(root, b"file"));
    fs.set_attributes(file, &flags(none, FileFlags::APPENDONLY), Caller::SUPERUSER).unwrap();
    fs.unlink(root, b"file").unwrap();
    let unknown = flags(FileFlags::PROJID, none);
    assert_eq!(fs.set_attributes(root, &unknown, Caller::SUPERUSER).unwrap_err().errno(), 95);
}

#[test]
fn only_owners_change_flags_and_only_root_those_that_bind() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let file = make(&fs, fs.root(), "file", NewKind::Regular);
    let set = |flags| AttributeChange {
        flags: Some(FlagChange { set: flags, clear: FileFlags::default() }),
        ..AttributeChange::default()
    };
    let project = AttributeChange { project: Some(1), ..AttributeChange::default() };
    let errno = |change: &AttributeChange, caller| {
        fs.set_attributes(file, change, caller).map_err(|error| error.errno()).err()
    };
    assert_eq!(errno(&set(FileFlags::HIDDEN), USER), Some(13));
    assert_eq!(errno(&project, USER), Some(13));
    let owner = AttributeChange { uid: Some(USER.uid), ..AttributeChange::default() };
    fs.set_attributes(file, &owner, Caller::SUPERUSER).unwrap();
    assert_eq!(errno(&set(FileFlags::HIDDEN), USER), None);
    assert_eq!(errno(&project, USER), None);
    for flag in [FileFlags::IMMUTABLE, FileFlags::APPENDONLY, FileFlags::NOUNLINK] {
        assert_eq!(errno(&set(flag), USER), Some(1));
    }
    assert_eq!(errno(&set(FileFlags::APPENDONLY), Caller::SUPERUSER), None);
    // It stays as it is when others change.
    assert_eq!(errno(&set(FileFlags::ARCHIVE), USER), None);
    let times = |time| AttributeChange {
        atime: Some(time),
        mtime: Some(time),
        ..AttributeChange::default()
    };
    let mode = AttributeChange { permissions: Some(0), ..AttributeChange::default() };
    let at = TimeChange::At(Timestamp::default());
    for change in [times(at), mode, owner] {
        assert_eq!(errno(&change, Caller::SUPERUSER), Some(1), "{change:?}");
    }
    assert_eq!(errno(&times(TimeChange::Now), Caller::SUPERUSER), None);
}

#[test]
fn writing_takes_set_user_id_away_from_ordinary_users() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let file = fs.create(root, b"file", &new_file(NewKind::Regular, 0o6755)).unwrap().object;
    put(&fs, file, 0, b"root keeps it");
    assert_eq!(fs.attributes(file).unwrap().permissions, 0o6755);
    fs.write(file, WriteAt::End, b".", USER).unwrap();
    assert_eq!(fs.attributes(file).unwrap().permissions, 0o755);
}

#[test]
fn reserving_and_freeing_take_set_user_id_away_from_ordinary_users() {
    use Allocation::{Punch, Reserve, ReserveKeepSize, Zero};
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let file = fs.create(root, b"file", &new_file(NewKind::Regular, 0o6755)).unwrap().object;
    put(&fs, file, 0, &[1; 5000]);
    let again = AttributeChange { permissions: Some(0o6755), ..AttributeChange::default() };
    let capability = b"security.capability";
    for allocation in [Reserve, ReserveKeepSize, Punch, Zero] {
        for (offset, len) in [(0, 100), (4000, 4000), (1 << 20, 4096)] {
            let what = format!("{allocation:?} {offset}");
            fs.set_attributes(file, &again, Caller::SUPERUSER).unwrap();
            fs.set_xattr(file, capability, b"c", XattrMode::Any).unwrap();
            fs.allocate(file, offset, len, allocation, Caller::SUPERUSER).unwrap();
            assert_eq!(fs.attributes(file).unwrap().permissions, 0o6755, "{what}");
            assert!(fs.xattr(file, capability).is_err(), "{what}");
            fs.allocate(file, offset, len, allocation, USER).unwrap();
            assert_eq!(fs.attributes(file).unwrap().permissions, 0o755, "{what}");
        }
    }
}

#[test]
fn extended_attributes_go_where_they_fit() {
    for store in [XattrStore::SystemAttribute, XattrStore::Directory] {
        let pool = Pool::ordinary();
        let mut options = Pool::options();
        options.xattr_store = store;
        let fs = pool.open(options);
        let file = make(&fs, fs.root(), "file", NewKind::Regular);
        let set = |name: &str, value: &[u8]| {
            fs.set_xattr(file, name.as_bytes(), value, XattrMode::Any).unwrap();
        };
        let values = [
            ("user.small", vec![1; 10]),
            ("user.spilled", vec![2; 3000]),
            ("user.big", vec![3; 40_000]),
            ("trusted.t", vec![]),
        ];
        for (name, value) in &values {
            set(name, b"before");
            set(name, value);
            pool.sync();
        }
        let expected = ["trusted.t", "user.big", "user.small", "user.spilled"];
        let names = |names: Vec<Vec<u8>>| {
            names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(names(fs.xattr_names(file).unwrap()), expected);
        let on_disk = pool.reopened();
        assert_eq!(names(on_disk.xattr_names(file).unwrap()), expected);
        for (name, value) in &values {
            assert_eq!(&fs.xattr(file, name.as_bytes()).unwrap(), value);
            assert_eq!(&on_disk.xattr(file, name.as_bytes()).unwrap(), value);
        }
        let error = |mode, name: &str| fs.set_xattr(file, name.as_bytes(), b"x", mode).unwrap_err();
        assert_eq!(error(XattrMode::Create, "user.big").errno(), 17);
        assert_eq!(error(XattrMode::Replace, "user.none").errno(), 61);
        assert_eq!(error(XattrMode::Any, "other.none").errno(), 95);
        for (name, _) in &values {
            fs.remove_xattr(file, name.as_bytes()).unwrap();
            assert_eq!(fs.remove_xattr(file, name.as_bytes()).unwrap_err().errno(), 61);
        }
        fs.unlink(fs.root(), b"file").unwrap();
        pool.sync();
        assert_eq!(pool.on_disk().root().fill(), 6, "{store:?}");
    }
}

#[test]
fn lists_go_with_modes_and_are_inherited() {
    for store in [XattrStore::SystemAttribute, XattrStore::Directory] {
        let pool = Pool::ordinary();
        let mut options = Pool::options();
        options.xattr_store = store;
        let fs = pool.open(options);
        let directory = make(&fs, fs.root(), "dir", NewKind::Directory);
        let (owner, group, other) = (PosixTag::UserObj, PosixTag::GroupObj, PosixTag::Other);
        let access = b"system.posix_acl_access";
        let default = b"system.posix_acl_default";
        let extended = list(&[
            (owner, 7),
            (PosixTag::User(5), 6),
            (group, 5),
            (PosixTag::Mask, 7),
            (other, 1),
        ]);
        fs.set_xattr(directory, default, &extended.encode(), XattrMode::Any).unwrap();
        let new = NewFile { umask: 0o77, ..new_file(NewKind::Regular, 0o664) };
        let file = fs.create(directory, b"file", &new).unwrap();
        assert_eq!(file.permissions, 0o660);
        let mut expected = extended.clone();
        expected.set_mode(0o660);
        assert_eq!(fs.xattr(file.object, access).unwrap(), expected.encode());
        assert!(fs.xattr(file.object, default).is_err());
        let sub = make(&fs, directory, "sub", NewKind::Directory);
        assert_eq!(fs.xattr(sub, default).unwrap(), extended.encode());

        let mode = AttributeChange { permissions: Some(0o604), ..AttributeChange::default() };
        fs.set_attributes(file.object, &mode, Caller::SUPERUSER).unwrap();
        expected.set_mode(0o604);
        assert_eq!(fs.xattr(file.object, access).unwrap(), expected.encode());
        let minimal = list(&[(owner, 6), (group, 6), (other, 0)]);
        fs.set_xattr(file.object, access, &minimal.encode(), XattrMode::Any).unwrap();
        assert!(fs.xattr(file.object, access).is_err());
        assert_eq!(fs.attributes(file.object).unwrap().permissions, 0o660);
        let plain = NewFile { umask: 0o22, ..new_file(NewKind::Regular, 0o666) };
        assert_eq!(fs.create(fs.root(), b"plain", &plain).unwrap().permissions, 0o644);
        pool.sync();
        let on_disk = pool.reopened();
        assert_eq!(on_disk.xattr(sub, default).unwrap(), extended.encode());
        // The entries stay those of the last mode change.
        let acl = on_disk.acl(file.object).unwrap();
        assert_eq!(acl, trivial(FileKind::Regular, 0o604));
        assert!(contents(&fs, file.object).is_empty());
    }
}

#[test]
fn files_in_a_directory_of_a_group_get_the_group() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let group =
        AttributeChange { gid: Some(7), permissions: Some(0o2775), ..AttributeChange::default() };
    let directory = make(&fs, root, "dir", NewKind::Directory);
    fs.set_attributes(directory, &group, Caller::SUPERUSER).unwrap();
    let new = |kind, permissions| NewFile { kind, permissions, umask: 0, caller: USER };
    let file = fs.create(directory, b"file", &new(NewKind::Regular, 0o2755)).unwrap();
    assert_eq!((file.uid, file.gid, file.permissions), (1000, 7, 0o755));
    let sub = fs.create(directory, b"sub", &new(NewKind::Directory, 0o755)).unwrap();
    assert_eq!((sub.gid, sub.permissions), (7, 0o2755));
    let elsewhere = fs.create(root, b"file", &new(NewKind::Regular, 0o644)).unwrap();
    assert_eq!(elsewhere.gid, 100);
}
