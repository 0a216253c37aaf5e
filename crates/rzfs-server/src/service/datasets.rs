//! Answers about datasets.

use super::Access;
use crate::protocol::{
    DatasetFailure, DatasetKind, DatasetListing, DatasetQuery, DatasetReport, HoldReport,
    MountReport, PropertyReport, PropertySource, PropertyValue, Refusal, Selection,
};
use rzfs::setting::{OwnerAspect, OwnerProperty};
use rzfs_dsl::dataset::property::{self, DatasetProperty, Property};
use rzfs_dsl::dataset::{self, Bookmark, Dataset, DatasetError, DatasetName, DatasetTree};
use rzfs_format::ObjectId;
use rzfs_format::objset::ObjsetType;
use rzfs_zpl::{stored_quota, stored_usage};
use std::collections::BTreeSet;
use std::path::Path;

/// Answers a query. A name that cannot be read is a failure; the others are answered.
pub(super) fn list(
    tree: &DatasetTree,
    query: &DatasetQuery,
    mounts: &[MountReport],
) -> DatasetListing {
    let (seen, listing) = (BTreeSet::new(), DatasetListing::default());
    let mut walk = Walk { tree, query, mounts, seen, entered: BTreeSet::new(), listing };
    if query.names.is_empty() {
        match tree.root() {
            Ok(root) => walk.head(&root, query.depth),
            Err(error) => walk.fail("", &error),
        }
    }
    for name in &query.names {
        walk.named(name);
    }
    walk.listing
}

/// The holds of snapshots.
pub(super) fn holds(tree: &DatasetTree, names: &[String]) -> Result<Vec<HoldReport>, Refusal> {
    let mut reports = Vec::new();
    for name in names {
        let holds = tree.open(name).and_then(|snapshot| snapshot.holds());
        let report = |hold: dataset::Hold| HoldReport {
            snapshot: name.clone(),
            tag: hold.tag,
            created: hold.time,
        };
        reports.extend(holds.map_err(|error| unread(name, &error))?.into_iter().map(report));
    }
    Ok(reports)
}

/// The bytes reclaimed by destroying runs of snapshots, from the first to the last.
pub(super) fn reclaimed(tree: &DatasetTree, runs: &[(String, String)]) -> Result<u64, Refusal> {
    let mut bytes = 0_u64;
    for (first, last) in runs {
        let open = |name: &str| tree.open(name).map_err(|error| unread(name, &error));
        let run = open(first)?.reclaimed_up_to(&open(last)?);
        bytes = bytes.saturating_add(run.map_err(|error| unread(first, &error))?.unwrap_or(0));
    }
    Ok(bytes)
}

fn unread(name: &str, error: &DatasetError) -> Refusal {
    let reason = match error {
        DatasetError::NotFound { .. } => "dataset does not exist".to_owned(),
        error => error.to_string(),
    };
    Refusal::new(format!("cannot open '{name}': {reason}"))
}

/// Shows mount points below another root.
pub(super) fn move_mount_points(listing: &mut DatasetListing, root: &Path) {
    let properties = listing.datasets.iter_mut().flat_map(|dataset| &mut dataset.properties);
    for property in
        properties.filter(|property| property.name == DatasetProperty::MountPoint.name())
    {
        if let PropertyValue::Text(place) = &mut property.value
            && let Some(below) = place.strip_prefix('/')
        {
            let below = below.trim_start_matches('/');
            let moved = if below.is_empty() { root.to_owned() } else { root.join(below) };
            *place = moved.to_string_lossy().into_owned();
        }
    }
}

/// Shows the temporary options of mounts in place of properties. A read-only pool is always
/// `readonly`.
pub(super) fn show_temporary(listing: &mut DatasetListing, mounts: &[MountReport], access: Access) {
    for dataset in &mut listing.datasets {
        let Some(mount) = mounts.iter().find(|one| one.dataset == dataset.name) else { continue };
        let mut temporary = mount.temporary;
        if access == Access::ReadOnly {
            temporary.readonly = Some(true);
        }
        for property in &mut dataset.properties {
            let known = DatasetProperty::from_name(&property.name);
            let Some(is_on) = known.and_then(|known| temporary.value(known)) else { continue };
            let value = text(if is_on { "on" } else { "off" });
            if property.value != value {
                property.value = value;
                property.source = PropertySource::Temporary;
            }
        }
    }
}

