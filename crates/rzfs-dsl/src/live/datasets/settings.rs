//! What the properties of a dataset that is open say at this moment.

use crate::dataset::property::DatasetProperty;
use crate::dataset::{Dataset, DatasetError};
use std::collections::BTreeMap;

/// The numbers of a dataset's properties in force, in the form in which they are stored.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DatasetSettings {
    numbers: BTreeMap<DatasetProperty, u64>,
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
        for property in DatasetProperty::ALL {
            if let Some(number) = dataset.stored_number(*property)? {
                numbers.insert(*property, number);
            }
        }
        Ok(Self { numbers })
    }

    /// The number of a property; `None` for those that are texts or cannot be set.
    #[must_use]
    pub fn number(&self, property: DatasetProperty) -> Option<u64> {
        self.numbers.get(&property).copied()
    }
}
