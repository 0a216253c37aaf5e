//! `zpool import`: lists importable pools, and imports them (spec 09, section 2.6).

use super::condition::{ImportProspect, for_import};
use super::config_tree::{ConfigTree, TreeStyle, is_shown, word};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::history::command_line;
use crate::mount;
use crate::mount::request::keys_on_request;
use crate::paths::device;
use crate::source;
use crate::tuning;
use rzfs::check_pool_name;
use rzfs::setting::{PoolSetting, SettingError};
use rzfs_format::property::PoolProperty;
use rzfs_server::protocol::{PoolReport, Temporary, VdevReport, VdevRole};
use rzfs_server::request::{Access, ImportRequest, KeyLoading, ServeRequest};
use rzfs_vdev::VdevState;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('a', Value::None),
        ('d', Value::Devices),
        ('D', Value::None),
        ('f', Value::None),
        ('l', Value::None),
        ('m', Value::None),
        ('N', Value::None),
        ('o', Value::Required),
        ('R', Value::Required),
        ('s', Value::None),
    ],
    names: &[],
};

/// The label state of a destroyed pool.
const DESTROYED: u64 = 2;

/// Runs `zpool import`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zpool import", words);
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let (mut devices, mut operands) = (Vec::new(), Vec::new());
    for word in &words {
        match word {
            Word::Device(word) => devices.push(device(Path::new(word))?),
            Word::Operand(name) => operands.push(name.clone()),
            _ => {}
        }
    }
    let mut pools = source::importable(&devices, console)?;
    let local = source::local_pools(console)?;
    let here: Vec<u64> = local.imported.iter().map(|guid| guid.get()).collect();
    pools.retain(|pool| (pool.label_state == DESTROYED) == flag('D') && !here.contains(&pool.guid));
    let request = request(&words, &devices, line, &operands)?;
    match operands.as_slice() {
        [] if flag('a') && !pools.is_empty() => return import_all(&request, &pools),
        [] => {}
        [_, ..] if flag('a') => return Err(Failure::Usage("too many arguments".to_owned())),
        [name] => return import(&request, name, None, &pools),
        [name, new_name] => return import(&request, name, Some(new_name), &pools),
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    }
    if pools.is_empty() {
        console.complain("no pools available to import");
    }
    for (index, pool) in pools.iter().enumerate() {
        if index > 0 {
            writeln!(console.out)?;
        }
        print(pool, console.out)?;
    }
    Ok(())
}

/// The common part of all import requests.
fn request(
    words: &[Word],
    devices: &[PathBuf],
    line: String,
    operands: &[String],
) -> Result<ImportRequest, Failure> {
    let flag = |letter| words.contains(&Word::Flag(letter));
    let mut request = ImportRequest {
        devices: devices.to_vec(),
        pool: String::new(),
        new_name: None,
        destroyed: flag('D'),
        force: flag('f'),
        missing_logs: flag('m'),
        mounts: !flag('N'),
        key_loading: if flag('l') { keys_on_request() } else { KeyLoading::Nothing },
        access: Access::ReadWrite,
        temporary: Temporary::default(),
        alternate_root: None,
        properties: Vec::new(),
        cache_file: None,
        tunables: tuning::of_environment()?,
        command: line,
    };
    let pool = operands.first().map_or("", String::as_str);
    let mut named = Vec::new();
    for word in words {
        let property = match word {
            Word::Option('R', _) => Some(PoolProperty::AltRoot.name()),
            Word::Option('o', pair) => pair.split_once('=').map(|(name, _)| name),
            _ => None,
        };
        if let Some(name) = property.filter(|name| named.contains(name)) {
            return Err(Failure::Failed(SettingError::Repeated(name.to_owned()).to_string()));
        }
        named.extend(property);
        match word {
            Word::Option('R', root) if root.starts_with('/') => {
                request.alternate_root = Some(root.into());
            }
            Word::Option('R', root) => {
                return Err(Failure::Failed(format!("bad alternate root '{root}'")));
            }
            Word::Option('o', pair) => option(&mut request, pair, pool)?,
            _ => {}
        }
    }
    Ok(request)
}

