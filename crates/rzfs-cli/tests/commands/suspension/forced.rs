//! Forced unmounts of mounts of suspended pools.

use super::{Waiting, prompt};
use crate::harness::{is_mounted, wait_until};

/// The directory made for the inner mount is in a mount of the suspended pool: it is removed when
/// the pool resumes.
#[test]
fn a_file_system_in_another_one_of_a_suspended_pool_is_unmounted_by_force() {
    let prepared = Waiting::prepared(|shop| {
        shop.succeed("zfs set sync=always tank");
        shop.succeed("zfs create tank/inner");
        shop.succeed("zfs create tank/other");
    });
    let Some(waiting) = prepared else { return };
    let root = waiting.shop.root();
    for name in ["inner", "other"] {
        let unmounted = prompt(&waiting.shop, &format!("zfs unmount -f tank/{name}"));
        assert_eq!((unmounted.status, unmounted.err.as_str()), (0, ""));
        assert!(!is_mounted(&root.join(name)));
    }
    waiting.host.resize("400M");
    assert_eq!(prompt(&waiting.shop, "zpool clear tank").status, 0);
    for name in ["inner", "other"] {
        wait_until("the directory is removed", || !root.join(name).exists());
    }
    waiting.mend();
}
