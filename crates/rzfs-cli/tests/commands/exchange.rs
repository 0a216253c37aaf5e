//! File systems whose contents are replaced while they are mounted and in use.

use crate::harness::{PYTHON, has_python, mounts_on_mounts};
use crate::workshop::Workshop;
use rustix::io::Errno;
use rzfs_testkit::SetWhenDropped;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A pool `tank` with file systems `tank/a` and `tank/a/inner`.
fn pool() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    shop.succeed("zfs create -p tank/a/inner");
    shop
}

fn at(shop: &Workshop, name: &str) -> PathBuf {
    shop.root().join(name)
}

fn write(shop: &Workshop, name: &str, text: &str) {
    fs::write(at(shop, name), text).unwrap();
}

fn read(shop: &Workshop, name: &str) -> String {
    fs::read_to_string(at(shop, name)).unwrap()
}

fn kind(error: &std::io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// The ids of the mounts, as far as this process can see them.
fn mounts(shop: &Workshop) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let root = shop.root().display().to_string();
    let ours = table.lines().filter(|line| line.split(' ').nth(4).unwrap().starts_with(&root));
    let mut numbers: Vec<_> = ours.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    numbers.sort();
    numbers
}

fn export_and_judge(shop: &Workshop) {
    shop.succeed("zpool export tank");
    shop.judge();
}

