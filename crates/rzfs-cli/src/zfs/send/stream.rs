//! Writes a stream to standard output, or reports what it would be.

use super::progress::{Reported, Sources, Style};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::Word;
use crate::source::{self, PoolClient};
use rzfs_server::protocol::{SendRequest, Steps, StreamSizes};
use std::fs::File;

/// Refuses to write a stream to a terminal.
pub(super) fn check_output(words: &[Word]) -> Outcome {
    if !words.contains(&Word::Flag('n')) && rustix::termios::isatty(rustix::stdio::stdout()) {
        return Err(Failure::Failed(
            "Error: Stream can not be written to a terminal.\nYou must redirect standard output."
                .to_owned(),
        ));
    }
    Ok(())
}

/// Makes a pool send a stream, or report what it would be.
pub(super) fn send(
    mut client: Box<dyn PoolClient>,
    words: &[Word],
    request: &SendRequest,
    console: &mut Console<'_>,
) -> Outcome {
    let flag = |letter| words.contains(&Word::Flag(letter));
    let style = match flag('P') {
        true => Style::Parsable,
        false => Style::Human,
    };
    let sources = match (request.steps, &request.tree) {
        (Steps::One, None) => Sources::Full,
        (Steps::Each, _) | (_, Some(_)) => Sources::Short,
    };
    let is_verbose = flag('v') || flag('P');
    if is_verbose || flag('n') {
        // A dry run also reports if it cannot be sent.
        let StreamSizes { sizes, skipped } = source::stream_sizes(client.as_mut(), request)?;
        if flag('n') {
            skipped.iter().for_each(|line| console.complain(line));
        }
        let told = if flag('n') { &mut *console.out } else { &mut *console.err };
        if is_verbose {
            write!(told, "{}", style.announcement(sources, &sizes))?;
        }
    }
    if flag('n') {
        return Ok(());
    }
    // Bypasses the line buffer of standard output.
    let stdout = rustix::stdio::stdout();
    let mut to = File::from(rustix::io::dup(stdout).map_err(std::io::Error::from)?);
    let skipped = match flag('v') {
        false => client.send_snapshot(request, &mut to)?,
        true => {
            let mut to = Reported::new(to, style, &request.snapshot, console.calendar.clone());
            client.send_snapshot(request, &mut to)?
        }
    };
    skipped.iter().for_each(|line| console.complain(line));
    Ok(())
}
