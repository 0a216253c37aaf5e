//! The texts of `zpool status`.

use super::{Explanation, Texts, explain};
use rzfs_server::protocol::{Erratum, PoolStatus};

/// The texts for an open pool; `None` if there is nothing to report.
pub(crate) fn for_status(status: PoolStatus) -> Option<Explanation> {
    let texts = if status.is_about_format() { of_format(status) } else { of_devices(status) };
    texts.map(|texts| texts.about(status))
}

const fn of_devices(status: PoolStatus) -> Option<Texts> {
    // Nothing here repairs, resilvers or replaces: OpenZFS does.
    const RESTORE: &str = "Look for copies of these devices; without, make the pool anew and restore it\n\
         from a backup.";
    const ATTACH: &str = "Attach it and run 'zpool clear', or import the pool again.  What it lacks is\n\
         not copied to it: OpenZFS does that.";
    const ONLINE: &str = "Keep the other devices.  Import the pool with OpenZFS, and online or\n\
         replace the device there.";
    Some(match status {
        PoolStatus::Missing => explain(
            "A device is missing.  The pool works without it, with less redundancy.",
            ATTACH,
        ),
        PoolStatus::MissingNoReplicas | PoolStatus::GuidSum => explain(
            "Devices are missing that the pool cannot work without.",
            "Attach them and import the pool again.",
        ),
        PoolStatus::MissingNewer => explain(
            "A device is missing that has data which was written while the others were\n\
             away: it cannot be read.",
            "Attach it and run 'zpool clear', or import the pool again.",
        ),
        PoolStatus::CorruptLabel => explain(
            "The label of a device is missing or damaged.  The pool works without the\n\
             device, with less redundancy.",
            "Keep the other devices.  Import the pool with OpenZFS, and replace the\n\
             device there.",
        ),
        PoolStatus::CorruptLabelNoReplicas => explain(
            "Labels are missing or damaged of devices that the pool cannot work without.",
            RESTORE,
        ),
        PoolStatus::LacksData => explain(
            "A device lacks data that was written while it was away.  The pool reads it\n\
             from the others, and loses it with them.",
            "Keep the other devices.  Import the pool with OpenZFS, which resilvers it.",
        ),
        PoolStatus::Failing => explain(
            "A device had errors.  Where others have good copies these are read, and\n\
             damaged copies stay as they are.",
            "Keep the devices that have good copies: nothing repairs the others\n\
             until OpenZFS scrubs the pool, or the data is written anew.  'zpool clear'\n\
             only forgets that there were errors.",
        ),
        PoolStatus::Offline => explain(
            "Somebody has taken a device offline.  The pool works without it, with less\n\
             redundancy.",
            ONLINE,
        ),
        PoolStatus::Removed => explain(
            "A device was taken away while the pool was in use.  The pool works without\n\
             it, with less redundancy.",
            ONLINE,
        ),
        PoolStatus::Resilvering => explain(
            "A device was being given what it lacked, which is not complete.",
            "Keep the other devices.  Import the pool with OpenZFS, which goes on with\n\
             the resilver.",
        ),
        PoolStatus::CorruptData => explain(
            "Data is damaged that no other copy makes up for.",
            "'zpool status -v' names the files: restore them from a backup.  If <metadata>\n\
             is among them, restore the pool.",
        ),
        PoolStatus::CorruptPool => {
            explain("The metadata that holds the pool together is damaged.", RESTORE)
        }
        PoolStatus::Faulted => explain(
            "A device had too many errors and is not used any more.  The pool works\n\
             without it, with less redundancy.",
            "'zpool clear' tries it again.  OpenZFS can replace it.",
        ),
        PoolStatus::IoFailureWait | PoolStatus::IoFailureContinue => explain(
            "Devices that the pool cannot work without do not take what is written.",
            "See to it that they are connected and have room, then run 'zpool clear'.",
        ),
        PoolStatus::FaultedNoReplicas => explain(
            "Devices that the pool cannot work without had too many errors and are not\n\
             used any more.",
            "'zpool clear' tries them again, and may bring back what they still have.",
        ),
        PoolStatus::NonNativeAshift => explain(
            "A device has larger sectors than the pool was made for, and is slow.",
            "Move the data to a pool that is made with a larger 'ashift'.",
        ),
        _ => return None,
    })
}

const fn of_format(status: PoolStatus) -> Option<Texts> {
    Some(match status {
        PoolStatus::VersionOlder => explain(
            "The pool has a format from before there were features.  It works without\n\
             what came later.",
            "'zpool upgrade' brings it up to date.  Software from before then cannot\n\
             open it any more.",
        ),
        PoolStatus::VersionNewer => explain(
            "The pool has a format that is too new for this software.",
            "Open it with newer software.",
        ),
        PoolStatus::FeaturesDisabled => explain(
            "Features that the pool may have are not enabled.  It works without them.",
            "'zpool upgrade' enables them.  Software that does not know them may not be\n\
             able to open the pool any more: see zpool-features(7).",
        ),
        PoolStatus::CompatibilityError => explain(
            "The list of features that the property 'compatibility' names cannot be read.",
            "Look for it in /etc/zfs/compatibility.d and /usr/share/zfs/compatibility.d.",
        ),
        PoolStatus::IncompatibleFeatures => explain(
            "Features are enabled that are not in the list which the property\n\
             'compatibility' names.",
            "Name another list, or add them to it, in /etc/zfs/compatibility.d or\n\
             /usr/share/zfs/compatibility.d.",
        ),
        PoolStatus::UnsupportedFeatures => explain(
            "The pool cannot be opened without features that are not there on this system:",
            "Open it on a system that has them.",
        ),
        PoolStatus::UnsupportedFeaturesForWriting => explain(
            "The pool can only be read: writing takes features that are not there on this\n\
             system:",
            "Import it with '-o readonly=on', or on a system that has them.",
        ),
        PoolStatus::Erratum(Erratum::Scrub) => explain(
            "Errata #1 detected.",
            "Import the pool with OpenZFS and run 'zpool scrub' there, which mends it.",
        ),
        PoolStatus::Erratum(Erratum::EncryptionFormat) => explain(
            "Errata #3 detected.\n\
             Encrypted datasets are stored as a development version did it.",
            "Copy them into new encrypted datasets and destroy them.  Until then they can\n\
             be read: 'zfs mount -o ro'.",
        ),
        PoolStatus::Erratum(Erratum::EncryptionIvSets) => explain(
            "Errata #4 detected.\n\
             Encrypted snapshots and bookmarks lack what a raw 'zfs receive' has to\n\
             compare: it could write damaged data.",
            "Enable the feature bookmark_v2.  Snapshots and bookmarks from before are\n\
             copied with a send that is not raw, or destroyed.",
        ),
        _ => return None,
    })
}
