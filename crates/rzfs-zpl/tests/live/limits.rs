//! Quotas, space, growth of directories, and many threads at once.

use crate::operations::{contents, make, new_file, put};
use crate::pool::Pool;
use parking_lot::Mutex;
use rzfs_format::zap::ZapForm;
use rzfs_format::{ObjectId, Txg};
use rzfs_testkit::SetWhenDropped;
use rzfs_zpl::live::{
    AttributeChange, Caller, DatasetSpace, Named, NewFile, NewKind, Privilege, QuotaOwner,
    QuotaUnit, RenameMode, SpaceDemand, SpaceRefusal, WriteAt, XattrMode,
};
use rzfs_zpl::{NameTarget, SpaceUse};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const USER: Caller = Caller { uid: 1000, gid: 100, privilege: Privilege::Ordinary };

#[test]
fn quotas_count_what_is_on_disk() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let new = NewFile { caller: USER, ..new_file(NewKind::Regular, 0o644) };
    let file = fs.create(root, b"file", &new).unwrap().object;
    let noise = crate::golden_shapes::noise(200_000);
    fs.set_quota(QuotaOwner::User, QuotaUnit::Bytes, 1000, Some(100_000)).unwrap();
    // Usage is known when it is on disk.
    fs.write(file, WriteAt::End, &noise, USER).unwrap();
    pool.sync();
    let refused = |error: rzfs_zpl::ZplError| assert_eq!(error.errno(), 122);
    refused(fs.write(file, WriteAt::End, b"more", USER).unwrap_err());
    refused(fs.create(root, b"other", &new).unwrap_err());
    refused(fs.set_xattr(file, b"user.a", b"b", XattrMode::Any).unwrap_err());
    let mine = make(&fs, root, "mine", NewKind::Regular);
    put(&fs, mine, 0, b"others may");
    let owner = AttributeChange { uid: Some(1000), ..AttributeChange::default() };
    refused(fs.set_attributes(mine, &owner, Caller::SUPERUSER).unwrap_err());
    fs.truncate(file, 0, USER).unwrap();
    pool.sync();
    fs.write(file, WriteAt::End, b"more", USER).unwrap();

    fs.set_quota(QuotaOwner::Group, QuotaUnit::Objects, 100, Some(1)).unwrap();
    pool.sync();
    refused(fs.create(root, b"other", &new).unwrap_err());
    fs.set_quota(QuotaOwner::Group, QuotaUnit::Objects, 100, None).unwrap();
    fs.create(root, b"other", &new).unwrap();
    assert_eq!(fs.quota(QuotaOwner::User, QuotaUnit::Bytes, 1000).unwrap(), Some(100_000));
    pool.sync();
    let on_disk = pool.on_disk();
    let master = on_disk.object(ObjectId(1)).unwrap().zap().unwrap();
    let table = ObjectId(master.lookup_u64("userquota@").unwrap().unwrap());
    let table = on_disk.object(table).unwrap();
    assert_eq!(table.object_type().number(), 40);
    assert_eq!(table.zap().unwrap().lookup_u64("3e8").unwrap(), Some(100_000));
}

/// A dataset with externally controlled space.
#[derive(Debug, Default)]
struct Dial {
    refusal: Mutex<Option<SpaceRefusal>>,
    asked: AtomicU64,
}

impl DatasetSpace for Dial {
    fn admit(&self, _: Txg, demand: SpaceDemand) -> Result<(), SpaceRefusal> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match (*self.refusal.lock(), demand) {
            (Some(SpaceRefusal::NoSpace), SpaceDemand::Frees(_)) | (None, _) => Ok(()),
            (Some(refusal), _) => Err(refusal),
        }
    }

    fn usage(&self) -> SpaceUse {
        SpaceUse { referenced: 0, available: 1 << 20 }
    }
}

