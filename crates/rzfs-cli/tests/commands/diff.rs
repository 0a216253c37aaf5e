//! `zfs diff`: files that have changed.

use crate::workshop::Workshop;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, mknodat, open, openat};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

fn pool() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 256M -R ROOT -O atime=off -O xattr=sa tank A");
    shop.succeed("zfs create tank/a");
    shop
}

/// The output lines of a command, with the mount point of `tank/a` cut off.
fn lines(shop: &Workshop, command: &str) -> Vec<String> {
    let mut place = shop.root().join("a").display().to_string();
    let told = shop.succeed(command);
    if !told.contains(&place) {
        place = place.replace(' ', "\\0040");
    }
    let mut lines: Vec<String> =
        told.lines().map(|line| line.replace(&format!("{place}/"), "/")).collect();
    lines.sort();
    lines
}

#[test]
fn each_kind_of_change_has_its_line() {
    let shop = pool();
    let at = |name: &str| shop.root().join("a").join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::create_dir(at("old")).unwrap();
    for name in
        ["dir/kept", "dir/read", "changed", "gone", "moved", "linked", "old/inside", "again"]
    {
        fs::write(at(name), name).unwrap();
    }
    symlink("gone", at("link")).unwrap();
    shop.succeed("zfs snapshot tank/a@s1");
    fs::write(at("changed"), "changed since").unwrap();
    let moment = FileTimes::new().set_accessed(SystemTime::UNIX_EPOCH + Duration::from_secs(9));
    File::open(at("dir/read")).unwrap().set_times(moment).unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::remove_file(at("link")).unwrap();
    fs::rename(at("moved"), at("dir/there")).unwrap();
    fs::hard_link(at("linked"), at("linked-too")).unwrap();
    fs::rename(at("old"), at("new")).unwrap();
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::write(at("tab\tand space").with_file_name(OsStr::from_bytes(b"tab\t\\\xff")), "").unwrap();
    fs::remove_file(at("again")).unwrap();
    fs::write(at("again"), "another file").unwrap();
    let expected = [
        "+\tF\t/again",
        "+\tF\t/tab\\0011\\0134\\0377",
        "+\t|\t/fifo",
        "-\t@\t/link",
        "-\tF\t/again",
        "-\tF\t/gone",
        "M\t/\t/",
        "M\t/\t/dir",
        "M\tF\t/changed",
        "M\tF\t/dir/read",
        "M\tF\t/linked\t(+1)",
        "R\t/\t/old -> /new",
        "R\tF\t/moved -> /dir/there",
    ];
    // Written data is compared, whether it is on disk yet or not.
    assert_eq!(lines(&shop, "zfs diff -F tank/a@s1"), expected);
    assert_eq!(lines(&shop, "zfs diff -F tank/a@s1 tank/a"), expected);
    shop.succeed("zfs snapshot tank/a@s2");
    fs::remove_file(at("changed")).unwrap();
    assert_eq!(lines(&shop, "zfs diff -F tank/a@s1 tank/a@s2"), expected);
    assert_eq!(lines(&shop, "zfs diff -F tank/a@s1 @s2"), expected);
    assert_eq!(lines(&shop, "zfs diff tank/a@s2"), ["-\t/changed", "M\t/"]);
    let plain: Vec<String> = expected
        .iter()
        .map(|line| line.chars().take(2).chain(line.chars().skip(4)).collect::<String>())
        .map(|line| line.replace(" -> ", "\t"))
        .collect();
    let mut scripted = lines(&shop, "zfs diff -H tank/a@s1 tank/a@s2");
    scripted.iter_mut().for_each(|line| *line = line.replace("\t\t", "\t"));
    let sorted = |mut lines: Vec<String>| {
        lines.sort();
        lines
    };
    assert_eq!(sorted(scripted), sorted(plain));
    let ctime = fs::metadata(at(".zfs/snapshot/s2/dir/there")).unwrap();
    let timed = shop.succeed("zfs diff -t tank/a@s1 tank/a@s2");
    let moved = format!("{}.{:09}\tR\t", ctime.ctime(), ctime.ctime_nsec());
    assert!(timed.lines().any(|line| line.starts_with(&moved)), "{moved} in {timed}");

    shop.succeed("zfs clone tank/a@s1 tank/b");
    fs::write(shop.root().join("b/own"), "").unwrap();
    let of_clone = shop.succeed("zfs diff tank/a@s1 tank/b");
    assert_eq!(of_clone.lines().count(), 2, "{of_clone}");
    for (refused, why) in [
        ("tank/a@s2 tank/a@s1", "\n   Not an earlier snapshot from the same fs"),
        ("tank/a@s2 tank/b", "\n   Not an earlier snapshot from the same fs"),
        ("tank/a@none tank/a", "No such file or directory"),
        ("tank/a", "Badly formed snapshot name tank/a: missing '@' delimiter in snapshot name"),
    ] {
        let told = shop.refuse(&format!("zfs diff {refused}"), 1);
        assert_eq!(told, format!("Unable to obtain diffs: {why}\n"), "{refused}");
    }
    shop.succeed("zpool export tank");
    let from_image = shop.succeed("zfs diff -F -d A tank/a@s1 tank/a@s2");
    let mut from_image: Vec<&str> = from_image.lines().collect();
    from_image.sort_unstable();
    assert_eq!(from_image, expected);
    shop.judge();
}

