//! `zfs unmount` (spec 09, section 4).

use super::change::{carry_out_telling, pool_with};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::source;
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::Change;
use std::path::{Path, PathBuf};

const GRAMMAR: Grammar =
    Grammar { letters: &[('a', Value::None), ('f', Value::None), ('u', Value::None)], names: &[] };

/// Runs `zfs unmount`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(&words);
    let target = match (flag('a'), operands.as_slice()) {
        (true, []) => {
            let (clients, outcome) = source::all_imported(console)?;
            for client in &mut source::innermost_first(clients) {
                let change = Change::UnmountAll { force: flag('f') };
                source::unless_gone(source::change(client, change, None))?;
            }
            return outcome;
        }
        (true, _) => return Err(Failure::Usage("too many arguments".to_owned())),
        (false, []) => return Err(Failure::Usage("missing filesystem argument".to_owned())),
        (false, [target]) => target,
        (false, _) => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    let mut client = client_of(target, console)?;
    let change = Change::Unmount { target: target.clone(), force: flag('f') };
    carry_out_telling(&mut client, change, None, console)
}

/// The pool of a file system given by name or mount point.
fn client_of(target: &str, console: &mut Console<'_>) -> Result<ControlClient, Failure> {
    if !target.starts_with('/') {
        return pool_with(target);
    }
    let place = Path::new(target).canonicalize().unwrap_or_else(|_| PathBuf::from(target));
    let (clients, outcome) = source::all_imported(console)?;
    for mut client in clients {
        let Some(mounts) = source::unless_gone(source::mounts(&mut client))? else { continue };
        if mounts.iter().any(|mount| Path::new(&mount.mountpoint) == place) {
            return Ok(client);
        }
    }
    // It may belong to an unresponsive pool.
    outcome.and(Err(Failure::Failed(format!("cannot unmount '{target}': not currently mounted"))))
}
