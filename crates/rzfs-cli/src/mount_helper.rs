//! `mount.rzfs`: run by mount(8) for file systems of type `rzfs`, and to remount those of type
//! `fuse.rzfs`, the type of their mounts.
//!
//! ```text
//! mount -t rzfs pool.img /mnt       as `rzfs mount pool.img /mnt`, for all users
//! mount -t rzfs tank/a /mnt         a dataset of an imported pool, with mountpoint=legacy
//! mount -o remount,ro /mnt          the file system mounted there
//! ```

use crate::arguments::MountArguments;
use crate::console::{Console, Failure, Outcome, conclude};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::mount_options::Sorted;
use crate::source;
use crate::tuning::is_tunable;
use crate::zfs::change::carry_out_telling;
use crate::zfs::name;
use rzfs_blockdev::without_number;
use rzfs_format::property::DatasetProperty;
use rzfs_server::protocol::{Change, MountManner};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('s', Value::None),
        ('f', Value::None),
        ('n', Value::None),
        ('v', Value::None),
        ('N', Value::Required),
        ('t', Value::Required),
        ('o', Value::Required),
    ],
    names: &[],
};

const USAGE: &str = "usage: mount.rzfs DEVICE|FILESYSTEM DIRECTORY [-sfnv] [-o OPTIONS]";

/// Options for the first mount only, which fstab repeats.
const FIRST: [&str; 5] = ["allow_other", "arc_max=", "key=", "pool=", "snapshot="];

/// Exit statuses that mount(8) knows from its helpers.
const BAD_USAGE: u8 = 1;
const FAILED: u8 = 32;

/// Runs it with the words after its name.
pub(crate) fn run(words: &[String], verbose: u8, console: &mut Console<'_>) -> u8 {
    let outcome = mount(words, verbose, console);
    match conclude(outcome, USAGE, console) {
        0 => 0,
        2 => BAD_USAGE,
        _ => FAILED,
    }
}

fn mount(words: &[String], verbose: u8, console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(&words);
    let [source, directory] = operands.as_slice() else {
        return Err(Failure::Usage("a source and a directory are needed".to_owned()));
    };
    let options = words.iter().filter_map(|word| match word {
        Word::Option('o', options) => Some(options.as_str()),
        _ => None,
    });
    let mut options = Sorted::of(options);
    if flag('f') {
        return Ok(());
    }
    if options.is_remount {
        // The source is what mount(8) has found, possibly in fstab; the directory is the user's.
        options.others.retain(|word| {
            let name = word.split_once('=').map_or("", |(name, _)| name);
            !FIRST.iter().any(|first| word.starts_with(first)) && !is_tunable(name)
        });
        if !flag('s') {
            options.refuse_others()?;
        }
        return remount(Path::new(directory), &options, console);
    }
    // mount(8) passes `rw` for everything that is not read-only.
    options.temporary.readonly = options.temporary.readonly.filter(|is_on| *is_on);
    let name = dataset_meant(source);
    if let Some(name) = &name
        && let Some(mut client) = source::imported(name::pool_of(name))?
    {
        options.others.retain(|word| word != "allow_other");
        // `-s` tolerates unknown options.
        if !flag('s') {
            options.refuse_others()?;
        }
        if !client.shares_mounts() {
            return Err(Failure::Failed(format!(
                "cannot mount '{name}': the process that has the pool is in another mount \
                 namespace, and would mount it there"
            )));
        }
        // Resolved in this process: the one that mounts is elsewhere.
        let directory = Path::new(directory).canonicalize().map_err(|error| {
            let reason = without_number(&error);
            Failure::Failed(format!("mount point '{directory}': {reason}"))
        })?;
        let manner =
            MountManner { directory: Some(directory), temporary: options.temporary, overlay: true };
        let change = Change::Mount { name: name.clone(), manner };
        return carry_out_telling(&mut client, change, None, console);
    }
    if let Some(name) = name
        && !is_image_meant(source, &name)
    {
        let pool = name::pool_of(&name);
        return Err(Failure::Failed(format!(
            "cannot mount '{name}': the pool '{pool}' is not imported (an image in the working \
             directory is mounted from another one, by its whole path)"
        )));
    }
    // A system mount is for all users.
    options.others.push("allow_other".to_owned());
    let arguments = MountArguments {
        force: false,
        foreground: false,
        all: false,
        options: options.words(),
        keys: Vec::new(),
        pool: None,
        paths: vec![source.into(), directory.into()],
    };
    match crate::mount::run(&arguments, verbose, console) {
        0 => Ok(()),
        status => Err(Failure::Status(String::new(), status)),
    }
}

/// The dataset that a source may name. mount(8) turns a source into an absolute path if it exists
/// in the working directory, whoever made it; others it leaves unchanged.
fn dataset_meant(source: &str) -> Option<String> {
    let here = std::env::current_dir().ok().filter(|_| Path::new(source).exists());
    let here = here.as_deref().and_then(|here| Path::new(source).strip_prefix(here).ok());
    let name = here.and_then(Path::to_str).unwrap_or(source);
    name::check(name).is_ok().then(|| name.to_owned())
}

/// Whether a source that may name a dataset of a pool not imported means an existing file. Not if
/// others could have put it into the working directory to choose what gets mounted.
fn is_image_meant(source: &str, name: &str) -> bool {
    let path = Path::new(source);
    let is_relative = source != name && path.strip_prefix("/").ok() != Some(Path::new(name));
    let is_ambiguous = is_relative && (name.contains('/') || is_in_fstab(name));
    path.exists() && (!is_ambiguous || is_in_fstab(source) || is_ours(path))
}

/// Whether only root and this user can have put a file where it is.
fn is_ours(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    path.ancestors().all(|at| {
        let is_ours = |at: Metadata| [0, own].contains(&at.uid()) && at.mode() & 0o022 == 0;
        std::fs::symlink_metadata(at).is_ok_and(is_ours)
    })
}

/// Whether fstab has a source in this form.
fn is_in_fstab(source: &str) -> bool {
    let fstab = std::fs::read_to_string("/etc/fstab").unwrap_or_default();
    fstab.lines().any(|line| line.split_whitespace().next() == Some(source))
}

/// Changes the options of the file system mounted at a directory.
fn remount(directory: &Path, options: &Sorted, console: &mut Console<'_>) -> Outcome {
    let place = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    // Unresponsive pools may have the directory: that was reported.
    let (clients, _) = source::all_imported(console)?;
    for mut client in clients {
        let Some(mounts) = source::unless_gone(source::mounts(&mut client))? else { continue };
        let Some(mount) = mounts.iter().find(|one| Path::new(&one.mountpoint) == place) else {
            continue;
        };
        // mount(8) passes all current prohibitions, but no words that permit something. Other
        // options were meant for the first mount.
        let forbidden = mount.temporary.filtered(|property, is_on| {
            !is_on && !matches!(property, DatasetProperty::ReadOnly | DatasetProperty::Relatime)
        });
        let temporary = options.temporary.or(forbidden.reversed());
        let name = mount.dataset.clone();
        return source::change(&mut client, Change::Remount { name, temporary }, None).map(drop);
    }
    let directory = directory.display();
    Err(Failure::Failed(format!("cannot remount '{directory}': not currently mounted")))
}
