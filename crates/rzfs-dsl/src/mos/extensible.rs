//! Directories and datasets with fields beyond their records: their objects are also ZAPs (spec 04,
//! sections 2.2 and 3.4).

use super::error::MosError;
use crate::live::LiveError;
use crate::mos::MosSource;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use rzfs_dmu::SourceObject;
use rzfs_format::ObjectId;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;

/// Whether the blocks of a directory's or dataset's object are a ZAP.
pub(crate) fn is_extended<M: MosSource>(mos: &M, id: ObjectId) -> Result<bool, M::Error> {
    let object_type = mos.object(id)?.object_type();
    Ok(object_type.map_err(MosError::from)? == ObjectType::ZAP_METADATA)
}

/// The number of a field beyond the record, the first of several (`snapshots_changed` has seconds
/// and nanoseconds); `None` when there is no such field.
pub(crate) fn field<M: MosSource>(
    mos: &M,
    id: ObjectId,
    name: &str,
) -> Result<Option<u64>, M::Error> {
    if !is_extended(mos, id)? {
        return Ok(None);
    }
    let Some(value) = mos.lookup(id, name)? else { return Ok(None) };
    let no_number =
        || MosError::Entry { object: id, name: name.to_owned(), problem: "it is no number" };
    Ok(Some(value.first_u64().ok_or_else(no_number)?))
}

/// Checks that the fields beyond the record of a directory or dataset can be changed.
pub(crate) fn check_fields(mos: &MosTx<'_>, id: ObjectId) -> Result<(), LiveError> {
    if is_extended(mos, id)? { mos.check_zap(id) } else { Ok(()) }
}

/// Turns the blocks of a directory's or dataset's object into a ZAP, unless they are one (spec 04,
/// section 2.2).
pub(crate) fn zapify(
    mos: &MosTx<'_>,
    features: &mut Features,
    id: ObjectId,
) -> Result<(), LiveError> {
    if is_extended(mos, id)? {
        return Ok(());
    }
    mos.zapify(id)?;
    features.add(mos, Feature::ExtensibleDataset, 1)
}

/// Marks a dataset as a user of a feature (spec 04, section 3.4).
pub(crate) fn activate(
    mos: &MosTx<'_>,
    features: &mut Features,
    dataset: ObjectId,
    feature: Feature,
) -> Result<(), LiveError> {
    if !features.is_enabled(feature) {
        return Ok(());
    }
    zapify(mos, features, dataset)?;
    if mos.lookup(dataset, feature.guid())?.is_none() {
        mos.insert(dataset, feature.guid(), 0_u64)?;
        features.add(mos, feature, 1)?;
    }
    Ok(())
}
