//! Heads that were not received to their end.

use super::forged::{Forger, goes_on, snapshot_called};
use super::{SNAPPED, with_snapshots};
use rzfs_dsl::dataset::DatasetError;
use rzfs_format::dsl::DslDataset;

/// Where a dataset's record has its flags.
const FLAGS: usize = 0x78;
const EBUSY: i32 = 16;

#[test]
fn a_head_that_was_not_received_to_its_end_is_not_opened() {
    let Some(rig) = with_snapshots() else { return };
    let head = rig.read().unwrap().datasets().open(SNAPPED).unwrap();
    let flags = head.dsl_dataset().flags | DslDataset::FLAG_INCONSISTENT;
    let pool = Forger::default().bonus(head.object(), FLAGS, &[flags]).open(&rig);
    let head = pool.dataset_tree().unwrap().open(SNAPPED).unwrap();
    let refused = pool.open_dataset(&head).unwrap_err();
    assert!(matches!(refused, DatasetError::Inconsistent { .. }), "{refused}");
    assert_eq!(refused.errno(), EBUSY);
    assert_eq!(pool.roll_back(SNAPPED).unwrap_err().errno(), EBUSY);
    assert!(pool.take_snapshots(&snapshot_called("g01/sa@new")).is_err());
    pool.destroy_dataset("g01/clone").unwrap();
    goes_on(pool);
}
