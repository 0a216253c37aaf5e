//! Datasets as JSON (spec 09, section 1.5).

use super::column::{DatasetColumn, values_of};
use super::name::pool_of;
use crate::console::{Console, Outcome};
use crate::getopt::Word;
use crate::json::{Envelope, JSON_INT, Numbers};
use crate::property::Writer;
use rzfs_server::protocol::{
    DatasetKind, DatasetReport, PropertyReport, PropertySource, PropertyValue,
};
use serde_json::{Map, Value};

/// The format of datasets.
#[derive(Clone, Debug)]
pub(super) struct DatasetJson {
    numbers: Numbers,
    writer: Writer,
}

impl DatasetJson {
    /// The format for the options of a command.
    pub(super) fn of(words: &[Word], writer: &Writer) -> Self {
        let integers = words.contains(&Word::Flag(JSON_INT));
        let numbers = if integers { Numbers::Integers } else { Numbers::Strings };
        Self { numbers, writer: writer.clone() }
    }

    /// Prints datasets with these properties, or with all of theirs if there are no columns.
    pub(super) fn print(
        &self,
        command: &str,
        datasets: &[DatasetReport],
        columns: &[DatasetColumn],
        console: &mut Console<'_>,
    ) -> Outcome {
        let mut envelope = Envelope::new(command);
        let members = datasets.iter().map(|dataset| {
            let mut head = self.head(dataset);
            head.insert("properties".to_owned(), self.properties(dataset, columns).into());
            (dataset.name.clone(), head.into())
        });
        envelope.insert("datasets", members.collect::<Map<_, _>>());
        envelope.print(console.out)
    }

    fn head(&self, dataset: &DatasetReport) -> Map<String, Value> {
        let mut head = Map::new();
        let mut add = |name: &str, value: Value| {
            head.insert(name.to_owned(), value);
        };
        add("name", dataset.name.as_str().into());
        add("type", dataset.kind.name().to_uppercase().into());
        add("pool", pool_of(&dataset.name).into());
        add("createtxg", self.numbers.exact(dataset.created));
        if let Some((parent, name)) = dataset.name.split_once('@')
            && dataset.kind == DatasetKind::Snapshot
        {
            add("dataset", parent.into());
            add("snapshot_name", name.into());
        }
        head
    }

    fn properties(&self, dataset: &DatasetReport, columns: &[DatasetColumn]) -> Map<String, Value> {
        let value = |property: &PropertyReport| {
            let values = values_of(&property.name);
            let value = self.numbers.property(values, property, &self.writer);
            (property.name.clone(), value)
        };
        if columns.is_empty() {
            return dataset.properties.iter().map(value).collect();
        }
        let columns = columns.iter().filter(|column| !column.is_name());
        let of_column = |column: &DatasetColumn| match dataset.property(column.name()) {
            Some(property) => value(property),
            None => value(&PropertyReport {
                name: column.name().to_owned(),
                value: PropertyValue::Unset,
                source: PropertySource::None,
                received: None,
            }),
        };
        columns.map(of_column).collect()
    }
}
