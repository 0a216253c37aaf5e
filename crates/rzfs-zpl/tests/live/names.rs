//! Links and renames.

use crate::operations::{contents, make, put};
use crate::pool::Pool;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_zap::Normalization;
use rzfs_zpl::live::{
    Caller, LiveFileSystem, Named, NewFileSystem, NewKind, RenameMode, WallClock,
};
use rzfs_zpl::{CacheBudget, CaseSensitivity, FileCaches, NameTarget, ZplError};

fn rename(
    fs: &LiveFileSystem,
    from: (ObjectId, &str),
    to: (ObjectId, &str),
    mode: RenameMode,
) -> Result<(), i32> {
    let named =
        |(directory, name): (ObjectId, &'static str)| Named { directory, name: name.as_bytes() };
    let leak = |(directory, name): (ObjectId, &str)| (directory, &*name.to_owned().leak());
    let result = fs.rename(named(leak(from)), named(leak(to)), mode, Caller::SUPERUSER);
    result.map_err(|error: ZplError| error.errno())
}

fn found(fs: &LiveFileSystem, directory: ObjectId, name: &str) -> Option<ObjectId> {
    match fs.lookup(directory, name.as_bytes()) {
        Ok(NameTarget::Object(object)) => Some(object),
        _ => None,
    }
}

/// Names, links and sizes of two directories.
fn shape(fs: &LiveFileSystem, directory: ObjectId) -> (u64, u64) {
    let attributes = fs.attributes(directory).unwrap();
    (attributes.size, attributes.links)
}

#[test]
fn names_move_replace_and_change_places() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let (a, b) =
        (make(&fs, root, "a", NewKind::Directory), make(&fs, root, "b", NewKind::Directory));
    let sub = make(&fs, a, "sub", NewKind::Directory);
    let (one, two) = (make(&fs, a, "one", NewKind::Regular), make(&fs, b, "two", NewKind::Regular));
    put(&fs, one, 0, b"one");

    rename(&fs, (a, "one"), (b, "one"), RenameMode::NoReplace).unwrap();
    assert_eq!((shape(&fs, a), shape(&fs, b)), ((3, 3), (4, 2)));
    assert_eq!(rename(&fs, (b, "one"), (b, "two"), RenameMode::NoReplace), Err(17));
    rename(&fs, (b, "one"), (b, "two"), RenameMode::Replace).unwrap();
    assert!(fs.attributes(two).is_err());
    assert_eq!((found(&fs, b, "two"), found(&fs, b, "one")), (Some(one), None));

    rename(&fs, (a, "sub"), (b, "two"), RenameMode::Exchange).unwrap();
    assert_eq!((shape(&fs, a), shape(&fs, b)), ((3, 2), (3, 3)));
    assert_eq!((found(&fs, a, "sub"), found(&fs, b, "two")), (Some(one), Some(sub)));
    assert_eq!(found(&fs, sub, ".."), Some(b));
    assert_eq!(rename(&fs, (a, "sub"), (a, "none"), RenameMode::Exchange), Err(2));

    assert_eq!(rename(&fs, (root, "b"), (sub, "b"), RenameMode::Replace), Err(22));
    assert_eq!(rename(&fs, (a, "sub"), (root, "b"), RenameMode::Replace), Err(21));
    assert_eq!(rename(&fs, (root, "b"), (a, "sub"), RenameMode::Replace), Err(20));
    assert_eq!(rename(&fs, (root, "a"), (root, "b"), RenameMode::Replace), Err(39));
    let empty = make(&fs, root, "empty", NewKind::Directory);
    rename(&fs, (root, "b"), (root, "empty"), RenameMode::Replace).unwrap();
    assert!(fs.attributes(empty).is_err());
    assert_eq!(shape(&fs, root), (4, 4));

    rename(&fs, (a, "sub"), (a, "moved"), RenameMode::Whiteout).unwrap();
    let whiteout = fs.attributes(found(&fs, a, "sub").unwrap()).unwrap();
    assert_eq!((whiteout.kind, whiteout.permissions), (FileKind::CharDevice, 0));
    assert_eq!(shape(&fs, a), (4, 2));
    assert_eq!(contents(&fs, one), b"one");
    pool.sync();
    let on_disk = pool.reopened();
    for object in [root, a, b, sub, one] {
        assert_eq!(on_disk.attributes(object).unwrap(), fs.attributes(object).unwrap());
    }
    assert_eq!(on_disk.lookup(sub, b"..").unwrap(), NameTarget::Object(b));
}

