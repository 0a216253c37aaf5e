//! The pool's configuration as written by syncing: the list in the MOS, and the ZAPs of vdevs (spec
//! 01, sections 4 and 6.1; spec 06, section 19.3).

use super::packed_list;
use crate::live::LiveError;
use crate::mos::features::Features;
use crate::mos::live::MosTx;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY, number_key};
use crate::pool::AuxiliaryKind;
use rzfs_format::features::Feature;
use rzfs_format::nvlist::{NvList, NvString, NvValue};
use rzfs_format::{FormatError, ObjectId};
use rzfs_vdev::config::AllocationBias;
use rzfs_vdev::{Vdev, VdevConfig, VdevKind, VdevTree};

pub(crate) const VDEV_ZAPS: &str = "com.delphix:vdev_zap_map";

/// The names of active features stored in labels.
pub(crate) fn features_for_read(features: &Features) -> Result<Vec<NvString>, FormatError> {
    features.in_labels().map(|feature| NvString::new(feature.guid())).collect()
}

/// Writes the list of spares or of cache devices; a pool that never had any has no object for it.
pub(crate) fn write_auxiliary<'v>(
    mos: &MosTx<'_>,
    kind: AuxiliaryKind,
    vdevs: impl Iterator<Item = &'v VdevConfig>,
) -> Result<(), LiveError> {
    let mut vdevs = vdevs.peekable();
    let id = match mos.object_of(DIRECTORY, kind.key())? {
        Some(id) => id,
        None if vdevs.peek().is_none() => return Ok(()),
        None => packed_list::create(mos, kind.key())?,
    };
    let corrupt = LiveError::corrupt(id);
    let lists = vdevs.map(VdevConfig::to_auxiliary_nvlist);
    let lists = lists.collect::<Result<Vec<_>, _>>().map_err(&corrupt)?;
    let mut list = NvList::new();
    list.insert(kind.key(), NvValue::ListArray(lists.into())).map_err(corrupt)?;
    packed_list::write(mos, id, &list)
}

/// Creates the missing ZAPs of vdevs, and lists them.
pub(crate) fn create_vdev_zaps(
    mos: &MosTx<'_>,
    features: &mut Features,
    vdevs: &VdevTree,
) -> Result<(), LiveError> {
    let map = match mos.object_of(DIRECTORY, VDEV_ZAPS)? {
        Some(map) => map,
        None => {
            let map = mos.create_held_zap()?;
            mos.insert(DIRECTORY, VDEV_ZAPS, map.get())?;
            map
        }
    };
    let create = || -> Result<ObjectId, LiveError> {
        let id = mos.create_held_zap()?;
        mos.insert(map, &number_key(id.get()), id.get())?;
        Ok(id)
    };
    let root = vdevs.root();
    if features.is_enabled(Feature::VdevZapsV2) && root.own_config().root_zap.is_none() {
        let id = create()?;
        vdevs.change(root.guid(), |config| config.root_zap = Some(id));
        if !features.is_active(Feature::VdevZapsV2) {
            features.add(mos, Feature::VdevZapsV2, 1)?;
        }
    }
    for top in vdevs.top_levels().filter(|top| has_zap(*top)) {
        for leaf in top.leaves_below() {
            if leaf.own_config().leaf.zap.is_none() {
                let id = create()?;
                vdevs.change(leaf.guid(), |config| config.leaf.zap = Some(id));
            }
        }
        if top.own_config().top.zap.is_none() {
            let id = create()?;
            vdevs.change(top.guid(), |config| config.top.zap = Some(id));
            let bias = top.allocation_bias();
            if let Some(bias) = bias {
                mos.insert(id, "org.zfsonlinux:allocation_bias", bias.name())?;
            }
            if matches!(bias, Some(AllocationBias::Special | AllocationBias::Dedup)) {
                features.add(mos, Feature::AllocationClasses, 1)?;
            }
            if top.kind() == VdevKind::Draid {
                features.add(mos, Feature::Draid, 1)?;
            }
        }
    }
    Ok(())
}

fn has_zap(top: Vdev<'_>) -> bool {
    !matches!(top.kind(), VdevKind::Hole | VdevKind::Missing)
}
