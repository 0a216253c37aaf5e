//! `zpool set`, `sync`, `reguid`, `clear` and `upgrade` (spec 09, sections 2 and 2.4).

use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::source;
use crate::source::{required, required_or_all};
use rzfs::setting::PoolSetting;
use rzfs_format::features::{Feature, Release};
use rzfs_format::uberblock::FEATURES_VERSION;
use rzfs_server::protocol::{Change, PropertyValue};

const NONE: Grammar = Grammar { letters: &[], names: &[] };
const UPGRADE: Grammar = Grammar { letters: &[('a', Value::None), ('v', Value::None)], names: &[] };

/// Runs `zpool set`.
pub(super) fn set(words: &[String]) -> Outcome {
    let line = command_line("zpool set", words);
    let operands = operands(&NONE.parse(words)?);
    let (pair, pool) = match operands.as_slice() {
        [] => return Err(Failure::Usage("missing property=value argument".to_owned())),
        [_] => return Err(Failure::Usage("missing pool name".to_owned())),
        [pair, pool] => (pair, pool),
        _ => return Err(Failure::Usage("too many pool names".to_owned())),
    };
    let Some((name, value)) = pair.split_once('=') else {
        return Err(Failure::Usage("missing value in property=value argument".to_owned()));
    };
    let property = (name.to_owned(), value.to_owned());
    let mut client = required(pool)?;
    // Other errors are reported by the process of the pool.
    if let Ok(PoolSetting::CacheFile(file)) = PoolSetting::parse(name, value) {
        let refused = |error| format!("cannot set property for '{pool}': {error}");
        file.check_directory().map_err(|error| Failure::Failed(refused(error)))?;
    }
    source::change(&mut client, Change::SetPool { property }, Some(&line))?;
    Ok(())
}

/// Runs `zpool sync`.
pub(super) fn sync(words: &[String], console: &mut Console<'_>) -> Outcome {
    let names = operands(&NONE.parse(words)?);
    let (mut clients, outcome) = required_or_all(&names, console)?;
    for client in &mut clients {
        let synced = source::change(client, Change::Sync, None);
        source::unless_gone_or_named(&names, synced)?;
    }
    outcome
}

/// Runs `zpool reguid`.
pub(super) fn reguid(words: &[String]) -> Outcome {
    let line = command_line("zpool reguid", words);
    let names = operands(&NONE.parse(words)?);
    match names.as_slice() {
        [] => Err(Failure::Usage("missing pool name".to_owned())),
        [name] => {
            source::change(&mut required(name)?, Change::Reguid, Some(&line))?;
            Ok(())
        }
        _ => Err(Failure::Usage("too many arguments".to_owned())),
    }
}

/// Runs `zpool clear`.
pub(super) fn clear(words: &[String]) -> Outcome {
    let line = command_line("zpool clear", words);
    let operands = operands(&NONE.parse(words)?);
    let (pool, vdev) = match operands.as_slice() {
        [] => return Err(Failure::Usage("missing pool name".to_owned())),
        [pool] => (pool, None),
        [pool, vdev] => (pool, Some(vdev.clone())),
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    let mut client = required(pool)?;
    source::change(&mut client, Change::Clear { vdev }, Some(&line))?;
    Ok(())
}

/// Runs `zpool upgrade`.
pub(super) fn upgrade(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zpool upgrade", words);
    let words = UPGRADE.parse(words)?;
    let names = operands(&words);
    let is_all = words.contains(&Word::Flag('a'));
    if words.contains(&Word::Flag('v')) {
        return list_features(console);
    }
    if is_all && !names.is_empty() {
        return Err(Failure::Usage(
            "-a option is incompatible with explicit pool names".to_owned(),
        ));
    }
    if names.is_empty() && !is_all {
        return list_pools(console);
    }
    writeln!(console.out, "This system supports ZFS pool feature flags.\n")?;
    let (mut clients, outcome) = required_or_all(&names, console)?;
    for client in &mut clients {
        let name = client.identity().pool.clone();
        let before = source::unless_gone_or_named(&names, source::pool_report(client))?;
        let Some(version) = before.map(|report| report.version) else { continue };
        let enabled = source::change(client, Change::Upgrade, Some(&line));
        let Some(enabled) = source::unless_gone_or_named(&names, enabled)? else { continue };
        let gets_flags = version < FEATURES_VERSION;
        if enabled.is_empty() && !gets_flags {
            writeln!(
                console.out,
                "Pool '{name}' already has all supported and requested features enabled."
            )?;
            continue;
        }
        if gets_flags {
            writeln!(
                console.out,
                "Successfully upgraded '{name}' from version {version} to feature flags."
            )?;
        }
        if !enabled.is_empty() {
            writeln!(console.out, "Enabled the following features on '{name}':")?;
        }
        for feature in enabled {
            writeln!(console.out, "  {feature}")?;
        }
        writeln!(console.out)?;
    }
    outcome
}

/// `zpool upgrade -v`.
fn list_features(console: &mut Console<'_>) -> Outcome {
    writeln!(console.out, "This system supports ZFS pool feature flags.\n")?;
    writeln!(console.out, "The following features are supported:\n")?;
    writeln!(console.out, "FEAT DESCRIPTION")?;
    writeln!(console.out, "{}", "-".repeat(61))?;
    for feature in Feature::ALL.iter().filter(|feature| feature.since() <= Release::V2_3) {
        let compatible = match feature.is_read_only_compatible() {
            true => " (read-only compatible)",
            false => "",
        };
        writeln!(console.out, "{:<37}{compatible}", feature.name())?;
        writeln!(console.out, "     {}", feature.description())?;
    }
    Ok(())
}

/// `zpool upgrade`: lists pools that lack features.
fn list_pools(console: &mut Console<'_>) -> Outcome {
    writeln!(console.out, "This system supports ZFS pool feature flags.\n")?;
    let mut lacking = Vec::new();
    let (pools, outcome) = source::mounted(console)?;
    for mut pool in pools {
        let report = source::unless_gone(source::pool_report(pool.as_mut()))?;
        let Some(report) = report else { continue };
        let disabled = report
            .properties
            .iter()
            .filter(|property| property.value == PropertyValue::Text("disabled".to_owned()));
        let names = disabled.filter_map(|property| property.name.strip_prefix("feature@"));
        let names: Vec<String> = names.map(str::to_owned).collect();
        if !names.is_empty() {
            lacking.push((report.name, names));
        }
    }
    if lacking.is_empty() {
        writeln!(console.out, "All pools are formatted using feature flags.\n")?;
        writeln!(console.out, "Every feature flags pool has all supported features enabled.")?;
        return outcome;
    }
    writeln!(
        console.out,
        "Some supported features are not enabled on the following pools. Once a"
    )?;
    writeln!(console.out, "feature is enabled the pool may become incompatible with software")?;
    writeln!(
        console.out,
        "that does not support the feature. See zpool-features(7) for details.\n"
    )?;
    writeln!(console.out, "POOL  FEATURE\n---------------")?;
    for (name, features) in lacking {
        writeln!(console.out, "{name}")?;
        for feature in features {
            writeln!(console.out, "      {feature}")?;
        }
    }
    writeln!(console.out)?;
    outcome
}
