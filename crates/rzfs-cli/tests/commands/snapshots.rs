//! Snapshots and operations on them, by commands on pools that are in use.

use crate::workshop::Workshop;
use rustix::io::Errno;
use rustix::process::getuid;
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::process::Command;

/// A pool `tank` with a file system `tank/a`.
fn pool() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT -O compression=off tank A");
    shop.succeed("zfs create tank/a");
    shop
}

fn place(shop: &Workshop, name: &str) -> PathBuf {
    shop.root().join(name)
}

fn write(shop: &Workshop, name: &str, text: &str) {
    fs::write(place(shop, name), text).unwrap();
}

fn read(shop: &Workshop, name: &str) -> String {
    fs::read_to_string(place(shop, name)).unwrap()
}

fn names(shop: &Workshop) -> Vec<String> {
    let listed = shop.succeed("zfs list -Ht all -o name");
    listed.lines().map(str::to_owned).collect()
}

fn export_and_judge(shop: &Workshop) {
    shop.succeed("zpool export tank");
    shop.judge();
}

fn errno(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

#[test]
fn what_was_written_is_in_the_snapshot_and_comes_back() {
    let shop = pool();
    write(&shop, "a/file", "before");
    shop.succeed("zfs snapshot -r -o org.example:why=test tank@one");
    write(&shop, "a/file", "after!");
    write(&shop, "a/more", "more");
    assert_eq!(read(&shop, "a/.zfs/snapshot/one/file"), "before");
    assert!(!place(&shop, "a/.zfs/snapshot/one/more").exists());
    assert_eq!(names(&shop), ["tank", "tank@one", "tank/a", "tank/a@one"]);
    assert_eq!(shop.succeed("zfs get -Ho value org.example:why tank/a@one"), "test\n");
    assert_eq!(
        shop.refuse("zfs snapshot tank/a@two tank/a@one", 1),
        "cannot create snapshot 'tank/a@one': dataset already exists\nno snapshots were created\n"
    );
    shop.succeed("zfs set org.example:why=changed tank/a@one");
    assert_eq!(shop.succeed("zfs get -Ho value org.example:why tank/a@one"), "changed\n");
    for line in ["zfs inherit", "zfs inherit -r"] {
        shop.succeed("zfs set org.example:why=changed tank/a@one");
        shop.succeed(&format!("{line} org.example:why tank/a@one"));
        assert_eq!(shop.succeed("zfs get -Ho value org.example:why tank/a@one"), "-\n");
    }
    assert_eq!(
        shop.refuse("zfs set quota=1M tank/a@one", 255),
        "cannot set property for 'tank/a@one': 'quota' does not apply to datasets of this type\n"
    );
    for missing in ["tank/nothing", "nopool"] {
        let refused = shop.refuse(&format!("zfs snapshot {missing}@x"), 2);
        let why = format!("cannot open '{missing}': dataset does not exist\nusage:\n");
        assert!(refused.starts_with(&why), "{refused}");
    }
    let open = File::open(place(&shop, "a/more")).unwrap();
    shop.succeed("zfs rollback tank/a@one");
    assert_eq!(read(&shop, "a/file"), "before");
    assert!(!place(&shop, "a/more").exists());
    let stale = open.read_at(&mut [0; 4], 0).unwrap_err();
    assert!(matches!(errno(&stale), Some(Errno::STALE | Errno::IO | Errno::NOTCONN)), "{stale}");
    drop(open);
    write(&shop, "a/again", "again");
    assert_eq!(read(&shop, "a/again"), "again");
    let history = shop.succeed("zpool history tank");
    assert!(history.contains("zfs rollback tank/a@one"), "{history}");
    export_and_judge(&shop);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!((read(&shop, "a/file"), read(&shop, "a/again")), ("before".into(), "again".into()));
    export_and_judge(&shop);
}

#[test]
fn snapshots_and_bookmarks_are_named_as_openzfs_does() {
    let shop = pool();
    shop.succeed("zfs snapshot tank/a@one");
    // A given depth includes the children, and the result may be empty.
    let nothing = shop.run("zfs list -t snapshot -d 0 tank/a");
    let told = (nothing.status, &*nothing.out, &*nothing.err);
    assert_eq!(told, (0, "", "no datasets available\n"));
    assert_eq!(shop.succeed("zfs list -H -t snapshot -d 0 tank/a"), "");
    assert_eq!(shop.succeed("zfs get -H -t snapshot -d 0 name tank/a"), "");
    shop.refuse("zfs list -t snapshot -d 0 tank/none", 1);
    for line in ["zfs rename", "zfs rename -r"] {
        shop.succeed(&format!("{line} tank/a@one tank/a@one"));
        shop.succeed(&format!("{line} tank/a@one one"));
        let missing = shop.refuse(&format!("{line} tank/a@none tank/a@none"), 1);
        assert_eq!(missing, "cannot open 'tank/a@none': dataset does not exist\n");
    }
    assert_eq!(names(&shop), ["tank", "tank/a", "tank/a@one"]);
    shop.succeed("zfs bookmark tank/a@one tank/a#mark");
    assert_eq!(shop.succeed("zfs get -Ho value name tank/a#mark"), "tank/a#mark\n");
    let columns = shop.succeed("zfs list -o space,refer tank/a");
    assert!(columns.starts_with("NAME ") && columns.contains(" REFER"), "{columns}");
    for (letter, what) in [("r", "recursive"), ("nv", "dryrun")] {
        let refused = shop.refuse(&format!("zfs destroy -{letter} tank/a#mark"), 255);
        assert_eq!(refused, format!("{what} is not supported with bookmark\n"));
    }
    assert_eq!(names(&shop), ["tank", "tank/a", "tank/a@one", "tank/a#mark"]);
    export_and_judge(&shop);
}

#[test]
fn snapshots_are_directories_where_that_is_allowed() {
    let shop = pool();
    let at = |name: &str| place(&shop, &format!("a/.zfs/snapshot/{name}"));
    let refused = |result: std::io::Result<()>| errno(&result.unwrap_err());
    write(&shop, "a/file", "before");
    shop.succeed("zfs snapshot tank/a@there");
    let made = fs::create_dir(at("one"));
    assert_eq!(refused(made), Some(Errno::ACCESS));
    assert_eq!(refused(fs::remove_dir(at("there"))), Some(Errno::ACCESS));
    assert_eq!(refused(fs::rename(at("there"), at("two"))), Some(Errno::ACCESS));
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -o zfs_admin_snapshot=1 -d IMAGES -R ROOT tank");
    fs::create_dir(at("one")).unwrap();
    write(&shop, "a/file", "after!");
    assert_eq!(read(&shop, "a/.zfs/snapshot/one/file"), "before");
    assert_eq!(refused(fs::create_dir(at("one"))), Some(Errno::EXIST));
    assert_eq!(refused(fs::create_dir(at("%"))), Some(Errno::INVAL));
    assert_eq!(refused(fs::write(at("file"), "")), Some(Errno::PERM));
    assert_eq!(refused(fs::create_dir(at("one/directory"))), Some(Errno::ROFS));
    assert_eq!(refused(fs::rename(at("one"), at("there"))), Some(Errno::EXIST));
    assert_eq!(refused(fs::rename(at("one"), place(&shop, "a/one"))), Some(Errno::PERM));
    fs::rename(at("one"), at("two")).unwrap();
    assert_eq!(names(&shop), ["tank", "tank/a", "tank/a@there", "tank/a@two"]);
    assert_eq!(read(&shop, "a/.zfs/snapshot/two/file"), "before");
    if getuid().is_root() {
        // Other users may read, but no more.
        fs::set_permissions(shop.root().parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
        let as_nobody = |program: &str, path: PathBuf| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]).arg(path);
            command.output().unwrap()
        };
        assert!(as_nobody("ls", at("two")).status.success());
        for (program, name) in [("mkdir", "three"), ("rmdir", "two")] {
            let said = String::from_utf8(as_nobody(program, at(name)).stderr).unwrap();
            assert!(said.contains("Operation not permitted"), "{said}");
        }
    }
    shop.succeed("zfs hold tag tank/a@two");
    assert_eq!(refused(fs::remove_dir(at("two"))), Some(Errno::BUSY));
    shop.succeed("zfs release tag tank/a@two");
    for name in ["two", "there"] {
        fs::remove_dir(at(name)).unwrap();
    }
    assert_eq!(names(&shop), ["tank", "tank/a"]);
    export_and_judge(&shop);
}

