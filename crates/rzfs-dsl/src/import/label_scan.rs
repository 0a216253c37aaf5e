//! Reading the labels of devices (spec 01, sections 1.3 and 1.6).

use super::device_reads::{DeviceRead, read_all};
use super::device_source::Candidate;
use rzfs_blockdev::{BlockDevice, DeviceError, IoBuffer};
use rzfs_format::config::LabelConfig;
use rzfs_format::label::{
    self, BOOT_ENV_OFFSET, BOOT_ENV_SIZE, BootEnvironment, CONFIG_OFFSET, CONFIG_SIZE, LABELS,
    LabelIndex, LeafSize,
};
use rzfs_format::nvlist::NvList;
use rzfs_format::{FormatError, Guid, Txg};
use rzfs_vdev::label::verified_order;
use std::sync::Arc;

/// Devices whose labels are read together; bounds the memory of a scan to about 30 MiB.
const DEVICES_AT_ONCE: usize = 64;

/// Why a label has no usable configuration.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The device cannot be read.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The list is missing or damaged.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Whether a label's checksum verifies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LabelTrust {
    /// The checksum is wrong: the configuration may be torn or foreign.
    Unverified,
    /// The checksum is right.
    Verified,
}

/// The stored configuration of one label.
#[derive(Clone, PartialEq, Debug)]
pub struct RawLabel {
    /// The configuration.
    pub config: Arc<NvList>,
    /// Whether its checksum is right.
    pub trust: LabelTrust,
}

/// Reads the configurations of a device's four labels; `None` when the device is too small to have
/// any.
#[must_use]
pub fn read_labels(
    device: &Arc<dyn BlockDevice>,
) -> Option<[Result<RawLabel, LabelError>; LABELS]> {
    let size = LeafSize::of_device(device.geometry().size)?;
    let mut results = read_all(&config_reads(device, size)).into_iter();
    Some(LabelIndex::ALL.map(|index| {
        let offset = size.label_offset(index) + CONFIG_OFFSET;
        let eof = || LabelError::Format(FormatError::invalid("label", "it was not read"));
        decode(results.next().ok_or_else(eof)?, offset)
    }))
}

/// Reads the boot environment: the first good copy, `None` when there is none.
#[must_use]
pub fn read_boot_environment(device: &Arc<dyn BlockDevice>) -> Option<BootEnvironment> {
    let size = LeafSize::of_device(device.geometry().size)?;
    let offsets = LabelIndex::ALL.map(|index| size.label_offset(index) + BOOT_ENV_OFFSET);
    let reads =
        offsets.map(|offset| DeviceRead { device: Arc::clone(device), offset, len: BOOT_ENV_SIZE });
    let blocks = read_all(&reads).into_iter().zip(offsets);
    let good = blocks.filter_map(|(block, offset)| {
        let block = block.ok()?;
        verified_order(&block, offset).map(|_| block)
    });
    good.into_iter().find_map(|block| BootEnvironment::decode(&block).ok())
}

fn config_reads(device: &Arc<dyn BlockDevice>, size: LeafSize) -> [DeviceRead; LABELS] {
    LabelIndex::ALL.map(|index| DeviceRead {
        device: Arc::clone(device),
        offset: size.label_offset(index) + CONFIG_OFFSET,
        len: CONFIG_SIZE,
    })
}

fn decode(block: Result<IoBuffer, DeviceError>, offset: u64) -> Result<RawLabel, LabelError> {
    let block = block?;
    let trust = match verified_order(&block, offset) {
        Some(_) => LabelTrust::Verified,
        None => LabelTrust::Unverified,
    };
    Ok(RawLabel { config: Arc::new(label::decode_config(&block)?), trust })
}

/// A usable label of a device.
#[derive(Clone, Debug)]
pub(super) struct DeviceLabel {
    pub(super) config: Arc<LabelConfig>,
    pub(super) trust: LabelTrust,
}

/// A device with its labels.
#[derive(Clone, Debug)]
pub(super) struct LabelledDevice {
    pub(super) device: Arc<dyn BlockDevice>,
    /// Names of the device, the preferred one first.
    pub(super) paths: Vec<String>,
    /// Usable labels in their order; at least one.
    pub(super) labels: Vec<DeviceLabel>,
}

impl LabelledDevice {
    /// The guid in most of its labels, verified ones first.
    pub(super) fn guid(&self) -> Option<Guid> {
        self.labels.iter().max_by_key(|label| label.trust).map(|label| label.config.guid())
    }

    /// The newest label with this trust that is not younger than `limit`. Labels of spares and
    /// cache devices have no age.
    pub(super) fn newest(&self, trust: LabelTrust, limit: Option<Txg>) -> Option<&LabelConfig> {
        let age = |label: &DeviceLabel| label.config.member().map(|member| member.pool.txg);
        let usable = self.labels.iter().filter(|label| {
            label.trust >= trust && limit.is_none_or(|limit| age(label) <= Some(limit))
        });
        usable.max_by_key(|label| age(label)).map(|label| &*label.config)
    }

    /// The path remembered by a configuration, if the device has it, else its first.
    pub(super) fn path(&self, remembered: Option<&[u8]>) -> Option<&str> {
        let same = |path: &&String| remembered.is_some_and(|known| known == path.as_bytes());
        self.paths.iter().find(same).or(self.paths.first()).map(String::as_str)
    }
}

/// Reads the labels of all candidates; those without a usable one are dropped.
pub(super) fn scan(candidates: Vec<Candidate>) -> Vec<LabelledDevice> {
    let mut found = Vec::new();
    let mut candidates = candidates.into_iter();
    loop {
        let batch: Vec<Candidate> = candidates.by_ref().take(DEVICES_AT_ONCE).collect();
        if batch.is_empty() {
            return found;
        }
        let reads: Vec<DeviceRead> = batch
            .iter()
            .flat_map(|candidate| config_reads(&candidate.device, candidate.size))
            .collect();
        let mut results = read_all(&reads).into_iter().zip(reads);
        for Candidate { device, paths, .. } in batch {
            let mut labels: Vec<DeviceLabel> = Vec::new();
            for (block, read) in results.by_ref().take(LABELS) {
                labels.extend(usable(block, read.offset, &labels));
            }
            if !labels.is_empty() {
                found.push(LabelledDevice { device, paths, labels });
            }
        }
    }
}

/// The label in a block, sharing its configuration with an equal one.
fn usable(
    block: Result<IoBuffer, DeviceError>,
    offset: u64,
    known: &[DeviceLabel],
) -> Option<DeviceLabel> {
    let raw = decode(block, offset).ok()?;
    let config = LabelConfig::from_list(&raw.config).ok()?;
    let same = known.iter().find(|label| *label.config == config);
    let config = same.map_or_else(|| Arc::new(config), |label| Arc::clone(&label.config));
    Some(DeviceLabel { config, trust: raw.trust })
}
