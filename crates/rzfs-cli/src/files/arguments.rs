//! The command lines of `ls`, `cat`, `stat`, `find` and `cp`.

use clap::{Args, ValueEnum};
use rzfs::format::dirent::FileKind;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where the pool is.
#[derive(Debug, Args)]
pub(crate) struct PoolArguments {
    /// Devices or images of the pool, or directories to search for them.
    #[arg(short, long = "device", required = true, value_name = "DEVICE")]
    pub(crate) devices: Vec<PathBuf>,
    /// File with the key of encryption root FS; without FS, of every root that it fits.
    #[arg(short, long = "key", value_name = "[FS=]KEYFILE")]
    pub(crate) keys: Vec<String>,
    /// Read the pool even if another system had it last and did not export it.
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// Arguments of `cat` and `stat`.
#[derive(Debug, Args)]
pub(crate) struct TargetsArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// What to show: POOL/FS[@SNAP]:/PATH, or a volume POOL/VOL[@SNAP].
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// Show types, permissions, links, owners as numbers, sizes and times.
    #[arg(short)]
    pub(crate) long: bool,
    /// Show names that begin with a dot.
    #[arg(short)]
    pub(crate) all: bool,
    /// What to list: POOL/FS[@SNAP]:/PATH.
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct FindArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// Only names that match this pattern of the shell: *, ? and [...].
    #[arg(long, value_name = "PATTERN")]
    pub(crate) name: Option<OsString>,
    /// Only files of this type.
    #[arg(long = "type", value_enum, value_name = "TYPE")]
    pub(crate) kind: Option<Kind>,
    /// End names with a zero byte instead of a newline.
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Where to begin: POOL/FS[@SNAP]:/PATH.
    #[arg(required = true, value_name = "TARGET")]
    pub(crate) targets: Vec<OsString>,
}

/// A type of files, as find(1) abbreviates it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// Regular file.
    F,
    /// Directory.
    D,
    /// Symbolic link.
    L,
    /// Block device.
    B,
    /// Character device.
    C,
    /// Named pipe.
    P,
    /// Socket.
    S,
}

impl Kind {
    /// What it abbreviates.
    pub(crate) const fn file_kind(self) -> FileKind {
        match self {
            Self::F => FileKind::Regular,
            Self::D => FileKind::Directory,
            Self::L => FileKind::Symlink,
            Self::B => FileKind::BlockDevice,
            Self::C => FileKind::CharDevice,
            Self::P => FileKind::Fifo,
            Self::S => FileKind::Socket,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct CpArguments {
    #[command(flatten)]
    pub(crate) pool: PoolArguments,
    /// Copy directories with everything in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Copy directories, and keep modes, times, extended attributes, ACLs; as root owners too.
    #[arg(short, long)]
    pub(crate) archive: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What to copy: POOL/FS[@SNAP]:/PATH, or a volume POOL/VOL[@SNAP].
    #[arg(required = true, value_name = "SOURCE")]
    pub(crate) sources: Vec<OsString>,
    /// The file to write, or the directory to write into.
    #[arg(required = true, value_name = "DESTINATION")]
    pub(crate) destination: PathBuf,
}

/// Lets several devices follow one `-d`: `ls -d A B POOL/FS:/` is `ls -d A -d B POOL/FS:/`. A
/// word is one more device if it is a path of something that exists.
pub(crate) fn expand_devices(words: Vec<OsString>) -> Vec<OsString> {
    const COMMANDS: [&str; 5] = ["ls", "cat", "stat", "find", "cp"];
    let is_ours = |word: &OsString| COMMANDS.iter().any(|command| word == command);
    if !words.get(1).is_some_and(is_ours) {
        return words;
    }
    let mut spread: Vec<OsString> = Vec::with_capacity(words.len());
    let mut after_device = false;
    for word in words {
        let follows = spread.last().is_some_and(|last| last == "-d" || last == "--device");
        let is_option = word.as_encoded_bytes().starts_with(b"-");
        let is_more = after_device && !is_option && Path::new(&word).exists();
        if is_more {
            spread.push("-d".into());
        }
        after_device = follows || is_more;
        spread.push(word);
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_devices_follow_one_option() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let path = image.path().to_str().unwrap();
        let spread = |line: &str| {
            let words = expand_devices(line.split(' ').map(OsString::from).collect());
            words.join(&OsString::from(" ")).into_string().unwrap()
        };
        assert_eq!(
            spread(&format!("rzfs ls -d gone.img {path} {path} tank:/ {path}")),
            format!("rzfs ls -d gone.img -d {path} -d {path} tank:/ {path}")
        );
        let other = format!("rzfs zpool import -d {path} {path}");
        assert_eq!(spread(&other), other);
    }
}
