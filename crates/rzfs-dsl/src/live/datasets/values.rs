//! Values of properties in force, as the syncing txg has them (spec 04, section 13.2).

use crate::dataset::property::{Inheritance, NativeProperty};
use crate::live::LiveError;
use crate::live::datasets::dir::Directories;
use crate::live::datasets::policy;
use crate::live::mos::MosTx;
use crate::live::space::limits::MAX_DEPTH;
use rzfs_dmu::write::ObjsetPolicy;
use rzfs_format::ObjectId;
use rzfs_zap::ZapValue;

/// The value of a property in force in a directory; `None` when the default holds.
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
        if let Some(zap) = properties
            && let Some(value) = own_value(mos, zap, name)?
        {
            return Ok(Some(value));
        }
        if inheritance == Inheritance::Own {
            break;
        }
        level = parent;
    }
    Ok(None)
}

/// The value of a property that a ZAP of properties gives.
fn own_value(mos: &MosTx<'_>, zap: ObjectId, name: &str) -> Result<Option<ZapValue>, LiveError> {
    let get = |suffix: &str| mos.lookup(zap, format!("{name}{suffix}").as_str());
    if let Some(value) = get("$iuv")? {
        return Ok(Some(value));
    }
    if let Some(value) = get("")? {
        return Ok(Some(value));
    }
    match get("$inherit")? {
        Some(_) => Ok(None),
        None => get("$recvd"),
    }
}

/// How the blocks of a directory's head are written.
pub(crate) fn policy_of_dir(
    mos: &MosTx<'_>,
    dirs: &mut Directories,
    dir: ObjectId,
    has_lz4: bool,
) -> Result<ObjsetPolicy, LiveError> {
    policy::of_properties(has_lz4, |name| {
        let Some(native) = NativeProperty::find(name) else { return Ok(0) };
        let value = in_force(mos, dirs, dir, name, native.inheritance)?;
        let number = value.and_then(|value| value.first_u64()).or(native.default_number());
        Ok(number.unwrap_or(0))
    })
}
