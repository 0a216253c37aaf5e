//! `zfs unmount` (spec 09, section 4).

use super::name::pool_of;
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
    let (mut clients, outcome) = source::all_imported(console)?;
    let target = match (flag('a'), operands.as_slice()) {
        (true, []) => {
            for client in &mut source::innermost_first(clients) {
                let change = Change::UnmountAll { force: flag('f') };
                source::if_there(source::change(client, change, None))?;
            }
            return outcome;
        }
        (true, _) => return Err(Failure::Usage("too many arguments".to_owned())),
        (false, []) => return Err(Failure::Usage("missing filesystem argument".to_owned())),
        (false, [target]) => target,
        (false, _) => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    let Some(client) = client_of(&mut clients, target)? else {
        return Err(Failure::Failed(match target.starts_with('/') {
            true => format!("cannot unmount '{target}': not currently mounted"),
            false => format!("cannot open '{target}': dataset does not exist"),
        }));
    };
    let change = Change::Unmount { target: target.clone(), force: flag('f') };
    let complaints = source::change(client, change, None)?;
    complaints.iter().for_each(|complaint| console.complain(complaint));
    Ok(())
}

/// The pool that has a file system of this name, or mounted at this directory.
fn client_of<'c>(
    clients: &'c mut [ControlClient],
    target: &str,
) -> Result<Option<&'c mut ControlClient>, Failure> {
    if !target.starts_with('/') {
        let pool = pool_of(target);
        return Ok(clients.iter_mut().find(|client| client.identity().pool == pool));
    }
    let place = Path::new(target).canonicalize().unwrap_or_else(|_| PathBuf::from(target));
    for client in clients {
        let Some(mounts) = source::if_there(source::mounts(client))? else { continue };
        if mounts.iter().any(|mount| Path::new(&mount.mountpoint) == place) {
            return Ok(Some(client));
        }
    }
    Ok(None)
}
