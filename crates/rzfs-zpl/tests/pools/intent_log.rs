//! Fsynced data, in copies of the images of a running pool: they contain what a crash would leave.

use super::records::contents;
use super::{make, put};
use rzfs_blockdev::OpenOptions;
use rzfs_dmu::intent_log::LogChain;
use rzfs_dsl::live::LiveOptions as PoolOptions;
use rzfs_format::zil::{Body, RecordKind, Write, ZilFlags, ZilHeader};
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_proof::{ImagePool, Session};
use rzfs_zpl::FileSystemOptions;
use rzfs_zpl::ZplError;
use rzfs_zpl::live::{
    Allocation, AttributeChange, Caller, LiveFileSystem, LiveOptions, Named, NewFile, NewKind,
    RenameMode, SyncMode, WriteAt, XattrMode,
};
use std::os::unix::fs::FileExt;
use std::time::Duration;

const ROOT: Caller = Caller::SUPERUSER;

/// A pool that syncs only on request.
pub(crate) fn quiet() -> PoolOptions {
    let mut options = PoolOptions::default();
    options.tunables.zfs_txg_timeout = Duration::from_secs(3600);
    options
}

/// Opens a pool whose file system logs.
fn open(world: &ImagePool) -> Session {
    let Session { pool, fs } = world.open_with(&quiet());
    drop(fs);
    let root = pool.dataset_tree().unwrap().root().unwrap();
    let dataset = pool.open_dataset(&root).unwrap();
    let options = LiveOptions::new(FileSystemOptions::default(), 42);
    let fs = LiveFileSystem::open_dataset(&pool, &dataset, options).unwrap();
    Session { pool, fs }
}

/// Opens a new pool of this shape.
pub(crate) fn new(shape: &str) -> (ImagePool, Session) {
    let world = ImagePool::new(shape);
    world.create().export();
    let session = open(&world);
    (world, session)
}

/// The compared parts of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Logged {
    kind: RecordKind,
    object: Option<ObjectId>,
    text: String,
}

