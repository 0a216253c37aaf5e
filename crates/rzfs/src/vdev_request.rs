//! Vdevs to be created, of a new pool or in addition to an existing one's.

use rzfs_blockdev::OpenOptions;
use rzfs_vdev::create::{
    DeviceOpener, LocalPools, NewDevice, Objections, OpenFailure, SpecError, VdevSpec,
};

/// Why vdevs cannot be made of devices; the messages are those of `zpool create` and `zpool add`.
#[derive(Debug, thiserror::Error)]
pub enum VdevRequestError {
    /// The words do not describe vdevs.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenFailure),
    /// There are objections to using the devices.
    #[error(transparent)]
    Objections(#[from] Objections),
}

/// Vdevs in words or as open devices, and the rules for devices.
#[derive(Clone, Default, Debug)]
pub(crate) struct VdevRequest {
    pub(crate) words: Vec<String>,
    pub(crate) devices: Option<VdevSpec<NewDevice>>,
    /// Size of missing files, which are then created.
    pub(crate) missing_file_size: Option<u64>,
    /// Pools in use on this host, whose devices are refused.
    pub(crate) local: LocalPools,
}

impl VdevRequest {
    /// Adds words.
    pub(crate) fn extend<W: AsRef<str>>(&mut self, words: impl IntoIterator<Item = W>) {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
    }

    /// Opens the devices; `check` may refuse the words first.
    pub(crate) fn open(
        &self,
        check: impl FnOnce(&VdevSpec<String>) -> Result<(), SpecError>,
    ) -> Result<(DeviceOpener, VdevSpec<NewDevice>), VdevRequestError> {
        let mut opener = DeviceOpener::new(OpenOptions::new(), self.missing_file_size);
        if let Some(devices) = &self.devices {
            return Ok((opener, devices.clone()));
        }
        let spec = VdevSpec::parse(&self.words)?;
        check(&spec)?;
        let devices = spec.open(&mut opener)?;
        Ok((opener, devices))
    }
}