struct Walk<'a> {
    tree: &'a DatasetTree,
    query: &'a DatasetQuery,
    mounts: &'a [MountReport],
    seen: BTreeSet<String>,
    /// Directories whose children are listed: each once, whatever its names.
    entered: BTreeSet<ObjectId>,
    listing: DatasetListing,
}

impl Walk<'_> {
    fn named(&mut self, name: &str) {
        // A directory listed under another name may be wanted to a greater depth from here.
        self.entered.clear();
        if name.contains('#') {
            match self.tree.open_bookmark(name) {
                Ok(bookmark) => self.bookmark(&bookmark),
                Err(error) => self.fail(name, &error),
            }
            return;
        }
        match self.tree.open(name) {
            Ok(dataset) if dataset.is_snapshot() => self.dataset(&dataset, DatasetKind::Snapshot),
            Ok(dataset) => self.head(&dataset, self.query.depth),
            Err(error) => self.fail(name, &error),
        }
    }

    /// A file system or volume, and its descendants.
    fn head(&mut self, dataset: &Dataset, depth: Option<u32>) {
        match dataset.kind() {
            Ok(dataset::DatasetKind::Volume) => self.dataset(dataset, DatasetKind::Volume),
            Ok(_) => self.dataset(dataset, DatasetKind::Filesystem),
            Err(error) => self.fail(dataset.name(), &error),
        }
        if depth == Some(0) {
            return;
        }
        if self.wants(DatasetKind::Snapshot) {
            match dataset.snapshots() {
                Ok(snapshots) => {
                    snapshots.iter().for_each(|one| self.dataset(one, DatasetKind::Snapshot));
                }
                Err(error) => self.fail(dataset.name(), &error),
            }
        }
        if self.wants(DatasetKind::Bookmark) {
            match dataset.bookmarks() {
                Ok(bookmarks) => bookmarks.iter().for_each(|bookmark| self.bookmark(bookmark)),
                Err(error) => self.fail(dataset.name(), &error),
            }
        }
        // An overlong name has more ancestors than possible.
        let is_possible = dataset.name().len() <= DatasetName::MAX_LEN;
        if !is_possible || !self.entered.insert(dataset.directory_object()) {
            return;
        }
        match dataset.children() {
            Ok(children) => {
                let depth = depth.map(|depth| depth - 1);
                children.iter().for_each(|child| self.head(child, depth));
            }
            Err(error) => self.fail(dataset.name(), &error),
        }
    }

    fn wants(&self, kind: DatasetKind) -> bool {
        self.query.kinds.contains(&kind)
    }

    fn dataset(&mut self, dataset: &Dataset, kind: DatasetKind) {
        if !self.wants(kind) || !self.seen.insert(dataset.name().to_owned()) {
            return;
        }
        match self.properties(dataset, kind) {
            Ok(properties) => self.listing.datasets.push(DatasetReport {
                name: dataset.name().to_owned(),
                kind,
                created: dataset.dsl_dataset().creation_txg.get(),
                inconsistent: dataset.is_inconsistent(),
                properties,
            }),
            Err(error) => self.fail(dataset.name(), &error),
        }
    }

    fn properties(
        &self,
        dataset: &Dataset,
        kind: DatasetKind,
    ) -> Result<Vec<PropertyReport>, DatasetError> {
        let mut reports = Vec::new();
        match &self.query.properties {
            Selection::All => {
                for property in dataset.properties()? {
                    let is_next_mounted = property.name == DatasetProperty::CompressRatio.name();
                    reports.push(report(property));
                    if is_next_mounted {
                        reports.extend(self.mounted(dataset, kind));
                    }
                }
                reports.retain(|report| {
                    // Unset values are left out of `all`, as in OpenZFS.
                    report.value != PropertyValue::Unset
                });
            }
            Selection::Named(names) => {
                for name in names {
                    match DatasetProperty::from_name(name) {
                        Some(DatasetProperty::Mounted) => {
                            reports.extend(self.mounted(dataset, kind));
                        }
                        Some(property @ DatasetProperty::Name) => {
                            reports.push(computed(property, text(dataset.name())));
                        }
                        _ => match OwnerProperty::parse(name) {
                            Ok(Some(property)) => reports.extend(owned(dataset, name, property)),
                            _ => reports.extend(dataset.property(name)?.map(report)),
                        },
                    }
                }
            }
        }
        Ok(reports)
    }

    fn mounted(&self, dataset: &Dataset, kind: DatasetKind) -> Option<PropertyReport> {
        let is_mounted = self.mounts.iter().any(|mount| mount.dataset == dataset.name());
        let word = if is_mounted { "yes" } else { "no" };
        (kind == DatasetKind::Filesystem).then(|| computed(DatasetProperty::Mounted, text(word)))
    }

    fn bookmark(&mut self, bookmark: &Bookmark) {
        if !self.wants(DatasetKind::Bookmark) || !self.seen.insert(bookmark.name().to_owned()) {
            return;
        }
        let properties = match &self.query.properties {
            Selection::All => {
                bookmark.properties().map(|all| all.into_iter().map(report).collect())
            }
            Selection::Named(names) => {
                let named = |name: &String| match DatasetProperty::from_name(name) {
                    Some(property @ DatasetProperty::Name) => {
                        Ok(Some(computed(property, text(bookmark.name()))))
                    }
                    _ => bookmark.property(name).map(|property| property.map(report)),
                };
                names.iter().map(named).filter_map(Result::transpose).collect()
            }
        };
        match properties {
            Ok(properties) => self.listing.datasets.push(DatasetReport {
                name: bookmark.name().to_owned(),
                kind: DatasetKind::Bookmark,
                created: bookmark.record().creation_txg.get(),
                inconsistent: false,
                properties,
            }),
            Err(error) => self.fail(bookmark.name(), &error),
        }
    }

    fn fail(&mut self, name: &str, error: &DatasetError) {
        tracing::debug!(name, %error, "dataset");
        let reason = match error {
            DatasetError::NotFound { .. } => "dataset does not exist".to_owned(),
            error => format!("I/O error: {error}"),
        };
        self.listing.failures.push(DatasetFailure { name: name.to_owned(), reason });
    }
}

