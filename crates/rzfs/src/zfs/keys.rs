//! `zfs load-key`, `unload-key` and `change-key` (spec 09, section 3.5).

use super::change::{check_head, pair, pool_with};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::key_input::{self, Named, Occasion};
use crate::source;
use rzfs::control::ControlClient;
use rzfs::protocol::{
    Change, DatasetKind, DatasetQuery, KeyRequest, Pair, PropertyValue, Purpose, Selection,
};
use rzfs::setting::NewDatasetProperties;
use rzfs_codec::crypto::KeyFormat;

const LOAD: Grammar = Grammar {
    letters: &[('n', Value::None), ('r', Value::None), ('a', Value::None), ('L', Value::Required)],
    names: &[],
};
const UNLOAD: Grammar = Grammar { letters: &[('r', Value::None), ('a', Value::None)], names: &[] };
const CHANGE: Grammar = Grammar {
    letters: &[('l', Value::None), ('i', Value::None), ('o', Value::Required)],
    names: &[],
};

/// OpenZFS's exit status when a key cannot be loaded, unloaded or changed.
const FAILED: u8 = 255;

/// What there is to know about the key of a dataset.
#[derive(Clone, Debug)]
pub(super) struct KeyReport {
    name: String,
    /// Its encryption root; empty if it is not encrypted.
    root: String,
    is_loaded: bool,
    format: String,
    location: String,
}

impl KeyReport {
    fn is_root(&self) -> bool {
        self.root == self.name
    }

    fn key_format(&self) -> Option<KeyFormat> {
        key_input::format(&self.format)
    }
}

/// The keys of a dataset and, with `depth` none, of what is below it; parents come first.
fn reports(
    client: &mut ControlClient,
    name: &str,
    depth: Option<u32>,
) -> Result<Vec<KeyReport>, Failure> {
    let properties = ["encryptionroot", "keystatus", "keyformat", "keylocation"];
    let query = DatasetQuery {
        names: vec![name.to_owned()],
        depth,
        kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
        properties: Selection::Named(properties.map(str::to_owned).to_vec()),
    };
    let listing = source::datasets(client, query)?;
    if listing.datasets.is_empty() {
        return Err(super::change::missing(name));
    }
    let report = |dataset: rzfs::protocol::DatasetReport| {
        let text = |name: &str| {
            let found = dataset.properties.iter().find(|property| property.name == name);
            match found.map(|property| &property.value) {
                Some(PropertyValue::Text(text)) => text.clone(),
                _ => String::new(),
            }
        };
        KeyReport {
            root: text("encryptionroot"),
            is_loaded: text("keystatus") == "available",
            format: text("keyformat"),
            location: text("keylocation"),
            name: dataset.name,
        }
    };
    Ok(listing.datasets.into_iter().map(report).collect())
}

fn failed(what: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::Status(format!("Key {what} error: {reason}"), FAILED)
}

/// Gives refusals OpenZFS's status.
fn with_status(failure: Failure) -> Failure {
    match failure {
        Failure::Failed(message) => Failure::Status(message, FAILED),
        failure => failure,
    }
}

/// The roots that a command is about: of one dataset, of all below it, or of all pools.
fn roots(words: &[Word], usage: &str) -> Result<Vec<(ControlClient, Vec<KeyReport>)>, Failure> {
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(words);
    match (flag('a'), operands.as_slice()) {
        (true, []) => {
            let mut all = Vec::new();
            for mut client in source::all_imported()? {
                let name = client.identity().pool.clone();
                let Some(found) = source::if_there(reports(&mut client, &name, None))? else {
                    continue;
                };
                all.push((client, found.into_iter().filter(KeyReport::is_root).collect()));
            }
            Ok(all)
        }
        (true, [_, ..]) => Err(Failure::Usage("too many arguments".to_owned())),
        (false, [name]) => {
            check_head("open", name)?;
            let mut client = pool_with(name)?;
            let depth = if flag('r') { None } else { Some(0) };
            let mut found = reports(&mut client, name, depth)?;
            if flag('r') {
                found.retain(KeyReport::is_root);
            }
            Ok(vec![(client, found)])
        }
        (false, []) => Err(Failure::Usage(usage.to_owned())),
        (false, _) => Err(Failure::Usage("too many arguments".to_owned())),
    }
}

