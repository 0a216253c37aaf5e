//! Property changes that take effect on running mounts.

use crate::harness::outcome;
use crate::workshop::Workshop;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::process::getuid;
use rzfs_testkit::has_root;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::chown;
use std::process::Command;

const EDQUOT: i32 = 122;

#[test]
fn a_mount_in_use_follows_readonly() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let root = shop.root();
    fs::write(root.join("file"), "one").unwrap();
    // A directory in use keeps the mount from being unmounted. Only root can change such a mount.
    let in_use = getuid().is_root().then(|| File::open(&root).unwrap());
    shop.succeed("zfs set readonly=on tank");
    for refused in [
        fs::write(root.join("file"), "two"),
        fs::create_dir(root.join("dir")),
        fs::remove_file(root.join("file")),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(fs::read_to_string(root.join("file")).unwrap(), "one");
    shop.succeed("zfs set readonly=off tank");
    fs::write(root.join("file"), "three").unwrap();
    drop(in_use);
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn files_that_are_open_for_writing_become_read_only() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    let mut file = File::create(shop.root().join("file")).unwrap();
    file.write_all(b"one").unwrap();
    // The kernel refuses to make a mount with such files read-only, and that is reported.
    shop.run("zfs set readonly=on tank");
    assert_eq!(file.write_all(b"two").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    drop(file);
    shop.succeed("zfs inherit readonly tank");
    fs::write(shop.root().join("file"), "three").unwrap();
}

#[test]
fn quotas_of_users_groups_and_projects_are_set_and_kept() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT -O compression=off tank A");
    let file = shop.root().join("file");
    fs::write(&file, vec![1; 3 << 20]).unwrap();
    chown(&file, Some(4711), Some(4712)).unwrap();
    shop.succeed("zpool sync");
    let used = shop.succeed("zfs get -Hpo value userused@4711 tank");
    assert!(used.trim().parse::<u64>().unwrap() > 3 << 20, "{used}");
    assert_eq!(shop.succeed("zfs get -Ho value userobjused@4711 tank"), "1\n");
    assert_eq!(shop.succeed("zfs get -Ho value,source userquota@4711 tank"), "none\tlocal\n");
    shop.succeed("zfs set userquota@4711=2M groupobjquota@4712=7 tank");
    assert_eq!(shop.succeed("zfs get -Ho value userquota@4711 tank"), "2M\n");
    assert_eq!(shop.succeed("zfs get -Hpo value groupobjquota@4712 tank"), "7\n");
    let more = File::options().append(true).open(&file).unwrap().write_all(&vec![2; 1 << 20]);
    assert_eq!(more.unwrap_err().raw_os_error(), Some(EDQUOT));
    shop.succeed("zfs set userquota@4711=none tank");
    File::options().append(true).open(&file).unwrap().write_all(&vec![2; 1 << 20]).unwrap();
    for (line, text) in [
        (
            "zfs set userquota@no-such-user=1G tank",
            "cannot set property for 'tank': 'userquota@no-such-user' has an invalid user/group name\n",
        ),
        (
            "zfs set userquota@4711=0 tank",
            "cannot set property for 'tank': use 'none' to disable userquota/groupquota/projectquota\n",
        ),
        (
            "zfs set userused@4711=1 tank",
            "cannot set property for 'tank': 'userused@4711' is readonly\n",
        ),
    ] {
        assert_eq!(shop.refuse(line, 255), text, "{line}");
    }
    shop.succeed("zpool export tank");
    shop.judge();
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(shop.succeed("zfs get -Hpo value groupobjquota@4712 tank"), "7\n");
}

