//! Properties of pools: set, imported with, and told again.

use crate::harness::outcome;
use crate::workshop::Workshop;

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
    ] {
        let refused = shop.refuse(&format!("{import} {option} tank"), 1);
        assert_eq!(refused, format!("cannot import pool 'tank': {reason}\n"));
    }
    shop.succeed(&format!("{import} failmode=continue -o comment=mine -o a:b=c tank"));
    assert_eq!(values(&shop, "failmode,comment,a:b"), "continue\tlocal\nmine\tlocal\nc\tlocal\n");
    shop.succeed("zpool export tank");
    // They are on disk; a pool that is only read keeps what it has.
    shop.succeed(&format!("{import} readonly=on -o failmode=wait tank"));
    assert_eq!(values(&shop, "failmode"), "continue\tlocal\n");
    let readonly = "zfs get -Ho value,source readonly tank";
    assert_eq!(shop.succeed(readonly), "on\ttemporary\n");
    shop.succeed("zpool export tank");
    shop.judge();
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
