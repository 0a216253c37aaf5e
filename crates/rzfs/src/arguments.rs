//! The command line of rzfs itself. What follows `zpool`, `zfs` and `zdb` is theirs.

use crate::daemon::SERVE;
use crate::files::arguments::{CpArguments, FindArguments, LsArguments, TargetsArguments};
use clap::{ArgAction, Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// OpenZFS pools in user space.
#[derive(Debug, Parser)]
#[command(name = "rzfs", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Arguments {
    /// Say more on standard error; twice for even more. RUST_LOG chooses in detail.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount the file systems of a pool.
    Mount(MountArguments),
    /// End the mounts of a pool.
    Umount(UmountArguments),
    /// List directories of a pool that is not mounted.
    Ls(LsArguments),
    /// Write files, or volumes, to standard output.
    Cat(TargetsArguments),
    /// Show everything about files.
    Stat(TargetsArguments),
    /// List trees of files.
    Find(FindArguments),
    /// Copy files, or volumes, out of a pool.
    Cp(CpArguments),
    /// OpenZFS's zpool: import (list), status, list, get, history.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Zpool(Words),
    /// OpenZFS's zfs: list, get, mount.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Zfs(Words),
    /// OpenZFS's zdb: what is on disk, down to objects and blocks.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Zdb(Words),
    /// The process in the background that `mount` starts.
    #[command(name = SERVE, hide = true)]
    ServeMount,
}

/// Words that another grammar understands.
#[derive(Debug, Args)]
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    words: Vec<OsString>,
}

impl Words {
    /// The words as text. Names and paths that are no UTF-8 cannot be given to these commands.
    pub(crate) fn text(&self) -> Vec<String> {
        self.words.iter().map(|word| word.to_string_lossy().into_owned()).collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct MountArguments {
    /// Import even if another system had the pool last and did not export it.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Stay in the foreground until the pool is unmounted.
    #[arg(long)]
    pub(crate) foreground: bool,
    /// Also mount file systems with canmount=off or noauto, or mountpoint=none or legacy.
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Mount options: ro (write nothing), rw, allow_other, arc_max=SIZE, snapshot=FS@SNAP.
    #[arg(short, long, value_delimiter = ',', value_name = "OPTIONS")]
    pub(crate) options: Vec<String>,
    /// File with the key of encryption root FS; without FS, of every root that it fits.
    #[arg(short, long = "key", value_name = "[FS=]KEYFILE")]
    pub(crate) keys: Vec<String>,
    /// Name or guid of the pool, if the devices have several.
    #[arg(short, long)]
    pub(crate) pool: Option<String>,
    /// Devices or images of the pool, or directories to search for them; last, perhaps, the
    /// directory to mount below.
    #[arg(required = true, value_name = "DEVICE... [DIR]")]
    pub(crate) paths: Vec<PathBuf>,
}

impl MountArguments {
    /// Devices and mount directory. The last of several paths is the directory, unless it is a
    /// device or an image.
    pub(crate) fn devices_and_directory(&self) -> (&[PathBuf], Option<&Path>) {
        match self.paths.split_last() {
            Some((last, devices)) if !devices.is_empty() && (last.is_dir() || !last.exists()) => {
                (devices, Some(last))
            }
            _ => (&self.paths, None),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct UmountArguments {
    /// Detach mounts that are in use as well.
    #[arg(short, long)]
    pub(crate) force: bool,
    /// A mount directory, or the name of a pool.
    #[arg(value_name = "DIR|POOL")]
    pub(crate) target: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_last_path_is_the_directory_unless_it_is_a_device() {
        let directory = tempfile::tempdir().unwrap();
        let image = tempfile::NamedTempFile::new().unwrap();
        let parse = |paths: &[&Path]| {
            let words = ["rzfs", "mount"].into_iter().map(OsString::from);
            let words = words.chain(paths.iter().map(|path| path.as_os_str().to_owned()));
            match Arguments::parse_from(words).command {
                Command::Mount(arguments) => arguments,
                other => panic!("{other:?}"),
            }
        };
        let (dir, img) = (directory.path(), image.path());
        let both = parse(&[img, dir]);
        assert_eq!(both.devices_and_directory(), ([img.to_owned()].as_slice(), Some(dir)));
        assert_eq!(parse(&[img, img]).devices_and_directory().1, None);
        assert_eq!(parse(&[dir]).devices_and_directory().1, None);
    }
}
