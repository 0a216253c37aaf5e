//! What the properties of a dataset that is open say at this moment.

use crate::dataset::property::SETTABLE;
use crate::dataset::{Dataset, DatasetError};
use std::collections::BTreeMap;

/// The numbers of a dataset's properties in force, in the form in which they are stored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DatasetSettings {
    numbers: BTreeMap<&'static str, u64>,
}

/// Whoever behaves as properties say. It is told about changes by the thread that syncs, for which
/// it must not wait.
pub trait SettingsObserver: Send + Sync {
    /// Properties have changed.
    fn settings_changed(&self, settings: &DatasetSettings);
}

impl DatasetSettings {
    /// The properties of a dataset as it is on disk.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of_dataset(dataset: &Dataset) -> Result<Self, DatasetError> {
        let mut numbers = BTreeMap::new();
        for property in SETTABLE {
            if let Some(number) = dataset.stored_number(property.name)? {
                numbers.insert(property.name, number);
            }
        }
        Ok(Self { numbers })
    }

    /// The number of a property; `None` for properties that are texts or do not exist.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }
}
