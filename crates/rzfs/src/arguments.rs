//! The command line of rzfs itself. What follows `zpool`, `zfs` and `zdb` is theirs.

use crate::daemon::SERVE;
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
    /// Mount the file systems of a pool, read-only.
    Mount(MountArguments),
    /// End the mounts of a pool.
    Umount(UmountArguments),
    /// List a directory of a pool that is not mounted.
    Ls(LsArguments),
    /// Write files, or volumes, to standard output.
    Cat(TargetsArguments),
    /// Show everything about files.
    Stat(TargetsArguments),
    /// List a tree.
    Find(FindArguments),
    /// Copy files out of a pool.
    Cp(CpArguments),
    /// OpenZFS's zpool: import (list), status, list, get, history.
    #[command(disable_help_flag = true)]
    Zpool(Words),
    /// OpenZFS's zfs: list, get, mount.
    #[command(disable_help_flag = true)]
    Zfs(Words),
    /// OpenZFS's zdb: labels, configuration, objects, space, block walks.
    #[command(disable_help_flag = true)]
    Zdb(Words),
    #[command(name = SERVE, hide = true)]
    ServeMount,
}

/// Words that another grammar understands.
#[derive(Debug, Args)]
pub(crate) struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) words: Vec<OsString>,
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
    /// Mount options: ro, allow_other, arc_max=SIZE, snapshot=FS@SNAP.
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

/// Where the pool is.
#[derive(Debug, Args)]
pub(crate) struct PoolArguments {
    /// Devices or images of the pool, or directories to search for them.
    #[arg(short, long = "device", required = true, value_name = "DEVICE")]
    pub(crate) devices: Vec<PathBuf>,
    /// File with the key of encryption root FS; without FS, of every root that it fits.
    #[arg(short, long = "key", value_name = "[FS=]KEYFILE")]
    pub(crate) keys: Vec<String>,
    /// Import even if another system had the pool last and did not export it.
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TargetsArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// What to show: POOL/FS[@SNAP]:/PATH, or a volume POOL/VOL[@SNAP].
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// Show types, permissions, owners, sizes and times.
    #[arg(short)]
    pub(crate) long: bool,
    /// Show names that begin with a dot.
    #[arg(short)]
    pub(crate) all: bool,
    /// What to list: POOL/FS[@SNAP]:/PATH.
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct FindArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// Only names that match this pattern: * and ? stand for anything.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Only this type: f, d, l, b, c, p or s.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<char>,
    /// Where to begin: POOL/FS[@SNAP]:/PATH.
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CpArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// Copy directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep mode, owner (as root), times and extended attributes.
    #[arg(short = 'a', long)]
    pub(crate) archive: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What to copy: POOL/FS[@SNAP]:/PATH, or a volume POOL/VOL[@SNAP].
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<String>,
    /// The file to write, or the directory to write into.
    #[arg(required = true, value_name = "DESTINATION")]
    pub(crate) destination: PathBuf,
}

/// Lets several devices follow one `-d`: `ls -d A B POOL/FS:/` is `ls -d A -d B POOL/FS:/`. A
/// word is one more device if it is a path of something that exists.
pub(crate) fn spread_devices(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut spread = Vec::new();
    let mut after_device = false;
    for word in words {
        let is_option = word.as_encoded_bytes().first() == Some(&b'-');
        let follows = spread.last().is_some_and(|last| last == "-d" || last == "--device");
        if after_device && !is_option && !follows && Path::new(&word).exists() {
            spread.push("-d".into());
        }
        after_device = follows || (after_device && !is_option && Path::new(&word).exists());
        spread.push(word);
    }
    spread
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
    fn several_devices_follow_one_option() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let path = image.path().to_str().unwrap();
        let line = format!("rzfs ls -d gone.img {path} {path} tank:/ -l");
        let spread = spread_devices(line.split(' ').map(OsString::from));
        let expected = format!("rzfs ls -d gone.img -d {path} -d {path} tank:/ -l");
        assert_eq!(spread.join(&OsString::from(" ")), OsString::from(expected));
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
