//! `zpool create` (spec 09, sections 1.2, 2 and 4).

use super::layout;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::history::command_line;
use crate::key_input;
use crate::mount::{self, Attendant};
use crate::paths::vdev_word;
use crate::quantity::parse_size;
use crate::tuning;
use rzfs::PlannedPool;
use rzfs::setting::{NewDatasetProperties, SettingError};
use rzfs::tunables::TunableError;
use rzfs_format::property::{DatasetProperty, PoolProperty};
use rzfs_server::protocol::Layout;
use rzfs_server::request::{CreateRequest, ServeRequest};
use rzfs_server::starter::{Notice, Starter};

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

/// The purpose of the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// Only show the pool.
    DryRun,
    /// Export it.
    Export,
    /// Keep it imported.
    Import,
}

/// Runs `zpool create`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let (request, purpose) = parse(words)?;
    match purpose {
        Purpose::DryRun => {
            let plan = plan(&request, console)?;
            let checked = request.check_mount_point(&plan);
            checked.map_err(|error| Failure::Failed(error.to_string()))?;
            let name = plan.name();
            writeln!(console.out, "would create '{name}' with the following layout:\n")?;
            layout::print(&Layout::of_plan(name, plan.devices()), console.out)?;
            Ok(())
        }
        Purpose::Export => {
            let pool = plan(&request, console)?.create();
            let pool = pool.map_err(|error| Failure::Failed(error.to_string()))?;
            let name = pool.name().to_owned();
            pool.export()
                .map_err(|error| Failure::Failed(format!("cannot export '{name}': {error}")))
        }
        Purpose::Import => mount::in_background(&ServeRequest::Create(request), 0),
    }
}

/// Checks a request; warns of oddities.
fn plan(request: &CreateRequest, console: &mut Console<'_>) -> Result<PlannedPool, Failure> {
    let plan = request.plan().map_err(|error| Failure::Failed(error.to_string()))?;
    let mut attendant = Attendant::new(console);
    for feature in &plan.properties().incompatible {
        attendant.hear(Notice::Incompatible(feature));
    }
    Ok(plan)
}

fn parse(words: &[String]) -> Result<(CreateRequest, Purpose), Failure> {
    let line = command_line("zpool create", words);
    let words = GRAMMAR.parse(words)?;
    let tunables = tuning::of_environment()?;
    let mut request = CreateRequest { command: line, tunables, ..CreateRequest::default() };
    let mut purpose = Purpose::Import;
    let mut operands = Vec::new();
    for word in words {
        match word {
            Word::Flag('f') => request.force = true,
            Word::Flag('d') => request.without_features = true,
            Word::Flag('n') => purpose = Purpose::DryRun,
            Word::Flag(EXPORT) if purpose == Purpose::Import => purpose = Purpose::Export,
            Word::Option('o', pair) => match pair.split_once('=') {
                Some((name, value)) if tuning::is_tunable(name) => {
                    let invalid = |error: TunableError| Failure::Failed(error.to_string());
                    request.tunables.set(name, value).map_err(invalid)?;
                }
                _ => add(&mut request.properties, "-o", &pair)?,
            },
            Word::Option('O', pair) => add(&mut request.root_properties, "-O", &pair)?,
            Word::Option('m', path) => {
                request.root_properties.push((DatasetProperty::MountPoint.to_string(), path));
            }
            Word::Option('R', path) => {
                add_once(&mut request.properties, PoolProperty::AltRoot.name(), &path)?;
            }
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
        // Errors of properties are reported when the pool is planned.
        if let Ok(properties) = NewDatasetProperties::parse(pairs) {
            request.key = key_input::of_new(&request.pool, &properties.encryption)?;
        }
    }
    Ok((request, purpose))
}

/// Adds a `PROPERTY=VALUE`.
fn add(list: &mut Vec<(String, String)>, option: &str, pair: &str) -> Result<(), Failure> {
    let Some((name, value)) = pair.split_once('=') else {
        return Err(Failure::Usage(format!("missing '=' for {option} option")));
    };
    add_once(list, name, value)
}

/// Adds a property that was not given before.
fn add_once(list: &mut Vec<(String, String)>, name: &str, value: &str) -> Result<(), Failure> {
    if list.iter().any(|(known, _)| known == name) {
        return Err(Failure::Failed(SettingError::Repeated(name.to_owned()).to_string()));
    }
    list.push((name.to_owned(), value.to_owned()));
    Ok(())
}
