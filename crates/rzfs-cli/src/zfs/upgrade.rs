//! `zfs upgrade` (spec 09, section 3.7): versions of file systems.

use super::change::{check_head, pool_with};
use super::name::pool_of;
use super::query::{Depth, Query, text};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, devices, operands};
use crate::history::command_line;
use crate::source;
use rzfs_format::property::DatasetProperty;
use rzfs_format::znode::ZplVersion;
use rzfs_server::protocol::{Change, DatasetKind, DatasetReport, PropertyValue, Selection};
use std::collections::{BTreeMap, BTreeSet};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('a', Value::None),
        ('r', Value::None),
        ('v', Value::None),
        ('V', Value::Required),
        ('d', Value::Devices),
    ],
    names: &[],
};

/// The news of each version.
const VERSIONS: [(ZplVersion, &str); 5] = [
    (ZplVersion::INITIAL, "Initial ZFS filesystem version"),
    (ZplVersion::DIRENT_TYPE, "Enhanced directory entries"),
    (ZplVersion::FUID, "Case insensitive and filesystem user identifier (FUID)"),
    (ZplVersion::USERSPACE, "userquota, groupquota properties"),
    (ZplVersion::SA, "System attributes"),
];

/// Runs `zfs upgrade`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs upgrade", words);
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let names = operands(&words);
    let version = words.iter().rev().find_map(|word| match word {
        Word::Option('V', text) => Some(parse_version(text)),
        _ => None,
    });
    let version = version.transpose()?;
    let devices = devices(&words);
    let is_change = flag('a') || flag('r') || version.is_some() || !names.is_empty();
    let misused = Err(Failure::Usage(String::new()));
    match is_change {
        true if flag('v') || flag('a') != names.is_empty() || !devices.is_empty() => misused,
        true => {
            let depth = if flag('r') { Depth::Unlimited } else { Depth::Unsaid };
            let wanted = version.unwrap_or(ZplVersion::SA);
            raise(&query(names, devices, depth), wanted, &line, console)
        }
        false if flag('v') => list_versions(console),
        false => list_old(devices, console),
    }
}

fn parse_version(text: &str) -> Result<ZplVersion, Failure> {
    let known = text.parse().ok().and_then(|number| ZplVersion::from_number(number).ok());
    known.ok_or_else(|| Failure::Usage(format!("invalid version {text}")))
}

/// `zfs upgrade -v`.
fn list_versions(console: &mut Console<'_>) -> Outcome {
    writeln!(console.out, "The following filesystem versions are supported:\n")?;
    writeln!(console.out, "VER  DESCRIPTION\n---  {}", "-".repeat(56))?;
    for (version, description) in VERSIONS {
        writeln!(console.out, "{:2}   {description}", version.number())?;
    }
    writeln!(console.out, "\nWhat they are on disk is said in docs/format/05-zpl-zil.md.\n")?;
    Ok(())
}

/// A query for versions of file systems: of all if there are no names.
fn query(names: Vec<String>, devices: Vec<String>, depth: Depth) -> Query {
    Query {
        names,
        devices,
        kinds: Some(vec![DatasetKind::Filesystem]),
        default_kinds: &[DatasetKind::Filesystem],
        depth,
        properties: Selection::Named(vec![DatasetProperty::Version.name().to_owned()]),
        order: Vec::new(),
    }
}

/// The version of a file system; `None` if it cannot be read, for example without its key.
fn version_of(dataset: &DatasetReport) -> Option<ZplVersion> {
    match dataset.properties.first()?.value {
        PropertyValue::Number(number) => ZplVersion::from_number(number).ok(),
        _ => None,
    }
}

/// `zfs upgrade`: lists file systems with old versions. Children with the version of their parent
/// are left out.
fn list_old(devices: Vec<String>, console: &mut Console<'_>) -> Outcome {
    let newest = ZplVersion::SA;
    let (datasets, outcome) = query(Vec::new(), devices, Depth::Unsaid).run(console)?;
    let versions: BTreeMap<&str, ZplVersion> = datasets
        .iter()
        .filter_map(|dataset| Some((dataset.name.as_str(), version_of(dataset)?)))
        .collect();
    let is_told = |(name, version): &(&&str, &ZplVersion)| {
        let parent = name.rsplit_once('/').and_then(|(parent, _)| versions.get(parent));
        **version < newest && parent != Some(*version)
    };
    let old: Vec<_> = versions.iter().filter(is_told).collect();
    let number = newest.number();
    writeln!(console.out, "This system is currently running ZFS filesystem version {number}.\n")?;
    if old.is_empty() {
        writeln!(console.out, "All filesystems are formatted with the current version.")?;
        return outcome;
    }
    writeln!(
        console.out,
        "The following filesystems are out of date.  Once they are upgraded, older systems\n\
         can read neither them nor streams of their later snapshots.\n\n\n\
         VER  FILESYSTEM\n\
         ---  ------------"
    )?;
    for (name, version) in old {
        writeln!(console.out, "{:2}   {name}", version.number())?;
    }
    outcome
}

/// `zfs upgrade` of file systems.
fn raise(query: &Query, wanted: ZplVersion, line: &str, console: &mut Console<'_>) -> Outcome {
    let (mut named, mut outcome) = (Vec::new(), Ok(()));
    for name in &query.names {
        match check_head("open", name) {
            Ok(()) => named.push(name.clone()),
            Err(Failure::Failed(message)) => {
                console.complain(message);
                outcome = Err(Failure::Told);
            }
            Err(failure) => return Err(failure),
        }
    }
    let mut datasets = Vec::new();
    if query.names.is_empty() || !named.is_empty() {
        let found = Query { names: named, ..query.clone() }.run(console)?;
        datasets = found.0;
        outcome = outcome.and(found.1);
    }
    let mut pools = BTreeSet::new();
    let (mut upgraded, mut already) = (0_u64, 0_u64);
    for dataset in datasets {
        let name = &dataset.name;
        let problem = match version_of(&dataset) {
            None => format!("{name}: its version cannot be read"),
            Some(version) if version == wanted => {
                already += 1;
                continue;
            }
            Some(version) if version > wanted => {
                let number = version.number();
                format!("{name}: can not be downgraded; it is already at version {number}")
            }
            Some(_) => {
                let change = Change::RaiseVersion { name: name.clone(), version: wanted.number() };
                // The command is logged once per pool.
                let pool = pool_of(name).to_owned();
                let line = (!pools.contains(&pool)).then_some(line);
                match pool_with(name).and_then(|mut pool| source::change(&mut pool, change, line)) {
                    Ok(told) => {
                        told.iter().for_each(|line| console.complain(line));
                        pools.insert(pool);
                        upgraded += 1;
                        continue;
                    }
                    Err(failure) => text(failure),
                }
            }
        };
        console.complain(problem);
        outcome = Err(Failure::Told);
    }
    writeln!(console.out, "{upgraded} filesystems upgraded")?;
    if already > 0 {
        writeln!(console.out, "{already} filesystems already at this version")?;
    }
    outcome
}
