//! `zpool`: the state of pools (spec 09, section 2).

mod add;
mod change;
mod column;
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
mod layout;
pub(crate) mod list;
pub(crate) mod selection;
mod status;
mod status_text;
mod sweep;
pub(crate) mod usage;
pub(crate) mod vdev_name;
mod vdev_property;
mod wait;

use crate::absent::Program;
use crate::console::{Console, Failure, conclude};

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
        "sync" => change::sync(rest, console),
        "reguid" => change::reguid(rest),
        "clear" => change::clear(rest),
        "ddtprune" => dedup::prune(rest),
        "prefetch" => dedup::prefetch(rest),
        "initialize" => sweep::initialize(rest, console),
        "trim" => sweep::trim(rest, console),
        "wait" => wait::run(rest, console),
        "upgrade" => change::upgrade(rest, console),
        "events" => events::run(rest, console),
        "labelclear" => labelclear::run(rest, console),
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
