//! `zpool export` and `zpool destroy` (spec 09, sections 2 and 4).

use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::source;
use crate::source::required;
use rzfs_server::control::ControlDirectory;
use rzfs_server::protocol::{Refusal, RefusalKind, Request};

const EXPORT: Grammar = Grammar { letters: &[('a', Value::None), ('f', Value::None)], names: &[] };
const DESTROY: Grammar = Grammar { letters: &[('f', Value::None)], names: &[] };

/// Runs `zpool export`.
pub(super) fn export(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zpool export", words);
    let words = EXPORT.parse(words)?;
    let mut names = operands(&words);
    let mut outcome = Ok(());
    match (words.contains(&Word::Flag('a')), names.is_empty()) {
        (true, true) => {
            let mounted = ControlDirectory::of_user().mounted();
            let mounted = mounted.map_err(|error| Failure::Failed(error.to_string()))?;
            let clients = source::innermost_first(mounted.clients);
            names = clients.iter().map(|one| one.identity().pool.clone()).collect();
            // After exporting all pools the user is about to remove their devices.
            for error in mounted.silent {
                console.complain(format_args!("cannot export all pools: {error}"));
                outcome = Err(Failure::Told);
            }
        }
        (true, false) => return Err(Failure::Usage("too many arguments".to_owned())),
        (false, true) => return Err(Failure::Usage("missing pool argument".to_owned())),
        (false, false) => {}
    }
    for name in names {
        let Some(mut client) = source::imported(&name)? else {
            console.complain(format_args!("cannot open '{name}': no such pool"));
            outcome = Err(Failure::Told);
            continue;
        };
        let force = words.contains(&Word::Flag('f'));
        let request = Request::Unmount { force, command: Some(line.clone()) };
        if let Err(failure) = source::end(&mut client, &request) {
            outcome = Err(failure);
        }
    }
    outcome
}

/// Runs `zpool destroy`.
pub(super) fn destroy(words: &[String]) -> Outcome {
    let command = command_line("zpool destroy", words);
    let words = DESTROY.parse(words)?;
    let names = operands(&words);
    let [name] = names.as_slice() else {
        let problem = if names.is_empty() { "missing pool argument" } else { "too many arguments" };
        return Err(Failure::Usage(problem.to_owned()));
    };
    let force = words.contains(&Word::Flag('f'));
    let mut client = required(name)?;
    let ended = source::end(&mut client, &Request::Destroy { force, command });
    ended.map_err(|failure| match failure {
        Failure::Refused(Refusal { kind: RefusalKind::StillMounted, message }) => Failure::Failed(
            format!("{message}\ncould not destroy '{name}': could not unmount datasets"),
        ),
        failure => failure,
    })
}
