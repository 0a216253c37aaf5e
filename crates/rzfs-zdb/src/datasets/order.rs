//! The datasets of a pool in zdb's order: a dataset follows its descendants and its snapshots, each
//! group in the order of its ZAP.

use crate::error::ZdbError;
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::pool::{Attributes, Pool};
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::{FormatError, ObjectId};

/// Directories deeper than this are damage; OpenZFS allows 50 levels.
const MAX_DEPTH: usize = 64;
/// Maximum number of datasets shown; a loop among directories ends here at the latest.
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

    /// A field of the dataset's object outside its bonus.
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

/// An object number in a directory or dataset outside its bonus.
fn field(pool: &Pool, id: ObjectId, name: &str) -> Result<Option<ObjectId>, ZdbError> {
    if !pool.mos().object(id)?.object_type().is_zap() {
        return Ok(None);
    }
    Ok(Attributes::open(pool.mos(), id)?.object(name)?)
}

/// The dataset that is the origin of all clones without another one, and its snapshot.
pub(super) fn origin(pool: &Pool) -> Result<Vec<DslDataset>, ZdbError> {
    let head = special_directory(pool, "$ORIGIN")?.and_then(|directory| directory.head_dataset);
    let Some(head) = head else { return Ok(Vec::new()) };
    let head = dataset(pool, head)?;
    let snapshot = head.previous_snapshot.map(|id| dataset(pool, id)).transpose()?;
    Ok([head].into_iter().chain(snapshot).collect())
}

/// All datasets of a pool, and the errors of those not found.
pub(super) fn datasets(pool: &Pool) -> (Vec<Place>, Vec<ZdbError>) {
    let mut search = Search { pool, found: Vec::new(), problems: Vec::new() };
    if let Err(problem) = search.collect(pool.root_dataset_dir(), pool.name(), MAX_DEPTH) {
        search.problems.push(problem);
    }
    (search.found, search.problems)
}

/// One of the special directories: `$MOS`, `$FREE`, `$ORIGIN`.
pub(super) fn special_directory(pool: &Pool, name: &str) -> Result<Option<DslDir>, ZdbError> {
    let root = directory(pool, pool.root_dataset_dir())?;
    for (child, id) in names(pool, root.children)? {
        if child == name {
            return directory(pool, id).map(Some);
        }
    }
    Ok(None)
}

/// A walk through all directories.
struct Search<'a> {
    pool: &'a Pool,
    found: Vec<Place>,
    problems: Vec<ZdbError>,
}

impl Search<'_> {
    /// Finds the datasets in and below a directory; errors further down are only recorded.
    fn collect(&mut self, id: ObjectId, name: &str, depth: usize) -> Result<(), ZdbError> {
        let too_many = || FormatError::invalid("DSL directory", "a tree that does not end");
        let end = depth == 0 || self.found.len() + self.problems.len() > MAX_DATASETS;
        if end {
            return Err(ZdbError::corrupt(id)(too_many()));
        }
        let own = directory(self.pool, id)?;
        match names(self.pool, own.children) {
            Ok(children) => {
                for (child, object) in
                    children.into_iter().filter(|(name, _)| !name.starts_with('$'))
                {
                    let below = self.collect(object, &format!("{name}/{child}"), depth - 1);
                    self.problems.extend(below.err());
                }
            }
            Err(problem) => self.problems.push(problem),
        }
        let Some(head_id) = own.head_dataset else { return Ok(()) };
        let head = dataset(self.pool, head_id)?;
        match names(self.pool, head.snapshot_names) {
            Ok(snapshots) => {
                for (snapshot, object) in snapshots {
                    let name = format!("{name}@{snapshot}");
                    match dataset(self.pool, object) {
                        Ok(dataset) => {
                            self.found.push(Place { name, object, directory: id, dataset })
                        }
                        Err(problem) => self.problems.push(problem),
                    }
                }
            }
            Err(problem) => self.problems.push(problem),
        }
        let name = name.to_owned();
        self.found.push(Place { name, object: head_id, directory: id, dataset: head });
        Ok(())
    }
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
