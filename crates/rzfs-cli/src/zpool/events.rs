//! `zpool events` (spec 09, section 2.7).

use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::source;
use crate::source::required_or_all;
use rzfs_server::protocol::{Answer, EventDetail, EventReport, Request};

const GRAMMAR: Grammar =
    Grammar { letters: &[('v', Value::None), ('H', Value::None), ('c', Value::None)], names: &[] };

/// Runs `zpool events`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let names = operands(&words);
    if names.len() > 1 {
        return Err(Failure::Usage("too many arguments".to_owned()));
    }
    let (mut clients, outcome) = required_or_all(&names, console)?;
    if flag('c') {
        let mut cleared = 0;
        for client in &mut clients {
            if let Ok(Answer::Cleared(count)) = client.ask(&Request::ClearEvents) {
                cleared += count;
            }
        }
        writeln!(console.out, "cleared {cleared} events")?;
        return outcome;
    }
    let mut events: Vec<EventReport> = Vec::new();
    for client in &mut clients {
        events.extend(source::unless_gone(source::events(client))?.into_iter().flatten());
    }
    events.sort_by_key(|event| (event.seconds, event.nanoseconds));
    if !flag('H') {
        writeln!(console.out, "{:<30} CLASS", "TIME")?;
    }
    for event in &events {
        let time = console.calendar.event(event.seconds, event.nanoseconds);
        let separator = if flag('H') { '\t' } else { ' ' };
        writeln!(console.out, "{time:<30}{separator}{}", event.class)?;
        if flag('v') {
            details(event, console)?;
        }
    }
    outcome
}

fn details(event: &EventReport, console: &mut Console<'_>) -> Outcome {
    for (name, detail) in &event.details {
        match detail {
            EventDetail::Text(text) => writeln!(console.out, "        {name} = \"{text}\"")?,
            EventDetail::Number(number) => {
                writeln!(console.out, "        {name} = {number:#x}")?;
            }
        }
    }
    writeln!(console.out)?;
    Ok(())
}
