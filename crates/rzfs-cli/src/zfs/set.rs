//! `zfs set` and `zfs inherit` (spec 09, section 3.3).

use super::change::{carry_out, check_dataset, for_each, full_name, pair, pool_with, tree};
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::history::command_line;
use rzfs_format::property::{DatasetProperty, Editing, Inheritance};
use rzfs_server::protocol::{Change, DatasetKind, Refusal, RefusalKind};

const SET: Grammar = Grammar { letters: &[('u', Value::None)], names: &[] };
const INHERIT: Grammar = Grammar { letters: &[('r', Value::None), ('S', Value::None)], names: &[] };

/// Runs `zfs set`.
pub(super) fn set(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs set", words);
    let words = SET.parse(words)?;
    let operands = operands(&words);
    let count = operands.iter().take_while(|operand| operand.contains('=')).count();
    let (pairs, datasets) = operands.split_at(count);
    if let Some(late) = datasets.iter().find(|operand| operand.contains('=')) {
        return Err(Failure::Usage(format!("'{late}' is not expected behind a dataset name")));
    }
    if pairs.is_empty() {
        return Err(Failure::Usage("missing property=value argument".to_owned()));
    }
    if datasets.is_empty() {
        return Err(Failure::Usage("missing dataset name".to_owned()));
    }
    let mut properties = Vec::new();
    for text in pairs {
        pair(&mut properties, text).map_err(not_set)?;
    }
    let mut line = Some(line);
    for_each(datasets, console, |name, console| {
        check_dataset("open", name)?;
        let mut client = pool_with(name)?;
        let change = Change::Set {
            name: name.to_owned(),
            properties: properties.clone(),
            leave_mounted: words.contains(&Word::Flag('u')),
        };
        // The command is logged once.
        carry_out(&mut client, change, line.as_deref(), console).map_err(not_set)?;
        line = None;
        Ok(())
    })
}

/// OpenZFS has a special status for properties that are not set, unless the dataset is missing.
fn not_set(failure: Failure) -> Failure {
    match failure {
        failure @ Failure::Refused(Refusal { kind: RefusalKind::Unopened, .. }) => failure,
        failure => failure.with_status(255),
    }
}

/// Runs `zfs inherit`.
pub(super) fn inherit(words: &[String], console: &mut Console<'_>) -> Outcome {
    let line = command_line("zfs inherit", words);
    let words = INHERIT.parse(words)?;
    let flag = |letter| words.contains(&Word::Flag(letter));
    let operands = operands(&words);
    let Some((property, datasets)) = operands.split_first() else {
        return Err(Failure::Usage("missing property argument".to_owned()));
    };
    if datasets.is_empty() {
        return Err(Failure::Usage("missing dataset argument".to_owned()));
    }
    let property = full_name(property);
    check_inheritable(&property, flag('S'))?;
    let mut line = Some(line);
    for_each(datasets, console, |name, console| {
        check_dataset("open", name)?;
        let mut client = pool_with(name)?;
        // Snapshots have only user properties, which they inherit.
        let kinds: &[DatasetKind] = match property.contains(':') {
            true => &[DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot],
            false => &[DatasetKind::Filesystem, DatasetKind::Volume],
        };
        let names = match flag('r') {
            // A snapshot has no descendants.
            true if !name.contains('@') => {
                tree(&mut client, name, kinds)?.into_iter().map(|one| one.name).collect()
            }
            _ => vec![name.to_owned()],
        };
        for name in names {
            let (property, received) = (property.clone(), flag('S'));
            let change = Change::Inherit { name, property, received };
            carry_out(&mut client, change, line.as_deref(), console)?;
            line = None;
        }
        Ok(())
    })
}

fn check_inheritable(name: &str, received: bool) -> Outcome {
    if name.contains(':') {
        return Ok(());
    }
    let property = DatasetProperty::all_but_name().find(|property| property.name() == name);
    let Some(property) = property else {
        return Err(Failure::Usage(format!("invalid property '{name}'")));
    };
    if property.description().editing != Editing::Always {
        return Err(Failure::Failed(format!("{name} property is read-only")));
    }
    // This one is reset to its default.
    let has_default = property == DatasetProperty::CanMount;
    if property.inheritance() != Inheritance::Own || received || has_default {
        return Ok(());
    }
    let message = format!("'{name}' property cannot be inherited");
    Err(Failure::Failed(match property {
        DatasetProperty::Quota
        | DatasetProperty::RefQuota
        | DatasetProperty::Reservation
        | DatasetProperty::RefReservation => {
            format!(
                "{message}\nuse 'zfs set {name}=none' to clear\n\
                 use 'zfs inherit -S {name}' to revert to received value"
            )
        }
        _ => message,
    }))
}