#[test]
fn one_dataset_that_is_not_there_keeps_a_property_from_no_other() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    shop.succeed("zfs create tank/b");
    let missing = "cannot open 'tank/none': dataset does not exist\n";
    assert_eq!(shop.refuse("zfs set atime=off tank/a tank/none tank/b", 1), missing);
    assert_eq!(shop.succeed("zfs get -Ho value atime tank/a tank/b"), "off\noff\n");
    assert_eq!(
        shop.refuse("zfs inherit atime tank/none tank/b tank/a", 1),
        "cannot inherit atime for 'tank/none': dataset does not exist\n"
    );
    assert_eq!(shop.succeed("zfs get -Ho value atime tank/a tank/b"), "on\non\n");
    shop.succeed("zpool export tank");
}

#[test]
fn opening_files_is_checked_where_a_property_says_so() {
    if !has_root("only root makes files immutable") {
        return;
    }
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/sub");
    let file = shop.root().join("sub/file");
    fs::write(&file, "text").unwrap();
    let chattr = |flag| Command::new("chattr").arg(flag).arg(&file).status().unwrap();
    assert!(chattr("+i").success());
    let open = || File::options().append(true).open(&file);
    drop(open().unwrap());
    let is_refused = || open().is_err_and(|error| error.raw_os_error() == Some(1));
    let busy = File::open(&file).unwrap();
    let told = shop.run("zfs set rzfs:open=checked tank");
    assert_eq!(told.err, "property may be set but unable to remount filesystem\n", "{told:?}");
    assert!(!is_refused(), "a mount that is in use stays as it is");
    drop(busy);
    shop.succeed("zfs set rzfs:open=checked tank");
    assert!(is_refused());
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    shop.succeed("zfs inherit rzfs:open tank");
    drop(open().unwrap());
    assert!(chattr("-i").success());
    shop.succeed("zpool export tank");
}

#[test]
fn what_can_be_allocated_can_be_written_with_all_its_copies() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 160M -R ROOT tank A");
    shop.succeed("zfs set copies=2 tank");
    shop.succeed("zfs set compression=off tank");
    // Data that is not on disk yet is also counted.
    fs::write(shop.root().join("earlier"), vec![1; 4 << 20]).unwrap();
    let mut file = File::create(shop.root().join("file")).unwrap();
    let (mut fits, mut too_much) = (0_u64, 160 << 20);
    while too_much - fits > 1 << 20 {
        let middle = fits.midpoint(too_much);
        match fallocate(&file, FallocateFlags::KEEP_SIZE, 0, middle) {
            Ok(()) => fits = middle,
            Err(error) => {
                assert_eq!(error, Errno::NOSPC);
                too_much = middle;
            }
        }
    }
    assert!(fits > 8 << 20, "{fits}");
    for _ in 0..fits >> 20 {
        file.write_all(&[1; 1 << 20]).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn mounts_in_use_show_at_once_what_snapdir_says() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    shop.succeed("zfs create tank/sub");
    let roots = [shop.root(), shop.root().join("sub")];
    for (word, is_there, is_listed) in [
        ("visible", true, true),
        ("hidden", true, false),
        ("disabled", false, false),
        ("visible", true, true),
        ("disabled", false, false),
        ("hidden", true, false),
    ] {
        shop.succeed(&format!("zfs set snapdir={word} tank"));
        for root in &roots {
            for _ in 0..2 {
                let listed = fs::read_dir(root).unwrap();
                let listed = listed.filter(|entry| entry.as_ref().unwrap().file_name() == ".zfs");
                assert_eq!(listed.count() == 1, is_listed, "{word} {root:?}");
                assert_eq!(root.join(".zfs").exists(), is_there, "{word} {root:?}");
            }
        }
    }
    shop.succeed("zpool export tank");
}