#[test]
fn clones_are_destroyed_before_what_they_were_made_of_wherever_they_are() {
    let shop = pool();
    shop.succeed("zfs create -p tank/t/zz");
    shop.succeed("zfs snapshot tank/t/zz@s");
    shop.succeed("zfs clone tank/t/zz@s tank/t/aa");
    shop.succeed("zfs snapshot tank/t@s");
    shop.succeed("zfs clone tank/t@s tank/c1");
    shop.succeed("zfs snapshot tank/c1@x");
    shop.succeed("zfs clone tank/c1@x tank/t/sub");
    shop.succeed("zfs destroy -R tank/t");
    assert_eq!(names(&shop), ["tank", "tank/a"]);
    // A file system that is a clone of its own child.
    shop.succeed("zfs create tank/p");
    shop.succeed("zfs snapshot tank/p@s");
    shop.succeed("zfs clone tank/p@s tank/p/c");
    shop.succeed("zfs promote tank/p/c");
    let all = names(&shop);
    assert_eq!(
        shop.refuse("zfs destroy -R tank/p", 1),
        "cannot determine dependent datasets: recursive dependency at 'tank/p'\n"
    );
    assert_eq!(names(&shop), all);
    export_and_judge(&shop);
}

#[test]
fn later_snapshots_and_their_clones_are_in_the_way_of_a_rollback() {
    let shop = pool();
    for number in ["1", "2", "3"] {
        write(&shop, "a/file", number);
        shop.succeed(&format!("zfs snapshot tank/a@{number}"));
    }
    shop.succeed("zfs bookmark tank/a@3 #mark");
    shop.succeed("zfs clone tank/a@2 tank/clone");
    assert_eq!(read(&shop, "clone/file"), "2");
    let refused = shop.refuse("zfs rollback tank/a@1", 1);
    let why = "cannot rollback to 'tank/a@1': more recent snapshots or bookmarks exist\n\
               use '-r' to force deletion of the following snapshots and bookmarks:\n";
    assert!(refused.starts_with(why), "{refused}");
    for name in ["tank/a@3\n", "tank/a@2\n", "tank/a#mark\n"] {
        assert!(refused.contains(name), "{refused}");
    }
    assert_eq!(
        shop.refuse("zfs rollback -r tank/a@1", 1),
        "cannot rollback to 'tank/a@1': clones of previous snapshots exist\n\
         use '-R' to force deletion of the following clones and dependents:\ntank/clone\n"
    );
    shop.succeed("zfs rollback -R tank/a@1");
    assert_eq!(names(&shop), ["tank", "tank/a", "tank/a@1"]);
    assert_eq!(read(&shop, "a/file"), "1");
    export_and_judge(&shop);
}