#[test]
fn a_full_pool_changes_nothing_but_lets_go() {
    let pool = Pool::ordinary();
    let dial = Arc::new(Dial::default());
    let mut options = Pool::options();
    options.space = Arc::clone(&dial) as Arc<dyn DatasetSpace>;
    let fs = pool.open(options);
    let root = fs.root();
    let file = make(&fs, root, "file", NewKind::Regular);
    put(&fs, file, 0, &[1; 5000]);
    let before = (fs.attributes(root).unwrap(), fs.attributes(file).unwrap());
    for (refusal, errno) in [(SpaceRefusal::NoSpace, 28), (SpaceRefusal::Quota, 122)] {
        *dial.refusal.lock() = Some(refusal);
        let made = fs.create(root, b"other", &new_file(NewKind::Directory, 0o755));
        assert_eq!(made.unwrap_err().errno(), errno);
        let written = fs.write(file, WriteAt::End, b"x", Caller::SUPERUSER);
        assert_eq!(written.unwrap_err().errno(), errno);
        let linked = fs.link(file, root, b"other");
        assert_eq!(linked.unwrap_err().errno(), errno);
        let named = |name| Named { directory: root, name };
        let renamed =
            fs.rename(named(b"file"), named(b"other"), RenameMode::Replace, Caller::SUPERUSER);
        assert_eq!(renamed.unwrap_err().errno(), errno);
    }
    assert_eq!((fs.attributes(root).unwrap(), fs.attributes(file).unwrap()), before);
    assert!(fs.lookup(root, b"other").is_err());
    *dial.refusal.lock() = Some(SpaceRefusal::NoSpace);
    fs.truncate(file, 100, Caller::SUPERUSER).unwrap();
    fs.unlink(root, b"file").unwrap();
    pool.sync();
    assert_eq!(pool.on_disk().root().fill(), 6);
}

#[test]
fn what_has_to_wait_for_space_waits_for_a_sync() {
    let pool = Pool::ordinary();
    let dial = Arc::new(Dial::default());
    let mut options = Pool::options();
    options.space = Arc::clone(&dial) as Arc<dyn DatasetSpace>;
    let fs = pool.open(options);
    *dial.refusal.lock() = Some(SpaceRefusal::Later);
    std::thread::scope(|scope| {
        let making = scope.spawn(|| make(&fs, fs.root(), "file", NewKind::Regular));
        while dial.asked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        *dial.refusal.lock() = None;
        pool.sync();
        assert!(contents(&fs, making.join().unwrap()).is_empty());
    });
}

#[test]
fn directories_grow_and_shrink() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let directory = make(&fs, fs.root(), "dir", NewKind::Directory);
    let name = |number: u32| format!("entry-number-{number}");
    for number in 0..2600 {
        make(&fs, directory, &name(number), NewKind::Regular);
        if number % 1000 == 0 {
            pool.sync();
        }
    }
    pool.sync();
    let form = || pool.on_disk().object(directory).unwrap().zap().unwrap().form();
    assert_eq!(form(), ZapForm::Fat);
    assert_eq!(pool.reopened().attributes(directory).unwrap().size, 2602);
    for number in 0..2600 {
        fs.unlink(directory, name(number).as_bytes()).unwrap();
    }
    fs.rmdir(fs.root(), b"dir").unwrap();
    pool.sync();
    assert_eq!(pool.on_disk().root().fill(), 6);
}

/// A file that loses its last name while others look for it is not there, rather than damaged.
#[test]
fn names_that_go_while_they_are_looked_up_are_no_damage() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let done = AtomicBool::new(false);
    let (fs, done) = (&fs, &done);
    let until_done = |act: &dyn Fn() -> Result<(), Box<rzfs_zpl::ZplError>>| {
        while !done.load(Ordering::Relaxed) {
            if let Err(error) = act() {
                assert_eq!(error.errno(), 2, "{error}");
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| until_done(&|| Ok(fs.lookup(root, b"name").map(|_| ())?)));
        scope.spawn(|| until_done(&|| Ok(fs.unlink(root, b"name")?)));
        scope.spawn(|| {
            let (from, to) = (b"name", b"other");
            let [from, to] = [from.as_slice(), to].map(|name| Named { directory: root, name });
            until_done(&|| Ok(fs.rename(from, to, RenameMode::Replace, Caller::SUPERUSER)?));
        });
        scope.spawn(|| until_done(&|| Ok(fs.unlink(root, b"other")?)));
        let _end = SetWhenDropped(done);
        let mut made = 0;
        while made < 400 {
            match fs.create(root, b"name", &new_file(NewKind::Regular, 0o644)) {
                Ok(_) if made % 50 == 0 => pool.sync(),
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.errno(), 17, "{error}");
                    continue;
                }
            }
            made += 1;
        }
    });
}