/// The log of the root file system in a copy of a pool.
fn log(world: &ImagePool) -> (ZilHeader, Vec<(u64, Logged)>) {
    let pool = world.import(&OpenOptions::new());
    let objset = pool.datasets().root().unwrap().open_objset().unwrap();
    let header = objset.log_header().unwrap();
    let mut records = Vec::new();
    for block in LogChain::new(pool.pipeline(), objset.id(), &header) {
        for record in block.records() {
            let kind = record.kind.unwrap();
            let (object, text) = match record.body().unwrap() {
                Body::Create(create) => (Some(create.new.object), text(create.name)),
                Body::Remove { name, .. } => (None, text(name)),
                Body::Link { object, name, .. } => (Some(object), text(name)),
                Body::Rename(rename) => {
                    (None, format!("{} {}", text(rename.from), text(rename.to)))
                }
                Body::Write(Write { object, offset, length, data, .. }) => {
                    let sum =
                        data.iter().fold(0_u64, |sum, byte| sum * 31 % 65_521 + u64::from(*byte));
                    (Some(object), format!("{offset} {length} {sum}"))
                }
                Body::Truncate { object, offset, length } => {
                    (Some(object), format!("{offset} {length}"))
                }
                Body::SetAttr(set) => {
                    (Some(set.object), format!("{:x} {:o} {}", set.mask, set.mode, set.size))
                }
                Body::SetXattr(set) => (Some(set.object), text(set.name)),
                body => panic!("{body:?}"),
            };
            records.push((record.txg.get(), Logged { kind, object, text }));
        }
    }
    (header, records)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn kinds(records: &[(u64, Logged)]) -> Vec<RecordKind> {
    records.iter().map(|(_, record)| record.kind).collect()
}

/// Checks a copy: all of its space, and what OpenZFS finds in the log.
pub(crate) fn judge(world: &ImagePool, expected: &[&str]) {
    assert_eq!(rzfs_proof::walk(&world.import(&OpenOptions::new())).unwrap(), None);
    let Some(listing) = world.zdb(&["-iiiii", "-e"]) else { return };
    let mut rest = listing.as_str();
    for kind in expected {
        let at = rest.find(kind).unwrap_or_else(|| panic!("no {kind} in {listing}"));
        rest = &rest[at + kind.len()..];
    }
    let space = world.zdb(&["-bcc", "-e"]).unwrap();
    assert!(space.contains("No leaks"), "{space}");
}

/// The first commit starts the log: its records are on disk with their txg.
pub(crate) fn begin(session: &Session) -> ObjectId {
    let fs = &session.fs;
    let file = make(fs, fs.root(), "first", NewKind::Regular);
    let before = session.pool.synced_txg();
    fs.commit(&[file]).unwrap();
    assert!(session.pool.synced_txg() > before);
    file
}

#[test]
fn every_operation_has_its_record() {
    let (world, session) = new("A");
    let fs = &session.fs;
    let first = begin(&session);
    let root = fs.root();
    let synced = session.pool.synced_txg();
    let file = make(fs, root, "file", NewKind::Regular);
    put(fs, file, 0, &[7; 5000]);
    put(fs, file, 5000, &[8; 3000]);
    let dir = make(fs, root, "dir", NewKind::Directory);
    make(fs, dir, "link", NewKind::Symlink(b"target"));
    fs.link(file, dir, b"again").unwrap();
    let named = |name| Named { directory: root, name };
    fs.rename(named(b"file"), Named { directory: dir, name: b"moved" }, RenameMode::Replace, ROOT)
        .unwrap();
    fs.rename(named(b"first"), named(b"dir"), RenameMode::Exchange, ROOT).unwrap();
    fs.rename(named(b"dir"), named(b"was-first"), RenameMode::Whiteout, ROOT).unwrap();
    fs.truncate(file, 6000, ROOT).unwrap();
    fs.allocate(file, 100, 50, Allocation::Punch, ROOT).unwrap();
    let mode = AttributeChange { permissions: Some(0o640), ..AttributeChange::default() };
    fs.set_attributes(file, &mode, ROOT).unwrap();
    fs.set_xattr(file, b"user.colour", b"green", XattrMode::Any).unwrap();
    put(fs, first, 0, b"of nobody's interest");
    fs.unlink(dir, b"again").unwrap();
    let empty = make(fs, root, "empty", NewKind::Directory);
    fs.rmdir(root, b"empty").unwrap();
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced, "it waited for a txg");

    let copy = world.copy();
    let (header, records) = log(&copy);
    assert!(!header.first.is_hole() && !header.flags.has(ZilFlags::REPLAY_NEEDED));
    use RecordKind as Kind;
    let expected = [
        // The rename is ordered after the earlier changes of the file.
        Kind::Create,
        Kind::Mkdir,
        Kind::Symlink,
        Kind::Link,
        Kind::Write,
        Kind::Rename,
        Kind::RenameExchange,
        Kind::RenameWhiteout,
        Kind::Remove,
        Kind::Mkdir,
        Kind::Rmdir,
        Kind::SetAttr,
        Kind::Truncate,
        Kind::SetAttr,
        Kind::SetXattr,
    ];
    assert_eq!(kinds(&records), expected);
    let of = |index: usize| &records[index].1;
    assert!(of(4).text.starts_with("0 6000 "), "as the file is now: {:?}", of(4));
    assert_eq!(of(5).text, "file moved");
    assert_eq!(of(9).object, Some(empty));
    assert_eq!(of(11).text, "68 0 6000");
    assert_eq!(of(12).text, "100 50");
    assert_eq!(of(13).text, "41 100640 0");
    assert!(records.iter().all(|(txg, _)| *txg == synced.next().get()));
    let names: Vec<_> = expected.iter().map(|kind| kind.name()).collect();
    judge(&copy, &names);
    // The other file's write still has to be committed.
    fs.commit_all().unwrap();
    let (_, records) = log(&world.copy());
    assert_eq!(records.last().unwrap().1.object, Some(first));
    session.export();
    world.judge();
    let (_, records) = log(&world);
    assert!(records.is_empty());
}

