//! Labels of a change of the pool's guid that was never committed (spec 01, section 3.7).
//!
//! A txg that gives the pool a new guid writes it to the labels L0 and L2 before its uberblock.
//! After a crash between the two, these labels are the newest and name a pool that does not exist;
//! L1 and L3 still have the guid that matches the last uberblock:
//!
//! ```text
//! L0, L2   new guid, txg N        an uberblock of txg N or later anywhere: the new guid
//! L1, L3   old guid, txg < N      none: the old guid, and L0 and L2 do not count
//! ```
//! The uberblock may have reached only some of the devices, so all of them are examined together.

use super::label_scan::{DeviceLabel, LabelTrust, LabelledDevice};
use super::uberblock_scan::read_rings;
use rzfs_format::config::{LabelConfig, MemberLabel};
use rzfs_format::label::UberblockRing;
use rzfs_format::{Guid, Txg};
use rzfs_vdev::VdevConfig;
use std::collections::BTreeSet;

/// Discards labels with a new guid on devices that also have labels with an older one, if the
/// change was not committed. Devices with consistent labels are left alone; if all are, nothing is
/// read.
pub(super) fn settle(devices: &mut [LabelledDevice]) {
    let mut committed = BTreeSet::new();
    // Each iteration finds that a guid was committed, or removes some labels of a device.
    loop {
        let disputed = devices.iter().filter_map(disputed_guid);
        let Some(guid) = disputed.into_iter().find(|guid| !committed.contains(guid)) else {
            return;
        };
        if is_committed(guid, devices) {
            committed.insert(guid);
            continue;
        }
        tracing::debug!(%guid, "a change of the pool's guid was not committed");
        for device in devices.iter_mut().filter(|device| disputed_guid(device) == Some(guid)) {
            device.labels.retain(|label| pool_of(label) != Some(guid));
        }
    }
}

/// The pool guid in the newest label of a device, if another label has the same leaf in a pool with
/// another guid.
fn disputed_guid(device: &LabelledDevice) -> Option<Guid> {
    let newest = device.newest(LabelTrust::Unverified, None)?.member()?;
    let is_other = |label: &DeviceLabel| {
        label.trust == LabelTrust::Verified
            && label.config.member().is_some_and(|member| {
                member.guid == newest.guid && member.pool.guid != newest.pool.guid
            })
    };
    device.labels.iter().any(is_other).then_some(newest.pool.guid)
}

/// Whether a device that has a label with this guid has an uberblock at least as new as the first
/// of these labels. Labels with wrong checksums prove nothing: those with right ones were durable
/// before the uberblock was written.
fn is_committed(guid: Guid, devices: &[LabelledDevice]) -> bool {
    let vouching = || devices.iter().filter_map(|device| Some((device, vouched(device, guid)?)));
    let Some(first) = vouching().map(|(_, label)| label.pool.txg).min() else { return false };
    vouching().any(|(device, label)| newest_uberblock(device, label) >= Some(first))
}

/// The oldest label with this guid that has a right checksum.
fn vouched(device: &LabelledDevice, guid: Guid) -> Option<&MemberLabel> {
    let verified = device.labels.iter().filter(|label| label.trust == LabelTrust::Verified);
    let members = verified.filter_map(|label| label.config.member());
    members.filter(|member| member.pool.guid == guid).min_by_key(|member| member.pool.txg)
}

/// The txg of a device's newest uberblock.
fn newest_uberblock(device: &LabelledDevice, label: &MemberLabel) -> Option<Txg> {
    let ashift = VdevConfig::from_nvlist(&label.pool.vdev_tree).ok()?.top.ashift?;
    let slots = read_rings(&device.device, UberblockRing::of_ashift(ashift));
    slots.into_iter().map(|slot| slot.uberblock.txg).max()
}

fn pool_of(label: &DeviceLabel) -> Option<Guid> {
    let config: &LabelConfig = &label.config;
    config.member().map(|member| member.pool.guid)
}