/// Threads change the same few directories in every way while groups are synced: there is no
/// deadlock, and the result is consistent.
#[test]
fn many_threads_change_one_tree() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let directories: Vec<ObjectId> =
        (0..4).map(|n| make(&fs, root, &format!("dir{n}"), NewKind::Directory)).collect();
    let done = AtomicBool::new(false);
    let (fs, directories, done, pool) = (&fs, &directories, &done, &pool);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|thread| {
                scope.spawn(move || {
                    let mut state = thread + 1;
                    for _ in 0..400 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(thread);
                        work(fs, directories, state >> 20);
                    }
                })
            })
            .collect();
        let syncer = scope.spawn(move || {
            while !done.load(Ordering::SeqCst) {
                pool.sync();
            }
        });
        let end = SetWhenDropped(done);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        drop(end);
        syncer.join().unwrap();
    });
    pool.sync();
    let on_disk = pool.reopened();
    let mut reachable = 6;
    let mut seen = std::collections::BTreeSet::new();
    let mut stack = vec![root];
    while let Some(directory) = stack.pop() {
        let (mut names, mut subdirectories) = (0, 0);
        on_disk
            .read_dir(directory, rzfs_zpl::DirCookie::START, |entry| {
                if !entry.name.starts_with(b".") {
                    names += 1;
                    reachable += u64::from(seen.insert(entry.object));
                    if entry.kind == rzfs_format::dirent::FileKind::Directory {
                        subdirectories += 1;
                        stack.push(entry.object);
                    }
                }
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        let attributes = on_disk.attributes(directory).unwrap();
        assert_eq!((attributes.size, attributes.links), (names + 2, subdirectories + 2));
        assert_eq!(attributes, fs.attributes(directory).unwrap());
    }
    assert_eq!(pool.on_disk().root().fill(), reachable, "objects that nothing leads to");
}

/// One operation; existing or missing names are expected.
fn work(fs: &Arc<rzfs_zpl::live::LiveFileSystem>, directories: &[ObjectId], random: u64) {
    let directory = |shift: u64| directories[(random >> shift) as usize % directories.len()];
    let name = |shift: u64| format!("name{}", (random >> shift) % 5);
    let (one, other) = (name(4), name(8));
    let result = match random % 10 {
        0..3 => {
            let new = new_file(NewKind::Regular, 0o644);
            fs.create(directory(12), one.as_bytes(), &new).map(|_| ()).map_err(Box::new)
        }
        3 => fs.unlink(directory(12), one.as_bytes()).map_err(Box::new),
        4 => fs
            .create(directory(12), one.as_bytes(), &new_file(NewKind::Directory, 0o755))
            .map(|_| ())
            .map_err(Box::new),
        5 => fs.rmdir(directory(12), one.as_bytes()).map_err(Box::new),
        6 | 7 => {
            let mode = match random >> 40 & 3 {
                0 => RenameMode::Exchange,
                _ => RenameMode::Replace,
            };
            let from = Named { directory: directory(12), name: one.as_bytes() };
            let to = Named { directory: directory(16), name: other.as_bytes() };
            fs.rename(from, to, mode, Caller::SUPERUSER).map_err(Box::new)
        }
        _ => use_file(fs, (directory(12), &one), (directory(20), &other), random as u8),
    };
    if let Err(error) = result {
        assert!([2, 17, 20, 21, 22, 39].contains(&error.errno()), "{error}");
    }
}

/// Opens, changes, reads and renames a file.
fn use_file(
    fs: &Arc<rzfs_zpl::live::LiveFileSystem>,
    (directory, name): (ObjectId, &str),
    (other, link): (ObjectId, &str),
    byte: u8,
) -> Result<(), Box<rzfs_zpl::ZplError>> {
    let NameTarget::Object(object) = fs.lookup(directory, name.as_bytes())? else { return Ok(()) };
    let hold = fs.hold(object)?;
    fs.set_xattr(object, b"user.a", &[7; 100], XattrMode::Any)?;
    fs.write(object, WriteAt::End, &[byte; 3000], Caller::SUPERUSER)?;
    fs.note_access(object)?;
    let mut bytes = [0; 3000];
    assert_eq!(fs.read(object, 0, &mut bytes)?, 3000);
    drop(hold);
    fs.link(object, other, link.as_bytes())?;
    Ok(())
}
