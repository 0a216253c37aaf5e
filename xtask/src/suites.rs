//! Runs the test suites of others on file systems that rzfs serves for writing.
//!
//! ```text
//! for each pool: serve (an example of rzfs-fuse) makes it in images and mounts it
//!     pjdfstest   POSIX semantics        fsx   random operations on one file, against a model
//!     fio         contents, verified     tree  tar in, diff -r     git   clones, gc, fsck
//! end: unmounted, exported, and OpenZFS's zdb -bcc finds nothing
//! ```
//! Needs root, and the tools on the search path: `cargo install pjdfstest fsx`, and the Debian
//! packages fio and git.

use crate::process::{Failure, cargo, is_installed, output, repository, run};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Numbers of compression algorithms on disk.
const LZ4: u32 = 15;
const ZSTD: u32 = 16;

/// What pjdfstest is to test, as it does on ext4.
const PJDFSTEST: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"], ["bin", "bin"]]
"#;

/// A suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Suite {
    Pjdfstest,
    Fsx,
    Fio,
    Tree,
    Git,
}

impl Suite {
    const ALL: [Self; 5] = [Self::Pjdfstest, Self::Fsx, Self::Fio, Self::Tree, Self::Git];

    const fn tool(self) -> &'static str {
        match self {
            Self::Pjdfstest => "pjdfstest",
            Self::Fsx => "fsx",
            Self::Fio => "fio",
            Self::Tree => "tar",
            Self::Git => "git",
        }
    }
}

/// A pool to run them on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Shape {
    Single,
    Raidz2,
    Zstd,
}

impl Shape {
    const ALL: [Self; 3] = [Self::Single, Self::Raidz2, Self::Zstd];

    const fn words(self) -> &'static str {
        match self {
            Self::Single | Self::Zstd => "A",
            Self::Raidz2 => "raidz2 A B C D",
        }
    }

    const fn compression(self) -> u32 {
        match self {
            Self::Single | Self::Raidz2 => LZ4,
            Self::Zstd => ZSTD,
        }
    }
}

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Suites {
    /// Only these suites.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Suite>,
    /// Only these pools.
    #[arg(long, value_enum, value_delimiter = ',')]
    pools: Vec<Shape>,
    /// Operations of each run of fsx.
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// Runs of fsx, with the seeds from 1 on.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The tree that is copied in; the crates of this repository if it is not given.
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Where images and mounts are made; the directory for temporary files if it is not given.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// A profile of cargo for what serves.
    #[arg(long, default_value = "release")]
    profile: String,
}

pub(crate) fn run_suites(chosen: &Suites) -> Result<(), Failure> {
    let suites = if chosen.only.is_empty() { Suite::ALL.to_vec() } else { chosen.only.clone() };
    let shapes = if chosen.pools.is_empty() { Shape::ALL.to_vec() } else { chosen.pools.clone() };
    let mut tools = suites.iter().map(|suite| suite.tool()).chain(["zdb", "fusermount3"]);
    if let Some(missing) = tools.find(|tool| !is_installed(tool)) {
        return Err(Failure::Checks(format!(
            "{missing} is not installed: the suites that need it"
        )));
    }
    let build = ["build", "-q", "-p", "rzfs-fuse", "--example", "serve", "--profile"];
    run(cargo(&build).arg(&chosen.profile))?;
    for shape in shapes {
        let served = Served::start(shape, chosen)?;
        for suite in &suites {
            println!("{shape:?}: {suite:?}");
            chosen.run_suite(*suite, &served)?;
        }
        served.finish()?;
        println!("{shape:?}: zdb finds nothing");
    }
    Ok(())
}

/// A pool that is served.
struct Served {
    child: Child,
    /// Images, mount and what tools leave.
    directory: tempfile::TempDir,
}

