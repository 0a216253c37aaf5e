//! `zstream`: shows send streams and resume tokens (spec 08, section 12).
//!
//! A stream needs no pool: everything here just reads a file or standard input. As in OpenZFS,
//! every failure has status 1, even a wrong command line, but a damaged or truncated stream is not
//! a failure: its trustworthy part is shown.

mod dump;
mod hexdump;
mod token;

use crate::absent::Program;
use crate::console::{Console, Failure, Outcome, conclude};

const USAGE: &str = "usage: zstream command args ...\n\
    Available commands are:\n\
    \n\
    \tzstream dump [-vCd] FILE\n\
    \t... | zstream dump [-vCd]\n\
    \n\
    \tzstream token resume_token\n";

/// Runs `zstream` with the words after its name.
pub(crate) fn run(words: &[String], console: &mut Console<'_>) -> u8 {
    let outcome = match words.split_first() {
        None => Err(Failure::Usage(String::new())),
        Some((command, rest)) => match command.as_str() {
            "dump" => dump::run(rest, console),
            "token" => token::run(rest, console),
            "help" | "-?" | "-h" | "--help" => Err(Failure::Usage(String::new())),
            unknown => Err(match Program::Zstream.refuse(unknown) {
                Failure::Status(message, _) => Failure::Failed(message),
                _ => Failure::Usage(String::new()),
            }),
        },
    };
    conclude(told(outcome, console), "", console)
}

/// Reports a wrong command line, which has the status of any other failure.
fn told(outcome: Outcome, console: &mut Console<'_>) -> Outcome {
    let Err(Failure::Usage(message)) = outcome else { return outcome };
    if !message.is_empty() {
        console.complain(message);
    }
    console.complain(USAGE.trim_end_matches('\n'));
    Err(Failure::Told)
}
