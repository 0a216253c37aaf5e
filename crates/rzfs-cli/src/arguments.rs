//! The command line of rzfs itself; words after `zpool`, `zfs`, `zdb`, `zstream` are theirs.

use crate::console::Failure;
use crate::files::arguments::{CpArguments, FindArguments, LsArguments, TargetsArguments};
use crate::stats::StatsArguments;
use crate::tunables_list::TunablesArguments;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use rzfs_server::SERVE;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The subcommand that is the helper of mount(8).
pub(crate) const MOUNT_HELPER: &str = "mount-helper";

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

impl Arguments {
    /// Whether a word is a subcommand or an option.
    pub(crate) fn has_command(word: &OsStr) -> bool {
        let own = <Self as CommandFactory>::command();
        word.as_encoded_bytes().starts_with(b"-")
            || own.get_subcommands().any(|command| word == command.get_name())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount the file systems of a pool.
    Mount(MountArguments),
    /// End the mounts of a pool.
    Umount(UmountArguments),
    /// List directories of a pool that is not mounted.
    #[command(override_usage = "rzfs ls [OPTIONS] -d, --device <DEVICE> <TARGET>...")]
    Ls(LsArguments),
    /// Write files, or volumes, to standard output.
    #[command(override_usage = "rzfs cat [OPTIONS] -d, --device <DEVICE> <TARGET>...")]
    Cat(TargetsArguments),
    /// Show everything about files.
    #[command(override_usage = "rzfs stat [OPTIONS] -d, --device <DEVICE> <TARGET>...")]
    Stat(TargetsArguments),
    /// List trees of files.
    #[command(override_usage = "rzfs find [OPTIONS] -d, --device <DEVICE> <TARGET>...")]
    Find(FindArguments),
    /// Copy files, or volumes, out of a pool.
    #[command(override_usage = "rzfs cp [OPTIONS] -d, --device <DEVICE> <SOURCE>... <DESTINATION>")]
    Cp(CpArguments),
    /// Show what pools have counted: caches, transactions, intent logs, use of file systems.
    ///
    /// With INTERVAL, in seconds, it reports COUNT times, or without end: first what was counted since
    /// the pools were opened, then each time what was counted since the last time.
    Stats(StatsArguments),
    /// List what can be tuned about pools.
    Tunables(TunablesArguments),
    /// OpenZFS's zpool: make, import, change, watch and export pools.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Zpool(Words),
    /// OpenZFS's zfs: make, change, mount, list and destroy file systems; keys.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Zfs(Words),
    /// OpenZFS's zdb: what is on disk, down to objects and blocks.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Zdb(Words),
    /// OpenZFS's zstream: what is in send streams and resume tokens.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Zstream(Words),
    /// The helper of mount(8).
    #[command(name = MOUNT_HELPER, hide = true, disable_help_flag = true)]
    MountHelper(Words),
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
    /// The unparsed words.
    pub(crate) fn raw(self) -> Vec<OsString> {
        self.words
    }

    /// The words as text.
    ///
    /// # Errors
    /// One is not UTF-8: it would become a different path.
    pub(crate) fn text(self) -> Result<Vec<String>, Failure> {
        let text = |word: OsString| {
            word.into_string().map_err(|word| {
                let word = word.to_string_lossy();
                Failure::Failed(format!("'{word}': names and paths have to be UTF-8 here"))
            })
        };
        self.words.into_iter().map(text).collect()
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
    /// Mount options: ro (write nothing), rw, [no]suid, [no]dev, [no]exec, [no]atime, [no]relatime,
    /// allow_other, snapshot=FS@SNAP, key=[FS=]KEYFILE, pool=NAME, arc_max=SIZE, and tunables of
    /// the pool (`rzfs tunables`).
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
