//! The datasets of a pool in the order in which zdb shows them: what is below a dataset and its
//! snapshots before itself, each in the order of the ZAP that names them.

use crate::zdb::error::ZdbError;
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::pool::{Attributes, Pool};
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::{FormatError, ObjectId};

/// Directories deeper than this are damage; OpenZFS allows 50 levels.
const MAX_DEPTH: usize = 64;
/// Most datasets that are shown; a loop among directories ends here at the latest.
const MAX_DATASETS: usize = 1 << 24;

/// A dataset and its name.
pub(super) struct Place {
    pub(super) name: String,
    pub(super) object: ObjectId,
    pub(super) directory: ObjectId,
    pub(super) dataset: DslDataset,
}

impl Place {
    /// The place of an opened dataset.
    pub(super) fn of(dataset: &Dataset) -> Self {
        Self {
            name: dataset.name().to_owned(),
            object: dataset.object(),
            directory: dataset.directory_object(),
            dataset: dataset.dsl_dataset().clone(),
        }
    }

    /// A field that the dataset's object has beside its bonus.
    pub(super) fn field(&self, pool: &Pool, name: &str) -> Result<Option<ObjectId>, ZdbError> {
        field(pool, self.object, name)
    }

    /// The live list of a clone.
    pub(super) fn livelist(&self, pool: &Pool) -> Result<Option<ObjectId>, ZdbError> {
        if self.dataset.is_snapshot() {
            return Ok(None);
        }
        field(pool, self.directory, "com.delphix:livelist")
    }
}

/// An object number that a directory or dataset has beside its bonus.
fn field(pool: &Pool, id: ObjectId, name: &str) -> Result<Option<ObjectId>, ZdbError> {
    if !pool.mos().object(id)?.object_type().is_zap() {
        return Ok(None);
    }
    Ok(Attributes::open(pool.mos(), id)?.object(name)?)
}

/// The dataset that all clones without an origin of their own come from, and its snapshot.
pub(super) fn origin(pool: &Pool) -> Result<Vec<DslDataset>, ZdbError> {
    let head = special_directory(pool, "$ORIGIN")?.and_then(|directory| directory.head_dataset);
    let Some(head) = head else { return Ok(Vec::new()) };
    let head = dataset(pool, head)?;
    let snapshot = head.previous_snapshot.map(|id| dataset(pool, id)).transpose()?;
    Ok([head].into_iter().chain(snapshot).collect())
}

/// All datasets of a pool.
pub(super) fn datasets(pool: &Pool) -> Result<Vec<Place>, ZdbError> {
    let mut found = Vec::new();
    collect(pool, pool.root_dataset_dir(), pool.name(), MAX_DEPTH, &mut found)?;
    Ok(found)
}

/// One of the directories with names of their own: `$MOS`, `$FREE`, `$ORIGIN`.
pub(super) fn special_directory(pool: &Pool, name: &str) -> Result<Option<DslDir>, ZdbError> {
    let root = directory(pool, pool.root_dataset_dir())?;
    for (child, id) in names(pool, root.children)? {
        if child == name {
            return directory(pool, id).map(Some);
        }
    }
    Ok(None)
}

fn collect(
    pool: &Pool,
    id: ObjectId,
    name: &str,
    depth: usize,
    found: &mut Vec<Place>,
) -> Result<(), ZdbError> {
    let too_many = || FormatError::invalid("DSL directory", "a tree that does not end");
    let depth = depth.checked_sub(1).ok_or_else(|| ZdbError::corrupt(id)(too_many()))?;
    let own = directory(pool, id)?;
    for (child, object) in names(pool, own.children)? {
        if !child.starts_with('$') {
            collect(pool, object, &format!("{name}/{child}"), depth, found)?;
        }
    }
    let Some(head_id) = own.head_dataset else { return Ok(()) };
    let head = dataset(pool, head_id)?;
    for (snapshot, object) in names(pool, head.snapshot_names)? {
        let dataset = dataset(pool, object)?;
        found.push(Place { name: format!("{name}@{snapshot}"), object, directory: id, dataset });
        if found.len() > MAX_DATASETS {
            return Err(ZdbError::corrupt(id)(too_many()));
        }
    }
    found.push(Place { name: name.to_owned(), object: head_id, directory: id, dataset: head });
    Ok(())
}

/// The directory in an object of the MOS.
fn directory(pool: &Pool, id: ObjectId) -> Result<DslDir, ZdbError> {
    let object = pool.mos().object(id)?;
    DslDir::decode(object.bonus(), object.order()).map_err(ZdbError::corrupt(id))
}

fn dataset(pool: &Pool, id: ObjectId) -> Result<DslDataset, ZdbError> {
    let object = pool.mos().object(id)?;
    DslDataset::decode(object.bonus(), object.order()).map_err(ZdbError::corrupt(id))
}

/// Names and objects of a ZAP, in its order.
fn names(pool: &Pool, zap: Option<ObjectId>) -> Result<Vec<(String, ObjectId)>, ZdbError> {
    let Some(id) = zap else { return Ok(Vec::new()) };
    let object = pool.mos().object(id)?;
    let mut names = Vec::new();
    for entry in object.zap()?.entries() {
        let entry = entry.map_err(|source| object.zap_error(source))?;
        let name = String::from_utf8_lossy(entry.name()).into_owned();
        names.extend(entry.value.first_u64().map(|value| (name, ObjectId(value))));
    }
    Ok(names)
}