/// Parses a property or mount option.
fn option(request: &mut ImportRequest, pair: &str, pool: &str) -> Outcome {
    let refused = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot import pool '{pool}': {error}"))
    };
    match pair.split_once('=') {
        None => {
            if let Some(word) = pair.split(',').find(|word| !request.temporary.take(word)) {
                return Err(refused(&format_args!("mount option '{word}' is not known")));
            }
        }
        Some((name, word)) if tuning::is_tunable(name) => {
            request.tunables.set(name, word).map_err(|error| refused(&error))?;
        }
        Some((name, word)) => match (PoolProperty::from_name(name), word) {
            (Some(PoolProperty::ReadOnly), "on") => request.access = Access::ReadOnly,
            (Some(PoolProperty::ReadOnly), "off") => {}
            (Some(PoolProperty::ReadOnly), _) => {
                return Err(refused(&"'readonly' must be one of 'on | off'"));
            }
            (Some(PoolProperty::AltRoot), root) if root.starts_with('/') => {
                request.alternate_root = Some(root.into());
            }
            (Some(PoolProperty::AltRoot), root) => {
                return Err(refused(&format_args!("bad alternate root '{root}'")));
            }
            _ => match PoolSetting::parse(name, word).map_err(|error| refused(&error))? {
                PoolSetting::CacheFile(file) => {
                    file.check_directory().map_err(|error| refused(&error))?;
                    request.cache_file = Some(file);
                }
                _ => request.properties.push((name.to_owned(), word.to_owned())),
            },
        },
    }
    Ok(())
}

/// Imports the pool with a name or guid.
fn import(
    request: &ImportRequest,
    name: &str,
    new_name: Option<&String>,
    pools: &[PoolReport],
) -> Outcome {
    let is_named = |pool: &&PoolReport| pool.name == *name || pool.guid.to_string() == *name;
    let mut named = pools.iter().filter(is_named);
    let pool = match (named.next(), named.next()) {
        (Some(pool), None) => pool,
        (Some(_), Some(_)) => {
            return Err(Failure::Failed(format!(
                "cannot import '{name}': more than one matching pool\n\
                 import by numeric ID instead"
            )));
        }
        (None, _) if source::imported(name)?.is_some() => {
            return Err(Failure::Failed(format!(
                "cannot import '{name}': a pool with that name is already created/imported,\n\
                 and no additional pools with that name were found"
            )));
        }
        (None, _) => {
            return Err(Failure::Failed(format!("cannot import '{name}': no such pool available")));
        }
    };
    if let Some(new_name) = new_name {
        let refused = |error| Failure::Failed(format!("cannot import '{new_name}': {error}"));
        check_pool_name(new_name).map_err(refused)?;
    }
    let request = ImportRequest {
        pool: pool.guid.to_string(),
        new_name: new_name.cloned(),
        ..request.clone()
    };
    mount::in_background(&ServeRequest::Import(request), 0)
}

/// Imports all pools; a failure does not stop the others.
fn import_all(request: &ImportRequest, pools: &[PoolReport]) -> Outcome {
    let mut outcome = Ok(());
    for pool in pools {
        let request = ImportRequest { pool: pool.guid.to_string(), ..request.clone() };
        if let Err(failure) = mount::in_background(&ServeRequest::Import(request), 0) {
            outcome = Err(failure);
        }
    }
    outcome
}

fn print(pool: &PoolReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  pool: {}", pool.name)?;
    writeln!(out, "    id: {}", pool.guid)?;
    let destroyed = if pool.label_state == DESTROYED { " (DESTROYED)" } else { "" };
    writeln!(out, " state: {}{destroyed}", word(&pool.root))?;
    let explanation = for_import(pool.status, outlook(pool));
    explanation.print(&pool.load.unsupported_features, out)?;
    if let Some(comment) = &pool.comment {
        writeln!(out, "comment: {comment}")?;
    }
    writeln!(out, "config:\n")?;
    ConfigTree::new(pool, TreeStyle::default()).print_import(out)
}

/// The prospects of an import.
fn outlook(pool: &PoolReport) -> ImportProspect {
    let is_missing_log = |top: &VdevReport| {
        top.role == VdevRole::Log && is_shown(top) && top.health.state < VdevState::Degraded
    };
    if pool.load.refused {
        ImportProspect::Refused
    } else if pool.root.children.iter().any(is_missing_log) {
        ImportProspect::WithoutLogs
    } else if pool.root.health.state == VdevState::Degraded {
        ImportProspect::Degraded
    } else if pool.label_state == DESTROYED {
        ImportProspect::Destroyed
    } else {
        ImportProspect::Whole
    }
}