/// Makes every kind of change after the snapshot `tank/a@then`, and reads everything, so that the
/// kernel caches it.
fn changed(shop: &Workshop) {
    for name in ["kept", "changed", "removed", "moved", "replaced"] {
        write(shop, &format!("a/{name}"), name);
    }
    for directory in ["directory", "emptied", "gone"] {
        fs::create_dir(at(shop, &format!("a/{directory}"))).unwrap();
        write(shop, &format!("a/{directory}/file"), directory);
    }
    fs::set_permissions(at(shop, "a/changed"), PermissionsExt::from_mode(0o644)).unwrap();
    shop.succeed("zfs snapshot tank/a@then");
    write(shop, "a/changed", "changed since");
    fs::set_permissions(at(shop, "a/changed"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::remove_file(at(shop, "a/removed")).unwrap();
    fs::rename(at(shop, "a/moved"), at(shop, "a/directory/moved")).unwrap();
    write(shop, "a/new", "new");
    fs::create_dir(at(shop, "a/new directory")).unwrap();
    write(shop, "a/new directory/file", "new");
    fs::remove_file(at(shop, "a/emptied/file")).unwrap();
    fs::remove_dir_all(at(shop, "a/gone")).unwrap();
    fs::remove_file(at(shop, "a/replaced")).unwrap();
    fs::create_dir(at(shop, "a/replaced")).unwrap();
    for missing in ["removed", "moved", "gone", "gone/file", "emptied/file", "never"] {
        assert!(!at(shop, &format!("a/{missing}")).exists());
    }
    names(&at(shop, "a"));
}

/// Checks that everything is as it was when the snapshot was taken.
fn assert_as_before(shop: &Workshop) {
    let all = [
        "changed",
        "directory",
        "emptied",
        "gone",
        "inner",
        "kept",
        "moved",
        "removed",
        "replaced",
    ];
    assert_eq!(names(&at(shop, "a")), all);
    for name in ["kept", "changed", "removed", "moved", "replaced"] {
        assert_eq!(read(shop, &format!("a/{name}")), name);
    }
    for directory in ["directory", "emptied", "gone"] {
        assert_eq!(names(&at(shop, &format!("a/{directory}"))), ["file"]);
        assert_eq!(read(shop, &format!("a/{directory}/file")), directory);
    }
    assert_eq!(fs::metadata(at(shop, "a/changed")).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn who_uses_a_file_system_that_is_rolled_back_goes_on() {
    let shop = pool();
    changed(&shop);
    write(&shop, "a/inner/file", "inner");
    let before = mounts(&shop);
    let kept = OpenOptions::new().read(true).write(true).open(at(&shop, "a/kept")).unwrap();
    let rewritten = File::open(at(&shop, "a/changed")).unwrap();
    let directory = File::open(at(&shop, "a/directory")).unwrap();
    let inner = OpenOptions::new().write(true).open(at(&shop, "a/inner/file")).unwrap();
    let gone = OpenOptions::new().read(true).write(true).open(at(&shop, "a/new")).unwrap();
    let numbers = |name: &str| fs::metadata(at(&shop, name)).unwrap().ino();
    let of_kept = numbers("a/kept");
    shop.succeed("zfs rollback tank/a@then");
    assert_as_before(&shop);
    assert_eq!(mounts(&shop), before, "nothing was mounted anew");
    assert_eq!(numbers("a/kept"), of_kept);

    kept.write_all_at(b"KEPT", 0).unwrap();
    assert_eq!(read(&shop, "a/kept"), "KEPT");
    kept.write_all_at(b"kept", 0).unwrap();
    let mut contents = [0; 32];
    let len = rewritten.read_at(&mut contents, 0).unwrap();
    assert_eq!(&contents[..len], b"changed");
    let opened = rustix::fs::openat(
        directory.as_fd(),
        "file",
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    );
    drop(opened.unwrap());
    inner.write_all_at(b"INNER", 0).unwrap();
    assert_eq!(read(&shop, "a/inner/file"), "INNER");
    for error in [
        gone.read_at(&mut contents, 0).unwrap_err(),
        gone.write_at(b"lost", 0).unwrap_err(),
        gone.metadata().unwrap_err(),
    ] {
        assert!(matches!(kind(&error), Some(Errno::STALE | Errno::IO)), "{error}");
    }

    // The kernel caches neither names that existed nor names that were missing.
    for name in ["new", "never"] {
        let path = at(&shop, &format!("a/{name}"));
        File::create_new(&path).unwrap().write_all(b"once more").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"once more");
        fs::remove_file(&path).unwrap();
    }
    fs::create_dir(at(&shop, "a/new directory")).unwrap();
    assert!(names(&at(&shop, "a/new directory")).is_empty());
    fs::remove_dir(at(&shop, "a/new directory")).unwrap();
    assert_as_before(&shop);
    drop((kept, rewritten, directory, inner, gone));
    shop.succeed("zfs rollback tank/a@then");
    assert_as_before(&shop);
    export_and_judge(&shop);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_as_before(&shop);
    assert_eq!(read(&shop, "a/inner/file"), "INNER");
    export_and_judge(&shop);
}

#[test]
fn who_has_a_file_that_is_gone_never_gets_another_one_of_its_number() {
    let shop = pool();
    shop.succeed("zfs snapshot tank/a@then");
    for round in 0..5 {
        let mut stale = Vec::new();
        for number in 0..20 {
            let file = File::create_new(at(&shop, &format!("a/{number}"))).unwrap();
            file.write_all_at(b"of who has lost it", 0).unwrap();
            stale.push(file);
        }
        shop.succeed("zfs rollback tank/a@then");
        for number in 0..40 {
            let path = at(&shop, &format!("a/again {number}"));
            File::create_new(path).unwrap().write_all(b"secret").unwrap();
            for file in &stale {
                file.write_at(b"OVERWRITTEN", 0).unwrap_err();
                file.read_at(&mut [0; 4], 0).unwrap_err();
                file.set_len(0).unwrap_err();
            }
        }
        for number in 0..40 {
            assert_eq!(read(&shop, &format!("a/again {number}")), "secret", "round {round}");
        }
        drop(stale);
        for number in 0..40 {
            assert_eq!(read(&shop, &format!("a/again {number}")), "secret", "round {round}");
        }
        shop.succeed("zfs rollback tank/a@then");
    }
    assert_eq!(names(&at(&shop, "a")), ["inner"]);
    export_and_judge(&shop);
}

/// Stores into a page of a file, prints it, and stores once more, each time it reads a line.
const MAPPING: &str = "
import mmap, sys
file = open(sys.argv[1], 'r+b')
page = mmap.mmap(file.fileno(), 4096)
page[:4096] = b'x' * 4096
print('stored', flush=True)
sys.stdin.readline()
print(page[:6].decode(), flush=True)
page[:1] = b'B'
page.flush()
";

#[test]
fn what_is_stored_in_a_mapping_is_gone_with_what_it_was_stored_into() {
    if !has_python() {
        return;
    }
    let shop = pool();
    write(&shop, "a/file", &"before".repeat(1000));
    shop.succeed("zfs snapshot tank/a@then");
    let mut python = Command::new(PYTHON);
    python.args(["-c", MAPPING]).arg(at(&shop, "a/file"));
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(python.stdout.take().unwrap()).lines();
    assert_eq!(told.next().unwrap().unwrap(), "stored");
    shop.succeed("zfs rollback tank/a@then");
    assert_eq!(read(&shop, "a/file"), "before".repeat(1000));
    python.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(told.next().unwrap().unwrap(), "before");
    assert!(python.wait().unwrap().success());
    assert!(read(&shop, "a/file").starts_with("Beforebefore"));
    export_and_judge(&shop);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert!(read(&shop, "a/file").starts_with("Beforebefore"));
    export_and_judge(&shop);
}

#[test]
fn what_is_mounted_below_stays_though_its_directory_is_gone() {
    let shop = pool();
    fs::create_dir(at(&shop, "a/way")).unwrap();
    write(&shop, "a/way/beside", "beside");
    shop.succeed("zfs snapshot tank/a@then");
    shop.succeed("zfs create -p tank/a/later/inner");
    shop.succeed("zfs create tank/a/way");
    write(&shop, "a/later/inner/file", "later");
    write(&shop, "a/way/file", "in the way");
    let open = OpenOptions::new().write(true).open(at(&shop, "a/later/inner/file")).unwrap();
    let before = mounts(&shop);
    for _ in 0..3 {
        shop.succeed("zfs rollback tank/a@then");
        assert_eq!(mounts(&shop), before);
        assert_eq!(names(&at(&shop, "a")), ["inner", "later", "way"]);
        assert_eq!(read(&shop, "a/later/inner/file"), "later");
        assert_eq!(read(&shop, "a/way/file"), "in the way");
        open.write_all_at(b"later", 0).unwrap();
        // None of this is in the file system, except directories that root makes to mount on.
        let own: &[&str] = if mounts_on_mounts() { &["inner", "way"] } else { &["way"] };
        assert_eq!(names(&at(&shop, "a/.zfs/snapshot/then")), own);
        assert_eq!(shop.succeed("zfs get -Hpo value written tank/a"), "0\n");
        write(&shop, "a/more", "more");
        assert_eq!(read(&shop, "a/more"), "more");
    }
    drop(open);
    shop.succeed("zfs unmount tank/a/way");
    assert_eq!(read(&shop, "a/way/beside"), "beside");
    shop.succeed("zfs destroy -r tank/a/later");
    shop.succeed("zfs create tank/a/later");
    write(&shop, "a/later/file", "once more");
    export_and_judge(&shop);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(read(&shop, "a/later/file"), "once more");
    export_and_judge(&shop);
}

/// Writes files by path until it is told to stop; returns how many.
fn write_until(directory: &Path, is_over: &AtomicBool) -> usize {
    let mut count = 0;
    while !is_over.load(Ordering::Acquire) {
        let file = File::create_new(directory.join(count.to_string())).unwrap();
        file.write_all_at(b"written", 0).unwrap();
        file.sync_all().unwrap();
        count += 1;
    }
    count
}

#[test]
fn nobody_writes_into_what_is_below_while_contents_are_exchanged() {
    let shop = pool();
    write(&shop, "a/file", "file");
    shop.succeed("zfs snapshot tank/a@then");
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let inner = scope.spawn(|| write_until(&at(&shop, "a/inner"), &is_over));
        let outer = scope.spawn(|| {
            let mut round = 0_u64;
            while !is_over.load(Ordering::Acquire) {
                // The file exists at every moment, whatever happens to the files beside it.
                assert_eq!(read(&shop, "a/file"), "file");
                round += 1;
                match fs::write(at(&shop, &format!("a/{round}")), "beside") {
                    Ok(()) => {}
                    Err(error) => assert!(matches!(kind(&error), Some(Errno::STALE)), "{error}"),
                }
            }
            round
        });
        let end = SetWhenDropped(&is_over);
        for _ in 0..10 {
            shop.succeed("zfs rollback tank/a@then");
        }
        drop(end);
        assert!(outer.join().unwrap() > 0);
        inner.join().unwrap()
    });
    assert!(written > 0);
    assert_eq!(names(&at(&shop, "a/inner")).len(), written);
    shop.succeed("zfs rollback tank/a@then");
    assert_eq!(names(&at(&shop, "a")), ["file", "inner"]);
    export_and_judge(&shop);
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(names(&at(&shop, "a/inner")).len(), written);
    export_and_judge(&shop);
}

#[test]
fn who_uses_a_file_system_that_receives_goes_on() {
    let shop = pool();
    shop.succeed("zfs create tank/copy");
    changed(&shop);
    shop.succeed("zfs snapshot tank/a@now");
    let pass = |send: &str, receive: &str| {
        let command = |line: &str| {
            let mut command = shop.rzfs.command();
            command.args(line.split(' '));
            command
        };
        let mut sender = command(send).stdout(Stdio::piped()).spawn().unwrap();
        let stream = sender.stdout.take().unwrap();
        let received = command(receive).stdin(stream).output().unwrap();
        assert!(received.status.success() && sender.wait().unwrap().success(), "{received:?}");
    };
    write(&shop, "copy/own", "own");
    let open = File::open(at(&shop, "copy")).unwrap();
    let before = mounts(&shop);
    pass("zfs send tank/a@then", "zfs receive -F -o atime=off tank/copy");
    assert_eq!(mounts(&shop), before);
    assert_eq!(read(&shop, "copy/changed"), "changed");
    assert!(!at(&shop, "copy/own").exists() && !at(&shop, "copy/new").exists());
    shop.succeed("zfs create tank/copy/later");
    write(&shop, "copy/later/file", "later");
    let before = mounts(&shop);
    let kept = File::open(at(&shop, "copy/kept")).unwrap();
    let removed = File::open(at(&shop, "copy/removed")).unwrap();
    pass("zfs send -i @then tank/a@now", "zfs receive -F tank/copy");
    assert_eq!(mounts(&shop), before);
    assert_eq!(read(&shop, "copy/changed"), "changed since");
    assert_eq!(read(&shop, "copy/new directory/file"), "new");
    assert_eq!(read(&shop, "copy/later/file"), "later");
    assert!(!at(&shop, "copy/removed").exists() && !at(&shop, "copy/moved").exists());
    assert!(open.metadata().unwrap().is_dir());
    let mut contents = [0; 4];
    kept.read_exact_at(&mut contents, 0).unwrap();
    assert_eq!(&contents, b"kept");
    removed.read_at(&mut contents, 0).unwrap_err();
    drop((open, kept, removed));
    export_and_judge(&shop);
}

#[test]
fn a_shell_in_a_directory_goes_on() {
    let shop = pool();
    fs::create_dir(at(&shop, "a/work")).unwrap();
    write(&shop, "a/work/file", "before");
    shop.succeed("zfs snapshot tank/a@then");
    write(&shop, "a/work/file", "after");
    let script = "read go; cat file; read go; cat file; echo new > new; cat new";
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(at(&shop, "a/work"));
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = shell.stdin.take().unwrap();
    input.write_all(b"\n").unwrap();
    shop.succeed("zfs rollback tank/a@then");
    input.write_all(b"\n").unwrap();
    drop(input);
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.ends_with("beforenew\n"), "{said}");
    export_and_judge(&shop);
}

