//! `zfs mount`: mounts file systems, or lists the mounts (spec 09, section 3.5).

use super::name;
use super::query::text;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, devices, operands};
use crate::json::{Envelope, object};
use crate::mount_options::Sorted;
use crate::source::{self, PoolClient};
use rzfs_format::property::DatasetProperty;
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::{
    Change, DatasetKind, DatasetQuery, MountManner, PropertyValue, Selection, Temporary,
};
use serde_json::{Map, Value as Json};
use std::path::PathBuf;

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('j', Value::None),
        ('a', Value::None),
        ('l', Value::None),
        ('O', Value::None),
        ('o', Value::Required),
        // Failures are reported anyway, and no mount is partial.
        ('v', Value::None),
        ('f', Value::None),
        ('d', Value::Devices),
    ],
    names: &[("json", 'j')],
};

/// Whether to load missing keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    AsTheyAre,
    /// `-l`
    Load,
}

/// Runs `zfs mount`. Without `-d` it queries the mounted pools; pools on devices have no mounts.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let operands = operands(&words);
    let operand = match operands.as_slice() {
        [] => None,
        [name] if !words.contains(&Word::Flag('a')) => Some(name),
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    let devices = devices(&words);
    let keys = if words.contains(&Word::Flag('l')) { Keys::Load } else { Keys::AsTheyAre };
    let options = words.iter().filter_map(|word| match word {
        Word::Option(_, options) => Some(options.as_str()),
        _ => None,
    });
    let options = Sorted::of(options);
    options.refuse_others()?;
    let overlay = words.contains(&Word::Flag('O'));
    let manner = MountManner { directory: None, temporary: options.temporary, overlay };
    if words.contains(&Word::Flag('a')) && options.is_remount {
        return Err(Failure::Usage("one file system is remounted at a time".to_owned()));
    }
    if words.contains(&Word::Flag('a')) {
        return mount_all(keys, &manner, console);
    }
    let mut found = source::respondents(&devices, &[], console)?;
    let mut mounts = Vec::new();
    for pool in &mut found.pools {
        match source::mounts(pool.as_mut()) {
            Ok(more) => mounts.extend(more),
            Err(Failure::Gone(_)) => {}
            // It does not block the others.
            Err(failure) => found.outcome = Err(source::report_omitted(text(failure), console)),
        }
    }
    if let Some(name) = operand {
        let is_mounted = mounts.iter().any(|mount| mount.dataset == *name);
        return Err(Failure::Failed(match problem_with(name, &mut found.pools)? {
            Some(problem) => format!("cannot open '{name}': {problem}"),
            None if options.is_remount => return remount(name, options.temporary, console),
            None if is_mounted => format!("cannot mount '{name}': filesystem already mounted"),
            None => return mount_one(name, keys, manner, console),
        }));
    }
    if words.contains(&Word::Flag('j')) {
        if mounts.is_empty() {
            return found.outcome;
        }
        let mut envelope = Envelope::new("zfs mount");
        let members: Map<String, Json> = mounts
            .iter()
            .map(|mount| {
                let members = [
                    ("filesystem", mount.dataset.as_str().into()),
                    (DatasetProperty::MountPoint.name(), mount.mountpoint.as_str().into()),
                ];
                (mount.dataset.clone(), object(members))
            })
            .collect();
        envelope.insert("datasets", members);
        envelope.print(console.out)?;
        return found.outcome;
    }
    for mount in &mounts {
        writeln!(console.out, "{:<30}  {}", mount.dataset, mount.mountpoint)?;
    }
    found.outcome
}

/// Mounts a file system of an imported pool, after loading its key if requested.
fn mount_one(name: &str, keys: Keys, manner: MountManner, console: &mut Console<'_>) -> Outcome {
    let mut client = super::change::pool_with(name)?;
    if keys == Keys::Load {
        super::keys::load_for_mount(&mut client, name, console)?;
    }
    let change = Change::Mount { name: name.to_owned(), manner };
    super::change::carry_out_telling(&mut client, change, None, console)
}

/// Changes the temporary options of a mount of an imported pool.
fn remount(name: &str, temporary: Temporary, console: &mut Console<'_>) -> Outcome {
    let mut client = super::change::pool_with(name)?;
    let change = Change::Remount { name: name.to_owned(), temporary };
    super::change::carry_out_telling(&mut client, change, None, console)
}

/// Mounts everything automatic of all imported pools: the outermost first, as they would hide
/// others.
fn mount_all(keys: Keys, manner: &MountManner, console: &mut Console<'_>) -> Outcome {
    let (clients, mut outcome) = source::all_imported(console)?;
    let mut placed: Vec<_> =
        clients.into_iter().map(|mut one| (outermost_mount_point(&mut one), one)).collect();
    placed.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (_, mut client) in placed {
        if keys == Keys::Load {
            match super::keys::load_all_for_mount(&mut client, console) {
                Err(Failure::Told) => outcome = Err(Failure::Told),
                loaded => loaded?,
            }
        }
        let change = Change::MountAll { manner: manner.clone() };
        let complaints = source::unless_gone(source::change(&mut client, change, None));
        let complaints = complaints.map(Option::unwrap_or_default);
        for complaint in complaints.unwrap_or_else(|failure| vec![text(failure)]) {
            console.complain(complaint);
            outcome = Err(Failure::Told);
        }
    }
    outcome
}

/// The outermost mount point of a pool. For an unresponsive pool it is unknown; mounting reports
/// the reason.
fn outermost_mount_point(client: &mut ControlClient) -> Option<PathBuf> {
    let query = DatasetQuery {
        names: Vec::new(),
        depth: None,
        kinds: vec![DatasetKind::Filesystem],
        properties: Selection::Named(vec![DatasetProperty::MountPoint.to_string()]),
    };
    let datasets = source::datasets(client, query).ok()?.datasets;
    let mount_points = datasets.iter().filter_map(|dataset| {
        match &dataset.property(DatasetProperty::MountPoint.name())?.value {
            PropertyValue::Text(path) if path.starts_with('/') => Some(PathBuf::from(path)),
            _ => None,
        }
    });
    mount_points.min()
}

/// Why a name does not denote a file system.
fn problem_with(name: &str, pools: &mut [Box<dyn PoolClient>]) -> Result<Option<String>, Failure> {
    if let Some(delimiter) = name.chars().find(|c| "@#".contains(*c)) {
        let what = if delimiter == '@' { "snapshot" } else { "bookmark" };
        return Ok(Some(format!("{what} delimiter '{delimiter}' is not expected here")));
    }
    if let Err(error) = name::check(name) {
        return Ok(Some(error.to_string()));
    }
    let missing = || Some("dataset does not exist".to_owned());
    let pool = pools.iter_mut().find(|pool| pool.pool() == name::pool_of(name));
    let Some(pool) = pool else { return Ok(missing()) };
    let query = DatasetQuery {
        names: vec![name.to_owned()],
        depth: Some(0),
        kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
        properties: Selection::Named(Vec::new()),
    };
    Ok(match source::datasets(pool.as_mut(), query)?.datasets.first() {
        None => missing(),
        Some(dataset) if dataset.kind == DatasetKind::Volume => {
            Some("operation not applicable to datasets of this type".to_owned())
        }
        Some(_) => None,
    })
}
