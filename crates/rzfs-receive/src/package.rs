//! Validation of the head of a package: its names and identities must be possible ones (spec 08,
//! section 6.3).

use rzfs_dsl::dataset::DatasetName;
use rzfs_format::Guid;
use rzfs_stream::{Package, PackageExtent, PackagedDataset};
use std::collections::BTreeSet;

/// A problem in the head of a package.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PackageProblem {
    /// The name is invalid for a dataset or snapshot.
    #[error("'{}' is no name", .name.escape_debug())]
    Name {
        /// The name.
        name: String,
    },
    /// A dataset is not below the sent one.
    #[error("'{name}' is not part of '{top}'")]
    Elsewhere {
        /// The dataset.
        name: String,
        /// The sent dataset.
        top: String,
    },
    /// A name, or a snapshot of one dataset, appears twice.
    #[error("'{name}' is there twice")]
    Twice {
        /// The second one.
        name: String,
    },
    /// A dataset or a snapshot has an excessive number of properties.
    #[error("'{name}' has too many properties")]
    Properties {
        /// The dataset or snapshot.
        name: String,
    },
    /// A package of one dataset contains several.
    #[error("there is more than one file system in it")]
    Several,
}

/// Maximum number of properties of a dataset or snapshot.
const MOST_PROPERTIES: usize = 1 << 12;

/// Validates a package of `top`, a snapshot.
pub(crate) fn check(package: &Package, top: &str) -> Result<(), PackageProblem> {
    let bad = |name: &str| PackageProblem::Name { name: name.to_owned() };
    let top = named(top).filter(|top| top.snapshot().is_some()).ok_or_else(|| bad(top))?.head();
    if package.extent == PackageExtent::One && package.datasets.len() > 1 {
        return Err(PackageProblem::Several);
    }
    for last in package.from.iter().chain([&package.to]) {
        let name = format!("{top}@{last}");
        named(&name).ok_or_else(|| bad(last))?;
    }
    let mut seen = BTreeSet::new();
    for dataset in &package.datasets {
        let name = dataset.name.as_str();
        named(name).filter(|name| name.snapshot().is_none()).ok_or_else(|| bad(name))?;
        let rest = name.strip_prefix(top);
        if !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) {
            return Err(PackageProblem::Elsewhere { name: name.to_owned(), top: top.to_owned() });
        }
        check_properties(dataset)?;
        let is_new = seen.insert(name.to_owned()) && snapshots_differ(dataset)?;
        if !is_new {
            return Err(PackageProblem::Twice { name: name.to_owned() });
        }
    }
    Ok(())
}

fn check_properties(dataset: &PackagedDataset) -> Result<(), PackageProblem> {
    let is_too_much = |properties: &Option<Vec<_>>| {
        properties.as_ref().is_some_and(|properties| properties.len() > MOST_PROPERTIES)
    };
    if is_too_much(&dataset.properties) {
        return Err(PackageProblem::Properties { name: dataset.name.clone() });
    }
    match dataset.snapshots.iter().find(|snapshot| is_too_much(&snapshot.properties)) {
        Some(snapshot) => {
            let name = format!("{}@{}", dataset.name, snapshot.name);
            Err(PackageProblem::Properties { name })
        }
        None => Ok(()),
    }
}

/// A name other than the engine's own.
fn named(name: &str) -> Option<DatasetName<'_>> {
    DatasetName::parse(name).filter(|_| !name.contains('%'))
}

/// Whether all snapshots of a dataset have different names and identities. Those of different
/// datasets share an identity if one was received from the other.
fn snapshots_differ(dataset: &PackagedDataset) -> Result<bool, PackageProblem> {
    let (mut names, mut guids) = (BTreeSet::new(), BTreeSet::new());
    for snapshot in &dataset.snapshots {
        let name = format!("{}@{}", dataset.name, snapshot.name);
        if named(&name).is_none() || snapshot.guid == Guid(0) {
            return Err(PackageProblem::Name { name });
        }
        if !names.insert(snapshot.name.as_str()) || !guids.insert(snapshot.guid) {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_stream::{PackagedBlocks, PackagedSnapshot, SentValue};

    fn dataset(name: &str, snapshots: &[(&str, u64)]) -> PackagedDataset {
        let snapshots = snapshots.iter().map(|(name, guid)| PackagedSnapshot {
            name: (*name).to_owned(),
            guid: Guid(*guid),
            properties: None,
            holds: None,
        });
        PackagedDataset {
            guid: Guid(1),
            name: name.to_owned(),
            parent_snapshot: None,
            origin: None,
            is_encryption_root: false,
            properties: None,
            snapshots: snapshots.collect(),
        }
    }

    fn judged(to: &str, datasets: &[PackagedDataset]) -> Result<(), PackageProblem> {
        let package = Package {
            from: None,
            to: to.to_owned(),
            extent: PackageExtent::Tree,
            blocks: PackagedBlocks::Plain,
            datasets: datasets.to_vec(),
        };
        check(&package, "p/a@s")
    }

    #[test]
    fn names_and_identities_are_judged() {
        let fine = [dataset("p/a", &[("s", 1)]), dataset("p/a/b", &[("r", 2), ("s", 3)])];
        assert_eq!(judged("s", &fine), Ok(()));
        let long = format!("p/a/{}", "x".repeat(250));
        for name in
            ["p/a/..", "p/a/../../x", "p/a//b", "/etc", "p/a@s", "p/a/%recv", "p/a/\n", "", &long]
        {
            let refused = judged("s", &[dataset(name, &[("s", 1)])]);
            assert!(matches!(refused, Err(PackageProblem::Name { .. })), "{name}: {refused:?}");
        }
        for name in ["p", "p/ab", "q/a"] {
            let refused = judged("s", &[dataset(name, &[("s", 1)])]);
            assert!(matches!(refused, Err(PackageProblem::Elsewhere { .. })), "{name}");
        }
        for snapshots in [&[("../s", 1)][..], &[("", 1)], &[("s@t", 1)], &[("%s", 1)], &[("s", 0)]]
        {
            let refused = judged("s", &[dataset("p/a", snapshots)]);
            assert!(matches!(refused, Err(PackageProblem::Name { .. })), "{snapshots:?}");
        }
        for snapshots in [&[("s", 1), ("s", 2)][..], &[("s", 1), ("t", 1)]] {
            let refused = judged("s", &[dataset("p/a", snapshots)]);
            assert!(matches!(refused, Err(PackageProblem::Twice { .. })), "{snapshots:?}");
        }
        let twice = [dataset("p/a", &[("s", 1)]), dataset("p/a", &[("s", 2)])];
        assert!(matches!(judged("s", &twice), Err(PackageProblem::Twice { .. })));
        assert!(matches!(judged("..", &fine), Err(PackageProblem::Name { .. })));
        let mut many = dataset("p/a", &[("s", 1)]);
        let property = |number| (format!("a:{number}"), SentValue::Number(1));
        many.properties = Some((0..=MOST_PROPERTIES).map(property).collect());
        assert!(matches!(judged("s", &[many]), Err(PackageProblem::Properties { .. })));
    }
}