/// Prints the length that the kernel has cached for an open file, without requesting attributes:
/// the number of bytes that `sendfile` sends.
const SENT: &str = "
import os, sys
source = os.open(sys.argv[1], os.O_RDONLY)
os.fstat(source)
print('open', flush=True)
sys.stdin.readline()
target = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
while os.sendfile(target, source, None, 1 << 20):
    pass
";

#[test]
fn what_is_appended_is_at_the_end_that_a_file_has_now() {
    if !has_python() {
        return;
    }
    let shop = pool();
    for name in ["longer", "shorter", "direct"] {
        write(&shop, &format!("a/{name}"), "line 1\nline 2\n");
    }
    let large = "words ".repeat(10_000);
    write(&shop, "a/large", &large);
    shop.succeed("zfs snapshot tank/a@then");
    write(&shop, "a/longer", "");
    write(&shop, "a/shorter", &"much more ".repeat(1000));
    write(&shop, "a/large", "few");
    let open = |name: &str| {
        let file = OpenOptions::new().append(true).open(at(&shop, &format!("a/{name}"))).unwrap();
        file.metadata().unwrap();
        file
    };
    let files = ["longer", "shorter"].map(|name| (name, open(name)));
    let mut python = Command::new(PYTHON);
    python.args(["-c", SENT]).args([at(&shop, "a/large"), shop.rzfs.path("sent")]);
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(python.stdout.take().unwrap()).lines();
    assert_eq!(told.next().unwrap().unwrap(), "open");
    shop.succeed("zfs rollback tank/a@then");
    for (name, mut file) in files {
        file.write_all(b"line 3\n").unwrap();
        file.write_all(b"line 4\n").unwrap();
        let expected = "line 1\nline 2\nline 3\nline 4\n";
        assert_eq!(read(&shop, &format!("a/{name}")), expected, "{name}");
        file.write_all(b"line 5\n").unwrap();
        let expected = format!("{expected}line 5\n");
        assert_eq!(read(&shop, &format!("a/{name}")), expected, "{name}");
    }
    python.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(python.wait().unwrap().success());
    assert_eq!(fs::read_to_string(shop.rzfs.path("sent")).unwrap(), large);
    export_and_judge(&shop);
}

