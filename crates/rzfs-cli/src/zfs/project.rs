//! `zfs project` (spec 09, section 3.7): works through mounts, like any other program.

mod files;

use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use files::{Depth, File};
use std::io;

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('0', Value::None),
        ('C', Value::None),
        ('c', Value::None),
        ('d', Value::None),
        ('k', Value::None),
        ('p', Value::Required),
        ('r', Value::None),
        ('s', Value::None),
    ],
    names: &[],
};

/// Status if a file could not be processed.
const NOT_DONE: u8 = 255;

/// Runs `zfs project`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let request = Request::of(&words)?;
    let operands = operands(&words);
    if operands.is_empty() {
        let problem = if words.is_empty() { "" } else { "missing file or directory target(s)" };
        return Err(Failure::Usage(problem.to_owned()));
    }
    let mut outcome = Ok(());
    for path in &operands {
        match request.process_all(path, console) {
            Err(Failure::Status(_, status)) => {
                outcome = Err(Failure::Status(String::new(), status));
            }
            treated => treated?,
        }
    }
    outcome
}

/// The operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    List,
    /// Finds files with another project, or one that is not inherited.
    Check {
        wanted: Wanted,
        report: Report,
    },
    Clear(Kept),
    Set {
        wanted: Option<Wanted>,
        inherit: Inherit,
    },
}

/// The project that files should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wanted {
    /// This one.
    Named(u32),
    /// That of the file named on the command line.
    OfNamed,
}

/// The report about a file that differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Report {
    /// The problems, a line for each.
    Problems,
    /// Its path, terminated by NUL.
    Path,
}

/// The remainder of a project that is no longer inherited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    Number,
    Nothing,
}

/// Whether new files inherit the project of their directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inherit {
    Set,
    Unchanged,
}

impl Task {
    /// The options allowed with it, and its description.
    const fn letters(self) -> (&'static str, &'static str) {
        match self {
            Self::List => ("dr", "when projects are listed"),
            Self::Check { .. } => ("c0drp", "with '-c'"),
            Self::Clear(_) => ("Ckr", "with '-C'"),
            Self::Set { .. } => ("prs", "when projects are set"),
        }
    }
}

/// A parsed command line.
struct Request {
    task: Task,
    depth: Depth,
}

impl Request {
    fn of(words: &[Word]) -> Result<Self, Failure> {
        let flag = |letter| words.contains(&Word::Flag(letter));
        let (mut named, mut chosen) = (None, None);
        for word in words {
            match word {
                Word::Option('p', id) => named = Some(Wanted::Named(parse_project(id)?)),
                // The last one counts.
                Word::Flag('d') => chosen = Some(Depth::Itself),
                Word::Flag('r') => chosen = Some(Depth::Everything),
                _ => {}
            }
        }
        let task = if flag('C') {
            Task::Clear(if flag('k') { Kept::Number } else { Kept::Nothing })
        } else if flag('c') {
            let report = if flag('0') { Report::Path } else { Report::Problems };
            Task::Check { wanted: named.unwrap_or(Wanted::OfNamed), report }
        } else if flag('s') || named.is_some() {
            let inherit = if flag('s') { Inherit::Set } else { Inherit::Unchanged };
            // Entries below a directory get its project.
            let below = (chosen == Some(Depth::Everything)).then_some(Wanted::OfNamed);
            Task::Set { wanted: named.or(below), inherit }
        } else {
            Task::List
        };
        let (known, when) = task.letters();
        let letters = words.iter().filter_map(|word| match word {
            Word::Flag(letter) | Word::Option(letter, _) => Some(*letter),
            _ => None,
        });
        if let Some(letter) = letters.into_iter().find(|letter| !known.contains(*letter)) {
            return Err(Failure::Usage(format!("'-{letter}' has no meaning {when}")));
        }
        let usual = match task {
            Task::List | Task::Check { .. } => Depth::Entries,
            Task::Clear(_) | Task::Set { .. } => Depth::Itself,
        };
        Ok(Self { task, depth: chosen.unwrap_or(usual) })
    }

    /// Processes a file named on the command line, and those below it. Failures are reported in
    /// place, and leave only a status.
    fn process_all(&self, path: &str, console: &mut Console<'_>) -> Outcome {
        let mut named = None;
        let mut outcome = Ok(());
        files::each(path, self.depth, |found| {
            let done = match found {
                Ok(file) => self.treat(&file, &mut named, console),
                Err(failure) => Err(failure),
            };
            match done {
                Err(Failure::Failed(message)) => {
                    console.complain(message);
                    outcome = Err(Failure::Status(String::new(), NOT_DONE));
                    Ok(())
                }
                done => done,
            }
        })?;
        outcome
    }

    /// Processes one file; `named` is the project of the first one.
    fn treat(
        &self,
        file: &File<'_>,
        named: &mut Option<u32>,
        console: &mut Console<'_>,
    ) -> Outcome {
        let is = file.project;
        let of_named = *named.get_or_insert(is.project());
        let number = |wanted| match wanted {
            Wanted::Named(number) => number,
            Wanted::OfNamed => of_named,
        };
        let shall_be = match self.task {
            Task::List => return Ok(print(file, console)?),
            Task::Check { wanted, report } => {
                return Ok(check(file, number(wanted), report, console)?);
            }
            Task::Clear(Kept::Number) => is.not_inherited(),
            Task::Clear(Kept::Nothing) => is.not_inherited().with_project(0),
            Task::Set { wanted, inherit } => {
                let with_project = wanted.map_or(is, |wanted| is.with_project(number(wanted)));
                match inherit {
                    Inherit::Set => with_project.inherited(),
                    Inherit::Unchanged => with_project,
                }
            }
        };
        if shall_be == is { Ok(()) } else { file.give(shall_be) }
    }
}

/// Prints a line of a list.
fn print(file: &File<'_>, console: &mut Console<'_>) -> io::Result<()> {
    let is = file.project;
    let inherited = if is.is_inherited() { 'P' } else { '-' };
    write!(console.out, "{:5} {inherited} ", is.project())?;
    console.out.write_all(file.path)?;
    writeln!(console.out)
}

/// Reports how a file differs.
fn check(
    file: &File<'_>,
    wanted: u32,
    report: Report,
    console: &mut Console<'_>,
) -> io::Result<()> {
    let is = file.project;
    let mut problems = Vec::new();
    if is.project() != wanted {
        problems.push(format!("project ID is not set properly ({}/{wanted})", is.project()));
    }
    if !is.is_inherited() {
        problems.push("project inherit flag is not set".to_owned());
    }
    if report == Report::Path {
        if !problems.is_empty() {
            console.out.write_all(file.path)?;
            console.out.write_all(b"\0")?;
        }
        return Ok(());
    }
    for problem in problems {
        console.out.write_all(file.path)?;
        writeln!(console.out, " - {problem}")?;
    }
    Ok(())
}

/// Parses a project number; the greatest one means none.
fn parse_project(text: &str) -> Result<u32, Failure> {
    let number = text.parse().ok().filter(|number| *number != u32::MAX);
    number.ok_or_else(|| Failure::Usage(format!("invalid project ID '{text}'")))
}
