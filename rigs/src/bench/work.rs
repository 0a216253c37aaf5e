//! The work that file systems are compared by: the reading rows of `fsbench`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use xtask::process::{self, Failure};

/// Files of the folder that is listed.
pub(crate) const FILES: usize = 5000;

/// A kind of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Work {
    /// Read a file of 256 MiB in order, a megabyte at a time.
    Sequential,
    /// Read 32 MiB of it, 4 KiB at a time, in no order.
    Random,
    /// List 5000 small files with their attributes.
    ListWithStat,
    /// Ask for the attributes of 5000 files by name.
    Stat,
    /// Archive a tree of small files.
    Tar,
}

impl Work {
    /// All, in the order of the report.
    pub(crate) const ALL: [Self; 5] =
        [Self::Sequential, Self::Random, Self::ListWithStat, Self::Stat, Self::Tar];

    /// What the report calls it, with the unit.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential read, MB/s",
            Self::Random => "random read 4K, IOPS",
            Self::ListWithStat => "list 5000 with stat, s",
            Self::Stat => "stat 5000 by name, s",
            Self::Tar => "tar of a source tree, s",
        }
    }

    /// Whether a larger figure is the better one.
    pub(crate) const fn is_rate(self) -> bool {
        matches!(self, Self::Sequential | Self::Random)
    }

    /// Does it in the folder `fsbench` of a file system; the figure in the unit of the name.
    pub(crate) fn run(self, folder: &Path) -> Result<f64, Failure> {
        let io = |source| Failure::Start { program: folder.display().to_string(), source };
        match self {
            Self::Sequential => {
                let (bytes, seconds, _) = fio(folder, "read", "1m", &[])?;
                Ok(bytes / seconds / 1e6)
            }
            Self::Random => {
                let (_, seconds, requests) = fio(folder, "randread", "4k", &["--io_size=32m"])?;
                Ok(requests / seconds)
            }
            Self::ListWithStat => timed(|| {
                for entry in std::fs::read_dir(folder.join("many")).map_err(io)? {
                    entry.and_then(|entry| entry.metadata()).map_err(io)?;
                }
                Ok(())
            }),
            Self::Stat => timed(|| {
                for number in 0..FILES {
                    std::fs::symlink_metadata(small_file(folder, number)).map_err(io)?;
                }
                Ok(())
            }),
            Self::Tar => timed(|| tar(folder)),
        }
    }
}

/// One of the small files.
pub(crate) fn small_file(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join("many").join(format!("file-{number:06}"))
}

/// The command that reads or writes the large file, with the options of `fsbench`.
pub(crate) fn fio_command(folder: &Path, kind: &str, block: &str) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--name=bench", "--size=256m", "--ioengine=psync"])
        .args(["--buffer_compress_percentage=50", "--refill_buffers", "--output-format=json"])
        .arg(format!("--filename={}", folder.join("fio.dat").display()))
        .arg(format!("--rw={kind}"))
        .arg(format!("--bs={block}"));
    command
}

/// Bytes, seconds and requests of a run of fio that reads.
fn fio(folder: &Path, kind: &str, block: &str, more: &[&str]) -> Result<(f64, f64, f64), Failure> {
    let mut command = fio_command(folder, kind, block);
    let text = process::output(command.args(more))?;
    let json = text.find('{').and_then(|at| text.get(at..)).unwrap_or_default();
    let report: serde_json::Value =
        serde_json::from_str(json).map_err(|_| Failure::Output("fio".to_owned()))?;
    let read = &report["jobs"][0]["read"];
    let field = |name: &str| read[name].as_f64().filter(|value| *value > 0.0);
    match (field("io_bytes"), field("runtime"), field("total_ios")) {
        (Some(bytes), Some(milliseconds), Some(requests)) => {
            Ok((bytes, milliseconds / 1000.0, requests))
        }
        _ => Err(Failure::Output("fio".to_owned())),
    }
}

/// As `tar -cf - tree | cat >/dev/null`: tar does not read files when it sees that its archive is
/// thrown away.
fn tar(folder: &Path) -> Result<(), Failure> {
    let fail = |source| Failure::Start { program: "tar".to_owned(), source };
    let mut tar = Command::new("tar")
        .args(["-cf", "-", "-C"])
        .arg(folder)
        .arg("tree")
        .stdout(Stdio::piped())
        .spawn()
        .map_err(fail)?;
    if let Some(mut archive) = tar.stdout.take() {
        std::io::copy(&mut archive, &mut std::io::sink()).map_err(fail)?;
    }
    match tar.wait().map_err(fail)? {
        status if status.success() => Ok(()),
        status => Err(Failure::Status { program: "tar".to_owned(), status }),
    }
}

fn timed(work: impl FnOnce() -> Result<(), Failure>) -> Result<f64, Failure> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Has the kernel forget all files and names.
pub(crate) fn drop_kernel_caches() -> Result<(), Failure> {
    const CONTROL: &str = "/proc/sys/vm/drop_caches";
    rustix::fs::sync();
    std::fs::write(CONTROL, "3")
        .map_err(|source| Failure::Start { program: CONTROL.to_owned(), source })
}
