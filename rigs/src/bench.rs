//! Measurements that stand in `docs/performance.md`.

mod contestant;
mod kernels;
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

/// The middle of some measurements; of an even number the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (half, odd) = (values.len() / 2, values.len() % 2 == 1);
    let upper = *values.get(half)?;
    Some(if odd { upper } else { f64::midpoint(upper, *values.get(half.checked_sub(1)?)?) })
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
