//! The order of datasets in lists (spec 09, section 3.1).

use rzfs_format::property::DatasetProperty;
use rzfs_server::protocol::{DatasetKind, DatasetReport, PropertyValue};
use std::cmp::Ordering;

/// A property to sort by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SortKey {
    /// Its name.
    pub(crate) property: String,
    /// `-S`.
    pub(crate) descending: bool,
}

/// Sorts by the keys; ties, or everything without keys, by name.
pub(crate) fn sort(datasets: &mut [DatasetReport], keys: &[SortKey]) {
    datasets.sort_by(|a, b| {
        let by_key = |key: &SortKey| compare_values(a, b, key);
        let first = keys.iter().map(by_key).find(|order| order.is_ne());
        first.unwrap_or_else(|| compare_names(a, b))
    });
}

/// Datasets without a value come last in either direction.
fn compare_values(a: &DatasetReport, b: &DatasetReport, key: &SortKey) -> Ordering {
    if key.property == DatasetProperty::Name.name() {
        let order = a.name.cmp(&b.name);
        return if key.descending { order.reverse() } else { order };
    }
    let value = |dataset: &DatasetReport| {
        let value = dataset.property(&key.property).map(|property| property.value.clone());
        value.filter(|value| *value != PropertyValue::Unset)
    };
    let order = match (value(a), value(b)) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return Ordering::Greater,
        (Some(_), None) => return Ordering::Less,
        (Some(PropertyValue::Number(a)), Some(PropertyValue::Number(b))) => a.cmp(&b),
        (Some(a), Some(b)) => text(&a).cmp(&text(&b)),
    };
    if key.descending { order.reverse() } else { order }
}

fn text(value: &PropertyValue) -> String {
    match value {
        PropertyValue::Unset => String::new(),
        PropertyValue::Number(number) => number.to_string(),
        PropertyValue::Text(text) => text.clone(),
    }
}

/// By the dataset's name; then the dataset itself, its snapshots by creation, its bookmarks.
pub(crate) fn compare_names(a: &DatasetReport, b: &DatasetReport) -> Ordering {
    let dataset = |report: &DatasetReport| -> usize {
        report.name.find(['@', '#']).unwrap_or(report.name.len())
    };
    let rank = |report: &DatasetReport| match report.kind {
        DatasetKind::Filesystem | DatasetKind::Volume => 0,
        DatasetKind::Snapshot => 1,
        DatasetKind::Bookmark => 2,
    };
    let (base_a, base_b) = (&a.name[..dataset(a)], &b.name[..dataset(b)]);
    base_a.cmp(base_b).then_with(|| rank(a).cmp(&rank(b))).then_with(|| match a.kind {
        DatasetKind::Snapshot => a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name)),
        _ => a.name.cmp(&b.name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_server::protocol::{PropertyReport, PropertySource};

    fn dataset(name: &str, created: u64, used: Option<u64>) -> DatasetReport {
        let kind = match name {
            _ if name.contains('@') => DatasetKind::Snapshot,
            _ if name.contains('#') => DatasetKind::Bookmark,
            _ => DatasetKind::Filesystem,
        };
        let property = |used| PropertyReport {
            name: "used".into(),
            value: PropertyValue::Number(used),
            source: PropertySource::None,
            received: None,
        };
        DatasetReport {
            name: name.into(),
            kind,
            created,
            inconsistent: false,
            properties: used.map(property).into_iter().collect(),
        }
    }

    fn sorted(keys: &[SortKey]) -> Vec<String> {
        let mut datasets = vec![
            dataset("t/a/b", 9, Some(5)),
            dataset("t/a#m", 5, None),
            dataset("t/a@a", 7, Some(1)),
            dataset("t/a@z", 6, Some(9)),
            dataset("t/a", 3, Some(5)),
            dataset("t", 1, Some(20)),
        ];
        sort(&mut datasets, keys);
        datasets.into_iter().map(|dataset| dataset.name).collect()
    }

    #[test]
    fn snapshots_follow_their_dataset_by_age() {
        assert_eq!(sorted(&[]), ["t", "t/a", "t/a@z", "t/a@a", "t/a#m", "t/a/b"]);
    }

    #[test]
    fn missing_values_sort_last_both_ways() {
        let by_used = |descending| [SortKey { property: "used".into(), descending }];
        assert_eq!(sorted(&by_used(false)), ["t/a@a", "t/a", "t/a/b", "t/a@z", "t", "t/a#m"]);
        assert_eq!(sorted(&by_used(true)), ["t", "t/a@z", "t/a", "t/a/b", "t/a@a", "t/a#m"]);
    }
}