/// Runs `zfs load-key`.
pub(super) fn load(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = LOAD.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let location = words.iter().find_map(|word| match word {
        Word::Option('L', location) => Some(location.clone()),
        _ => None,
    });
    let several = flag('r') || flag('a');
    if several && location.as_ref().is_some_and(|location| location != "prompt") {
        let problem = "alternate keylocation may only be 'prompt' with -r or -a";
        return Err(Failure::Usage(problem.to_owned()));
    }
    let purpose = if flag('n') { Purpose::DryRun } else { Purpose::Change };
    let (mut tried, mut done) = (0, 0);
    let mut outcome = Ok(());
    for (mut client, reports) in roots(&words, "missing dataset argument")? {
        let skipped = |report: &&KeyReport| several && report.is_loaded && !flag('n');
        for report in reports.iter().filter(|report| !skipped(report)) {
            tried += 1;
            match load_one(&mut client, report, location.as_deref(), purpose) {
                Ok(()) => done += 1,
                Err(failure) if !several => return Err(failure),
                Err(Failure::Status(message, _) | Failure::Failed(message)) => {
                    console.complain(message);
                    outcome = Err(Failure::Told);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    if several || flag('n') {
        let what = if flag('n') { "verified" } else { "loaded" };
        writeln!(console.out, "{done} / {tried} key(s) successfully {what}")?;
    }
    outcome
}

fn load_one(
    client: &mut ControlClient,
    report: &KeyReport,
    location: Option<&str>,
    purpose: Purpose,
) -> Outcome {
    let KeyReport { name, root, .. } = report;
    let error = |reason: &dyn std::fmt::Display| Err(failed("load", reason));
    if root.is_empty() {
        return error(&format_args!("'{name}' is not encrypted."));
    }
    if !report.is_root() {
        return error(&format_args!(
            "Keys must be loaded for encryption root of '{name}' ({root})."
        ));
    }
    if report.is_loaded && purpose == Purpose::Change {
        return error(&format_args!("Key already loaded for '{name}'."));
    }
    let Some(format) = report.key_format() else {
        return error(&format_args!("'{name}' has no keyformat."));
    };
    let named = if location.is_some() { Named::ByUser } else { Named::ByPool };
    let location = (location.unwrap_or(&report.location), named);
    let key = key_input::get(name, format, location, Occasion::Known);
    let key = key.map_err(|reason| failed("load", reason))?;
    let change = Change::LoadKey { name: name.clone(), key, purpose };
    source::change(client, change, None).map(drop).map_err(with_status)
}

/// Loads the key of a file system that is to be mounted, if it lacks one.
pub(super) fn load_for_mount(client: &mut ControlClient, name: &str) -> Outcome {
    let found = reports(client, name, Some(0))?;
    let Some(report) = found.first().filter(|report| !report.root.is_empty()) else {
        return Ok(());
    };
    if report.is_loaded {
        return Ok(());
    }
    let root = report.root.clone();
    match reports(client, &root, Some(0))?.first() {
        Some(root) => load_one(client, root, None, Purpose::Change),
        None => Ok(()),
    }
}

/// Loads the keys that file systems of a pool lack; what cannot be loaded is complained about.
pub(super) fn load_all_for_mount(client: &mut ControlClient, console: &mut Console<'_>) -> Outcome {
    let pool = client.identity().pool.clone();
    let found = reports(client, &pool, None)?;
    for report in found.iter().filter(|report| report.is_root() && !report.is_loaded) {
        match load_one(client, report, None, Purpose::Change) {
            Err(Failure::Status(message, _) | Failure::Failed(message)) => {
                console.complain(message);
            }
            other => other?,
        }
    }
    Ok(())
}

/// Runs `zfs unload-key`.
pub(super) fn unload(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = UNLOAD.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let several = flag('r') || flag('a');
    let (mut tried, mut done) = (0, 0);
    let mut outcome = Ok(());
    for (mut client, mut reports) in roots(&words, "missing dataset argument")? {
        if several {
            reports.retain(|report| report.is_loaded);
        }
        for report in reports {
            tried += 1;
            let change = Change::UnloadKey { name: report.name };
            match source::change(&mut client, change, None).map_err(with_status) {
                Ok(_) => done += 1,
                Err(failure) if !several => return Err(failure),
                Err(Failure::Status(message, _)) => {
                    console.complain(message);
                    outcome = Err(Failure::Told);
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    if several {
        writeln!(console.out, "{done} / {tried} key(s) successfully unloaded")?;
    }
    outcome
}

/// Runs `zfs change-key`.
pub(super) fn change(words: &[String], _: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs change-key", words);
    let words = CHANGE.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let mut properties: Vec<Pair> = Vec::new();
    for word in &words {
        if let Word::Option('o', text) = word {
            pair(&mut properties, text)?;
        }
    }
    let operands = operands(&words);
    let [name] = operands.as_slice() else {
        let problem = match operands.is_empty() {
            true => "Missing dataset argument",
            false => "Too many arguments",
        };
        return Err(Failure::Usage(problem.to_owned()));
    };
    if flag('i') && !properties.is_empty() {
        let problem = "Properties not allowed for inheriting.";
        return Err(failed("change", problem));
    }
    check_head("open", name)?;
    let mut client = pool_with(name)?;
    let found = reports(&mut client, name, Some(0))?;
    let Some(report) = found.first() else { return Err(super::change::missing(name)) };
    if report.root.is_empty() {
        return Err(failed("change", "Dataset not encrypted."));
    }
    if flag('l') {
        load_for_mount(&mut client, name)?;
    }
    let request = match flag('i') {
        true => KeyRequest::Inherit,
        false => new_key(report, properties)?,
    };
    let change = Change::ChangeKey { name: name.clone(), request };
    source::change(&mut client, change, Some(&line)).map(drop).map_err(with_status)
}

/// The key that a dataset is to have. An encryption root keeps what is not said.
fn new_key(report: &KeyReport, mut properties: Vec<Pair>) -> Result<KeyRequest, Failure> {
    let allowed = ["keyformat", "keylocation", "pbkdf2iters"];
    if let Some((name, _)) = properties.iter().find(|(name, _)| !allowed.contains(&&**name)) {
        let reason = format_args!("Invalid property '{name}' for key change.").to_string();
        return Err(failed("change", reason));
    }
    let mut complete = |name: &str, value: &str| {
        if report.is_root() && properties.iter().all(|(known, _)| known != name) {
            properties.push((name.to_owned(), value.to_owned()));
        }
    };
    complete("keyformat", &report.format);
    complete("keylocation", &report.location);
    let pairs = properties.iter().map(|(name, word)| (&**name, &**word));
    let parsed = NewDatasetProperties::parse(pairs).map_err(|error| failed("change", error))?;
    let key = parsed.encryption.key().map_err(|error| failed("change", error))?;
    let Some((format, location)) = key else {
        return Err(failed("change", "Keyformat required for new encryption root."));
    };
    let named = if location == report.location { Named::ByPool } else { Named::ByUser };
    let key = key_input::get(&report.name, format, (location, named), Occasion::New);
    let key = key.map_err(|reason| failed("change", reason))?;
    Ok(KeyRequest::New { properties, key })
}
