//! The restrictions of mounts, by properties and temporary options.

use super::{Mounter, Nesting};
use crate::mount::contents::Lifetime;
use crate::mount::dataset_mount::DatasetMount;
use crate::protocol::Temporary;
use crate::request::Access;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::dataset::{Dataset, DatasetError};
use rzfs_fuse::Restrictions;
use rzfs_zpl::live::{AccessTimes, Changes, Overrides};
use std::error::Error;
use std::sync::Weak;

impl Mounter {
    /// The restrictions of a mount. The outermost file system decides, except for changes, which
    /// read-only ones refuse themselves, and for restrictions due to lack of trust in any of them.
    pub(in crate::mount) fn restrictions<'a>(
        &self,
        (outermost, temporary): (&Dataset, Temporary),
        others: impl IntoIterator<Item = (&'a Dataset, Temporary)>,
    ) -> Result<Restrictions, DatasetError> {
        let mut restrictions = self.restrictions_of(outermost, temporary)?;
        for (other, temporary) in others {
            let other = self.restrictions_of(other, temporary)?;
            restrictions.read_only &= other.read_only;
            restrictions.no_devices |= other.no_devices;
            restrictions.no_set_id |= other.no_set_id;
        }
        Ok(restrictions)
    }

    pub(super) fn restrictions_of(
        &self,
        dataset: &Dataset,
        temporary: Temporary,
    ) -> Result<Restrictions, DatasetError> {
        let is_on = |property| self.is_on(property, dataset, temporary);
        Ok(Restrictions {
            read_only: is_on(DatasetProperty::ReadOnly)?,
            no_devices: !is_on(DatasetProperty::Devices)?,
            no_set_id: !is_on(DatasetProperty::SetUid)?,
            no_execution: !is_on(DatasetProperty::Exec)?,
            no_access_times: !is_on(DatasetProperty::Atime)?,
        })
    }

    /// Whether a property of a file system is on for its mount.
    ///
    /// The properties of an imported pool are trusted; a pool that is only mounted may come from
    /// anywhere.
    fn is_on(
        &self,
        property: DatasetProperty,
        dataset: &Dataset,
        temporary: Temporary,
    ) -> Result<bool, DatasetError> {
        let is_trusted =
            self.lifetime == Lifetime::Import && self.options.access == Access::ReadWrite;
        match (property, temporary.value(property)) {
            (DatasetProperty::ReadOnly, _) if dataset.is_snapshot() => Ok(true),
            (_, Some(is_on)) => Ok(is_on),
            (DatasetProperty::Devices | DatasetProperty::SetUid, None) if !is_trusted => Ok(false),
            (property, None) => Ok(dataset.text(property)? == "on"),
        }
    }

    /// The settings that override a file system's properties.
    pub(super) fn overrides(
        &self,
        dataset: &Dataset,
        temporary: Temporary,
    ) -> Result<Overrides, DatasetError> {
        let changes = |read_only| if read_only { Changes::Refused } else { Changes::Allowed };
        let access_times = match temporary {
            Temporary { atime: None, relatime: None, .. } => None,
            _ if !self.is_on(DatasetProperty::Atime, dataset, temporary)? => Some(AccessTimes::Off),
            _ if !self.is_on(DatasetProperty::Relatime, dataset, temporary)? => {
                Some(AccessTimes::Always)
            }
            _ => Some(AccessTimes::Relative),
        };
        Ok(Overrides { changes: temporary.readonly.map(changes), access_times })
    }

    /// Has a mount do what properties, and what its file systems do otherwise, say by now; also
    /// while it is used.
    pub(in crate::mount) fn follow(
        &self,
        mount: &mut DatasetMount,
        (outermost, others): (&Dataset, &[(Dataset, Temporary)]),
    ) -> Result<(), Box<dyn Error>> {
        let others = others.iter().map(|(dataset, temporary)| (dataset, *temporary));
        let restrictions = self.restrictions((outermost, mount.temporary), others.clone())?;
        let pool = self.writable.as_ref().and_then(Weak::upgrade);
        let mut overrides = Vec::new();
        for (dataset, temporary) in others.chain([(outermost, mount.temporary)]) {
            let files = pool.as_ref().filter(|_| !dataset.is_snapshot());
            let files = files.and_then(|pool| pool.files_in_use(dataset.name()));
            overrides.extend(files.zip(Some(self.overrides(dataset, temporary)?)));
        }
        let override_properties = || {
            for (files, overrides) in &overrides {
                files.change_options(|all| all.overrides = *overrides);
            }
        };
        // The kernel's dirty data are written before the file system becomes read-only.
        if !restrictions.read_only {
            override_properties();
        }
        let restricted = mount.restrict(restrictions);
        // Files open for writing block the change of the mount, not of the file system.
        override_properties();
        Ok(restricted?)
    }

    /// Changes the temporary options of a mount. A remount repeats the current options, which are
    /// left to the properties.
    pub(in crate::mount) fn remount(
        &self,
        mount: &mut DatasetMount,
        dataset: &Dataset,
        mut asked: Temporary,
    ) -> Result<(), Box<dyn Error>> {
        if self.nesting == Nesting::Grafts {
            return Err("the system lets only root remount".into());
        }
        if asked.readonly == Some(false) && (dataset.is_snapshot() || self.writable.is_none()) {
            let what = if dataset.is_snapshot() { "snapshot" } else { "pool" };
            return Err(format!("{what} is read-only").into());
        }
        if mount.restrictions.read_only {
            // Access times are not kept there, which is repeated as well.
            asked.atime = asked.atime.filter(|is_on| *is_on);
        }
        let before = mount.temporary;
        let is_so = |property, is_on| {
            self.is_on(property, dataset, before).is_ok_and(|is_now| is_now == is_on)
        };
        mount.temporary = asked.filtered(|property, is_on| !is_so(property, is_on)).or(before);
        let followed = self.follow(mount, (dataset, &[]));
        if followed.is_err() {
            mount.temporary = before;
            // The mount is unchanged.
            self.follow(mount, (dataset, &[]))?;
        }
        followed
    }
}