#[test]
fn files_have_one_number_each_though_others_had_theirs() {
    let shop = pool();
    shop.succeed("zfs snapshot tank/a@then");
    let old: Vec<_> =
        (0..4).map(|n| File::create_new(at(&shop, &format!("a/old {n}"))).unwrap()).collect();
    shop.succeed("zfs rollback tank/a@then");
    let number = |name: &str| fs::metadata(at(&shop, name)).unwrap().ino();
    for name in ["one", "two", "three"] {
        let name = format!("a/{name}");
        write(&shop, &name, "new");
        fs::hard_link(at(&shop, &name), at(&shop, &format!("{name} again"))).unwrap();
        let first = number(&name);
        fs::set_permissions(at(&shop, &name), PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!([number(&name), number(&format!("{name} again"))], [first; 2]);
        let all = fs::read_dir(at(&shop, "a")).unwrap().map(Result::unwrap);
        use std::os::unix::fs::DirEntryExt;
        let listed: Vec<_> = all
            .filter(|entry| at(&shop, "a").join(entry.file_name()).starts_with(at(&shop, &name)))
            .map(|entry| entry.ino())
            .collect();
        assert_eq!(listed, [first]);
    }
    drop(old);
    export_and_judge(&shop);
}

#[test]
fn what_stays_for_a_mount_has_a_number_and_rights_of_its_own() {
    let shop = pool();
    fs::create_dir(at(&shop, "a/private")).unwrap();
    let private = || fs::Permissions::from_mode(0o700);
    fs::set_permissions(at(&shop, "a/private"), private()).unwrap();
    shop.succeed("zfs snapshot tank/a@then");
    fs::rename(at(&shop, "a/private"), at(&shop, "a/elsewhere")).unwrap();
    for name in ["private", "new"] {
        fs::create_dir(at(&shop, &format!("a/{name}"))).unwrap();
        fs::set_permissions(at(&shop, &format!("a/{name}")), private()).unwrap();
        let mountpoint = at(&shop, &format!("a/{name}/mounted"));
        // The path is already below the alternate root of the pool.
        let below =
            format!("/{}", mountpoint.strip_prefix(shop.rzfs.path("root")).unwrap().display());
        shop.succeed(&format!("zfs create -o mountpoint={below} tank/{name}"));
        write(&shop, &format!("a/{name}/mounted/file"), name);
    }
    for name in ["t1", "t2"] {
        shop.succeed(&format!("zfs create tank/a/{name}"));
        write(&shop, &format!("a/{name}/file"), name);
        shop.succeed("zfs rollback tank/a@then");
    }
    write(&shop, "a/file", "new");
    assert_eq!(read(&shop, "a/file"), "new");
    for name in ["private/mounted", "new/mounted", "t1", "t2"] {
        let last = name.split('/').next().unwrap();
        assert_eq!(read(&shop, &format!("a/{name}/file")), last);
    }
    for name in ["private", "new"] {
        assert_eq!(fs::metadata(at(&shop, &format!("a/{name}"))).unwrap().mode() & 0o777, 0o700);
    }
    export_and_judge(&shop);
}

/// Creates a file system whose mount point is below a directory of `tank/a`.
fn mount_below(shop: &Workshop, dataset: &str, directory: &str) {
    let mountpoint = at(shop, directory);
    // The path is already below the alternate root of the pool.
    let below = mountpoint.strip_prefix(shop.rzfs.path("root")).unwrap().display();
    shop.succeed(&format!("zfs create -o mountpoint=/{below} {dataset}"));
}

#[test]
fn a_directory_that_has_another_name_leaves_what_is_mounted_below_it() {
    let shop = pool();
    fs::create_dir_all(at(&shop, "a/public/plain/deep")).unwrap();
    write(&shop, "a/public/file", "public");
    write(&shop, "a/public/plain/deep/file", "plain");
    shop.succeed("zfs snapshot tank/a@then");
    fs::rename(at(&shop, "a/public"), at(&shop, "a/private")).unwrap();
    fs::set_permissions(at(&shop, "a/private"), fs::Permissions::from_mode(0o700)).unwrap();
    mount_below(&shop, "tank/deep", "a/private/plain/deep");
    mount_below(&shop, "tank/new", "a/private/new");
    write(&shop, "a/private/plain/deep/file", "secret");
    write(&shop, "a/private/new/file", "secret");
    assert_eq!(read(&shop, "a/private/file"), "public");
    let stayed = File::open(at(&shop, "a/private")).unwrap();
    let before = mounts(&shop);
    for _ in 0..2 {
        shop.succeed("zfs rollback tank/a@then");
        assert_eq!(mounts(&shop), before);
        assert_eq!(shop.succeed("zfs get -Ho value mounted tank/deep tank/new"), "yes\nyes\n");
        assert_eq!(read(&shop, "a/private/plain/deep/file"), "secret");
        assert_eq!(read(&shop, "a/private/new/file"), "secret");
        // Each is mounted in one place, and the renamed directory has its old contents again.
        assert_eq!(read(&shop, "a/public/plain/deep/file"), "plain");
        assert_eq!(names(&at(&shop, "a/public")), ["file", "plain"]);
        assert_eq!(names(&at(&shop, "a/private")), ["new", "plain"]);
        assert_eq!(names(&at(&shop, "a/private/plain")), ["deep"]);
        let gone = fs::read(at(&shop, "a/private/file")).unwrap_err();
        assert_eq!(kind(&gone), Some(Errno::NOENT));
        let metadata = |name: &str| fs::metadata(at(&shop, name)).unwrap();
        let (public, private) = (metadata("a/public"), metadata("a/private"));
        assert_eq!(private.ino(), stayed.metadata().unwrap().ino());
        assert_ne!(public.ino(), private.ino());
        assert_ne!(metadata("a/public/plain").ino(), metadata("a/private/plain").ino());
        assert_eq!((public.mode() & 0o777, private.mode() & 0o777), (0o755, 0o700));
        write(&shop, "a/public/plain/deep/more", "more");
        assert_eq!(names(&at(&shop, "a/private/plain/deep")), ["file"]);
    }
    drop(stayed);
    export_and_judge(&shop);
}

/// Stores numbers into pages of a file, each followed by msync(2), until its input ends.
const CONFIRMED_STORES: &str = "import mmap, os, random, select, sys
file = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(file, 1 << 20)
print('stores', flush=True)
number = 0
while not select.select([0], [], [], 0)[0]:
    number += 1
    page = random.randrange(256) * 4096
    memory[page:page + 8] = b'%08d' % number
    memory.flush(page, 4096)
";

#[test]
fn what_is_stored_while_contents_are_exchanged_is_on_disk_or_gone() {
    if !has_python() {
        return;
    }
    let shop = pool();
    // While the kernel is notified of these, it already caches pages of the other's new contents.
    let others = || (0..1500).map(|number| at(&shop, &format!("a/{number}")));
    others().for_each(|other| fs::write(other, "then").unwrap());
    write(&shop, "a/stored", &".".repeat(1 << 20));
    write(&shop, "a/short", "then, and longer than what is written later");
    shop.succeed("zfs snapshot tank/a@then");
    for _ in 0..3 {
        others().for_each(|other| fs::write(other, "since").unwrap());
        write(&shop, "a/short", "short");
        let mut python = Command::new(PYTHON);
        python.args(["-c", CONFIRMED_STORES]).arg(at(&shop, "a/stored"));
        let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(python.stdout.take().unwrap()).lines();
        assert_eq!(told.next().unwrap().unwrap(), "stores");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The kernel is notified of its length while it changes.
            scope.spawn(|| {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    write(&shop, "a/short", &format!("{number}").repeat(5));
                }
            });
            let _end = SetWhenDropped(&is_over);
            shop.succeed("zfs rollback tank/a@then");
            std::thread::sleep(Duration::from_millis(200));
        });
        drop(python.stdin.take());
        assert!(python.wait().unwrap().success());
        let shown = ["a/stored", "a/short"].map(|name| read(&shop, name));
        shop.succeed("zfs unmount tank/a/inner");
        shop.succeed("zfs unmount tank/a");
        shop.succeed("zfs mount tank/a");
        shop.succeed("zfs mount tank/a/inner");
        assert_eq!(["a/stored", "a/short"].map(|name| read(&shop, name)), shown);
    }
    export_and_judge(&shop);
}
