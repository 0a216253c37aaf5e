//! The texts of `zpool status`.

use super::{Explanation, explain};
use rzfs::protocol::Condition;

/// The texts for a pool that is open; none for one about which there is nothing to say.
pub(crate) const fn for_status(condition: Condition) -> Option<Explanation> {
    match condition {
        Condition::VersionOlder
        | Condition::VersionNewer
        | Condition::UnsupportedFeatures
        | Condition::UnsupportedFeaturesForWriting
        | Condition::CompatibilityError
        | Condition::IncompatibleFeatures
        | Condition::FeaturesDisabled
        | Condition::Erratum(_) => of_format(condition),
        _ => of_devices(condition),
    }
}

const fn of_devices(condition: Condition) -> Option<Explanation> {
    const DESTROY: &str = "Destroy and re-create the pool from\na backup source.";
    // Nothing here repairs, resilvers or replaces, so OpenZFS's advice would be none.
    const ATTACH: &str = "Attach the missing device and run 'zpool clear', or import the pool\n\
         again.  What it lacks is not copied to it: OpenZFS does that.";
    const ONLINE: &str = "Keep the other devices.  Import the pool with OpenZFS, and online or\n\
         replace the device there.";
    Some(match condition {
        Condition::Missing => explain(
            "One or more devices could not be opened.  Sufficient replicas exist for\n\
             the pool to continue functioning in a degraded state.",
            ATTACH,
            Some("ZFS-8000-2Q"),
        ),
        Condition::MissingNoReplicas | Condition::GuidSum => explain(
            "One or more devices could not be opened.  There are insufficient\n\
             replicas for the pool to continue functioning.",
            "Attach the missing device and import the pool again.",
            Some("ZFS-8000-3C"),
        ),
        Condition::MissingNewer => explain(
            "One or more devices could not be opened.  The others lack data that was\n\
             written while they were away: it cannot be read.",
            "Attach the missing device and run 'zpool clear', or import the pool\n\
             again.",
            Some("ZFS-8000-3C"),
        ),
        Condition::CorruptLabel => explain(
            "One or more devices could not be used because the label is missing or\n\
             invalid.  Sufficient replicas exist for the pool to continue\n\
             functioning in a degraded state.",
            "Keep the other devices.  Import the pool with OpenZFS, and replace the\n\
             device there.",
            Some("ZFS-8000-4J"),
        ),
        Condition::CorruptLabelNoReplicas => explain(
            "One or more devices could not be used because the label is missing \n\
             or invalid.  There are insufficient replicas for the pool to continue\n\
             functioning.",
            DESTROY,
            Some("ZFS-8000-5E"),
        ),
        Condition::LacksData => explain(
            "One or more devices lack data that was written while they were away.\n\
             The pool reads it from the others, and loses it with them.",
            "Keep the other devices.  Import the pool with OpenZFS, which\n\
             resilvers it.",
            None,
        ),
        Condition::Failing => explain(
            "One or more devices has experienced an unrecoverable error.  Damaged\n\
             copies were read around with other copies, and stay as they are.",
            "Keep the devices that have the good copies: nothing repairs the others\n\
             until OpenZFS scrubs the pool, or the data is written anew.  'zpool clear'\n\
             only forgets that there were errors.",
            Some("ZFS-8000-9P"),
        ),
        Condition::Offline => explain(
            "One or more devices has been taken offline by the administrator.\n\
             Sufficient replicas exist for the pool to continue functioning in a\n\
             degraded state.",
            ONLINE,
            None,
        ),
        Condition::Removed => explain(
            "One or more devices has been removed by the administrator.\n\
             Sufficient replicas exist for the pool to continue functioning in a\n\
             degraded state.",
            ONLINE,
            None,
        ),
        Condition::Resilvering => explain(
            "One or more devices were being resilvered.  The pool will continue to\n\
             function, possibly in a degraded state.",
            "Keep the other devices.  Import the pool with OpenZFS, which goes on\n\
             with the resilver.",
            None,
        ),
        Condition::CorruptData => explain(
            "One or more devices has experienced an error resulting in data\n\
             corruption.  Applications may be affected.",
            "Restore the file in question if possible.  Otherwise restore the\n\
             entire pool from backup.",
            Some("ZFS-8000-8A"),
        ),
        Condition::CorruptPool => explain(
            "The pool metadata is corrupted and the pool cannot be opened.",
            DESTROY,
            Some("ZFS-8000-72"),
        ),
        Condition::Faulted => explain(
            "One or more devices are faulted in response to persistent errors.\n\
             Sufficient replicas exist for the pool to continue functioning in a\n\
             degraded state.",
            "Use 'zpool clear' to try the device again, or import the pool with\n\
             OpenZFS and replace the device there.",
            None,
        ),
        Condition::IoFailureWait | Condition::IoFailureContinue => explain(
            "One or more devices are faulted in response to IO failures.",
            "Make sure the affected devices are connected, then run 'zpool clear'.",
            Some(match condition {
                Condition::IoFailureWait => "ZFS-8000-HC",
                _ => "ZFS-8000-JQ",
            }),
        ),
        Condition::FaultedNoReplicas => explain(
            "One or more devices are faulted in response to persistent errors.  There are \
             insufficient replicas for the pool to\ncontinue functioning.",
            "Destroy and re-create the pool from a backup source.  Manually marking the \
             device\nrepaired using 'zpool clear' may allow some data to be recovered.",
            None,
        ),
        Condition::NonNativeAshift => explain(
            "One or more devices are configured to use a non-native block size.\n\
             Expect reduced performance.",
            "Replace affected devices with devices that support the\n\
             configured block size, or migrate data to a properly configured\n\
             pool.",
            None,
        ),
        _ => return None,
    })
}

