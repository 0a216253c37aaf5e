//! Space and objects used by users, groups and projects.

use crate::workshop::Workshop;
use rzfs_testkit::has_root;
use std::fs;
use std::os::unix::fs::chown;

/// A file system `tank/a` whose files belong to users and groups without names.
fn shop() -> Workshop {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT -O compression=off tank A");
    shop.succeed("zfs create tank/a");
    let sizes = [(300_000, 4200, 5200), (3_000_000, 4300, 5300), (1500, 4300, 5200)];
    for (number, (size, user, group)) in sizes.into_iter().enumerate() {
        let file = shop.root().join(format!("a/{number}"));
        fs::write(&file, vec![1; size]).unwrap();
        chown(&file, Some(user), Some(group)).unwrap();
    }
    shop.succeed("zfs set userquota@4300=10M userquota@9999=5M groupobjquota@5100=3 tank/a");
    shop.succeed("zfs snapshot tank/a@then");
    shop
}

#[test]
fn what_users_and_groups_use_is_listed() {
    if !has_root("files have several owners") {
        return;
    }
    let shop = shop();
    let listed = |line: &str| shop.succeed(line);
    // OpenZFS prints the same.
    assert_eq!(
        listed("zfs userspace tank/a"),
        "TYPE        NAME   USED  QUOTA  OBJUSED  OBJQUOTA\n\
         POSIX User  root   512B   none        1      none\n\
         POSIX User  4200   386K   none        1      none\n\
         POSIX User  4300  2.88M    10M        2      none\n\
         POSIX User  9999     0B     5M        -         -\n"
    );
    assert_eq!(
        listed("zfs userspace -Hpn -S used tank/a@then"),
        "POSIX User\t4300\t3019264\t10485760\t2\t0\n\
         POSIX User\t4200\t395776\t0\t1\t0\n\
         POSIX User\t0\t512\t0\t1\t0\n\
         POSIX User\t9999\t0\t5242880\t-\t-\n"
    );
    assert_eq!(
        listed("zfs groupspace -o name,used,objquota tank/a"),
        "NAME   USED  OBJQUOTA\n\
         root   512B      none\n\
         5100      -         3\n\
         5200   388K      none\n\
         5300  2.88M      none\n"
    );
    assert_eq!(
        listed("zfs userspace -t posixgroup,posixuser -s name -H -o type,name tank/a"),
        "POSIX Group\troot\nPOSIX User\troot\nPOSIX User\t4200\nPOSIX User\t4300\n\
         POSIX Group\t5100\nPOSIX Group\t5200\nPOSIX Group\t5300\nPOSIX User\t9999\n"
    );
    // Column widths also count rows that are not shown.
    let none = listed("zfs userspace -t smbuser tank/a");
    assert_eq!(none, "TYPE        NAME   USED  QUOTA  OBJUSED  OBJQUOTA\n");
    let project = listed("zfs projectspace -H -o type,name,objused tank/a");
    assert_eq!(project, "Project\t0\t4\n");
    let path = shop.root().join("a/0");
    assert_eq!(
        listed(&format!("zfs userspace {}", path.display())),
        listed("zfs userspace tank/a")
    );
    shop.succeed("zpool export tank");
    shop.judge();
    assert_eq!(listed("zfs userspace -Hn -o name -d IMAGES tank/a"), "0\n4200\n4300\n9999\n");
}

#[test]
fn mistakes_about_accounts_are_told() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M -R ROOT tank A");
    for (line, status, told) in [
        ("zfs userspace", 2, "missing dataset name\n"),
        ("zfs groupspace tank tank", 2, "too many arguments\n"),
        ("zfs userspace -s objused tank", 2, "invalid field 'objused'\n"),
        ("zfs userspace -o bogus tank", 255, "invalid type 'bogus' for -o option\n"),
        ("zfs groupspace -t bogus tank", 255, "invalid type 'bogus' for -t option\n"),
        ("zfs projectspace -n tank", 2, "invalid option 'n'\n"),
        ("zfs userspace nosuch/x", 1, "cannot open 'nosuch/x': dataset does not exist\n"),
        ("zfs userspace tank@no", 1, "cannot open 'tank@no': dataset does not exist\n"),
    ] {
        let said = shop.refuse(line, status);
        assert!(said.starts_with(told), "{line}: {said}");
    }
}

#[test]
fn a_volume_has_no_accounts() {
    let shop = Workshop::new();
    rzfs_testkit::unpack_sample("volume-logs", shop.image("A").as_ref()).unwrap();
    let told = "cannot open 'vols/plain': operation not applicable to datasets of this type\n";
    assert_eq!(shop.refuse("zfs userspace -d IMAGES vols/plain", 1), told);
}
