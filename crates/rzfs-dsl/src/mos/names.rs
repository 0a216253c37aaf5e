//! Names of directories, snapshots and bookmarks, and what they refer to (spec 04, sections 2, 3
//! and 15).

use super::error::MosError;
use super::{MosSource, one_number};
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zap::{Matching, Zap, ZapBlocks, ZapEntry, ZapError, ZapValue};

/// The directory `name` among these children.
pub(crate) fn child<M: MosSource>(
    mos: &M,
    children: Option<ObjectId>,
    name: &str,
) -> Result<Option<ObjectId>, M::Error> {
    children.map_or(Ok(None), |children| mos.object_of(children, name))
}

/// The head of a directory, which must belong to it; special directories have none.
pub(crate) fn head<M: MosSource>(
    mos: &M,
    (id, dir): (ObjectId, &DslDir),
) -> Result<Option<(ObjectId, DslDataset)>, M::Error> {
    let Some(head) = dir.head_dataset else { return Ok(None) };
    let dataset: DslDataset = mos.record(head)?;
    if dataset.dir != id || dataset.is_snapshot() {
        let problem = FormatError::invalid("DSL dataset", "it is not the head of its directory");
        return Err(MosError::corrupt(head)(problem).into());
    }
    Ok(Some((head, dataset)))
}

/// All names in a ZAP with their numbers, in no particular order; none when there is no ZAP.
pub(crate) fn all<M: MosSource>(
    mos: &M,
    zap: Option<ObjectId>,
) -> Result<Vec<(String, ObjectId)>, M::Error> {
    let Some(zap) = zap else { return Ok(Vec::new()) };
    let named = mos.entries(zap)?.into_iter().filter_map(|entry| {
        let name = String::from_utf8_lossy(entry.key.as_name()?).into_owned();
        Some((name, ObjectId(entry.value.first_u64()?)))
    });
    Ok(named.collect())
}

/// The snapshot of a head with this name, and its stored name.
pub(crate) fn snapshot<M: MosSource>(
    mos: &M,
    head: &DslDataset,
    name: &str,
) -> Result<Option<(String, ObjectId)>, M::Error> {
    let Some(names) = head.snapshot_names else { return Ok(None) };
    let Some((name, value)) = find(mos, (head, names), name)? else { return Ok(None) };
    let object = ObjectId(one_number(names, &name, &value)?);
    Ok(Some((name, object)))
}

/// The value of a name among the snapshots or bookmarks of a head, and its stored name.
pub(crate) fn find<M: MosSource>(
    mos: &M,
    (head, names): (&DslDataset, ObjectId),
    name: &str,
) -> Result<Option<(String, ZapValue)>, M::Error> {
    let folds = head.flags & DslDataset::FLAG_CASE_INSENSITIVE != 0;
    let found = mos.with_zap(names, |zap| find_in(zap, folds, name))?;
    Ok(found.map(|entry| (String::from_utf8_lossy(entry.name()).into_owned(), entry.value)))
}

/// Snapshot names are looked up like file names: ignoring case if `folds`.
fn find_in<B: ZapBlocks>(
    zap: &Zap<B>,
    folds: bool,
    name: &str,
) -> Result<Option<ZapEntry>, ZapError<B::Error>> {
    let folds = folds && !zap.normalization().is_none();
    let matching = if folds { Matching::Normalized } else { Matching::Exact };
    zap.lookup_matching(name.as_bytes(), matching)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_zap::{Normalization, ZapBuilder};

    #[test]
    fn snapshots_are_found_as_the_files_of_their_dataset_are() {
        let mut builder = ZapBuilder::new(7);
        builder.normalization(Normalization::FOLD_CASE).insert_u64("Monday", 54).unwrap();
        let zap = Zap::open(builder.build().unwrap()).unwrap();
        let find = |folds, name| {
            let found = find_in(&zap, folds, name).unwrap();
            found.map(|entry| (entry.name().to_vec(), entry.value.first_u64()))
        };
        let monday = Some((b"Monday".to_vec(), Some(54)));
        assert_eq!(find(false, "Monday"), monday);
        assert_eq!(find(false, "MONDAY"), None);
        assert_eq!(find(true, "MONDAY"), monday);
        assert_eq!(find(true, "tuesday"), None);
    }
}