const fn of_format(condition: Condition) -> Option<Explanation> {
    Some(match condition {
        Condition::VersionOlder => explain(
            "The pool is formatted using a legacy on-disk format.  The pool can\n\
             still be used, but some features are unavailable.",
            "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\
             pool will no longer be accessible on software that does not support\n\
             feature flags.",
            None,
        ),
        Condition::VersionNewer => explain(
            "The pool has been upgraded to a newer, incompatible on-disk version.\n\
             The pool cannot be accessed on this system.",
            "Access the pool from a system running more recent software, or\n\
             restore the pool from backup.",
            Some("ZFS-8000-A5"),
        ),
        Condition::FeaturesDisabled => explain(
            "Some supported and requested features are not enabled on the pool.\n\
             The pool can still be used, but some features are unavailable.",
            "Enable all features using 'zpool upgrade'. Once this is done,\n\
             the pool may no longer be accessible by software that does not support\n\
             the features. See zpool-features(7) for details.",
            None,
        ),
        Condition::CompatibilityError => explain(
            "This pool has a compatibility list specified, but it could not be\n\
             read/parsed at this time. The pool can still be used, but this\n\
             should be investigated.",
            "Check the value of the 'compatibility' property against the\n\
             appropriate file in /etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.",
            None,
        ),
        Condition::IncompatibleFeatures => explain(
            "One or more features are enabled on the pool despite not being\n\
             requested by the 'compatibility' property.",
            "Consider setting 'compatibility' to an appropriate value, or\n\
             adding needed features to the relevant file in\n\
             /etc/zfs/compatibility.d or /usr/share/zfs/compatibility.d.",
            None,
        ),
        Condition::UnsupportedFeatures => explain(
            "The pool cannot be accessed on this system because it uses the\n\
             following feature(s) not supported on this system:",
            "Access the pool from a system that supports the required feature(s),\n\
             or restore the pool from backup.",
            None,
        ),
        Condition::UnsupportedFeaturesForWriting => explain(
            "The pool can only be accessed in read-only mode on this system. It\n\
             cannot be accessed in read-write mode because it uses the following\n\
             feature(s) not supported on this system:",
            "The pool cannot be accessed in read-write mode. Import the pool with\n\
             \"-o readonly=on\", access the pool from a system that supports the\n\
             required feature(s), or restore the pool from backup.",
            None,
        ),
        Condition::Erratum(1) => explain(
            "Errata #1 detected.",
            "To correct the issue import the pool with OpenZFS and run 'zpool scrub'\n\
             there.",
            Some("ZFS-8000-ER"),
        ),
        Condition::Erratum(3) => explain(
            "Errata #3 detected.\nExisting encrypted datasets contain an on-disk \
             incompatibility\n which needs to be corrected.",
            "To correct the issue backup existing encrypted datasets to new\n\
             encrypted datasets and destroy the old ones. 'zfs mount -o ro' can\n\
             be used to temporarily mount existing encrypted datasets readonly.",
            Some("ZFS-8000-ER"),
        ),
        Condition::Erratum(4) => explain(
            "Errata #4 detected.\n\
             Existing encrypted snapshots and bookmarks contain an on-disk\n\
             incompatibility. This may cause on-disk corruption if they are used\n\
             with 'zfs recv'.",
            "To correct theissue, enable the bookmark_v2 feature. No additional\n\
             action is needed if there are no encrypted snapshots or bookmarks.\n\
             If preservingthe encrypted snapshots and bookmarks is required, use\n\
             a non-raw send to backup and restore them. Alternately, they may be\n\
             removed to resolve the incompatibility.",
            Some("ZFS-8000-ER"),
        ),
        _ => return None,
    })
}
