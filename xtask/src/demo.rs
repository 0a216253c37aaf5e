//! The main job on the sample pool: mount it, look at it, unmount it.

use crate::process::{self, Failure, cargo, repository};
use crate::setup;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long the mount may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Mounts the sample pool and shows what is in it.
pub(crate) fn run() -> Result<(), Failure> {
    setup::run()?;
    process::run(&mut cargo(&["build", "--package", "rzfs", "--locked"]))?;
    let work = std::env::temp_dir().join(format!("rzfs-demo-{}", std::process::id()));
    let result = in_directory(&work);
    let _ = std::fs::remove_dir_all(&work);
    result
}

fn in_directory(work: &Path) -> Result<(), Failure> {
    let io = |source| Failure::Start { program: work.display().to_string(), source };
    let (image, mounted) = (work.join("garden.img"), work.join("mounted"));
    std::fs::create_dir_all(&mounted).map_err(io)?;
    let sample = repository().join("samples/garden.img.zst");
    process::run(Command::new("zstd").arg("-qdf").arg(sample).arg("-o").arg(&image))?;
    let mut arguments = vec!["mount".into(), "--force".into(), image.into_os_string()];
    arguments.push(mounted.clone().into_os_string());
    println!("$ rzfs mount --force garden.img mounted &");
    let mut rzfs = Command::new(binary()).args(arguments).spawn().map_err(io)?;
    let shown = wait_for(&mounted, &mut rzfs).map_err(io).and_then(|()| show(&mounted));
    process::run(Command::new("fusermount3").arg("-uqz").arg(&mounted)).ok();
    process::run(Command::new("kill").arg(rzfs.id().to_string()))?;
    rzfs.wait().map_err(io)?;
    shown
}

fn binary() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| repository().join("target")).join("debug/rzfs")
}

/// Waits until the root of the pool shows its control directory.
fn wait_for(mounted: &Path, rzfs: &mut Child) -> io::Result<()> {
    let start = Instant::now();
    while !mounted.join(".zfs").is_dir() {
        if rzfs.try_wait()?.is_some() || start.elapsed() > PATIENCE {
            return Err(io::Error::other("the pool was not mounted"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
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
        .stdout(
            File::create("/dev/null")
                .map_err(|source| Failure::Start { program: "/dev/null".to_owned(), source })?,
        )
        .status();
    match files {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Status { program: "tar".to_owned(), status }),
        Err(source) => Err(Failure::Start { program: "tar".to_owned(), source }),
    }
}
