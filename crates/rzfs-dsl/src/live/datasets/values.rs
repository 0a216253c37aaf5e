//! Effective property values in the syncing txg (spec 04, section 13.2).

use crate::dataset::limits::MAX_DEPTH;
use crate::dataset::property::Inheritance;
use crate::live::LiveError;
use crate::live::datasets::dir::Directories;
use crate::live::datasets::policy;
use crate::mos::live::MosTx;
use crate::mos::property_values::{Owner, StoredValue};
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_format::ObjectId;
use rzfs_zap::ZapValue;

/// The effective value of a property in a directory; `None` when the default applies.
pub(crate) fn in_force(
    mos: &MosTx<'_>,
    dirs: &mut Directories,
    dir: ObjectId,
    name: &str,
    inheritance: Inheritance,
) -> Result<Option<ZapValue>, LiveError> {
    let mut level = Some(dir);
    for _ in 0..MAX_DEPTH {
        let Some(current) = level else { break };
        let (properties, parent) = {
            let dir = dirs.get(mos, current)?;
            (dir.properties, dir.parent)
        };
        if let Some(zap) = properties {
            let stored = StoredValue::read(mos, (zap, Owner::Directory), name)?;
            if let Some((value, _)) = stored.in_force() {
                return Ok(Some(value.clone()));
            }
        }
        if inheritance != Inheritance::Inherited {
            break;
        }
        level = parent;
    }
    Ok(None)
}

/// How the blocks of a directory's head are written.
pub(crate) fn policy_of_dir(
    mos: &MosTx<'_>,
    dirs: &mut Directories,
    dir: ObjectId,
    has_lz4: bool,
) -> Result<ObjsetPolicy, LiveError> {
    policy::of_properties(has_lz4, |property| {
        let value = in_force(mos, dirs, dir, property.name(), property.inheritance())?;
        let number = value.and_then(|value| value.first_u64()).or(property.default_number());
        Ok(number.unwrap_or(0))
    })
}
