//! Makes a pool in image files and mounts it for writing until its input ends; then has OpenZFS's
//! zdb look at it: `serve IMAGES MOUNTPOINT MIB COMPRESSION SHAPE`, for example
//! `serve /tmp/images /mnt 1024 15 "raidz2 A B C D"`. COMPRESSION is the number of the on-disk
//! property: 15 is lz4, 16 zstd, 2 off.

use rzfs_fuse::{Access, Mount, MountOptions, Restrictions};
use rzfs_zpl::live::LiveOptions;
use rzfs_zpl::{AclType, FileSystemOptions, ReadAhead};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

#[allow(dead_code, reason = "the tests of rzfs-zpl use the rest")]
#[path = "../../rzfs-zpl/tests/pools/world.rs"]
mod world;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [images, mountpoint, size, compression, shape] = &arguments[..] else {
        eprintln!("usage: serve IMAGES MOUNTPOINT MIB COMPRESSION SHAPE");
        std::process::exit(2);
    };
    let size = size.parse::<u64>().expect("a size in MiB") << 20;
    let compression = compression.parse().expect("a number");
    let world = world::World::in_directory(Path::new(images), shape, size)
        .with_property("compression", compression);
    let reading = FileSystemOptions {
        acl_type: AclType::Posix,
        read_ahead: Some(ReadAhead::start(2).expect("threads")),
        ..FileSystemOptions::default()
    };
    let session = world.create_files(LiveOptions::new(reading, 4711));
    let options = MountOptions {
        source: "made".to_owned(),
        access: Access::Everyone,
        restrictions: Restrictions {
            no_devices: false,
            no_set_id: false,
            ..Restrictions::default()
        },
        threads: std::env::var("RZFS_THREADS")
            .map_or(4, |threads| threads.parse().expect("a number")),
        mount_points: Vec::new(),
        while_mounted: None,
    };
    let mount = Mount::new(Arc::clone(&session.fs), None, Path::new(mountpoint), &options);
    let mount = mount.expect("a mount");
    println!("mounted");
    let mut input = Vec::new();
    std::io::stdin().read_to_end(&mut input).expect("input");
    mount.unmount().expect("unmounting");
    session.export();
    world.judge();
    println!("sound");
}
