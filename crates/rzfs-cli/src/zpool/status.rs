//! `zpool status` (spec 09, section 2.2).

use super::config_tree::TreeStyle;
use super::json::PoolJson;
use super::selection::Selection;
use super::status_text::StatusStyle;
use super::vdev_name::NameStyle;
use crate::console::{Console, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::json::{Envelope, JSON_FLAT, JSON_GUID, JSON_INT};
use crate::property::{Precision, Writer};
use rzfs_server::protocol::PoolReport;
use serde_json::Map;

/// The letter of `--power`, which shows nothing: slot power is not monitored.
const POWER: char = '4';

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('d', Value::DevicesOrNone),
        ('D', Value::None),
        ('e', Value::None),
        ('g', Value::None),
        ('i', Value::None),
        ('j', Value::None),
        ('L', Value::None),
        ('p', Value::None),
        ('P', Value::None),
        ('s', Value::None),
        ('t', Value::None),
        ('v', Value::None),
        ('x', Value::None),
        ('T', Value::Required),
    ],
    names: &[
        ("json", 'j'),
        ("json-int", JSON_INT),
        ("json-pool-key-guid", JSON_GUID),
        ("json-flat-vdevs", JSON_FLAT),
        ("power", POWER),
    ],
};

/// Runs `zpool status`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let tree = TreeStyle {
        names: NameStyle::of(&words),
        exact: flag('p'),
        slow: flag('s'),
        direct: flag('d'),
        initialize: flag('i'),
        trim: flag('t'),
        unhealthy_only: flag('e'),
    };
    let style = StatusStyle {
        tree,
        damage: flag('v'),
        dedup: flag('D'),
        calendar: console.calendar.clone(),
    };
    let precision = if flag('p') || flag(JSON_INT) { Precision::Exact } else { Precision::Rounded };
    let writer = Writer { calendar: console.calendar.clone(), precision };
    let json = flag('j').then(|| PoolJson::of(&words, &writer));
    let selection = Selection::repeated(&words)?;
    selection.repeat(console, |pools, _, console| {
        if let Some(json) = &json {
            return print_json(json, &style, pools, console);
        }
        if pools.is_empty() && selection.names.is_empty() {
            console.complain("no pools available");
        }
        let shown: Vec<_> = pools.iter().filter(|pool| !flag('x') || is_trouble(pool)).collect();
        if flag('x') && shown.is_empty() {
            return print_healthy(pools, &selection, console);
        }
        for (index, pool) in shown.into_iter().enumerate() {
            if index > 0 {
                writeln!(console.out)?;
            }
            style.print(pool, console.out)?;
        }
        Ok(())
    })
}

fn is_trouble(pool: &PoolReport) -> bool {
    pool.status.is_trouble()
}

fn print_healthy(
    pools: &[PoolReport],
    selection: &Selection,
    console: &mut Console<'_>,
) -> Outcome {
    match (selection.names.as_slice(), pools) {
        (_, []) => {}
        ([], _) => writeln!(console.out, "all pools are healthy")?,
        (_, pools) => {
            for pool in pools {
                writeln!(console.out, "pool '{}' is healthy", pool.name)?;
            }
        }
    }
    Ok(())
}

fn print_json(
    json: &PoolJson,
    style: &StatusStyle,
    pools: &[PoolReport],
    console: &mut Console<'_>,
) -> Outcome {
    let mut envelope = Envelope::new("zpool status");
    let members: Map<_, _> =
        pools.iter().map(|pool| (json.key(pool), json.status(pool, style))).collect();
    envelope.insert("pools", members);
    envelope.print(console.out)
}
