//! Parses the arguments of `rzfs mount`.

use super::read_named_keys;
use crate::arguments::MountArguments;
use crate::console::Failure;
use crate::mount_options::Sorted;
use crate::paths::{absolute, device};
use crate::tuning;
use rzfs::tunables::TunableError;
use rzfs_server::request::{Access, Choice, KeyLoading, MountOptions, MountRequest};
use std::io::{self, IsTerminal};

/// Parses the arguments.
pub(super) fn of(arguments: &MountArguments) -> Result<MountRequest, Failure> {
    let (devices, directory) = arguments.devices_and_directory();
    let (mut keys, mut pool) = (arguments.keys.clone(), arguments.pool.clone());
    let mut options = mount_options(&arguments.options, &mut keys, &mut pool)?;
    if options.snapshot.is_some() {
        options.access = Access::ReadOnly;
    }
    if options.snapshot.is_some() && directory.is_none() {
        let message = "the option snapshot= needs a directory to mount at";
        return Err(Failure::Usage(message.to_owned()));
    }
    Ok(MountRequest {
        devices: devices.iter().map(|path| device(path)).collect::<Result<_, _>>()?,
        directory: directory.map(absolute).transpose()?,
        pool,
        force: arguments.force,
        choice: if arguments.all { Choice::All } else { Choice::Automatic },
        keys: read_named_keys(&keys)?,
        key_loading: keys_of_process(),
        options,
    })
}

/// Parses `-o`; keys and the pool may be named there as well, for fstab.
fn mount_options(
    words: &[String],
    keys: &mut Vec<String>,
    pool: &mut Option<String>,
) -> Result<MountOptions, Failure> {
    let Sorted { mut temporary, is_remount, others } = Sorted::of(words.iter().map(String::as_str));
    if is_remount {
        let message = "mount(8) remounts: 'mount -o remount,... DIRECTORY'";
        return Err(Failure::Usage(message.to_owned()));
    }
    let access = match temporary.readonly.take() {
        Some(true) => Access::ReadOnly,
        Some(false) | None => Access::ReadWrite,
    };
    let tunables = tuning::of_environment()?;
    let mut options = MountOptions { access, temporary, tunables, ..MountOptions::default() };
    for word in &others {
        match word.split_once('=').unwrap_or((word, "")) {
            ("key", key) if !key.is_empty() => keys.push(key.to_owned()),
            ("pool", name) if !name.is_empty() => *pool = Some(name.to_owned()),
            ("allow_other", "") => options.allow_other = true,
            ("snapshot", name) if name.contains('@') => options.snapshot = Some(name.to_owned()),
            ("snapshot", name) => {
                let message = format!("option snapshot: '{name}' is not FS@SNAP");
                return Err(Failure::Usage(message));
            }
            (name, value) => {
                let name = if name == "arc_max" { "zfs_arc_max" } else { name };
                if !tuning::is_tunable(name) {
                    return Err(Failure::Usage(tuning::unknown_option("mount option", word)));
                }
                let invalid = |error: TunableError| Failure::Usage(error.to_string());
                options.tunables.set(name, value).map_err(invalid)?;
            }
        }
    }
    Ok(options)
}

/// The key sources available to this process.
pub(crate) fn keys_of_process() -> KeyLoading {
    match io::stdin().is_terminal() && io::stderr().is_terminal() {
        true => KeyLoading::FilesAndTerminal,
        false => KeyLoading::Files,
    }
}

/// The key sources for an explicit request to load keys: piped input is meant for that.
pub(crate) fn keys_on_request() -> KeyLoading {
    match io::stdin().is_terminal() {
        true => KeyLoading::FilesAndTerminal,
        false => KeyLoading::FilesAndInput,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MountOptions, Failure> {
        mount_options(&[text.to_owned()], &mut Vec::new(), &mut None)
    }

    #[test]
    fn options_are_understood() {
        let options = parse("ro,allow_other,arc_max=1.5G,snapshot=tank/a@b").unwrap();
        assert!(options.allow_other);
        assert_eq!(options.access, Access::ReadOnly);
        assert_eq!(parse("rw").unwrap().access, Access::ReadWrite);
        assert_eq!(options.tunables.zfs_arc_max, 3 << 29);
        let tuned = parse("ro,zfs_txg_timeout=1,zfs_dirty_data_max=64M").unwrap();
        let tunables = tuned.tunables;
        assert_eq!(
            (tunables.zfs_txg_timeout.as_secs(), tunables.zfs_dirty_data_max),
            (1, 64 << 20)
        );
        assert_eq!(options.snapshot.as_deref(), Some("tank/a@b"));
        let temporary = parse("noexec,suid,noatime").unwrap().temporary;
        assert_eq!(
            (temporary.exec, temporary.setuid, temporary.atime, temporary.devices),
            (Some(false), Some(true), Some(false), None)
        );
        let (mut keys, mut pool) = (Vec::new(), None);
        let words = ["key=tank/a=/k,pool=tank".to_owned(), "key=/other".to_owned()];
        mount_options(&words, &mut keys, &mut pool).unwrap();
        assert_eq!(
            (keys.as_slice(), pool.as_deref()),
            (["tank/a=/k".to_owned(), "/other".to_owned()].as_slice(), Some("tank"))
        );
        for wrong in [
            "sync",
            "key=",
            "remount,ro",
            "arc_max=x",
            "zfs_txg_timeout=0",
            "snapshot=tank",
            "ro=1",
        ] {
            assert!(matches!(parse(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