#[test]
fn snapshots_are_destroyed_one_by_one_in_ranges_and_later() {
    let shop = pool();
    for number in 1..=6 {
        write(&shop, "a/file", &"x".repeat(number << 20));
        shop.succeed(&format!("zfs snapshot -r tank@{number}"));
    }
    let told = shop.succeed("zfs destroy -nvp tank/a@1%3,5");
    assert_eq!(told, shop.succeed("zfs destroy -np tank/a@1%3,5"), "-p tells by itself");
    let lines: Vec<_> = told.lines().collect();
    let destroyed = ["destroy\ttank/a@1", "destroy\ttank/a@2", "destroy\ttank/a@3"];
    assert_eq!(lines[..3], destroyed);
    assert_eq!(lines[3], "destroy\ttank/a@5");
    let reclaimed: u64 = lines[4].strip_prefix("reclaim\t").unwrap().parse().unwrap();
    assert!(reclaimed > 10 << 20, "{told}");
    let used = |shop: &Workshop| -> u64 {
        shop.succeed("zpool sync tank");
        shop.succeed("zfs get -Hpo value used tank/a").trim().parse().unwrap()
    };
    let before = used(&shop);
    shop.succeed("zfs destroy tank/a@1%3,5");
    assert_eq!(before - used(&shop), reclaimed);
    assert_eq!(
        shop.refuse("zfs destroy tank/a@nothing", 1),
        "could not find any snapshots to destroy; check snapshot names.\n"
    );
    shop.succeed("zfs hold keep tank/a@4");
    assert_eq!(
        shop.refuse("zfs destroy tank/a@4", 1),
        "cannot destroy snapshot tank/a@4: it's being held. \
         Run 'zfs holds -r tank/a@4' to see holders.\n"
    );
    let holds = shop.succeed("zfs holds -H tank/a@4");
    assert!(holds.starts_with("tank/a@4\tkeep\t"), "{holds}");
    assert_eq!(
        shop.refuse("zfs hold keep tank/a@4", 1),
        "cannot hold snapshot 'tank/a@4': tag already exists on this dataset\n"
    );
    assert_eq!(
        shop.refuse_words(&["zfs", "hold", "", "tank/a@4"], 1),
        "cannot hold snapshot 'tank/a@4': invalid tag\n"
    );
    assert_eq!(shop.succeed("zpool list -Ho health tank"), "ONLINE\n");
    let refused = shop.refuse("zfs hold also tank/a@4 tank/a@none tank/a@6", 1);
    assert_eq!(refused.lines().count(), 1, "{refused}");
    let holds = shop.run("zfs holds -H tank/a@4 tank/a@none tank/a@6");
    assert_eq!((holds.status, holds.out.lines().count()), (1, 3), "{holds:?}");
    shop.succeed("zfs release also tank/a@4 tank/a@6");
    shop.succeed("zfs destroy -d tank/a@4");
    assert_eq!(shop.succeed("zfs get -Ho value defer_destroy tank/a@4"), "on\n");
    shop.succeed("zfs release keep tank/a@4");
    assert!(!names(&shop).contains(&"tank/a@4".to_owned()));
    shop.succeed("zfs hold some tank/a@6");
    shop.succeed("zfs release -r some tank@6");
    assert_eq!(
        shop.refuse("zfs release -r some tank@6", 1),
        "cannot release hold from snapshot 'tank@6': no such tag on this dataset\n"
    );
    let reserved = shop.refuse("zfs hold .reserved tank@6", 2);
    assert!(reserved.starts_with("tag may not start with '.'\n"), "{reserved}");
    assert_eq!(
        shop.refuse("zfs release .reserved tank@6", 1),
        "cannot release hold from snapshot 'tank@6': no such tag on this dataset\n"
    );
    shop.succeed("zfs destroy -r tank@6");
    shop.succeed("zfs rename -r tank@1 @first");
    assert_eq!(
        names(&shop),
        ["tank", "tank@first", "tank@2", "tank@3", "tank@4", "tank@5", "tank/a"]
    );
    export_and_judge(&shop);
}

