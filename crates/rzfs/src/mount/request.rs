//! What `rzfs mount` is asked to do, in a form that can be handed to the process in the
//! background: paths are absolute, options understood.

use super::named_key::NamedKey;
use super::paths::{absolute, named};
use super::plan::Choice;
use crate::arguments::MountArguments;
use crate::console::Failure;
use crate::quantity::parse_size;
use rzfs::protocol::Pair;
use rzfs::setting::CacheFile;
use serde::{Deserialize, Serialize};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// What is to be mounted, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct MountRequest {
    /// Devices, images, or directories to search for them.
    pub(crate) devices: Vec<PathBuf>,
    /// Where the root of the pool goes; without, every file system goes to its mount point.
    pub(crate) directory: Option<PathBuf>,
    /// Name or guid of the pool.
    pub(crate) pool: Option<String>,
    /// Whether to import a pool that another system had last.
    pub(crate) force: bool,
    /// Which file systems.
    pub(crate) choice: Choice,
    /// Keys in files that the command line names.
    pub(crate) keys: Vec<NamedKey>,
    /// Who types passphrases.
    pub(crate) key_loading: KeyLoading,
    /// `-o`.
    pub(crate) options: MountOptions,
}

/// A pool that is to be imported until it is exported.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ImportRequest {
    /// Devices, images, or directories to search for them; else where OpenZFS looks.
    pub(crate) devices: Vec<PathBuf>,
    /// Name or guid of the pool.
    pub(crate) pool: String,
    /// The name that it gets.
    pub(crate) new_name: Option<String>,
    /// Whether it is one that was destroyed.
    pub(crate) destroyed: bool,
    /// Whether to import a pool that another system had last.
    pub(crate) force: bool,
    /// Whether log devices may be missing.
    pub(crate) missing_logs: bool,
    /// Whether its file systems are mounted.
    pub(crate) mounts: bool,
    /// Which keys are loaded.
    pub(crate) key_loading: KeyLoading,
    /// Whether it is imported to be changed.
    pub(crate) access: Access,
    /// The directory below which its file systems are mounted.
    pub(crate) alternate_root: Option<PathBuf>,
    /// Properties that it gets.
    pub(crate) properties: Vec<Pair>,
    /// What `cachefile` says of it while it is imported.
    pub(crate) cache_file: Option<CacheFile>,
    /// The line for the pool's history.
    pub(crate) command: String,
}

/// Which keys are loaded, besides those that the command line names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum KeyLoading {
    /// None.
    Nothing,
    /// Those in files that property `keylocation` names.
    Files,
    /// Those in files, and somebody at a terminal is asked for the others.
    FilesAndTerminal,
    /// Those in files, and the others come from standard input.
    FilesAndInput,
}

impl KeyLoading {
    /// What whoever started this process can give.
    pub(crate) fn of_process() -> Self {
        match io::stdin().is_terminal() && io::stderr().is_terminal() {
            true => Self::FilesAndTerminal,
            false => Self::Files,
        }
    }

    /// What whoever asks for keys to be loaded can give: what is piped is meant for that.
    pub(crate) fn on_request() -> Self {
        match io::stdin().is_terminal() {
            true => Self::FilesAndTerminal,
            false => Self::FilesAndInput,
        }
    }
}

/// Whether a pool is mounted to be changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) enum Access {
    /// It is.
    #[default]
    ReadWrite,
    /// Nothing is written to its devices, ever.
    ReadOnly,
}

/// Mount options.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MountOptions {
    /// Whether anything is written.
    pub(crate) access: Access,
    /// Other users get in, as far as permissions let them.
    pub(crate) allow_other: bool,
    /// Most bytes of block contents to keep in memory.
    pub(crate) arc_max: Option<u64>,
    /// This snapshot is mounted, and nothing else.
    pub(crate) snapshot: Option<String>,
}

