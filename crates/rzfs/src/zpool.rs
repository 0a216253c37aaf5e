//! `zpool`: the state of pools (spec 09, section 2).

pub(crate) mod condition;
pub(crate) mod config_tree;
mod get;
mod history;
mod import;
mod json;
pub(crate) mod list;
mod selection;
mod status;
mod status_text;
mod usage;
pub(crate) mod vdev_name;
mod vdev_property;

use crate::console::{Console, Failure, conclude};
use crate::getopt::{Grammar, Word};

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
        "version" | "-V" | "--version" => crate::version::run("zpool", rest, console),
        "help" | "-?" | "--help" => {
            return conclude(
                write!(console.out, "{}", usage::all()).map_err(Failure::Output),
                "",
                console,
            );
        }
        unknown => {
            let message = format!("unrecognized command '{unknown}'");
            return conclude(Err(Failure::Usage(message)), &usage::all(), console);
        }
    };
    conclude(outcome, &usage::of(command), console)
}

/// Understands the words of a subcommand.
fn parse(grammar: &Grammar, words: &[String]) -> Result<Vec<Word>, Failure> {
    grammar.parse(words).map_err(|error| Failure::Usage(error.to_string()))
}