#[test]
fn the_space_of_logs_is_accounted_for_at_any_moment() {
    for shape in ["A", "raidz1 A B C", "A log mirror B C"] {
        let (world, session) = new(shape);
        let fs = &session.fs;
        let file = begin(&session);
        let mut offset = 0;
        for round in 0..9_u64 {
            let len = [100, 4096, 130_000, 700_000][round as usize % 4];
            put(fs, file, offset, &vec![round as u8; len]);
            offset += len as u64;
            fs.commit(&[file]).unwrap();
            if round % 3 == 2 {
                session.pool.sync().unwrap();
            }
            if round == 4 || shape == "A" && round == 7 {
                judge(&world.copy(), &[]);
            }
        }
        session.pool.sync().unwrap();
        session.pool.sync().unwrap();
        session.pool.sync().unwrap();
        let copy = world.copy();
        assert!(log(&copy).1.is_empty(), "{shape}");
        judge(&copy, &[]);
        session.export();
        world.judge();
        // It continues with the reserved block.
        let session = open(&world);
        let file = session.fs.lookup(session.fs.root(), b"first").unwrap();
        let rzfs_zpl::NameTarget::Object(file) = file else { panic!() };
        let synced = session.pool.synced_txg();
        put(&session.fs, file, 0, b"once more");
        session.fs.commit(&[file]).unwrap();
        assert_eq!(session.pool.synced_txg(), synced, "{shape}");
        let copy = world.copy();
        assert_eq!(kinds(&log(&copy).1), [RecordKind::Write], "{shape}");
        judge(&copy, &["TX_WRITE"]);
        session.export();
        world.judge();
    }
}

#[test]
fn large_commits_are_split_and_very_large_ones_go_with_the_txg() {
    // With a log device, all data goes there.
    let (world, session) = new("A log B");
    let fs = &session.fs;
    let file = begin(&session);
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    put(fs, file, 0, &data);
    let synced = session.pool.synced_txg();
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced);
    let copy = world.copy();
    let (_, records) = log(&copy);
    let pieces: Vec<(u64, u64)> = records
        .iter()
        .map(|(_, record)| {
            let mut words = record.text.split(' ').map(|word| word.parse().unwrap());
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    let end = pieces.iter().fold(0, |end, (offset, len)| {
        assert_eq!(*offset, end);
        end + len
    });
    assert!(end == 3_000_000 && pieces.len() > 20, "{pieces:?}");
    judge(&copy, &["TX_WRITE"]);
    for piece in 0..33 {
        put(fs, file, piece << 20, &vec![9; 1 << 20]);
    }
    fs.commit(&[file]).unwrap();
    assert!(session.pool.synced_txg() > synced);
    session.export();
    world.judge();
}

#[test]
fn files_of_many_threads_are_durable() {
    // Large enough that nothing waits for room, which would be for a txg.
    let directory = tempfile::tempdir().unwrap();
    let world = ImagePool::in_directory(directory.path(), "A log B", 2 << 30);
    world.create().export();
    let session = open(&world);
    let fs = &session.fs;
    begin(&session);
    let files: Vec<ObjectId> =
        (0..8).map(|n| make(fs, fs.root(), &format!("file-{n}"), NewKind::Regular)).collect();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || {
                for round in 0..50 {
                    put(fs, *file, round * 100, &[round as u8; 100]);
                    fs.commit(&[*file]).unwrap();
                }
            });
        }
    });
    let copy = world.copy();
    let (_, records) = log(&copy);
    for file in files {
        let bytes: u64 = records
            .iter()
            .filter(|(_, record)| record.kind == RecordKind::Write && record.object == Some(file))
            .map(|(_, record)| record.text.split(' ').nth(1).unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(bytes, 5000);
    }
    judge(&copy, &["TX_WRITE"]);
    session.export();
    world.judge();
}

#[test]
fn nothing_is_logged_of_files_that_are_gone() {
    let (world, session) = new("A");
    let fs = &session.fs;
    begin(&session);
    let file = make(fs, fs.root(), "file", NewKind::Regular);
    let hold = fs.hold(file).unwrap();
    put(fs, file, 0, b"before");
    fs.unlink(fs.root(), b"file").unwrap();
    put(fs, file, 0, b"after");
    fs.commit(&[file]).unwrap();
    drop(hold);
    fs.commit_all().unwrap();
    let (_, records) = log(&world.copy());
    assert_eq!(kinds(&records), [RecordKind::Create, RecordKind::Remove]);
}

