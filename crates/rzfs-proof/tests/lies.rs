//! Pools that lie, with right checksums.

use rzfs_dsl::dataset::DatasetError;
use rzfs_proof::{Lie, Outside, PoolFiles, Settings, Shape, make_lying_pool};

#[test]
fn file_systems_have_no_names_that_lead_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let shape = Shape::named("single").unwrap();
    let files = PoolFiles::new(directory.path(), shape.name);
    let outside = Outside { directory: "/outside", program: b"" };
    make_lying_pool(&files, &shape, Lie::Names, 1, outside).unwrap();
    let pool = files.read(&Settings::default()).unwrap();
    let root = pool.datasets().root().unwrap();
    match root.descendants() {
        Err(DatasetError::ImpossibleName { .. }) => {}
        other => panic!("{other:?}"),
    }
}
