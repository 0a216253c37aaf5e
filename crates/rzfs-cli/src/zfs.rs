//! `zfs`: datasets (spec 09, section 3).

mod accounts;
mod bookmark;
pub(crate) mod change;
mod clone;
mod column;
mod create;
mod dependents;
mod destroy;
mod diff;
pub(crate) mod get;
mod hold;
mod json;
mod keys;
mod list;
mod mount;
pub(crate) mod name;
mod order;
mod project;
mod query;
mod receive;
mod rename;
mod rollback;
mod send;
mod set;
mod snapshot;
mod unmount;
mod upgrade;
pub(crate) mod usage;
mod wait;

use crate::absent::Program;
use crate::console::{Console, Failure, conclude};
use rzfs_server::protocol::AccountOwner;

/// Runs `zfs` with the words after its name.
pub(crate) fn run(words: &[String], console: &mut Console<'_>) -> u8 {
    let Some((command, rest)) = words.split_first() else {
        let outcome = Err(Failure::Usage("missing command".to_owned()));
        return conclude(outcome, &usage::all(), console);
    };
    let outcome = match command.as_str() {
        "list" => list::run(rest, console),
        "get" => get::run(rest, console),
        "create" => create::run(rest, console),
        "destroy" => destroy::run(rest, console),
        "rename" => rename::run(rest, console),
        "snapshot" | "snap" => snapshot::run(rest, console),
        "rollback" => rollback::run(rest, console),
        "clone" => clone::run(rest, console),
        "promote" => clone::promote(rest, console),
        "bookmark" => bookmark::run(rest, console),
        "diff" => diff::run(rest, console),
        "userspace" => accounts::run(AccountOwner::User, rest, console),
        "groupspace" => accounts::run(AccountOwner::Group, rest, console),
        "projectspace" => accounts::run(AccountOwner::Project, rest, console),
        "project" => project::run(rest, console),
        "upgrade" => upgrade::run(rest, console),
        "hold" => hold::hold(rest, console),
        "holds" => hold::holds(rest, console),
        "release" => hold::release(rest, console),
        "send" => send::run(rest, console),
        "receive" | "recv" => receive::run(rest, console),
        "set" => set::set(rest, console),
        "inherit" => set::inherit(rest, console),
        "mount" => mount::run(rest, console),
        "load-key" => keys::load(rest, console),
        "unload-key" => keys::unload(rest, console),
        "change-key" => keys::change(rest, console),
        "unmount" | "umount" => unmount::run(rest, console),
        "wait" => wait::run(rest, console),
        "version" | "-V" | "--version" => crate::version::run("zfs", rest, console),
        "help" | "-?" | "--help" => {
            let printed = write!(console.out, "{}", usage::all());
            return conclude(printed.map_err(Failure::Output), "", console);
        }
        unknown => {
            return conclude(Err(Program::Zfs.refuse(unknown)), &usage::all(), console);
        }
    };
    conclude(outcome, &usage::of(command), console)
}
