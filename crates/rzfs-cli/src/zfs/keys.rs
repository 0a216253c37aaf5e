//! `zfs load-key`, `unload-key` and `change-key` (spec 09, section 3.5).

use super::change::{carry_out_telling, check_head, pair, pool_with};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use crate::key_input::{self, Named, Occasion};
use crate::source;
use rzfs::setting::NewDatasetProperties;
use rzfs_codec::crypto::KeyFormat;
use rzfs_format::property::DatasetProperty;
use rzfs_server::control::ControlClient;
use rzfs_server::keys::format_of_name;
use rzfs_server::protocol::{
    Change, DatasetKind, DatasetQuery, KeyRequest, Pair, PropertyValue, Purpose, Refusal, Selection,
};

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

/// The key properties of a dataset.
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
        format_of_name(&self.format)
    }
}

/// The keys of a dataset and, without a `depth`, of its descendants; parents come first.
fn reports(
    client: &mut ControlClient,
    name: &str,
    depth: Option<u32>,
) -> Result<Vec<KeyReport>, Failure> {
    let properties = [
        DatasetProperty::EncryptionRoot,
        DatasetProperty::KeyStatus,
        DatasetProperty::KeyFormat,
        DatasetProperty::KeyLocation,
    ];
    let query = DatasetQuery {
        names: vec![name.to_owned()],
        depth,
        kinds: vec![DatasetKind::Filesystem, DatasetKind::Volume],
        properties: Selection::Named(properties.map(|property| property.to_string()).to_vec()),
    };
    let listing = source::datasets(client, query)?;
    if listing.datasets.is_empty() {
        return Err(super::change::missing(name));
    }
    let report = |dataset: rzfs_server::protocol::DatasetReport| {
        let text = |property: DatasetProperty| match dataset
            .property(property.name())
            .map(|property| &property.value)
        {
            Some(PropertyValue::Text(text)) => text.clone(),
            _ => String::new(),
        };
        KeyReport {
            root: text(DatasetProperty::EncryptionRoot),
            is_loaded: text(DatasetProperty::KeyStatus) == "available",
            format: text(DatasetProperty::KeyFormat),
            location: text(DatasetProperty::KeyLocation),
            name: dataset.name,
        }
    };
    Ok(listing.datasets.into_iter().map(report).collect())
}

fn failed(what: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::Status(format!("Key {what} error: {reason}"), FAILED)
}

/// Reports a failure of one key of several, of which the others are still to be tried, and returns
/// the command's final failure.
///
/// # Errors
/// The failure, if it is not about this key alone.
fn complain(failure: Failure, console: &mut Console<'_>) -> Result<Failure, Failure> {
    match failure {
        Failure::Status(message, _)
        | Failure::Failed(message)
        | Failure::Refused(Refusal { message, .. }) => {
            console.complain(message);
            Ok(Failure::Told)
        }
        other => Err(other),
    }
}