#[test]
fn clones_go_on_alone_once_they_are_promoted() {
    let shop = pool();
    write(&shop, "a/file", "shared");
    shop.succeed("zfs snapshot tank/a@s");
    shop.succeed("zfs clone -o recordsize=16K tank/a@s tank/b");
    write(&shop, "b/own", "own");
    assert_eq!(shop.succeed("zfs get -Ho value origin tank/b"), "tank/a@s\n");
    assert_eq!(
        shop.refuse("zfs destroy tank/a@s", 1),
        "cannot destroy 'tank/a@s': snapshot has dependent clones\n\
         use '-R' to destroy the following datasets:\ntank/b\n"
    );
    assert_eq!(
        shop.refuse("zfs destroy -r tank/a", 1),
        "cannot destroy 'tank/a': filesystem has dependent clones\n\
         use '-R' to destroy the following datasets:\ntank/b\n"
    );
    assert_eq!(
        shop.refuse("zfs promote tank/a", 1),
        "cannot promote 'tank/a': not a cloned filesystem\n"
    );
    shop.succeed("zfs promote tank/b");
    assert_eq!(shop.succeed("zfs get -Ho value origin tank/a"), "tank/b@s\n");
    shop.succeed("zfs destroy -r tank/a");
    assert_eq!(names(&shop), ["tank", "tank/b", "tank/b@s"]);
    assert_eq!((read(&shop, "b/file"), read(&shop, "b/own")), ("shared".into(), "own".into()));
    shop.succeed("zfs snapshot tank/b@t");
    shop.succeed("zfs clone -p tank/b@t tank/deep/down/c");
    shop.succeed("zfs destroy -R tank/b@t");
    assert_eq!(names(&shop), ["tank", "tank/b", "tank/b@s", "tank/deep", "tank/deep/down"]);
    export_and_judge(&shop);
}

