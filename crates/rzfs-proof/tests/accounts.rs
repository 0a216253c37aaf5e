//! The accounts kept by OpenZFS equal the sums expected of rzfs.

use rzfs_proof::{PoolFiles, ProofError, Settings, read_dataset, wrong_accounts};
use rzfs_testkit::ReferencePool;

#[test]
fn accounts_of_openzfs_are_the_sums_over_files() {
    let mut compared = 0;
    for golden in ReferencePool::all_golden() {
        let Some(image) = golden.images().unwrap().into_iter().next() else { continue };
        let files = PoolFiles::new(image.parent().unwrap(), golden.pool_name());
        let pool = match files.read(&Settings::default()) {
            Err(ProofError::Import(_)) => continue,
            pool => pool.unwrap(),
        };
        for (name, _) in golden.manifest().unwrap().datasets() {
            // Snapshots are as their heads were; without a key nothing can be read.
            if name.contains('@') {
                continue;
            }
            let Ok(fs) = read_dataset(&pool, name) else { continue };
            assert_eq!(wrong_accounts(&fs).unwrap(), [""; 0], "{} {name}", golden.name());
            compared += 1;
        }
    }
    assert!(compared > 10, "{compared} file systems");
}