/// Makes a directory in `outermost`, one in that, and so on; returns the innermost one.
fn nested(outermost: &Path, name: &str, levels: usize) -> OwnedFd {
    let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
    let mut directory = open(outermost, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&directory, name, Mode::RWXU).unwrap();
        directory = openat(&directory, name, flags, Mode::empty()).unwrap();
    }
    directory
}

#[test]
fn what_is_deep_is_named_and_what_is_too_deep_is_told() {
    let shop = pool();
    let place = shop.root().join("a");
    let (deep, long) = (nested(&place, "d", 4200), "n".repeat(200));
    let too_deep = nested(&place, &long, 340);
    shop.succeed("zfs snapshot tank/a@s1");
    let make = |directory: &OwnedFd| {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(directory, "new", flags, Mode::RWXU).unwrap()
    };
    drop(make(&deep));
    let path = "/d".repeat(4200);
    let new = [format!("+\t{path}/new"), format!("M\t{path}")];
    assert_eq!(lines(&shop, "zfs diff tank/a@s1"), new);
    drop(make(&too_deep));
    drop((deep, too_deep));
    let diff = shop.run("zfs diff -H tank/a@s1");
    assert_eq!((diff.status, diff.out.lines().count()), (1, 2), "{}", diff.err);
    let (words, object) = ("Unable to determine path or stats for object ", diff.err.as_str());
    let object = object.strip_prefix(words).and_then(|rest| rest.split_once(' '));
    let (object, rest) = object.unwrap_or_else(|| panic!("{}", diff.err));
    assert!(object.parse::<u64>().is_ok(), "{}", diff.err);
    assert_eq!(rest, "in tank/a: path too long\n");
    shop.succeed("zpool export tank");
}

/// A file in a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    path: PathBuf,
    changed: (i64, i64),
    born: SystemTime,
}

/// All files below a directory, by object number.
fn walk(root: &Path, below: &Path, files: &mut BTreeMap<u64, Seen>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let path = below.join(entry.unwrap().file_name());
        let known = fs::symlink_metadata(root.join(&path)).unwrap();
        let changed = (known.ctime(), known.ctime_nsec());
        if known.is_dir() {
            walk(root, &path, files);
        }
        // The upper bits identify the snapshot.
        files.insert(
            known.ino() & 0xffff_ffff_ffff,
            Seen { path, changed, born: known.created().unwrap() },
        );
    }
}

/// Thousands of files, so that there are many blocks of dnodes and the result comes in parts.
#[test]
fn many_differences_are_what_a_comparison_of_all_files_finds() {
    let shop = pool();
    let at = |name: String| shop.root().join("a").join(name);
    for directory in 0..6 {
        fs::create_dir(at(format!("d{directory}"))).unwrap();
        for file in 0..1000 {
            fs::write(at(format!("d{directory}/f{file}")), "").unwrap();
        }
    }
    shop.succeed("zfs snapshot tank/a@s1");
    for file in 0..1000 {
        if file % 3 == 0 {
            fs::remove_file(at(format!("d0/f{file}"))).unwrap();
        }
        if file % 50 == 0 {
            fs::write(at(format!("d1/f{file}")), "more").unwrap();
        }
        fs::rename(at(format!("d2/f{file}")), at(format!("d3/g{file}"))).unwrap();
        fs::write(at(format!("d5/n{file}")), "").unwrap();
    }
    fs::rename(at("d5".into()), at("d3/d5".into())).unwrap();
    shop.succeed("zfs snapshot tank/a@s2");

    let [before, after] = ["s1", "s2"].map(|name| {
        let mut files = BTreeMap::new();
        walk(&at(format!(".zfs/snapshot/{name}")), Path::new(""), &mut files);
        files
    });
    let mut expected = vec!["M\t/".to_owned()];
    for number in before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>() {
        let path = |seen: &Seen| format!("/{}", seen.path.display());
        match (before.get(number), after.get(number)) {
            (Some(old), Some(new)) if old.born == new.born => match old.path == new.path {
                true if old.changed == new.changed => {}
                true => expected.push(format!("M\t{}", path(new))),
                // Files below a directory that was moved are not listed.
                false if old.changed == new.changed => {}
                false => expected.push(format!("R\t{} -> {}", path(old), path(new))),
            },
            (old, new) => {
                expected.extend(old.map(|old| format!("-\t{}", path(old))));
                expected.extend(new.map(|new| format!("+\t{}", path(new))));
            }
        }
    }
    expected.sort();
    let found = lines(&shop, "zfs diff tank/a@s1 tank/a@s2");
    assert!(found.len() > 2300, "{}", found.len());
    let other = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert_eq!(other, None);
    assert_eq!(found.len(), expected.len());
}
