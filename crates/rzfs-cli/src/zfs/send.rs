//! `zfs send` (spec 08, section 8).

mod progress;
mod resume;
mod stream;

use super::name;
use crate::absent::Program;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, devices, operands};
use crate::source::{self, PoolClient};
use rzfs_server::protocol::{
    MissingSnapshots, Portion, SendRequest, SentProperties, SentTree, Steps,
};
use stream::{check_output, send};

const GRAMMAR: Grammar = Grammar {
    letters: &[
        ('L', Value::None),
        ('e', Value::None),
        ('c', Value::None),
        ('i', Value::Required),
        ('d', Value::Devices),
        ('D', Value::None),
        ('I', Value::Required),
        ('P', Value::None),
        ('R', Value::None),
        ('S', Value::None),
        ('V', Value::None),
        ('X', Value::Required),
        ('b', Value::None),
        ('h', Value::None),
        ('n', Value::None),
        ('p', Value::None),
        ('s', Value::None),
        ('t', Value::Required),
        ('v', Value::None),
        ('w', Value::None),
    ],
    names: &[
        ("large-block", 'L'),
        ("embed", 'e'),
        ("compressed", 'c'),
        ("backup", 'b'),
        ("dryrun", 'n'),
        ("exclude", 'X'),
        ("holds", 'h'),
        ("parsable", 'P'),
        ("proctitle", 'V'),
        ("props", 'p'),
        ("raw", 'w'),
        ("replicate", 'R'),
        ("resume", 't'),
        ("saved", 'S'),
        ("skip-missing", 's'),
        ("verbose", 'v'),
    ],
};

/// Options that are parsed but not implemented: a stream without them would be mistaken for one
/// with them.
const ABSENT: &str = "V";

/// Runs `zfs send`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    Program::Zfs.refuse_options("send", ABSENT, &words)?;
    let is_rest = flag('S') || words.iter().any(|word| matches!(word, Word::Option('t', _)));
    if is_rest && flag('w') {
        // Received data are not raw.
        return Err(Failure::Failed("raw streams are not resumed by this software yet".to_owned()));
    }
    if let Some(token) = words.iter().find_map(|word| match word {
        Word::Option('t', token) => Some(token.as_str()),
        _ => None,
    }) {
        return resume::run(&words, token, console);
    }
    let snapshot = match operands(&words).as_slice() {
        [] => return Err(Failure::Usage("missing snapshot argument".to_owned())),
        [snapshot] => snapshot.clone(),
        _ => return Err(Failure::Usage("too many arguments".to_owned())),
    };
    if flag('S') {
        return saved(&words, snapshot, console);
    }
    let Some((head, _)) = snapshot.split_once('@') else {
        let problem = "only snapshots are sent";
        return Err(Failure::Failed(format!("cannot send '{snapshot}': {problem}")));
    };
    let (mut from, mut steps) = (None, Steps::One);
    for word in &words {
        let Word::Option(letter @ ('i' | 'I'), source) = word else { continue };
        if from.is_some() {
            return Err(Failure::Usage("there is more than one incremental source".to_owned()));
        }
        from = Some(source_of(head, source));
        steps = if *letter == 'I' { Steps::Each } else { Steps::One };
    }
    for one in from.iter().chain([&snapshot]) {
        name::check(one)
            .map_err(|error| Failure::Failed(format!("cannot open '{one}': {error}")))?;
    }
    if flag('D') {
        console.complain(
            "WARNING: deduplicated send is no longer supported.  A regular,\n\
             non-deduplicated stream will be generated.\n",
        );
    }
    let tree = tree(&words)?;
    if tree.is_some() && from.as_ref().is_some_and(|from| !from.starts_with(&format!("{head}@"))) {
        return Err(Failure::Usage("incremental source must be in same filesystem".to_owned()));
    }
    check_output(&words)?;
    let client = client(&words, &snapshot, console)?;
    let request = SendRequest {
        snapshot,
        from,
        steps,
        large_blocks: flag('L'),
        embedded: flag('e'),
        compressed: flag('c'),
        raw: flag('w'),
        portion: Portion::Complete,
        properties: match (flag('b'), flag('p')) {
            (true, _) => SentProperties::Received,
            (false, true) => SentProperties::InForce,
            (false, false) => SentProperties::None,
        },
        holds: flag('h'),
        tree,
    };
    send(client, &words, &request, console)
}

/// `zfs send -S`: sends a partially received stream (spec 08, section 8.5).
fn saved(words: &[Word], target: String, console: &mut Console<'_>) -> Outcome {
    if words.iter().any(|word| matches!(word, Word::Option('i' | 'I', _))) {
        let problem = "incompatible flags combined with saved send flag";
        return Err(Failure::Usage(problem.to_owned()));
    }
    if target.contains('@') {
        let problem = "saved send must specify the dataset with partially-received state";
        return Err(Failure::Usage(problem.to_owned()));
    }
    name::check(&target)
        .map_err(|error| Failure::Failed(format!("cannot open '{target}': {error}")))?;
    check_output(words)?;
    let client = client(words, &target, console)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let request = SendRequest {
        snapshot: target,
        from: None,
        steps: Steps::One,
        large_blocks: flag('L'),
        embedded: flag('e'),
        compressed: flag('c'),
        raw: false,
        portion: Portion::Arrived,
        properties: SentProperties::None,
        holds: false,
        tree: None,
    };
    send(client, words, &request, console)
}

/// The pool of the sent dataset.
fn client(
    words: &[Word],
    dataset: &str,
    console: &mut Console<'_>,
) -> Result<Box<dyn PoolClient>, Failure> {
    let pool = name::pool_of(dataset).to_owned();
    let found = source::respondents(&devices(words), std::slice::from_ref(&pool), console)?;
    match found.pools.into_iter().next() {
        Some(client) => Ok(client),
        None => {
            found.outcome?;
            Err(Failure::Failed(format!("cannot open '{dataset}': dataset does not exist")))
        }
    }
}

/// The descendants to send.
fn tree(words: &[Word]) -> Result<Option<SentTree>, Failure> {
    let flag = |letter| words.contains(&Word::Flag(letter));
    let excluded = words.iter().filter_map(|word| match word {
        Word::Option('X', names) => Some(names.split(',').map(str::to_owned)),
        _ => None,
    });
    let excluded: Vec<_> = excluded.flatten().collect();
    match flag('R') {
        false if flag('s') => {
            let problem = "skip-missing flag can only be used in conjunction with replicate";
            Err(Failure::Usage(problem.to_owned()))
        }
        false if !excluded.is_empty() => {
            let problem = "Cannot specify dataset exclusion (-X) on a non-recursive send.";
            Err(Failure::Failed(problem.to_owned()))
        }
        false => Ok(None),
        true => {
            let missing = match flag('s') {
                true => MissingSnapshots::Skipped,
                false => MissingSnapshots::Refused,
            };
            Ok(Some(SentTree { excluded, missing }))
        }
    }
}

/// The full name of an increment's source: of the sent dataset unless it names another.
fn source_of(head: &str, from: &str) -> String {
    match from.find(['@', '#']) {
        Some(0) => format!("{head}{from}"),
        Some(_) => from.to_owned(),
        None => format!("{head}@{from}"),
    }
}