/// The encryption roots for a command: of one dataset, of all below it, or of all pools.
fn roots(
    words: &[Word],
    usage: &str,
    console: &mut Console<'_>,
) -> Result<Vec<(ControlClient, Vec<KeyReport>)>, Failure> {
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(words);
    match (flag('a'), operands.as_slice()) {
        (true, []) => {
            let mut all = Vec::new();
            // Omitted pools were reported.
            let (clients, _) = source::all_imported(console)?;
            for mut client in clients {
                let name = client.identity().pool.clone();
                let Some(found) = source::unless_gone(reports(&mut client, &name, None))? else {
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
    let line = command_line("zfs load-key", words);
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
    for (mut client, reports) in roots(&words, "missing dataset argument", console)? {
        // The command is logged once per pool, unless it changes nothing.
        let mut line = Some(&*line).filter(|_| purpose == Purpose::Change);
        let skipped = |report: &&KeyReport| several && report.is_loaded && !flag('n');
        for report in reports.iter().filter(|report| !skipped(report)) {
            tried += 1;
            match load_one(&mut client, report, location.as_deref(), (purpose, line), console) {
                Ok(()) => {
                    done += 1;
                    line = None;
                }
                Err(failure) if !several => return Err(failure),
                Err(failure) => outcome = Err(complain(failure, console)?),
            }
        }
    }
    if several || flag('n') {
        let what = if flag('n') { "verified" } else { "loaded" };
        writeln!(console.out, "{done} / {tried} key(s) successfully {what}")?;
    }
    outcome
}

/// The origin of a key location reported by a process.
fn by_pool(client: &ControlClient) -> Named {
    if client.is_own() { Named::Pool } else { Named::Stranger }
}

fn load_one(
    client: &mut ControlClient,
    report: &KeyReport,
    location: Option<&str>,
    (purpose, line): (Purpose, Option<&str>),
    console: &mut Console<'_>,
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
    let named = if location.is_some() { Named::User } else { by_pool(client) };
    let location = (location.unwrap_or(&report.location), named);
    let key = key_input::get(name, format, location, Occasion::Known);
    let key = key.map_err(|reason| failed("load", reason))?;
    let change = Change::LoadKey { name: name.clone(), key, purpose };
    carry_out_telling(client, change, line, console).map_err(|failure| failure.with_status(FAILED))
}

/// Loads the key of a file system to be mounted, if it lacks one.
pub(super) fn load_for_mount(
    client: &mut ControlClient,
    name: &str,
    console: &mut Console<'_>,
) -> Outcome {
    let found = reports(client, name, Some(0))?;
    let Some(report) = found.first().filter(|report| !report.root.is_empty()) else {
        return Ok(());
    };
    if report.is_loaded {
        return Ok(());
    }
    let root = report.root.clone();
    match reports(client, &root, Some(0))?.first() {
        Some(root) => load_one(client, root, None, (Purpose::Change, None), console),
        None => Ok(()),
    }
}

/// Loads the missing keys of a pool's file systems; failures are reported, and end in
/// [`Failure::Told`].
pub(super) fn load_all_for_mount(client: &mut ControlClient, console: &mut Console<'_>) -> Outcome {
    let pool = client.identity().pool.clone();
    let found = reports(client, &pool, None)?;
    let mut outcome = Ok(());
    for report in found.iter().filter(|report| report.is_root() && !report.is_loaded) {
        if let Err(failure) = load_one(client, report, None, (Purpose::Change, None), console) {
            outcome = Err(complain(failure, console)?);
        }
    }
    outcome
}

/// Runs `zfs unload-key`.
pub(super) fn unload(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs unload-key", words);
    let words = UNLOAD.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let several = flag('r') || flag('a');
    let (mut tried, mut done) = (0, 0);
    let mut outcome = Ok(());
    for (mut client, mut reports) in roots(&words, "missing dataset argument", console)? {
        if several {
            reports.retain(|report| report.is_loaded);
        }
        let mut line = Some(&*line);
        for report in reports {
            tried += 1;
            let change = Change::UnloadKey { name: report.name };
            match source::change(&mut client, change, line)
                .map_err(|failure| failure.with_status(FAILED))
            {
                Ok(_) => {
                    done += 1;
                    line = None;
                }
                Err(failure) if !several => return Err(failure),
                Err(failure) => outcome = Err(complain(failure, console)?),
            }
        }
    }
    if several {
        writeln!(console.out, "{done} / {tried} key(s) successfully unloaded")?;
    }
    outcome
}

/// Runs `zfs change-key`.
pub(super) fn change(words: &[String], console: &mut Console<'_>) -> Outcome {
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
        load_for_mount(&mut client, name, console)?;
    }
    let request = match flag('i') {
        true => KeyRequest::Inherit,
        false => new_key(report, properties, by_pool(&client))?,
    };
    let change = Change::ChangeKey { name: name.clone(), request };
    source::change(&mut client, change, Some(&line))
        .map(drop)
        .map_err(|failure| failure.with_status(FAILED))
}

/// The new key of a dataset. An encryption root keeps unspecified properties.
fn new_key(
    report: &KeyReport,
    mut properties: Vec<Pair>,
    by_pool: Named,
) -> Result<KeyRequest, Failure> {
    let allowed =
        [DatasetProperty::KeyFormat, DatasetProperty::KeyLocation, DatasetProperty::Pbkdf2Iters];
    let allowed = allowed.map(DatasetProperty::name);
    if let Some((name, _)) = properties.iter().find(|(name, _)| !allowed.contains(&&**name)) {
        let reason = format_args!("Invalid property '{name}' for key change.").to_string();
        return Err(failed("change", reason));
    }
    let mut complete = |property: DatasetProperty, value: &str| {
        if report.is_root() && properties.iter().all(|(known, _)| known != property.name()) {
            properties.push((property.to_string(), value.to_owned()));
        }
    };
    complete(DatasetProperty::KeyFormat, &report.format);
    complete(DatasetProperty::KeyLocation, &report.location);
    let pairs = properties.iter().map(|(name, word)| (&**name, &**word));
    let parsed = NewDatasetProperties::parse(pairs).map_err(|error| failed("change", error))?;
    let key = parsed.encryption.key().map_err(|error| failed("change", error))?;
    let Some((format, location)) = key else {
        return Err(failed("change", "Keyformat required for new encryption root."));
    };
    let named = if location == report.location { by_pool } else { Named::User };
    let key = key_input::get(&report.name, format, (location, named), Occasion::New);
    let key = key.map_err(|reason| failed("change", reason))?;
    Ok(KeyRequest::New { properties, key })
}
