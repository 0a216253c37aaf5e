//! Erasing labels (`zpool labelclear`; spec 01, section 12).

use super::inspect::{DeviceUse, PoolUse, find_labels};
use super::io::{self, LabelWrite};
use rzfs_blockdev::{BlockDevice, DeviceError};
use rzfs_format::label::{LABEL_SIZE, LeafSize, START_SIZE};
use std::sync::Arc;

/// Bytes of the header of a cache device, which follows the labels and the boot area.
const CACHE_HEADER_SIZE: usize = 4096;

/// Which labels may be erased.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClearMode {
    /// Those of destroyed pools, unused spares and cache devices.
    Careful,
    /// Those of any pool that is not imported here.
    Force,
}

/// Why labels are not erased.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClearError {
    /// There is no label.
    #[error("failed to read label from {device}")]
    NoLabel {
        /// The device.
        device: Arc<str>,
    },
    /// The device is part of a pool that is imported here.
    #[error("{device} is a member (ACTIVE) of pool \"{pool}\"")]
    Active {
        /// The device.
        device: Arc<str>,
        /// The pool.
        pool: String,
    },
    /// The device is part of an exported pool.
    #[error(
        "use '-f' to override the following error:\n{device} is a member of exported pool \"{pool}\""
    )]
    Exported {
        /// The device.
        device: Arc<str>,
        /// The pool.
        pool: String,
    },
    /// The device is part of a pool that was not exported.
    #[error(
        "use '-f' to override the following error:\n{device} is a member of potentially active pool \"{pool}\""
    )]
    PotentiallyActive {
        /// The device.
        device: Arc<str>,
        /// The pool.
        pool: String,
    },
    /// The device fails.
    #[error("failed to clear label for {device}: {source}")]
    Device {
        /// The device.
        device: Arc<str>,
        /// The error.
        source: DeviceError,
    },
}

/// Zeroes all labels of a device with valid configurations, durably, and returns their number.
/// `is_imported` returns whether the pool with this guid is imported here.
///
/// # Errors
/// [`ClearError`]: there are none, the pool needs them, or the device fails.
pub fn clear_labels(
    device: &Arc<dyn BlockDevice>,
    mode: ClearMode,
    is_imported: impl Fn(rzfs_format::Guid) -> bool,
) -> Result<usize, ClearError> {
    let name = || Arc::<str>::from(device.name());
    let labels = find_labels(device.as_ref());
    let size = LeafSize::of_device(device.geometry().size);
    let (Some(size), false) = (size, labels.is_empty()) else {
        return Err(ClearError::NoLabel { device: name() });
    };
    let is_used_by = DeviceUse::from_labels(&labels);
    if let DeviceUse::Member { pool, state, .. } = &is_used_by {
        let (device, forced) = (name(), mode == ClearMode::Force);
        let pool_name = pool.name.clone();
        match state {
            _ if is_imported(pool.guid) => {
                return Err(ClearError::Active { device, pool: pool_name });
            }
            PoolUse::Exported if !forced => {
                return Err(ClearError::Exported { device, pool: pool_name });
            }
            PoolUse::Active if !forced => {
                return Err(ClearError::PotentiallyActive { device, pool: pool_name });
            }
            _ => {}
        }
    }
    let mut writes: Vec<LabelWrite<'_>> = labels
        .iter()
        .map(|label| {
            let offset = size.label_offset(label.index);
            LabelWrite { device, offset, block: io::zeros(LABEL_SIZE as usize) }
        })
        .collect();
    if matches!(is_used_by, DeviceUse::Cache(_)) {
        let block = io::zeros(CACHE_HEADER_SIZE);
        writes.push(LabelWrite { device, offset: START_SIZE, block });
    }
    let answers = io::write(writes).into_iter().chain(io::flush(std::iter::once(device)));
    let failed = |source| ClearError::Device { device: name(), source };
    answers.collect::<Result<(), _>>().map_err(failed)?;
    Ok(labels.len())
}