#[test]
fn links_count() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let file = make(&fs, root, "file", NewKind::Regular);
    let directory = make(&fs, root, "dir", NewKind::Directory);
    assert_eq!(fs.link(file, directory, b"link").unwrap().links, 2);
    assert!(matches!(fs.link(file, directory, b"link"), Err(ZplError::Exists { .. })));
    assert_eq!(fs.link(directory, root, b"dir2").unwrap_err().errno(), 1);
    // Renaming one name of a file over another one does nothing.
    rename(&fs, (root, "file"), (directory, "link"), RenameMode::Replace).unwrap();
    assert_eq!(fs.attributes(file).unwrap().links, 2);
    fs.unlink(root, b"file").unwrap();
    fs.unlink(directory, b"link").unwrap();
    assert!(fs.attributes(file).is_err());
    let unnamed =
        fs.create_unnamed(root, &crate::operations::new_file(NewKind::Regular, 0o600)).unwrap();
    put(&fs, unnamed.object(), 0, b"text");
    assert_eq!(fs.link(unnamed.object(), root, b"named").unwrap().links, 1);
    let object = unnamed.object();
    drop(unnamed);
    pool.sync();
    assert_eq!(pool.reopened().lookup(root, b"named").unwrap(), NameTarget::Object(object));
    assert_eq!(fs.drain_unlinked().unwrap(), 0);
}

#[test]
fn names_match_as_the_file_system_says() {
    let now = crate::pool::StepClock::default().now();
    let mut new = NewFileSystem::new(now, 1);
    new.case = CaseSensitivity::Insensitive;
    new.normalization = Normalization::from_flags(0x50).unwrap();
    let pool = Pool::new(&new);
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let file = make(&fs, root, "cafe\u{301}", NewKind::Regular);
    assert_eq!(found(&fs, root, "CAF\u{c9}"), Some(file));
    let taken =
        fs.create(root, "Caf\u{e9}".as_bytes(), &crate::operations::new_file(NewKind::Regular, 0));
    assert!(matches!(taken, Err(ZplError::Exists { .. })));
    let bytes = fs.create(root, b"\xff", &crate::operations::new_file(NewKind::Regular, 0));
    assert_eq!(bytes.unwrap_err().errno(), 84);
    rename(&fs, (root, "CAFE\u{301}"), (root, "Caf\u{e9}"), RenameMode::Replace).unwrap();
    pool.sync();
    let on_disk = pool.reopened();
    let mut names = Vec::new();
    on_disk
        .read_dir(root, rzfs_zpl::DirCookie::START, |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(names, [".", "..", "Caf\u{e9}"]);
    fs.unlink(root, "CAF\u{c9}".as_bytes()).unwrap();
    assert_eq!(shape(&fs, root), (2, 2));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let pool = Pool::ordinary();
    let fs = pool.open(Pool::options());
    let root = fs.root();
    let long = [b'x'; 256];
    for (name, errno) in [
        (&b""[..], 22),
        (b".", 22),
        (b"..", 22),
        (b"a/b", 22),
        (b"a\0", 22),
        (b".zfs", 17),
        (&long, 36),
    ] {
        let made = fs.create(root, name, &crate::operations::new_file(NewKind::Regular, 0));
        assert_eq!(made.unwrap_err().errno(), errno, "{name:?}");
    }
    assert!(fs.create(root, &long[..255], &crate::operations::new_file(NewKind::Fifo, 0)).is_ok());
}

#[test]
fn names_are_read_anew_where_there_is_no_room_to_keep_them() {
    let pool = Pool::ordinary();
    let mut options = Pool::options();
    options.reading.caches =
        FileCaches::new(CacheBudget { live_directories: 0, ..CacheBudget::default() });
    let fs = pool.open(options);
    let directory = make(&fs, fs.root(), "directory", NewKind::Directory);
    let long = |number: usize| format!("{number:0200}");
    for number in 0..300 {
        make(&fs, directory, &long(number), NewKind::Regular);
    }
    for number in (0..300).step_by(3) {
        fs.unlink(directory, long(number).as_bytes()).unwrap();
    }
    for number in (1..300).step_by(3) {
        let new = format!("new {number}");
        rename(&fs, (directory, &long(number)), (directory, &new), RenameMode::NoReplace).unwrap();
    }
    for number in 0..300 {
        let is_there = found(&fs, directory, &long(number)).is_some();
        assert_eq!(is_there, number % 3 == 2, "{number}");
        assert_eq!(found(&fs, directory, &format!("new {number}")).is_some(), number % 3 == 1);
    }
    assert_eq!(shape(&fs, directory).0, 202);
    pool.sync();
}
