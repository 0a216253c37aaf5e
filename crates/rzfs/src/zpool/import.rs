//! `zpool import` without a pool: what can be imported (spec 09, section 2.6).

use super::condition::{for_import, state};
use super::config_tree::{ConfigTree, TreeStyle, word};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::source;
use rzfs::protocol::PoolReport;
use rzfs_vdev::VdevState;
use std::io::{self, Write};

const GRAMMAR: Grammar = Grammar {
    letters: &[('d', Value::Devices), ('D', Value::None), ('s', Value::None)],
    names: &[],
};

/// The label state of a destroyed pool.
const DESTROYED: u64 = 2;

/// Runs `zpool import`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = super::parse(&GRAMMAR, words)?;
    let devices: Vec<_> = words
        .iter()
        .filter_map(|word| match word {
            Word::Device(device) => Some(device.clone()),
            _ => None,
        })
        .collect();
    let wants_destroyed = words.contains(&Word::Flag('D'));
    let mut pools = source::importable(&devices, console)?;
    pools.retain(|pool| (pool.label_state == DESTROYED) == wants_destroyed);
    let named = words.iter().find_map(|word| match word {
        Word::Operand(name) => Some(name),
        _ => None,
    });
    if let Some(name) = named {
        let is_named = |pool: &PoolReport| pool.name == *name || pool.guid.to_string() == *name;
        return Err(Failure::Failed(match pools.iter().filter(|pool| is_named(pool)).count() {
            0 => format!("cannot import '{name}': no such pool available"),
            1 => format!(
                "cannot import '{name}': pools are opened by 'rzfs mount DEVICE...' or by -d"
            ),
            _ => format!(
                "cannot import '{name}': more than one matching pool\n\
                 import by numeric ID instead"
            ),
        }));
    }
    if pools.is_empty() {
        writeln!(console.out, "no pools available to import")?;
    }
    for (index, pool) in pools.iter().enumerate() {
        if index > 0 {
            writeln!(console.out)?;
        }
        print(pool, console.out)?;
    }
    Ok(())
}

fn print(pool: &PoolReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  pool: {}", pool.name)?;
    writeln!(out, "    id: {}", pool.guid)?;
    let destroyed = if pool.label_state == DESTROYED { " (DESTROYED)" } else { "" };
    writeln!(out, " state: {}{destroyed}", word(&pool.root))?;
    let state = state(&pool.root);
    let explanation = for_import(pool.condition, state == VdevState::Degraded, !pool.load.refused);
    explanation.print(&pool.load.unsupported_features, out)?;
    if let Some(comment) = &pool.comment {
        writeln!(out, "comment: {comment}")?;
    }
    writeln!(out, "config:\n")?;
    ConfigTree::new(pool, TreeStyle::default()).print_import(out)
}
