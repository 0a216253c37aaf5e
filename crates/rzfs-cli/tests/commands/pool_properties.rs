//! Pool properties: setting, importing with, and reading them.

use crate::harness::outcome;
use crate::workshop::Workshop;
use std::fs;

fn values(shop: &Workshop, properties: &str) -> String {
    shop.succeed(&format!("zpool get -Ho value,source {properties} tank"))
}

#[test]
fn a_cache_file_is_told_while_the_pool_is_imported() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    assert_eq!(values(&shop, "cachefile"), "-\tdefault\n");
    shop.succeed("zpool set cachefile=/var/cache/pools tank");
    assert_eq!(values(&shop, "cachefile"), "/var/cache/pools\tlocal\n");
    shop.succeed("zpool set cachefile= tank");
    assert_eq!(values(&shop, "cachefile"), "-\tdefault\n");
    for (value, reason) in [
        ("/no/such/dir/y", "'/no/such/dir' is not a valid directory"),
        ("/var/cache/", "'/var/cache/' is not a valid file"),
    ] {
        let refused = shop.refuse(&format!("zpool set cachefile={value} tank"), 1);
        assert_eq!(refused, format!("cannot set property for 'tank': {reason}\n"));
    }
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -d IMAGES -R ROOT tank");
    assert_eq!(values(&shop, "cachefile"), "none\tlocal\n");
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -d IMAGES -R ROOT -o cachefile=/x tank");
    assert_eq!(values(&shop, "cachefile"), "/x\tlocal\n");
    shop.succeed("zpool export tank");
}

#[test]
fn a_pool_is_imported_with_properties() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let import = "zpool import -d IMAGES -R ROOT -o";
    for (option, reason) in [
        ("failmode=x", "'failmode' must be one of 'wait | continue | panic'"),
        ("size=1", "'size' is readonly"),
        ("bogus=1", "invalid property 'bogus'"),
        ("readonly=x", "'readonly' must be one of 'on | off'"),
        ("cachefile=/no/such/dir/y", "'/no/such/dir' is not a valid directory"),
    ] {
        let refused = shop.refuse(&format!("{import} {option} tank"), 1);
        assert_eq!(refused, format!("cannot import pool 'tank': {reason}\n"));
    }
    shop.succeed(&format!("{import} failmode=continue -o comment=mine -o a:b=c tank"));
    assert_eq!(values(&shop, "failmode,comment,a:b"), "continue\tlocal\nmine\tlocal\nc\tlocal\n");
    shop.succeed("zpool export tank");
    // They are on disk; a pool opened read-only keeps its values.
    shop.succeed(&format!("{import} readonly=on -o failmode=wait tank"));
    assert_eq!(values(&shop, "failmode"), "continue\tlocal\n");
    let readonly = "zfs get -Ho value,source readonly tank";
    assert_eq!(shop.succeed(readonly), "on\ttemporary\n");
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn nothing_is_said_twice_about_one_property() {
    let shop = Workshop::new();
    let twice = "property 'altroot' specified multiple times\n";
    assert_eq!(shop.refuse("zpool create --size 96M -o altroot=/y -R ROOT tank A", 1), twice);
    shop.succeed("zpool create --size 96M --export tank A");
    for options in ["-R ROOT -o altroot=/y", "-o altroot=/y -R ROOT", "-R ROOT -R ROOT"] {
        assert_eq!(shop.refuse(&format!("zpool import -d IMAGES {options} tank"), 1), twice);
    }
}

#[test]
fn what_cannot_be_done_to_a_pool_that_is_only_read_is_named() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    shop.succeed("zfs create tank/x");
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -d IMAGES -o readonly=on tank");
    for (line, status, what) in [
        ("zfs create tank/y", 1, "create 'tank/y'"),
        ("zfs destroy tank/x", 1, "destroy 'tank/x'"),
        ("zfs rename tank/x tank/y", 1, "rename 'tank/x'"),
        ("zpool destroy tank", 1, "destroy 'tank'"),
        ("zpool set comment=x tank", 1, "set property for 'tank'"),
        ("zpool sync tank", 1, "sync 'tank'"),
        ("zpool add --size 96M tank B", 1, "add to 'tank'"),
        ("zpool upgrade -a", 1, "upgrade 'tank'"),
        ("zpool reguid tank", 1, "reguid 'tank'"),
        ("zpool clear tank", 1, "clear errors for tank"),
        ("zpool trim tank", 255, "trim 'tank'"),
        ("zpool ddtprune -p 10 tank", 255, "prune dedup table on 'tank'"),
    ] {
        let refused = shop.run(line);
        let expected = format!("cannot {what}: pool is read-only\n");
        assert_eq!((refused.status, refused.err), (status, expected), "{line}");
    }
    assert!(!shop.rzfs.path("images").join("B").exists());
    shop.succeed("zpool export tank");
}