/// Blocks of a destroyed snapshot are reused: reading an open file of it fails, and never returns
/// the new contents.
#[test]
fn files_of_a_destroyed_snapshot_are_stale() {
    let shop = pool();
    write(&shop, "a/file", &"old ".repeat(4 << 20));
    shop.succeed("zfs snapshot tank/a@s");
    fs::remove_file(place(&shop, "a/file")).unwrap();
    let mut open = File::open(place(&shop, "a/.zfs/snapshot/s/file")).unwrap();
    let mut start = [0; 4];
    open.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"old ");
    shop.succeed("zfs destroy tank/a@s");
    for number in 0..2 {
        write(&shop, &format!("a/new{number}"), &"new ".repeat(4 << 20));
        shop.succeed("zpool sync tank");
    }
    open.seek(SeekFrom::Start(14 << 20)).unwrap();
    let error = open.read_exact(&mut start).unwrap_err();
    assert_eq!(errno(&error), Some(Errno::STALE), "{error}");
    drop(open);
    assert!(!place(&shop, "a/.zfs/snapshot/s").exists());
    let status = shop.succeed("zpool status tank");
    assert!(status.contains("errors: No known data errors"), "{status}");
    let errors = shop.succeed("zpool status -p tank");
    let images = errors.lines().filter(|line| line.contains("/images/"));
    assert!(images.into_iter().all(|line| line.contains("ONLINE       0     0     0")), "{errors}");
    write(&shop, "a/file", "again");
    shop.succeed("zfs snapshot tank/a@s");
    assert_eq!(read(&shop, "a/.zfs/snapshot/s/file"), "again");
    export_and_judge(&shop);
}

/// A clone has the key of its origin, and becomes the encryption root when it is promoted.
#[test]
fn clones_of_encrypted_file_systems_have_their_key() {
    let shop = pool();
    let key = shop.rzfs.path("key");
    fs::write(&key, [7; 32]).unwrap();
    let location = format!("keylocation=file://{}", key.display());
    let encrypted = format!("-o encryption=on -o keyformat=raw -o {location}");
    shop.succeed(&format!("zfs create {encrypted} tank/secret"));
    shop.succeed("zfs create tank/secret/child");
    write(&shop, "secret/file", "hidden");
    write(&shop, "secret/child/file", "below");
    shop.succeed("zfs snapshot -r tank/secret@s");
    shop.succeed("zfs clone tank/secret@s tank/secret/copy");
    write(&shop, "secret/copy/own", "own");
    write(&shop, "secret/file", "changed");
    shop.succeed("zfs clone tank/secret@s tank/other");
    write(&shop, "other/own", "other");
    assert_eq!(shop.succeed("zfs get -Ho value encryptionroot tank/other"), "tank/secret\n");
    shop.succeed("zfs promote tank/other");
    let roots = "zfs get -Hro value encryptionroot -t filesystem tank/secret tank/other";
    assert_eq!(shop.succeed(roots), "tank/other\n".repeat(4));
    assert_eq!(shop.succeed("zfs get -Ho value keylocation tank/other"), {
        format!("{}\n", location.trim_start_matches("keylocation="))
    });
    export_and_judge(&shop);
    shop.succeed("zpool import -l -d IMAGES -R ROOT tank");
    for (name, text) in [
        ("secret/file", "changed"),
        ("secret/copy/file", "hidden"),
        ("secret/copy/own", "own"),
        ("secret/child/file", "below"),
        ("other/file", "hidden"),
        ("other/own", "other"),
        ("other/.zfs/snapshot/s/file", "hidden"),
    ] {
        assert_eq!(read(&shop, name), text, "{name}");
    }
    shop.succeed("zfs rollback tank/other@s");
    assert!(!place(&shop, "other/own").exists());
    shop.succeed("zfs destroy -R tank/other@s");
    assert_eq!(names(&shop), ["tank", "tank/a", "tank/other"]);
    export_and_judge(&shop);
}

/// If a clone has become the parent of its origin, each is found by way of the other.
#[test]
fn an_encrypted_clone_is_promoted_that_its_origin_lies_in() {
    let shop = pool();
    let key = shop.rzfs.path("key");
    fs::write(&key, [7; 32]).unwrap();
    let location = format!("-o keylocation=file://{}", key.display());
    let encrypted = format!("-o encryption=on -o keyformat=raw {location}");
    shop.succeed(&format!("zfs create {encrypted} tank/secret"));
    write(&shop, "secret/file", "hidden");
    shop.succeed("zfs snapshot tank/secret@s");
    shop.succeed("zfs clone tank/secret@s tank/copy");
    shop.succeed("zfs rename tank/secret tank/copy/secret");
    shop.succeed("zfs promote tank/copy");
    let roots = "zfs get -Hro value encryptionroot -t filesystem tank/copy";
    assert_eq!(shop.succeed(roots), "tank/copy\n".repeat(2));
    write(&shop, "copy/own", "own");
    export_and_judge(&shop);
    shop.succeed("zpool import -l -d IMAGES -R ROOT tank");
    for (name, text) in
        [("copy/file", "hidden"), ("copy/own", "own"), ("copy/secret/file", "hidden")]
    {
        assert_eq!(read(&shop, name), text, "{name}");
    }
    export_and_judge(&shop);
}

