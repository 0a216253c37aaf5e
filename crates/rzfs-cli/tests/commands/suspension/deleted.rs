//! Images that are deleted while their pool is open.

use super::SmallHost;
use crate::harness::wait_until;
use crate::workshop::Workshop;
use std::fs::{self, File};
use std::path::PathBuf;

/// A path at which the deleted file `image` can still be read.
fn descriptor_of(image: &str) -> PathBuf {
    let text = format!("{image} (deleted)");
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let files = processes.filter_map(|process| fs::read_dir(process.path().join("fd")).ok());
    let mut files = files.flatten().filter_map(Result::ok).map(|file| file.path());
    let is_it = |file: &PathBuf| fs::read_link(file).is_ok_and(|link| link.as_os_str() == &*text);
    files.find(is_it).expect("somebody has it open")
}

fn write(shop: &Workshop, name: &str) {
    let path = shop.root().join(name);
    fs::write(&path, name).unwrap();
    File::open(path).unwrap().sync_all().unwrap();
}

/// Follows the advice in the refusal for the pool `tank`, and checks the files `names`.
fn rescue(shop: &Workshop, names: &[&str]) {
    let image = shop.image("A");
    fs::copy(descriptor_of(&image), &image).unwrap();
    shop.run("zpool export -f tank");
    shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
    for name in names {
        assert_eq!(fs::read_to_string(shop.root().join(name)).unwrap(), *name);
    }
    shop.succeed("zpool export tank");
    shop.judge();
}

#[test]
fn a_pool_whose_image_was_deleted_is_not_let_go_of() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank A");
    write(&shop, "before");
    fs::remove_file(shop.image("A")).unwrap();
    // It has not been synced.
    fs::write(shop.root().join("after"), "after").unwrap();
    let refused = shop.refuse("zpool export tank", 1);
    assert!(refused.starts_with("cannot export 'tank': A was deleted while"), "{refused}");
    rescue(&shop, &["before", "after"]);
}

#[test]
fn a_copy_in_the_place_of_an_image_is_not_taken_for_it() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank A");
    write(&shop, "before");
    let file = shop.root().join("large");
    let writer = std::thread::spawn(move || fs::write(file, vec![7; 64 << 20]));
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    let (image, copy) = (shop.image("A"), shop.rzfs.path("copy"));
    fs::copy(&image, &copy).unwrap();
    fs::remove_file(&image).unwrap();
    std::os::unix::fs::symlink(&copy, &image).unwrap();
    host.resize("400M");
    let refused = shop.refuse("zpool clear tank", 1);
    let why = "cannot clear errors for tank: A was deleted while";
    assert!(refused.starts_with(why), "{refused}");
    fs::remove_file(&image).unwrap();
    rescue(&shop, &["before"]);
    let _ = writer.join().unwrap();
}

#[test]
fn an_image_whose_contents_others_have_may_be_deleted() {
    let shop = Workshop::new();
    shop.succeed("zpool create --size 96M -R ROOT tank mirror A B");
    write(&shop, "before");
    fs::remove_file(shop.image("A")).unwrap();
    write(&shop, "after");
    shop.succeed("zpool clear tank");
    let status = shop.succeed("zpool status tank");
    assert!(status.contains(" state: DEGRADED\n"), "{status}");
    write(&shop, "at last");
    fs::remove_file(shop.image("B")).unwrap();
    let refused = shop.refuse("zpool export tank", 1);
    assert!(refused.starts_with("cannot export 'tank': B was deleted while"), "{refused}");
    let image = shop.image("B");
    fs::copy(descriptor_of(&image), &image).unwrap();
    shop.run("zpool export -f tank");
    shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
    for name in ["before", "after", "at last"] {
        assert_eq!(fs::read_to_string(shop.root().join(name)).unwrap(), name);
    }
    let shared = shop.root().join("more");
    fs::write(shared, "more").unwrap();
    shop.succeed("zpool export tank");
}

#[test]
fn a_suspended_pool_goes_on_without_a_deleted_side() {
    let shop = Workshop::new();
    let Some(host) = SmallHost::mount(shop.rzfs.path("images"), "48M") else { return };
    shop.succeed("zpool create --size 256M -R ROOT -O compression=off tank mirror A B");
    write(&shop, "before");
    let file = shop.root().join("large");
    let writer = std::thread::spawn(move || fs::write(file, vec![7; 64 << 20]));
    wait_until("the pool is suspended", || {
        shop.run("zpool get -Ho value health tank").out == "SUSPENDED\n"
    });
    fs::remove_file(shop.image("A")).unwrap();
    host.resize("400M");
    shop.succeed("zpool clear tank");
    writer.join().unwrap().unwrap();
    shop.succeed("zpool export tank");
    shop.succeed("zpool import -f -d IMAGES -R ROOT tank");
    assert_eq!(fs::read(shop.root().join("large")).unwrap(), vec![7; 64 << 20]);
    shop.succeed("zpool export tank");
    shop.judge();
}
