//! `zfs`: datasets (spec 09, section 3).

mod change;
mod column;
mod create;
mod destroy;
pub(crate) mod get;
mod json;
mod keys;
mod list;
mod mount;
pub(crate) mod name;
mod order;
mod query;
mod rename;
mod set;
mod unmount;
pub(crate) mod usage;

use crate::absent::Program;
use crate::console::{Console, Failure, conclude};

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
        "set" => set::set(rest, console),
        "inherit" => set::inherit(rest, console),
        "mount" => mount::run(rest, console),
        "load-key" => keys::load(rest, console),
        "unload-key" => keys::unload(rest, console),
        "change-key" => keys::change(rest, console),
        "unmount" | "umount" => unmount::run(rest, console),
        "version" | "-V" | "--version" => crate::version::run("zfs", rest, console),
        "help" | "-?" | "--help" => {
            let printed = write!(console.out, "{}", usage::all());
            return conclude(printed.map_err(Failure::Output), "", console);
        }
        source if asks_to_remount(rest) => Err(Failure::Failed(format!(
            "cannot remount '{source}': what mounts allow are properties; \
             'zfs set readonly=on {source}' makes one read-only"
        ))),
        unknown => {
            return conclude(Err(Program::Zfs.refuse(unknown)), &usage::all(), console);
        }
    };
    conclude(outcome, &usage::of(command), console)
}

/// Whether these words follow what is mounted in a call by mount.fuse(8): for `mount -o remount`,
/// it runs the program that mounts of type `fuse.zfs` are named for.
fn asks_to_remount(words: &[String]) -> bool {
    matches!(words, [directory, option, options]
        if directory.starts_with('/')
            && option == "-o"
            && options.split(',').any(|option| option == "remount"))
}