#[test]
fn a_tree_is_destroyed_though_somebody_takes_snapshots_of_it() {
    let shop = pool();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if is_over.load(std::sync::atomic::Ordering::Acquire) {
                    break;
                }
                shop.run(&format!("zfs snapshot -r tank/a@{round}"));
            }
        });
        for round in 0..8 {
            shop.succeed(&format!("zfs create -p tank/a/{round}/inner"));
            shop.succeed(&format!("zfs destroy -r tank/a/{round}"));
        }
        is_over.store(true, std::sync::atomic::Ordering::Release);
    });
    // Naming only the file system does not destroy its children and snapshots.
    shop.succeed("zfs create tank/kept");
    shop.succeed("zfs snapshot tank/kept@one");
    shop.refuse("zfs destroy tank/kept", 1);
    shop.succeed("zfs destroy -r tank/kept");
    export_and_judge(&shop);
}

/// The kernel keeps listings as long as the time of the directory is the same.
#[test]
fn lists_of_snapshots_are_right_however_fast_they_change() {
    let shop = pool();
    let listed = || {
        let names = fs::read_dir(place(&shop, "a/.zfs/snapshot")).unwrap();
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        let mut names: Vec<String> = names.map(|one| name(one.unwrap())).collect();
        names.sort();
        names
    };
    for number in 0..6 {
        shop.succeed(&format!("zfs snapshot tank/a@{number}"));
        let expected: Vec<_> = (0..=number).map(|one| one.to_string()).collect();
        assert_eq!(listed(), expected);
    }
    shop.succeed("zfs rename tank/a@5 tank/a@6");
    assert_eq!(listed(), ["0", "1", "2", "3", "4", "6"]);
    shop.succeed("zfs destroy tank/a@0%4");
    assert_eq!(listed(), ["6"]);
    export_and_judge(&shop);
}

/// Neither what a directory has on disk nor a file system of such a name takes its place.
#[test]
fn nothing_takes_the_place_of_the_snapshots() {
    let shop = pool();
    shop.succeed("zfs set snapdir=disabled tank/a");
    write(&shop, "a/file", "here");
    fs::create_dir_all(place(&shop, "a/.zfs/snapshot/one/more")).unwrap();
    shop.succeed("zfs snapshot tank/a@one");
    shop.succeed("zfs set snapdir=hidden tank/a");
    let shown = || {
        let all = fs::read_dir(place(&shop, "a")).unwrap();
        all.map(|one| one.unwrap().file_name()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(shown(), ["file"]);
        assert_eq!(read(&shop, "a/.zfs/snapshot/one/file"), "here");
    }
    shop.succeed("zfs set snapdir=visible tank/a");
    assert_eq!(shown().iter().filter(|name| *name == ".zfs").count(), 1);
    shop.succeed("zfs set snapdir=hidden tank/a");

    for (create, named) in [
        ("zfs create tank/a/.zfs", "tank/a/.zfs"),
        ("zfs create tank/a/.zfs/snapshot", "tank/a/.zfs/snapshot"),
        ("zfs create -o mountpoint=/tank/a/.zfs/snapshot tank/b", "tank/b"),
    ] {
        let refused = shop.run(create);
        let told = format!("cannot mount '{named}'");
        assert!(refused.status == 1 && refused.err.contains(&told), "{refused:?}");
        assert_eq!(shop.succeed(&format!("zfs get -Ho value mounted {named}")), "no\n");
        assert_eq!(read(&shop, "a/.zfs/snapshot/one/file"), "here");
    }
    shop.succeed("zpool export tank");
    let imported = shop.run("zpool import -d IMAGES -R ROOT tank");
    assert!(imported.err.contains("cannot mount 'tank/b'"), "{imported:?}");
    assert_eq!(read(&shop, "a/.zfs/snapshot/one/file"), "here");
    export_and_judge(&shop);
}
