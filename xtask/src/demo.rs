//! The main job on the sample pool: mount it, look at it, unmount it.

use crate::process::{self, Failure};
use crate::rzfs::Rzfs;
use crate::setup;
use rzfs_testkit::unpack_sample;
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Mounts the sample pool and shows what is in it.
pub(crate) fn run() -> Result<(), Failure> {
    setup::run()?;
    let rzfs = Rzfs::build()?;
    let work = tempfile::tempdir().map_err(Failure::file(Path::new("temporary directory")))?;
    let (image, mounted) = (work.path().join("garden.img"), work.path().join("mounted"));
    unpack_sample("garden", &image).map_err(Failure::file(&image))?;
    println!("$ rzfs mount -o ro --force garden.img mounted");
    let mount = rzfs.mount(&["--force".into(), image.into()], &mounted)?;
    show(&mounted)?;
    println!("$ rzfs umount mounted");
    mount.end()
}

fn show(mounted: &Path) -> Result<(), Failure> {
    println!("$ ls -lR mounted");
    process::run(Command::new("ls").arg("-lR").arg(mounted))?;
    println!("$ ls mounted/.zfs/snapshot");
    process::run(Command::new("ls").arg(mounted.join(".zfs/snapshot")))?;
    // Every file of the pool must be readable.
    let files = Command::new("tar")
        .args(["-cf", "-", "--exclude=.zfs", "-C"])
        .arg(mounted)
        .arg(".")
        .stdout(File::create("/dev/null").map_err(Failure::file(Path::new("/dev/null")))?)
        .status();
    match files {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Status { program: "tar".to_owned(), status }),
        Err(source) => Err(Failure::Start { program: "tar".to_owned(), source }),
    }
}
