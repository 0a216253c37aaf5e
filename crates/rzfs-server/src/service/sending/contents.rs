//! The description in the head of a package (spec 08, section 6.3).

use super::plan::{Member, Plan};
use super::wording::{no_package, refused};
use crate::protocol::{Refusal, SendRequest, SentProperties, Steps};
use rzfs::zap::ZapValue;
use rzfs_dsl::dataset::property::{DatasetProperty, OwnValues};
use rzfs_dsl::dataset::{Dataset, DatasetError, DatasetKind, KeyStatus};
use rzfs_format::Guid;
use rzfs_format::nvlist::NvString;
use rzfs_format::property::Storage;
use rzfs_stream::{
    Package, PackageExtent, PackagedBlocks, PackagedDataset, PackagedSnapshot, SentValue,
};

/// The description in the head of the package, if requested.
pub(super) fn of(plan: &Plan, request: &SendRequest) -> Result<Option<Package>, Refusal> {
    if !says_contents(request) {
        return Ok(None);
    }
    let unread = |error: DatasetError| refused(request, &error);
    let mut datasets = Vec::new();
    for member in &plan.members {
        let is_encrypted = member.head.key_status().map_err(unread)? != KeyStatus::None;
        if is_encrypted && !request.raw && values(request).is_some() {
            let (to, head) = (member.to.name(), member.head.name());
            return Err(no_package(
                request,
                &format_args!(
                    "cannot send {to}: encrypted dataset {head} may not be sent with properties \
                     without the raw flag"
                ),
            ));
        }
        datasets.push(dataset(member, &plan.members, request).map_err(unread)?);
    }
    let last = |name: &str| name.split('@').next_back().unwrap_or_default().to_owned();
    let tells_from = request.tree.is_some() || request.steps == Steps::Each;
    let extent = match request.tree {
        Some(_) => PackageExtent::Tree,
        None => PackageExtent::One,
    };
    Ok(Some(Package {
        from: request.from.as_deref().filter(|_| tells_from).map(last),
        to: last(&request.snapshot),
        extent,
        blocks: match request.raw {
            true => PackagedBlocks::Raw,
            false => PackagedBlocks::Plain,
        },
        datasets,
    }))
}

/// Whether the head of a package describes its contents.
fn says_contents(request: &SendRequest) -> bool {
    request.tree.is_some() || request.holds || request.properties != SentProperties::None
}

/// The values of properties to send.
const fn values(request: &SendRequest) -> Option<OwnValues> {
    match (request.properties, &request.tree) {
        (SentProperties::Received, _) => Some(OwnValues::Received),
        (SentProperties::None, None) => None,
        (SentProperties::InForce, _) | (SentProperties::None, Some(_)) => Some(OwnValues::InForce),
    }
}

fn dataset(
    member: &Member,
    members: &[Member],
    request: &SendRequest,
) -> Result<PackagedDataset, DatasetError> {
    let guid = |dataset: &Dataset| dataset.dsl_dataset().guid;
    let parent = member.parent.and_then(|at| members.get(at));
    let parent_snapshot = parent.map(|parent| guid(parent.from.as_ref().unwrap_or(&parent.to)));
    let values = values(request);
    let is_source = |one: &Dataset| {
        let from = member.from.as_ref().filter(|_| request.tree.is_none());
        from.is_some_and(|from| from.object() == one.object())
    };
    let snapshots = member.snapshots.iter().map(|one| {
        let is_source = is_source(one);
        let properties = || sent_properties(one, values.unwrap_or(OwnValues::InForce));
        let holds = || -> Result<Vec<_>, DatasetError> {
            let holds = one.holds()?.into_iter();
            Ok(holds.map(|hold| (hold.tag, hold.time)).collect())
        };
        Ok(PackagedSnapshot {
            name: one.name().split('@').next_back().unwrap_or_default().to_owned(),
            guid: guid(one),
            properties: (!is_source).then(properties).transpose()?,
            holds: (request.holds && !is_source).then(holds).transpose()?,
        })
    });
    Ok(PackagedDataset {
        guid: guid(&member.head),
        name: member.head.name().to_owned(),
        parent_snapshot,
        origin: member.origin.as_ref().map(guid).filter(|guid| *guid != Guid(0)),
        is_encryption_root: member.head.is_encryption_root()?,
        properties: values.map(|values| sent_properties(&member.head, values)).transpose()?,
        snapshots: snapshots.collect::<Result<_, DatasetError>>()?,
    })
}

/// The properties of a dataset that the receiver can set.
fn sent_properties(
    dataset: &Dataset,
    values: OwnValues,
) -> Result<Vec<(String, SentValue)>, DatasetError> {
    let own = dataset.own_properties(values)?.into_iter();
    let sent = own.filter_map(|(name, value)| {
        let is_text = match DatasetProperty::from_name(&name) {
            _ if name.contains(':') => true,
            Some(native) if is_sent(native, dataset.is_snapshot()) => native.values().is_text(),
            _ => return None,
        };
        let value = match is_text {
            true => SentValue::Text(text(&value)?),
            false => SentValue::Number(value.first_u64()?),
        };
        Some((name, value))
    });
    Ok(sent.collect())
}

fn is_sent(property: DatasetProperty, of_snapshot: bool) -> bool {
    property.is_settable()
        && property.storage() == Storage::Properties
        && (!of_snapshot || property.datasets().include(DatasetKind::Snapshot))
}

/// The text of NUL-terminated bytes.
fn text(value: &ZapValue) -> Option<NvString> {
    let bytes = value.as_bytes()?;
    NvString::new(bytes.strip_suffix(&[0]).unwrap_or(bytes)).ok()
}
