//! Extended attributes stored as files, in intent logs.

use super::intent_log::{begin, judge, new, noise, quiet};
use super::make;
use rzfs_format::ObjectId;
use rzfs_format::acl::{PosixAcl, PosixEntry, PosixTag};
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::live::{LiveFileSystem, LiveOptions, NewKind, XattrMode, XattrStore};
use rzfs_zpl::{AclType, FileSystemOptions, NameTarget};

fn named(session: &Session, name: &str) -> ObjectId {
    match session.fs.lookup(session.fs.root(), name.as_bytes()).unwrap() {
        NameTarget::Object(object) => object,
        NameTarget::Control => panic!("{name}"),
    }
}

fn set(fs: &LiveFileSystem, file: ObjectId, name: &str, value: &[u8]) {
    fs.set_xattr(file, name.as_bytes(), value, XattrMode::Any).unwrap();
}

/// The attributes of a file after a crash.
fn after_a_crash(world: &ImagePool, names: &[&str]) -> Vec<Option<Vec<u8>>> {
    let crash = world.copy();
    judge(&crash, &[]);
    let session = crash.open_logged(LiveOptions::new(FileSystemOptions::default(), 42), &quiet());
    let file = named(&session, "file");
    let get = |name: &&str| session.fs.xattr(file, name.as_bytes()).ok();
    let found = names.iter().map(get).collect();
    session.export();
    crash.judge();
    found
}

#[test]
fn attributes_that_are_files_are_there_after_a_crash() {
    let (world, session) = new("A");
    begin(&session);
    let fs = &session.fs;
    fs.change_options(|options| options.xattr_store = XattrStore::Directory);
    let file = make(fs, fs.root(), "file", NewKind::Regular);
    let synced = session.pool.synced_txg();
    for (name, value) in [("user.a", &b"one"[..]), ("user.b", b"two"), ("user.c", b"three")] {
        set(fs, file, name, value);
    }
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");
    judge(&world.copy(), &["TX_CREATE", "TX_MKXATTR", "TX_CREATE", "TX_TRUNCATE", "TX_WRITE"]);
    let names = ["user.a", "user.b", "user.c"];
    let value = |bytes: &[u8]| Some(bytes.to_vec());
    assert_eq!(after_a_crash(&world, &names), [value(b"one"), value(b"two"), value(b"three")]);
    // In another txg: longer, empty, and gone.
    session.pool.sync().unwrap();
    let synced = session.pool.synced_txg();
    let long = noise(60_000, 5);
    set(fs, file, "user.a", &long);
    set(fs, file, "user.b", b"");
    fs.remove_xattr(file, b"user.c").unwrap();
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");
    assert_eq!(after_a_crash(&world, &names), [value(&long), value(b""), None]);
    session.export();
    world.judge();
}

#[test]
fn an_attribute_that_becomes_a_file_is_one_after_a_crash() {
    let (world, session) = new("A");
    begin(&session);
    let fs = &session.fs;
    let file = make(fs, fs.root(), "file", NewKind::Regular);
    set(fs, file, "user.a", b"short");
    set(fs, file, "user.b", b"stays");
    let long = noise(40_000, 3);
    set(fs, file, "user.a", &long);
    let synced = session.pool.synced_txg();
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");
    let found = after_a_crash(&world, &["user.a", "user.b"]);
    assert_eq!(found, [Some(long), Some(b"stays".to_vec())]);
    session.export();
    world.judge();
}

#[test]
fn attributes_of_both_kinds_are_there_after_a_crash() {
    let (world, session) = new("A");
    begin(&session);
    let fs = &session.fs;
    let file = make(fs, fs.root(), "file", NewKind::Regular);
    let long = noise(40_001, 3);
    set(fs, file, "user.long", &long);
    set(fs, file, "user.short", b"one");
    set(fs, file, "user.becomes", &long);
    set(fs, file, "user.goes", b"soon");
    session.pool.sync().unwrap();
    let synced = session.pool.synced_txg();
    // In the system attribute of a file that has others as files.
    set(fs, file, "user.short", b"two");
    set(fs, file, "user.new", b"three");
    set(fs, file, "user.becomes", b"short");
    fs.remove_xattr(file, b"user.goes").unwrap();
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");
    let names = ["user.long", "user.short", "user.new", "user.becomes", "user.goes"];
    let value = |bytes: &[u8]| Some(bytes.to_vec());
    let expected = [Some(long), value(b"two"), value(b"three"), value(b"short"), None];
    assert_eq!(after_a_crash(&world, &names), expected);
    session.export();
    world.judge();
}

/// Inherited attributes of new files, stored as files, need no txg either.
#[test]
fn inherited_attributes_are_there_after_a_crash() {
    const DEFAULT: &str = "system.posix_acl_default";
    const ACCESS: &str = "system.posix_acl_access";
    let (world, session) = new("A");
    begin(&session);
    let fs = &session.fs;
    fs.change_options(|options| {
        options.xattr_store = XattrStore::Directory;
        options.reading.acl_type = AclType::Posix;
    });
    let entry = |tag| PosixEntry { tag, permissions: 7 };
    let tags = [PosixTag::UserObj, PosixTag::User(7), PosixTag::GroupObj, PosixTag::Mask];
    let mut list = PosixAcl(tags.map(entry).to_vec());
    list.0.push(PosixEntry { tag: PosixTag::Other, permissions: 0 });
    let list = list.encode();
    let dir = make(fs, fs.root(), "dir", NewKind::Directory);
    set(fs, dir, DEFAULT, &list);
    session.pool.sync().unwrap();
    let synced = session.pool.synced_txg();
    let file = make(fs, dir, "file", NewKind::Regular);
    let below = make(fs, dir, "below", NewKind::Directory);
    fs.commit(&[file, below]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");
    let found = |fs: &LiveFileSystem| {
        [(file, ACCESS), (file, DEFAULT), (below, ACCESS), (below, DEFAULT)]
            .map(|(object, name)| fs.xattr(object, name.as_bytes()).ok())
    };
    let before = found(fs);
    assert_eq!(before.each_ref().map(Option::is_some), [true, false, true, true]);
    assert_eq!(before[3].as_ref(), Some(&list));
    let crash = world.copy();
    judge(&crash, &["TX_CREATE", "TX_MKXATTR", "TX_CREATE", "TX_TRUNCATE", "TX_WRITE", "TX_MKDIR"]);
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let replayed = crash.open_logged(options, &quiet());
    replayed.fs.change_options(|options| options.reading.acl_type = AclType::Posix);
    assert_eq!(found(&replayed.fs), before);
    replayed.export();
    crash.judge();
    session.export();
    world.judge();
}
