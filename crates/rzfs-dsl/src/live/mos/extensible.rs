//! Directories and datasets with fields beyond their records: their objects are ZAPs, too (spec 04,
//! sections 2.2 and 3.4).

use crate::live::LiveError;
use crate::live::mos::MosTx;
use crate::live::mos::features::Features;
use rzfs_format::ObjectId;
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;

/// Whether the blocks of a directory's or dataset's object are a ZAP.
pub(crate) fn is_extended(mos: &MosTx<'_>, id: ObjectId) -> Result<bool, LiveError> {
    Ok(mos.object(id)?.object_type()? == ObjectType::ZAP_METADATA)
}

/// Makes the blocks of a directory's or dataset's object a ZAP, unless they are one (spec 04,
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
