//! `zpool add` (spec 09, sections 2 and 3.5).

use super::layout;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::history::command_line;
use crate::paths::vdev_word;
use crate::quantity::parse_size;
use crate::source::required;
use crate::source::{self, local_pools};
use rzfs_format::property::PoolProperty;
use rzfs_server::protocol::{AddRequest, Change, Purpose};
use rzfs_vdev::create::LocalPools;

/// `--size`, which OpenZFS does not have, and its long options.
const SIZE: char = 'S';
const IN_USE: char = 'I';
const REPLICATION: char = 'M';
const ASHIFT: char = 'A';

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('f', Value::None),
        ('n', Value::None),
        ('o', Value::Required),
        (SIZE, Value::Required),
        (IN_USE, Value::None),
        (REPLICATION, Value::None),
        (ASHIFT, Value::None),
    ],
    names: &[
        ("allow-ashift-mismatch", ASHIFT),
        ("allow-in-use", IN_USE),
        ("allow-replication-mismatch", REPLICATION),
        ("size", SIZE),
    ],
};

/// Runs `zpool add`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zpool add", words);
    let (pool, mut request, purpose) = parse(words)?;
    let mut client = required(&pool)?;
    let LocalPools { imported, auxiliary } = local_pools(console)?;
    request.imported = imported.into_iter().map(|guid| guid.get()).collect();
    request.auxiliary = auxiliary.into_iter().map(|(guid, pool)| (guid.get(), pool)).collect();
    if purpose == Purpose::DryRun {
        let layout = source::layout_with(&mut client, request)?;
        writeln!(console.out, "would update '{pool}' to the following configuration:\n")?;
        layout::print(&layout, console.out)?;
        return Ok(());
    }
    source::change(&mut client, Change::Add(request), Some(&line)).map(drop)
}

fn parse(words: &[String]) -> Result<(String, AddRequest, Purpose), Failure> {
    let mut request = AddRequest::default();
    let mut purpose = Purpose::Change;
    let mut force = false;
    let mut operands = Vec::new();
    for word in GRAMMAR.parse(words)? {
        match word {
            Word::Flag('f') => force = true,
            Word::Flag('n') => purpose = Purpose::DryRun,
            Word::Flag(IN_USE) => request.allow_in_use = true,
            Word::Flag(REPLICATION) => request.allow_replication_mismatch = true,
            Word::Flag(ASHIFT) => request.allow_ashift_mismatch = true,
            Word::Option('o', pair) => request.ashift = Some(ashift(&pair)?),
            Word::Option(SIZE, size) => {
                let invalid = |error| Failure::Usage(format!("invalid size: {error}"));
                request.missing_file_size = Some(parse_size(&size).map_err(invalid)?);
            }
            Word::Operand(operand) => operands.push(operand),
            Word::Flag(_) | Word::Option(..) | Word::Device(_) => {}
        }
    }
    let allows = [
        &mut request.allow_in_use,
        &mut request.allow_replication_mismatch,
        &mut request.allow_ashift_mismatch,
    ];
    if force && allows.iter().any(|allowed| **allowed) {
        return Err(Failure::Usage(
            "'-f' option is not allowed with '--allow-replication-mismatch', \
             '--allow-ashift-mismatch', or '--allow-in-use'"
                .to_owned(),
        ));
    }
    if force {
        allows.into_iter().for_each(|allowed| *allowed = true);
    }
    let mut operands = operands.into_iter();
    let missing = |what: &str| Failure::Usage(format!("missing {what}"));
    let pool = operands.next().ok_or_else(|| missing("pool name argument"))?;
    request.vdevs = operands.map(vdev_word).collect::<Result<_, _>>()?;
    if request.vdevs.is_empty() {
        return Err(missing("vdev specification"));
    }
    Ok((pool, request, purpose))
}

/// Parses the only property that new vdevs can be given.
fn ashift(pair: &str) -> Result<u64, Failure> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(Failure::Usage("missing '=' for -o option".to_owned()));
    };
    if name != PoolProperty::Ashift.name() {
        let message = format!("property '{name}' is not a valid pool or vdev property");
        return Err(Failure::Usage(message));
    }
    value.parse().map_err(|_| Failure::Failed("ashift must be a number.".to_owned()))
}