impl MountRequest {
    /// Understands the arguments.
    pub(crate) fn of(arguments: &MountArguments) -> Result<Self, Failure> {
        let (devices, directory) = arguments.devices_and_directory();
        let mut options = MountOptions::parse(&arguments.options)?;
        if options.snapshot.is_some() {
            options.access = Access::ReadOnly;
        }
        if options.snapshot.is_some() && directory.is_none() {
            let message = "the option snapshot= needs a directory to mount at";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(Self {
            devices: devices.iter().map(|path| device(path)).collect::<Result<_, _>>()?,
            directory: directory.map(absolute).transpose()?,
            pool: arguments.pool.clone(),
            force: arguments.force,
            choice: if arguments.all { Choice::All } else { Choice::Automatic },
            keys: NamedKey::read_all(&arguments.keys)?,
            key_loading: KeyLoading::of_process(),
            options,
        })
    }
}

impl MountOptions {
    fn parse(words: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        for word in words {
            match word.split_once('=').unwrap_or((word, "")) {
                ("ro", "") => options.access = Access::ReadOnly,
                ("rw", "") => options.access = Access::ReadWrite,
                ("allow_other", "") => options.allow_other = true,
                ("arc_max", size) => {
                    let bytes = parse_size(size);
                    let invalid = |error| Failure::Usage(format!("option arc_max: {error}"));
                    options.arc_max = Some(bytes.map_err(invalid)?);
                }
                ("snapshot", name) if name.contains('@') => {
                    options.snapshot = Some(name.to_owned());
                }
                ("snapshot", name) => {
                    let message = format!("option snapshot: '{name}' is not FS@SNAP");
                    return Err(Failure::Usage(message));
                }
                _ => return Err(Failure::Usage(format!("unknown mount option '{word}'"))),
            }
        }
        Ok(options)
    }
}

/// Where another process finds a device, an image, or a directory with such.
pub(crate) fn device(path: &Path) -> Result<PathBuf, Failure> {
    named(absolute(path)?)
}

#[cfg(test)]
mod tests {
    use super::super::named_key::KeyFile;
    use super::*;
    use std::fs;

    fn parse(text: &str) -> Result<MountOptions, Failure> {
        MountOptions::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn mount_options() {
        let options = parse("ro,allow_other,arc_max=1.5G,snapshot=tank/a@b").unwrap();
        assert!(options.allow_other);
        assert_eq!(options.access, Access::ReadOnly);
        assert_eq!(parse("rw").unwrap().access, Access::ReadWrite);
        assert_eq!(options.arc_max, Some(3 << 29));
        assert_eq!(options.snapshot.as_deref(), Some("tank/a@b"));
        for wrong in ["noexec", "arc_max=x", "snapshot=tank", "ro=1"] {
            assert!(matches!(parse(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn descriptors_stand_for_files_that_have_names() {
        use std::os::fd::AsRawFd;
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().canonicalize().unwrap().join("image");
        let open = fs::File::create(&image).unwrap();
        for place in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"] {
            let descriptor = Path::new(place).join(open.as_raw_fd().to_string());
            assert_eq!(device(&descriptor).unwrap(), image);
        }
        let descriptor = PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()));
        // Another file has its first name now.
        fs::rename(&image, directory.path().join("renamed")).unwrap();
        fs::write(&image, "").unwrap();
        assert!(named(descriptor.clone()).is_ok_and(|path| path.ends_with("renamed")));
        fs::remove_file(directory.path().join("renamed")).unwrap();
        let shown = format!("cannot open {}: a file", descriptor.display());
        let refused = named(descriptor).unwrap_err();
        assert!(matches!(refused, Failure::Failed(text) if text.starts_with(&shown)));
        assert_eq!(named("mirror".into()).unwrap(), Path::new("mirror"));
    }

    #[test]
    fn key_files() {
        let parsed = |text: &str| KeyFile::parse(text).unwrap();
        let named = parsed("tank/a=/keys/a");
        assert_eq!(named, KeyFile { root: Some("tank/a".into()), path: "/keys/a".into() });
        let odd = parsed("/keys/a=b");
        assert_eq!(odd, KeyFile { root: None, path: "/keys/a=b".into() });
    }
}