/// The usage or quota of an owner in a file system or snapshot. It has no value if it cannot be
/// read: it is not a file system or its key is not loaded.
fn owned(dataset: &Dataset, name: &str, property: OwnerProperty) -> Option<PropertyReport> {
    let OwnerProperty { aspect, owner, unit, id } = property;
    let objset = dataset.open_objset().ok()?;
    if objset.objset_type() != ObjsetType::Zfs {
        return None;
    }
    let number = match aspect {
        OwnerAspect::Used => stored_usage(&objset, owner, unit, id),
        OwnerAspect::Quota => stored_quota(&objset, owner, unit, id).map(Option::unwrap_or_default),
    };
    let value = PropertyValue::Number(number.ok()?);
    let source = PropertySource::Local;
    Some(PropertyReport { name: name.to_owned(), value, source, received: None })
}

fn text(text: &str) -> PropertyValue {
    PropertyValue::Text(text.to_owned())
}

fn computed(property: DatasetProperty, value: PropertyValue) -> PropertyReport {
    PropertyReport {
        name: property.to_string(),
        value,
        source: PropertySource::None,
        received: None,
    }
}

fn value(value: property::PropertyValue) -> PropertyValue {
    match value {
        property::PropertyValue::Number(number) => PropertyValue::Number(number),
        property::PropertyValue::Text(text) => PropertyValue::Text(text),
    }
}

fn report(property: Property) -> PropertyReport {
    use property::PropertySource as Source;
    PropertyReport {
        name: property.name,
        value: property.value.map_or(PropertyValue::Unset, value),
        source: match property.source {
            Source::None => PropertySource::None,
            Source::Default => PropertySource::Default,
            Source::Local => PropertySource::Local,
            Source::Inherited(from) => PropertySource::Inherited(from),
            Source::Received => PropertySource::Received,
        },
        received: property.received.map(value),
    }
}
