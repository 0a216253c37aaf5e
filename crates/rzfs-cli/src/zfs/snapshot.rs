//! `zfs snapshot` (spec 09, sections 3 and 4). With `-r` partially received datasets are skipped.

use super::change::{carry_out, check_head, pair, tree};
use super::name::{self, pool_of};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::source;
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::{Change, DatasetFailure, DatasetKind, DatasetQuery, Selection};
use std::collections::{BTreeMap, BTreeSet};

const GRAMMAR: Grammar =
    Grammar { letters: &[('r', Value::None), ('o', Value::Required)], names: &[] };

/// Runs `zfs snapshot`: the snapshots of a pool are taken atomically.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs snapshot", words);
    let words = GRAMMAR.parse(words)?;
    let mut properties = Vec::new();
    for word in &words {
        if let Word::Option('o', text) = word {
            pair(&mut properties, text)?;
        }
    }
    let recursive = words.contains(&Word::Flag('r'));
    let operands = operands(&words);
    if operands.is_empty() {
        return Err(Failure::Usage("missing snapshot argument".to_owned()));
    }
    let mut by_pool: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for full in operands {
        let Some((head, _)) = full.split_once('@') else {
            let message = format!("cannot create snapshot '{full}': missing '@' delimiter in name");
            return Err(Failure::Usage(message));
        };
        check_head("open", head)?;
        name::check(&full).map_err(|error| {
            Failure::Failed(format!("cannot create snapshot '{full}': {error}"))
        })?;
        by_pool.entry(pool_of(&full).to_owned()).or_default().push(full);
    }
    for (pool, names) in by_pool {
        let Some(mut client) = source::imported(&pool)? else {
            let heads = names.iter().map(|full| full.split('@').next().unwrap_or(full));
            return Err(unopened(heads.min().unwrap_or(&pool), "dataset does not exist"));
        };
        check_heads(&mut client, &names)?;
        let names = match recursive {
            false => names,
            true => {
                let mut all = Vec::new();
                for full in &names {
                    let (head, snapshot) = full.split_once('@').unwrap_or((full, ""));
                    let kinds = [DatasetKind::Filesystem, DatasetKind::Volume];
                    let heads = tree(&mut client, head, &kinds)?;
                    let whole = heads.iter().filter(|head| !head.inconsistent);
                    all.extend(whole.map(|head| format!("{}@{snapshot}", head.name)));
                }
                all
            }
        };
        let change = Change::Snapshot { names, properties: properties.clone() };
        carry_out(&mut client, change, Some(&line), console)?;
    }
    Ok(())
}

/// Refuses snapshots of missing datasets.
fn check_heads(client: &mut ControlClient, names: &[String]) -> Outcome {
    let heads = names.iter().filter_map(|full| full.split_once('@'));
    let heads: BTreeSet<String> = heads.map(|(head, _)| head.to_owned()).collect();
    let query = DatasetQuery {
        names: heads.into_iter().collect(),
        depth: Some(0),
        kinds: DatasetKind::ALL.to_vec(),
        properties: Selection::Named(Vec::new()),
    };
    match source::datasets(client, query)?.failures.first() {
        None => Ok(()),
        Some(DatasetFailure { name, reason }) => Err(unopened(name, reason)),
    }
}

/// The failure for a missing dataset, a usage error as in OpenZFS.
fn unopened(head: &str, reason: &str) -> Failure {
    Failure::Usage(format!("cannot open '{head}': {reason}"))
}
