//! `zpool create` (spec 09, sections 1.2, 2 and 4).

use super::create_request::CreateRequest;
use super::layout::Layout;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::history::command_line;
use crate::key_input;
use crate::mount::paths::vdev_word;
use crate::mount::{self, ServeRequest};
use crate::quantity::parse_size;
use rzfs::setting::{NewDatasetProperties, SettingError};

/// `--size` and `--export`, which OpenZFS does not have.
const SIZE: char = 'S';
const EXPORT: char = 'E';

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('f', Value::None),
        ('n', Value::None),
        ('d', Value::None),
        ('o', Value::Required),
        ('O', Value::Required),
        ('m', Value::Required),
        ('R', Value::Required),
        (SIZE, Value::Required),
    ],
    names: &[("export", EXPORT), ("size", SIZE)],
};

/// What becomes of the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// It is only shown.
    DryRun,
    /// It is exported.
    Export,
    /// It stays imported.
    Import,
}

/// Runs `zpool create`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let (request, purpose) = parse(words)?;
    match purpose {
        Purpose::DryRun => {
            let plan = request.plan(console)?;
            let name = plan.name();
            writeln!(console.out, "would create '{name}' with the following layout:\n")?;
            Layout::of_plan(name, plan.devices()).print(console.out)?;
            Ok(())
        }
        Purpose::Export => {
            let name = request.pool.clone();
            let pool = request.create(console)?;
            pool.export()
                .map_err(|error| Failure::Failed(format!("cannot export '{name}': {error}")))
        }
        Purpose::Import => mount::in_background(&ServeRequest::Create(request), 0),
    }
}

fn parse(words: &[String]) -> Result<(CreateRequest, Purpose), Failure> {
    let line = command_line("zpool create", words);
    let words = GRAMMAR.parse(words)?;
    let mut request = CreateRequest { command: line, ..CreateRequest::default() };
    let mut purpose = Purpose::Import;
    let mut operands = Vec::new();
    for word in words {
        match word {
            Word::Flag('f') => request.force = true,
            Word::Flag('d') => request.without_features = true,
            Word::Flag('n') => purpose = Purpose::DryRun,
            Word::Flag(EXPORT) if purpose == Purpose::Import => purpose = Purpose::Export,
            Word::Option('o', pair) => add(&mut request.properties, "-o", &pair)?,
            Word::Option('O', pair) => add(&mut request.root_properties, "-O", &pair)?,
            Word::Option('m', path) => {
                request.root_properties.push(("mountpoint".to_owned(), path));
            }
            Word::Option('R', path) => add_once(&mut request.properties, "altroot", &path)?,
            Word::Option(SIZE, size) => {
                let invalid = |error| Failure::Usage(format!("invalid size: {error}"));
                request.size = Some(parse_size(&size).map_err(invalid)?);
            }
            Word::Operand(operand) => operands.push(operand),
            Word::Flag(_) | Word::Option(..) | Word::Device(_) => {}
        }
    }
    let mut operands = operands.into_iter();
    let missing = |what: &str| Failure::Usage(format!("missing {what}"));
    request.pool = operands.next().ok_or_else(|| missing("pool name argument"))?;
    request.vdevs = operands.map(vdev_word).collect::<Result<_, _>>()?;
    if request.vdevs.is_empty() {
        return Err(missing("vdev specification"));
    }
    if purpose != Purpose::DryRun {
        let pairs = request.root_properties.iter().map(|(name, word)| (&**name, &**word));
        // What is wrong with properties is told when the pool is planned.
        if let Ok(properties) = NewDatasetProperties::parse(pairs) {
            request.key = key_input::of_new(&request.pool, &properties.encryption)?;
        }
    }
    Ok((request, purpose))
}

/// Takes a `PROPERTY=VALUE`.
fn add(list: &mut Vec<(String, String)>, option: &str, pair: &str) -> Result<(), Failure> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(Failure::Usage(format!("missing '=' for {option} option")));
    };
    add_once(list, name, value)
}

/// Takes a property that was not given before.
fn add_once(list: &mut Vec<(String, String)>, name: &str, value: &str) -> Result<(), Failure> {
    if list.iter().any(|(known, _)| known == name) {
        return Err(Failure::Failed(SettingError::Repeated(name.to_owned()).to_string()));
    }
    list.push((name.to_owned(), value.to_owned()));
    Ok(())
}
