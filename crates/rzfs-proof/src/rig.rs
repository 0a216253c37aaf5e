//! Pools on simulated devices, with faults, losses and damage on demand.

use crate::crash::Workload;
use crate::{
    OpenPool, ProofError, Settings, differences, open_for_reading, open_pool, read_dataset, record,
    walk,
};
use rzfs_blockdev::{BlockDevice, SimulatedDevice, Simulation};
use rzfs_dsl::Pool;
use rzfs_dsl::import::DeviceSource;
use rzfs_dsl::live::LivePool;
use rzfs_testkit::{FileSystemManifest, ReferencePool};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pool on simulated devices.
#[derive(Debug)]
pub struct Rig {
    workload: Workload,
    name: &'static str,
    /// How its pool is opened.
    pub settings: Settings,
    /// Its devices, by their letters.
    pub devices: BTreeMap<&'static str, Arc<SimulatedDevice>>,
}

impl Rig {
    /// Empty devices for a pool of this workload's shape.
    #[must_use]
    pub fn new(workload: Workload) -> Self {
        let shape = workload.shape();
        let content = |_| vec![0; usize::try_from(shape.device_size).unwrap_or_default()];
        Self::with_contents(workload, shape.devices().map(|letter| (letter, content(letter))))
    }

    fn with_contents(
        workload: Workload,
        contents: impl Iterator<Item = (&'static str, Vec<u8>)>,
    ) -> Self {
        let simulation = Simulation::new(3);
        let device = |(letter, content)| (letter, Arc::new(simulation.device(letter, content)));
        let (name, settings) = (workload.shape().name, workload.settings(3));
        Self { workload, name, settings, devices: contents.map(device).collect() }
    }

    /// The pool `name` made by OpenZFS, on up to three devices; `None` if there are no such images.
    ///
    /// # Errors
    /// The image cannot be read.
    pub fn golden(golden: &str, name: &'static str) -> Result<Option<Self>, ProofError> {
        let Some(golden) = ReferencePool::golden(golden) else { return Ok(None) };
        let images = golden.images().map_err(ProofError::Image)?;
        let contents: Result<Vec<_>, _> = images.into_iter().map(std::fs::read).collect();
        let contents = contents.map_err(ProofError::Image)?;
        let rig = Self::with_contents(Workload::Single, ["A", "B", "C"].into_iter().zip(contents));
        Ok(Some(Self { name, ..rig }))
    }

    /// A copy of the current devices, as if the machine had stopped.
    #[must_use]
    pub fn copy(&self) -> Self {
        let contents = self.devices.iter().map(|(letter, device)| (*letter, device.content()));
        let copy = Self::with_contents(self.workload, contents);
        Self { name: self.name, settings: self.settings.clone(), ..copy }
    }

    /// Makes the pool.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn create(&self) -> Result<OpenPool, ProofError> {
        let as_block = |(letter, device): (&&'static str, &Arc<SimulatedDevice>)| {
            (*letter, Arc::clone(device) as Arc<dyn BlockDevice>)
        };
        let devices = self.devices.iter().map(as_block).collect();
        OpenPool::create(&self.workload.shape(), &devices, &self.settings)
    }

    /// Opens the pool for changes.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn open(&self) -> Result<OpenPool, ProofError> {
        OpenPool::open(&self.sources(), self.name(), &self.settings)
    }

    /// Opens the pool for changes, but none of its file systems.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn open_pool(&self) -> Result<LivePool, ProofError> {
        open_pool(&self.sources(), self.name(), &self.settings)
    }

    /// Opens the pool for reading.
    ///
    /// # Errors
    /// [`ProofError`].
    pub fn read(&self) -> Result<Pool, ProofError> {
        open_for_reading(&self.sources(), self.name(), &self.settings)
    }

    /// The name of the pool, and of its root file system.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The devices, for an import.
    #[must_use]
    pub fn sources(&self) -> Vec<DeviceSource> {
        let device = |device: &Arc<SimulatedDevice>| DeviceSource::Device(Arc::clone(device) as _);
        self.devices.values().map(device).collect()
    }

    /// Repairs all devices, and reattaches them.
    pub fn heal(&self) {
        for device in self.devices.values() {
            device.heal_all();
            device.attach();
        }
    }

    /// Simulates a power failure with an open pool: everything not durable is lost.
    pub fn cut_power(&self, open: OpenPool) {
        self.devices.values().for_each(|device| device.detach());
        open.pool.give_up_waiting();
        drop(open);
        self.heal();
        self.devices.values().for_each(|device| device.lose_cache());
    }

    /// The errors found: the pool must be intact, and its root file system must have these files.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn findings(&self, expected: &FileSystemManifest) -> Result<Vec<String>, ProofError> {
        let pool = self.read()?;
        let found = record(&read_dataset(&pool, self.name())?)?;
        let mut findings = differences(expected, &found);
        findings.extend(walk(&pool)?);
        Ok(findings)
    }
}
