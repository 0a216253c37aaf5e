//! `zfs diff` (spec 09, section 3.4).

use super::name;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, devices, operands};
use crate::source::{self, PoolClient};
use rzfs_server::protocol::{
    Answer, Change, DiffChange, DiffEntry, DiffPath, DiffQuery, Identity, Request, UnnamedFile,
};
use std::io::{self, Write};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('F', Value::None),
        ('H', Value::None),
        ('h', Value::None),
        ('t', Value::None),
        ('d', Value::Devices),
    ],
    names: &[],
};

/// The format of lines.
struct Format {
    words: Vec<Word>,
    /// The prefix of each path.
    mountpoint: String,
}

/// Runs `zfs diff`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let (from, to) = match operands(&words).as_slice() {
        [] => {
            let problem = "must provide at least one snapshot name";
            return Err(Failure::Usage(problem.to_owned()));
        }
        [from] => (from.clone(), None),
        [from, to] => (from.clone(), Some(to.clone())),
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    let Some((head, _)) = from.split_once('@') else {
        let problem =
            format!("Badly formed snapshot name {from}: missing '@' delimiter in snapshot name");
        return Err(Failure::Failed(format!("Unable to obtain diffs: {problem}")));
    };
    let head = head.to_owned();
    let to = match to {
        None => head,
        // A snapshot of the same file system.
        Some(to) if to.starts_with('@') => format!("{head}{to}"),
        Some(to) => to,
    };
    for one in [&from, &to] {
        name::check(one)
            .map_err(|error| Failure::Failed(format!("cannot open '{one}': {error}")))?;
    }
    let pool = name::pool_of(&from).to_owned();
    let found = source::respondents(&devices(&words), std::slice::from_ref(&pool), console)?;
    let Some(mut client) = found.pools.into_iter().next() else {
        return found
            .outcome
            .and(Err(Failure::Failed(format!("cannot open '{pool}': no such pool"))));
    };
    if !to.contains('@') {
        write_back(client.as_mut())?;
    }
    let mut format = Format { words, mountpoint: String::new() };
    let (mut first, mut too_deep) = (Some(0), None);
    while let Some(next) = first {
        let query = DiffQuery { from: from.clone(), to: to.clone(), first: next };
        let part = source::differences(client.as_mut(), query)?;
        let mountpoint = part.mountpoint.unwrap_or_default();
        format.mountpoint = mountpoint.trim_end_matches('/').to_owned();
        for entry in &part.entries {
            format.write(entry, console.out)?;
        }
        // A pool that answers nonsense would be queried for ever.
        first = part.next.filter(|after| *after > next);
        too_deep = too_deep.or(part.too_deep);
    }
    // One is enough to show that the list is incomplete.
    match too_deep {
        None => Ok(()),
        Some(UnnamedFile { object, dataset }) => {
            let what = format!("object {object} in {dataset}: path too long");
            Err(Failure::Failed(format!("Unable to determine path or stats for {what}")))
        }
    }
}

/// Writes pending changes to disk: the comparison reads from there.
fn write_back(client: &mut dyn PoolClient) -> Outcome {
    let Answer::Identity(Identity { is_writable: true, .. }) = client.ask(&Request::Identify)?
    else {
        return Ok(());
    };
    client.ask(&Request::Change { change: Change::Sync, command: None }).map(drop)
}

impl Format {
    fn has(&self, letter: char) -> bool {
        self.words.contains(&Word::Flag(letter))
    }

    fn write(&self, entry: &DiffEntry, out: &mut dyn Write) -> io::Result<()> {
        if self.has('t') {
            let (seconds, nanoseconds) = entry.changed;
            write!(out, "{seconds}.{nanoseconds:09}\t")?;
        }
        let (sign, path) = match &entry.change {
            DiffChange::Removed(path) => ('-', path),
            DiffChange::Added(path) => ('+', path),
            DiffChange::Modified { path, .. } => ('M', path),
            DiffChange::Renamed { from, .. } => ('R', from),
        };
        write!(out, "{sign}\t")?;
        if self.has('F') {
            write!(out, "{}\t", entry.kind)?;
        }
        self.path(path, out)?;
        match &entry.change {
            DiffChange::Renamed { to, .. } => {
                write!(out, "{}", if self.has('H') { "\t" } else { " -> " })?;
                self.path(to, out)?;
            }
            DiffChange::Modified { links, .. } if *links != 0 => write!(out, "\t({links:+})")?,
            _ => {}
        }
        writeln!(out)
    }

    fn path(&self, path: &DiffPath, out: &mut dyn Write) -> io::Result<()> {
        match self.has('h') {
            true => {
                out.write_all(self.mountpoint.as_bytes())?;
                out.write_all(&path.to_bytes())
            }
            false => {
                let mountpoint = DiffPath::new(self.mountpoint.as_bytes());
                write!(out, "{}{}", mountpoint.as_str(), path.as_str())
            }
        }
    }
}