impl Served {
    fn start(shape: Shape, chosen: &Suites) -> Result<Self, Failure> {
        let parent = chosen.directory.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::tempdir_in(&parent).map_err(Failure::file(&parent))?;
        for name in ["images", "mount", "left"] {
            let path = directory.path().join(name);
            fs::create_dir(&path).map_err(Failure::file(&path))?;
        }
        let mut command = Command::new(serve_program(&chosen.profile));
        command.args([directory.path().join("images"), directory.path().join("mount")]);
        command.args(["2048", &shape.compression().to_string(), shape.words()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let start = |source| Failure::Start { program: "serve".to_owned(), source };
        let mut child = command.spawn().map_err(start)?;
        let mut line = String::new();
        if let Some(stdout) = &mut child.stdout {
            BufReader::with_capacity(1, stdout).read_line(&mut line).map_err(start)?;
        }
        let served = Self { child, directory };
        if line.trim() == "mounted" { Ok(served) } else { Err(Failure::Checks("serve".to_owned())) }
    }

    fn mount(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    /// A file for what a tool writes or reads.
    fn left(&self, name: &str) -> PathBuf {
        self.directory.path().join("left").join(name)
    }

    /// Ends it, which has zdb look at the pool.
    fn finish(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let program = "serve".to_owned();
        match self.child.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::Status { program, status }),
            Err(source) => Err(Failure::Start { program, source }),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = Command::new("fusermount3").arg("-uzq").arg(self.mount()).status();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Where cargo has put the example.
fn serve_program(profile: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| repository().join("target"));
    let folder = if profile == "dev" { "debug" } else { profile };
    target.join(folder).join("examples/serve")
}

impl Suites {
    fn run_suite(&self, suite: Suite, served: &Served) -> Result<(), Failure> {
        match suite {
            Suite::Pjdfstest => pjdfstest(served),
            Suite::Fsx => (1..=self.seeds).try_for_each(|seed| self.fsx(served, seed)),
            Suite::Fio => fio(served),
            Suite::Tree => self.copy_tree(served),
            Suite::Git => git(served),
        }
    }

    fn fsx(&self, served: &Served, seed: u64) -> Result<(), Failure> {
        let file = served.mount().join(format!("fsx-{seed}"));
        let mut fsx = Command::new("fsx");
        fsx.args(["-q", "-N", &self.operations.to_string(), "-S", &seed.to_string(), "-P"]);
        run(fsx.arg(served.left("")).arg(file))
    }

    fn copy_tree(&self, served: &Served) -> Result<(), Failure> {
        let tree = self.tree.clone().unwrap_or_else(|| repository().join("crates"));
        let copy = served.mount().join("tree");
        fs::create_dir(&copy).map_err(Failure::file(&copy))?;
        let archive = served.left("tree.tar");
        run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&tree).arg("."))?;
        run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&copy))?;
        run(Command::new("sh").args(["-c", "echo 3 > /proc/sys/vm/drop_caches"]))?;
        run(Command::new("diff").arg("-r").args([&tree, &copy]))?;
        fs::remove_dir_all(&copy).map_err(Failure::file(&copy))
    }
}

fn pjdfstest(served: &Served) -> Result<(), Failure> {
    let configuration = served.left("pjdfstest.toml");
    fs::write(&configuration, PJDFSTEST).map_err(Failure::file(&configuration))?;
    let mut pjdfstest = Command::new("pjdfstest");
    pjdfstest.arg("-c").arg(&configuration).arg("-p").arg(served.mount());
    let text = output(&mut pjdfstest)?;
    let summary = text.lines().find(|line| line.starts_with("Summary:")).unwrap_or("no summary");
    println!("  {summary}");
    match summary.starts_with("Summary: 0 failed") {
        true => Ok(()),
        false => Err(Failure::Checks("pjdfstest".to_owned())),
    }
}

fn fio(served: &Served) -> Result<(), Failure> {
    for pattern in ["write", "randwrite"] {
        for (jobs, block) in [("1", "4k"), ("4", "4k"), ("1", "128k"), ("4", "128k"), ("4", "1m")] {
            let mut fio = Command::new("fio");
            fio.args(["--name=verify", "--ioengine=psync", "--size=24m", "--minimal"]);
            fio.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--unlink=1"]);
            fio.arg(format!("--rw={pattern}")).arg(format!("--bs={block}"));
            fio.arg(format!("--numjobs={jobs}")).arg("--directory").arg(served.mount());
            run(fio.stdout(Stdio::null()))?;
        }
    }
    Ok(())
}

/// Two clones at the same time, with everything repacked in one of them.
fn git(served: &Served) -> Result<(), Failure> {
    let clone = |name: &str| {
        let mut clone = Command::new("git");
        clone.args(["clone", "-q", "--no-hardlinks"]).arg(repository());
        clone.arg(served.mount().join(name));
        clone
    };
    let start = |source| Failure::Start { program: "git clone".to_owned(), source };
    let mut first = clone("first").spawn().map_err(start)?;
    let second = run(&mut clone("second"));
    let first = first.wait().map_err(start)?;
    second?;
    if !first.success() {
        return Err(Failure::Checks("git clone".to_owned()));
    }
    let git = |name: &str, arguments: &[&str]| {
        let log = served.left("git.log");
        let log = File::create(&log).map_err(Failure::file(&log))?;
        let repository: &Path = &served.mount().join(name);
        run(Command::new("git").arg("-C").arg(repository).args(arguments).stderr(log))
    };
    git("first", &["gc", "-q", "--aggressive", "--prune=now"])?;
    git("first", &["fsck", "--strict", "--no-progress", "--no-dangling"])?;
    git("second", &["fsck", "--strict", "--no-progress", "--no-dangling"])?;
    git("second", &["diff", "--exit-code"])
}