#[test]
fn the_property_sync_decides() {
    let (world, session) = new("A");
    let fs = &session.fs;
    begin(&session);
    fs.change_options(|options| options.sync_mode = SyncMode::Always);
    let file = make(fs, fs.root(), "file", NewKind::Regular);
    put(fs, file, 0, b"always");
    assert_eq!(kinds(&log(&world.copy()).1), [RecordKind::Create, RecordKind::Write]);
    fs.change_options(|options| options.sync_mode = SyncMode::Disabled);
    let synced = session.pool.synced_txg();
    put(fs, file, 0, b"never");
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced);
    assert_eq!(log(&world.copy()).1.len(), 2);
    assert_ne!(fs.objset().id(), ObjsetId::MOS);
}

#[test]
fn small_writes_do_not_fill_a_small_pool() {
    let (_world, session) = new("A");
    let fs = &session.fs;
    begin(&session);
    let synced = session.pool.synced_txg();
    let files: Vec<ObjectId> =
        (0..20).map(|n| make(fs, fs.root(), &format!("file-{n}"), NewKind::Regular)).collect();
    for round in 0..30 {
        for file in &files {
            put(fs, *file, round * 512, &[round as u8; 512]);
        }
        fs.commit(&[files[round as usize % files.len()]]).unwrap();
    }
    assert_eq!(session.pool.synced_txg(), synced, "it waited for room");
    session.export();
}

#[test]
fn what_has_no_record_waits_for_its_txg() {
    let (world, session) = new("A");
    let fs = &session.fs;
    let file = begin(&session);
    let synced = session.pool.synced_txg();
    // Changes of a file before it was linked have no records.
    let new = NewFile { kind: NewKind::Regular, permissions: 0o600, umask: 0, caller: ROOT };
    let unnamed = fs.create_unnamed(fs.root(), &new).unwrap();
    put(fs, unnamed.object(), 0, b"before");
    fs.link(unnamed.object(), fs.root(), b"named").unwrap();
    fs.commit(&[file]).unwrap();
    assert!(session.pool.synced_txg() > synced);
    let synced = session.pool.synced_txg();
    put(fs, file, 0, b"afterwards");
    fs.commit(&[file]).unwrap();
    assert_eq!(session.pool.synced_txg(), synced);
    assert_eq!(kinds(&log(&world.copy()).1), [RecordKind::Write]);
}

/// Incompressible contents.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn a_full_pool_makes_durable_what_it_has_taken() {
    let (world, session) = new("A");
    let fs = &session.fs;
    let file = begin(&session);
    let mut written = 0;
    loop {
        let data = noise(1 << 20, written + 1);
        match fs.write(file, WriteAt::Offset(written), &data, ROOT) {
            Ok((_, len)) => written += len as u64,
            Err(error) => {
                assert!(matches!(error, ZplError::NoSpace { .. }), "{error}");
                break;
            }
        }
        if written % (8 << 20) == 0 {
            fs.commit(&[file]).unwrap();
        }
    }
    assert!(written > 32 << 20, "{written}");
    fs.commit(&[file]).unwrap();
    judge(&world.copy(), &[]);
    fs.unlink(fs.root(), b"first").unwrap();
    fs.commit_all().unwrap();
    session.export();
    world.judge();
}

/// A log device comes back with its state before the last commits: after errors are cleared,
/// earlier and later commits do not depend on it.
#[test]
fn a_log_device_that_has_lost_what_it_had_confirmed_is_not_relied_on() {
    let (world, session) = new("A log B");
    let fs = &session.fs;
    begin(&session);
    let older = std::fs::read(world.image("B")).unwrap();
    for (name, content) in [("before", 1), ("after", 2)] {
        let file = make(fs, fs.root(), name, NewKind::Regular);
        put(fs, file, 0, &[content; 5000]);
        fs.commit(&[file]).unwrap();
        if name == "before" {
            let device = std::fs::OpenOptions::new().write(true).open(world.image("B")).unwrap();
            device.write_all_at(&older, 0).unwrap();
            session.pool.clear(None).unwrap();
        }
    }
    let copy = world.copy();
    let replayed = copy.open_logged(LiveOptions::new(FileSystemOptions::default(), 42), &quiet());
    for (name, content) in [("before", 1), ("after", 2)] {
        assert_eq!(contents(&replayed.fs, name), [content; 5000], "{name}");
    }
    replayed.export();
    copy.judge();
}
