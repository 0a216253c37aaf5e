//! `zpool`: the state of pools (spec 09, section 2).

mod add;
mod change;
pub(crate) mod condition;
pub(crate) mod config_tree;
mod create;
mod dedup;
mod end;
mod events;
mod get;
mod history;
mod import;
mod json;
mod labelclear;
pub(crate) mod layout;
pub(crate) mod list;
mod selection;
mod status;
mod status_text;
mod sweep;
pub(crate) mod usage;
pub(crate) mod vdev_name;
mod vdev_property;
mod wait;

pub(crate) use create::CreateRequest;

use crate::absent::Program;
use crate::console::{Console, Failure, conclude};
use crate::getopt::{Grammar, Word};
use crate::mount::request;
use crate::source;
use rzfs::control::ControlClient;

/// Runs `zpool` with the words after its name.
pub(crate) fn run(words: &[String], console: &mut Console<'_>) -> u8 {
    let (command, rest) = match words.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => {
            let outcome = Err(Failure::Usage("missing command".to_owned()));
            return conclude(outcome, &usage::all(), console);
        }
    };
    let outcome = match command {
        "list" => list::run(rest, console),
        "status" => status::run(rest, console),
        "get" => get::run(rest, console),
        "history" => history::run(rest, console),
        "import" => import::run(rest, console),
        "add" => add::run(rest, console),
        "create" => create::run(rest, console),
        "destroy" => end::destroy(rest),
        "export" => end::export(rest, console),
        "set" => change::set(rest),
        "sync" => change::sync(rest),
        "reguid" => change::reguid(rest),
        "clear" => change::clear(rest),
        "ddtprune" => dedup::prune(rest),
        "prefetch" => dedup::prefetch(rest),
        "initialize" => sweep::initialize(rest),
        "trim" => sweep::trim(rest),
        "wait" => wait::run(rest, console),
        "upgrade" => change::upgrade(rest, console),
        "events" => events::run(rest, console),
        "labelclear" => labelclear::run(rest),
        "version" | "-V" | "--version" => crate::version::run("zpool", rest, console),
        "help" | "-?" | "--help" => {
            return conclude(
                write!(console.out, "{}", usage::all()).map_err(Failure::Output),
                "",
                console,
            );
        }
        unknown => {
            return conclude(Err(Program::Zpool.refuse(unknown)), &usage::all(), console);
        }
    };
    conclude(outcome, &usage::of(command), console)
}

/// Understands the words of a subcommand.
fn parse(grammar: &Grammar, words: &[String]) -> Result<Vec<Word>, Failure> {
    grammar.parse(words).map_err(|error| Failure::Usage(error.to_string()))
}

/// What is no option among the words of a subcommand.
fn operands(words: &[Word]) -> Vec<String> {
    let operand = |word: &Word| match word {
        Word::Operand(operand) => Some(operand.clone()),
        _ => None,
    };
    words.iter().filter_map(operand).collect()
}

/// A word that describes vdevs, as another process understands it.
fn vdev_word(word: String) -> Result<String, Failure> {
    let word = request::named(word.into())?;
    Ok(word.to_string_lossy().into_owned())
}

/// The pools with these names, or all that are imported. Of these some may be let go of meanwhile
/// ([`source::if_there`]).
fn imported_or_all(names: &[String]) -> Result<Vec<ControlClient>, Failure> {
    match names {
        [] => source::all_imported(),
        names => names.iter().map(|name| imported(name)).collect(),
    }
}

/// The pool with this name, which has to be imported.
fn imported(pool: &str) -> Result<ControlClient, Failure> {
    let missing = || Failure::Failed(format!("cannot open '{pool}': no such pool"));
    source::imported(pool)?.ok_or_else(missing)
}
