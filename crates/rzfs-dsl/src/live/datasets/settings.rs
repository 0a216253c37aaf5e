//! The current property values of an open dataset.

use crate::dataset::property::DatasetProperty;
use crate::dataset::{Dataset, DatasetError};
use std::collections::BTreeMap;

/// The numbers of a dataset's effective properties, in stored form.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DatasetSettings {
    numbers: BTreeMap<DatasetProperty, u64>,
}

/// An observer of property changes. The syncing thread notifies it, for which it must not wait.
pub trait SettingsObserver: Send + Sync {
    /// Properties have changed.
    fn settings_changed(&self, settings: &DatasetSettings);
}

impl DatasetSettings {
    /// The properties of a dataset on disk.
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

    /// The number of a property; `None` for texts and properties that cannot be set.
    #[must_use]
    pub fn number(&self, property: DatasetProperty) -> Option<u64> {
        self.numbers.get(&property).copied()
    }
}