#[test]
fn an_upgrade_to_feature_flags_is_told() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -o version=28 -R ROOT tank A");
    let told = shop.succeed("zpool upgrade tank");
    let beginning = "This system supports ZFS pool feature flags.\n\n\
                     Successfully upgraded 'tank' from version 28 to feature flags.\n\
                     Enabled the following features on 'tank':\n  async_destroy\n";
    assert!(told.starts_with(beginning) && told.ends_with("\n\n"), "{told}");
    let told = shop.succeed("zpool upgrade tank");
    assert!(told.contains("\n\nPool 'tank' already has all supported"), "{told}");
    shop.succeed("zpool export tank");
    shop.judge();
    shop.succeed("zpool create --size 96M -o version=28 -o compatibility=legacy -R ROOT tank B");
    let told = shop.succeed("zpool upgrade tank");
    let all = "This system supports ZFS pool feature flags.\n\n\
               Successfully upgraded 'tank' from version 28 to feature flags.\n\n";
    assert_eq!(told, all);
    shop.succeed("zpool export tank");
}

#[test]
fn properties_of_users_are_set_and_read() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    shop.succeed("zpool set our:note=text tank");
    assert_eq!(values(&shop, "our:note"), "text\tlocal\n");
    assert_eq!(values(&shop, "our:other"), "-\t-\n");
    let all = shop.succeed("zpool get -Ho property,value all tank");
    assert!(all.ends_with("\nour:note\ttext\n"), "{all}");
    assert_eq!(shop.succeed("zpool list -Ho name,our:note"), "tank\ttext\n");
    let json = shop.succeed("zpool get -j our:note tank");
    assert!(json.contains("\"our:note\"") && json.contains("\"text\""), "{json}");
    shop.succeed("zpool set our:note= tank");
    assert!(!shop.succeed("zpool get -Ho property all tank").contains("our:note"));
    shop.succeed("zpool export tank");
}

#[test]
fn a_listing_of_importable_pools_names_whole_paths() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M --export tank A");
    let mut import = shop.rzfs.command();
    import.current_dir(shop.rzfs.path("images")).args(["zpool", "import", "-d", "."]);
    let listed = outcome(&mut import);
    assert!(listed.out.contains(&format!("\t  {}", shop.image("A"))), "{listed:?}");
}

#[test]
fn a_default_that_is_set_is_a_default() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -m none tank A");
    for (name, other, default) in [
        ("multihost", None, "off"),
        ("autotrim", Some("on"), "off"),
        ("dedup_table_quota", Some("1G"), "auto"),
        ("delegation", Some("off"), "on"),
        ("failmode", Some("continue"), "wait"),
    ] {
        if let Some(other) = other {
            shop.succeed(&format!("zpool set {name}={other} tank"));
            assert_eq!(values(&shop, name), format!("{other}\tlocal\n"));
        }
        shop.succeed(&format!("zpool set {name}={default} tank"));
        assert_eq!(values(&shop, name), format!("{default}\tdefault\n"));
    }
    shop.succeed("zpool export tank");
}

#[test]
fn limits_of_the_root_of_a_new_pool_are_in_force() {
    let shop = Workshop::new();
    let limits = "-O quota=40M -O reservation=20M -O refquota=8M -O refreservation=4M";
    shop.succeed(&format!("zpool create --size 128M -R ROOT -O compression=off {limits} tank A"));
    let number = |property: &str| -> u64 {
        shop.succeed(&format!("zfs get -Hpo value {property} tank")).trim().parse().unwrap()
    };
    assert_eq!(number("reservation"), 20 << 20);
    assert!((1..=8 << 20).contains(&number("available")), "the quota of the root itself");
    assert!(number("usedbyrefreservation") > 3 << 20);
    shop.succeed("zfs create tank/a");
    let below: u64 = shop.succeed("zfs get -Hpo value available tank/a").trim().parse().unwrap();
    assert!((8 << 20..40 << 20).contains(&below), "{below}");
    let too_small = shop.run("zfs set quota=10M tank");
    let reason = "size is less than current used or reserved space";
    assert!(too_small.status != 0 && too_small.err.contains(reason), "{too_small:?}");
    assert!(fs::write(shop.root().join("large"), vec![1; 16 << 20]).is_err());
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn a_pool_whose_root_cannot_have_its_properties_is_not_made() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 128M --export old A");
    for limits in [
        "-O reservation=1T",
        "-O refreservation=1T",
        "-O quota=10M -O reservation=11M",
        "-O refreservation=11M -O quota=10M",
        "-O refreservation=11M -O refquota=10M",
    ] {
        for end in ["-m none", "--export"] {
            let refused = shop.refuse(&format!("zpool create -f {end} {limits} tank A"), 1);
            let expected = "cannot create 'tank': size is greater than available space\n";
            assert_eq!(refused, expected, "{limits} {end}");
        }
    }
    // Nothing was written for that.
    shop.succeed("zpool import -N -d IMAGES old");
    shop.succeed("zpool export old");
    // Only the pool knows how much space it reserves for itself.
    let refused = shop.refuse("zpool create --size 128M -m none -O quota=1 tank B", 1);
    let reason = "size is less than current used or reserved space";
    assert_eq!(refused, format!("cannot create 'tank': {reason}\n"));
    assert!(!shop.rzfs.path("images").join("B").exists());
    shop.refuse("zpool create -f -m none -O quota=1 tank A", 1);
    assert_eq!(shop.refuse("zpool import -d IMAGES", 0), "no pools available to import\n");
    assert_eq!(shop.succeed("zpool list -Ho name"), "");
}
