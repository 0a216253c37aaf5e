//! Measurements that stand in `docs/performance.md`.

mod contestant;
mod kernels;
mod median;
mod openzfs;
mod process_use;
mod work;
mod zfs_fuse;

pub(crate) use process_use::ProcessUse;

use clap::Subcommand;
use xtask::process::Failure;

/// What can be measured.
#[derive(Subcommand)]
pub(crate) enum Bench {
    /// Compare reading through rzfs with zfs-fuse on one image that zfs-fuse has made and filled;
    /// ext4 (or whatever the folder is on) for orientation. Needs root, fio and zfs-fuse.
    ZfsFuse(zfs_fuse::Arguments),
    /// Print the speed of checksum, parity, compression and encryption kernels, the part of the
    /// memory bandwidth that they reach, and OpenZFS's kernels on this machine if it is installed.
    Kernels(kernels::Arguments),
}

/// Measures.
pub(crate) fn run(bench: &Bench) -> Result<(), Failure> {
    match bench {
        Bench::ZfsFuse(arguments) => zfs_fuse::run(arguments),
        Bench::Kernels(arguments) => kernels::run(arguments),
    }
}
