//! Runs the test suites of others on file systems that rzfs serves for writing.
//!
//! ```text
//! for each pool, for each suite: zpool create, mount (the commands of rzfs)
//!     pjdfstest  POSIX semantics        fsx     random operations on one file, against a model
//!     fio        contents, verified     tree    tar in, diff -r     git     clones, gc, fsck
//!     stress     stress-ng's class      dbench  a file server       build   cargo, twice
//!     memory     what the process needs while very much is written
//! each ends: unmounted, exported, and OpenZFS's zdb -bcc finds nothing
//! ```
//! Needs root, and the tools on the search path: `cargo install pjdfstest fsx`, and the Debian
//! packages fio, git, stress-ng and dbench. For the pool without rights /etc/fuse.conf has to say
//! `user_allow_other`.

mod build;
mod dbench;
mod fio;
mod fsx;
mod git;
mod memory;
mod pjdfstest;
mod served;
mod stress;
mod tree;

use served::{PoolKind, Served};
use std::path::PathBuf;
use std::time::Instant;
use xtask::process::{Failure, cargo, is_installed, repository, run};

/// A suite.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Suite {
    Pjdfstest,
    Fsx,
    Fio,
    Tree,
    Git,
    Stress,
    Dbench,
    Build,
    Memory,
}

impl Suite {
    const ALL: [Self; 9] = [
        Self::Pjdfstest,
        Self::Fsx,
        Self::Fio,
        Self::Tree,
        Self::Git,
        Self::Stress,
        Self::Dbench,
        Self::Build,
        Self::Memory,
    ];

    const fn tool(self) -> &'static str {
        match self {
            Self::Pjdfstest => "pjdfstest",
            Self::Fsx => "fsx",
            Self::Fio | Self::Memory => "fio",
            Self::Tree => "tar",
            Self::Git => "git",
            Self::Stress => "stress-ng",
            Self::Dbench => "dbench",
            Self::Build => "cargo",
        }
    }

    const fn mount_options(self) -> &'static str {
        match self {
            Self::Memory => memory::MOUNT_OPTIONS,
            _ => "allow_other",
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
    pools: Vec<PoolKind>,
    /// Operations of each run of fsx. It keeps each mapping that it has read through, of which
    /// Linux allows a process 65,530: a million operations are ten runs.
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// Runs of fsx, with the seeds from 1 on.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The tree that is copied in; the sources of all crates that cargo has if it is not given.
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Seconds of stress-ng, for all stressors together, and of each run of dbench.
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// GiB that are written where the memory for that is measured.
    #[arg(long, default_value_t = 8)]
    gib: u64,
    /// The size of each image, as zpool understands it.
    #[arg(long, default_value = "4G")]
    size: String,
    /// Where images and mounts are made; the directory for temporary files if it is not given.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// The binary to test; without, it is built.
    #[arg(long)]
    rzfs: Option<PathBuf>,
    /// A profile of cargo for the binary.
    #[arg(long, default_value = "release")]
    profile: String,
}

/// Carries it out.
pub(crate) fn run_suites(chosen: &Suites) -> Result<(), Failure> {
    let suites = if chosen.only.is_empty() { Suite::ALL.to_vec() } else { chosen.only.clone() };
    let kinds = match chosen.pools.is_empty() {
        true => PoolKind::ALL.to_vec(),
        false => chosen.pools.clone(),
    };
    let mut tools =
        suites.iter().map(|suite| suite.tool()).chain(["zdb", "fusermount3", "setpriv"]);
    if let Some(missing) = tools.find(|tool| !is_installed(tool)) {
        return Err(Failure::Checks(format!(
            "{missing} is not installed: the suites that need it"
        )));
    }
    let rzfs = match &chosen.rzfs {
        Some(rzfs) => std::path::absolute(rzfs).map_err(Failure::file(rzfs))?,
        None => chosen.build()?,
    };
    let parent = chosen.directory.clone().unwrap_or_else(std::env::temp_dir);
    let images = (parent.as_path(), chosen.size.as_str());
    for kind in kinds {
        for suite in &suites {
            let started = Instant::now();
            println!("{kind:?}: {suite:?}");
            let served = Served::start(&rzfs, kind, images, suite.mount_options())?;
            chosen.run_suite(*suite, &served)?;
            let used = served.used();
            served.finish()?;
            println!(
                "{kind:?}: {suite:?}: passed, zdb finds nothing; {} s, {} s of processor time, peak {} MiB",
                started.elapsed().as_secs(),
                used.processor.as_secs(),
                used.peak_memory >> 20
            );
        }
    }
    Ok(())
}

impl Suites {
    fn build(&self) -> Result<PathBuf, Failure> {
        let build = ["build", "--quiet", "--locked", "--package", "rzfs-cli", "--profile"];
        run(cargo(&build).arg(&self.profile))?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| repository().join("target"));
        let folder = if self.profile == "dev" { "debug" } else { &self.profile };
        Ok(target.join(folder).join("rzfs"))
    }

    fn run_suite(&self, suite: Suite, served: &Served) -> Result<(), Failure> {
        match suite {
            Suite::Pjdfstest => pjdfstest::run_on(served),
            Suite::Fsx => {
                (1..=self.seeds).try_for_each(|seed| fsx::run_on(served, self.operations, seed))
            }
            Suite::Fio => fio::run_on(served),
            Suite::Tree => tree::run_on(served, self.tree.as_deref()),
            Suite::Git => git::run_on(served),
            Suite::Stress => stress::run_on(served, self.seconds),
            Suite::Dbench => dbench::run_on(served, self.seconds),
            Suite::Build => build::run_on(served),
            Suite::Memory => memory::run_on(served, self.gib),
        }
    }
}