#[test]
fn files_with_long_names_are_used_when_no_more_can_be_made() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT -O longname=on tank A");
    let [long, other, new] = ["l", "o", "n"].map(|name| shop.root().join(name.repeat(400)));
    fs::write(&long, "long").unwrap();
    fs::write(&other, "other").unwrap();
    shop.succeed("zfs set longname=off tank");
    let remount = |options: &str| {
        shop.succeed("zpool export tank");
        shop.succeed(&format!("zpool import -d IMAGES -R ROOT{options} tank"));
    };
    remount(" -o readonly=on");
    assert_eq!(fs::read_to_string(&long).unwrap(), "long");
    assert_eq!(fs::metadata(&new).unwrap_err().raw_os_error(), Some(36));
    remount("");
    assert_eq!(fs::read_to_string(&long).unwrap(), "long");
    for refused in [fs::write(&new, ""), fs::rename(&long, &new), fs::metadata(&new).map(drop)] {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(36));
    }
    fs::rename(&long, shop.root().join("short")).unwrap();
    fs::remove_file(&other).unwrap();
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn times_are_told_in_the_zone_that_is_named() {
    let shop = Workshop::new();
    if !std::path::Path::new("/usr/share/zoneinfo/Asia/Kolkata").exists() {
        return;
    }
    shop.succeed("zpool create --size 96M -m none tank A");
    let told = |zone: &str| {
        let mut command = shop.rzfs.command();
        command.env("TZ", zone).args(["zpool", "history", "tank"]);
        let told = outcome(&mut command);
        assert_eq!((told.status, told.err.as_str()), (0, ""), "{zone}");
        told.out
    };
    assert_eq!(told("Asia/Kolkata"), told("IST-5:30"));
    assert_eq!(told(":Asia/Kolkata"), told("IST-5:30"));
    assert_ne!(told("Asia/Kolkata"), told("UTC"));
    shop.succeed("zpool export tank");
}

#[test]
fn mount_points_have_one_slash_between_names_and_are_never_empty() {
    let shop = Workshop::new();
    let shown = |name: &str| shop.succeed(&format!("zfs get -Ho value mountpoint {name}"));
    shop.succeed("zpool create --size 96M -m none tank A");
    shop.succeed("zfs create -u -o canmount=off -o mountpoint=//srv///a// tank/a");
    shop.succeed("zfs create -u -o canmount=off tank/a/b");
    assert_eq!((shown("tank/a"), shown("tank/a/b")), ("/srv/a\n".into(), "/srv/a/b\n".into()));
    for (typed, kept) in [("//", "/"), ("/", "/"), ("///x", "/x"), ("/x/y//", "/x/y")] {
        shop.succeed(&format!("zfs set -u mountpoint={typed} tank/a"));
        assert_eq!(shown("tank/a"), format!("{kept}\n"), "{typed}");
        let below = if kept == "/" { "/b\n".to_owned() } else { format!("{kept}/b\n") };
        assert_eq!(shown("tank/a/b"), below, "{typed}");
    }
    shop.succeed("zpool destroy tank");
    let root = shop.rzfs.path("root").display().to_string();
    for options in ["-m //", "-O mountpoint=//", "-m /", "-O mountpoint=///"] {
        shop.succeed(&format!(
            "zpool create -f --size 96M -R ROOT -O canmount=off {options} tank A"
        ));
        assert_eq!(shown("tank"), format!("{root}\n"), "{options}");
        shop.succeed("zpool destroy tank");
    }
    shop.succeed("zpool create -f --size 96M -R ROOT -O canmount=off -m //x//y/ tank A");
    assert_eq!(shown("tank"), format!("{root}/x/y\n"));
    shop.succeed("zpool export tank");
}

#[test]
fn properties_of_users_are_inherited_in_the_whole_tree_with_its_snapshots() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    shop.succeed("zfs create tank/a");
    shop.succeed("zfs snapshot -r tank@s");
    shop.succeed("zfs set u:v=1 tank/a tank/a@s");
    shop.succeed("zfs inherit -r u:v tank");
    assert_eq!(shop.succeed("zfs get -rH -t all -s local -o name,value u:v tank"), "");
    // Zero is printed with a unit.
    assert_eq!(shop.succeed("zfs list -Ho written@s tank/a"), "0B\n");
    assert!(shop.succeed("zfs destroy -nv tank/a@s").ends_with("would reclaim 0B\n"));
    shop.refuse("zfs set quota=10M quota=20M tank", 255);
}
