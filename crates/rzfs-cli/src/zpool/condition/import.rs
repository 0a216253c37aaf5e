//! The texts of the list of importable pools.

use super::{Explanation, Texts, explain};
use rzfs_server::protocol::{Erratum, PoolStatus};

const BY_NAME: &str = "The pool can be imported using its name or numeric identifier.";
const DESPITE: &str = "The pool can be imported without the devices that are missing or damaged,\n\
     with less redundancy.";
const WITHOUT_LOGS: &str = "Log devices are missing: use '-m' to import the pool without them, and\n\
     without the last synced changes that only they have.";
const DESTROYED: &str = "The pool was destroyed: 'zpool import -Df' brings it back.";
const ATTACH: &str = "The pool cannot be imported as long as these devices are missing.";
const DAMAGED: &str = "The pool cannot be imported: too much of it is damaged.";
const UPGRADE: &str = "The pool can be imported using its name or numeric identifier.  What came\n\
     later it has after 'zpool upgrade'.";

/// The prospects of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ImportProspect {
    /// The pool would be imported with all of its devices.
    Whole,
    /// It would succeed with the other devices.
    Degraded,
    /// It would succeed with the other devices if log devices may be missing.
    WithoutLogs,
    /// The pool would be imported with all of its devices, and is reported as destroyed.
    Destroyed,
    /// The pool could not be imported.
    Refused,
}

/// The texts for a pool that was found. `action` applies to pools whose condition requires no
/// message.
pub(crate) fn for_import(status: PoolStatus, outlook: ImportProspect) -> Explanation {
    let action = match outlook {
        ImportProspect::Whole => BY_NAME,
        ImportProspect::Degraded => DESPITE,
        ImportProspect::WithoutLogs => WITHOUT_LOGS,
        ImportProspect::Destroyed => DESTROYED,
        ImportProspect::Refused => DAMAGED,
    };
    let said = match status {
        PoolStatus::Healthy | PoolStatus::Failing | PoolStatus::CorruptData => None,
        PoolStatus::ActiveElsewhere
        | PoolStatus::HostIdRequired
        | PoolStatus::LastUsedElsewhere => of_hosts(status),
        _ if status.is_about_format() => of_format(status, action),
        _ => of_devices(status, action),
    };
    match said {
        Some(texts) => texts.about(status),
        None => Explanation { status: "", action, announces_features: false, id: None },
    }
}

const fn of_hosts(status: PoolStatus) -> Option<Texts> {
    Some(match status {
        PoolStatus::ActiveElsewhere => {
            explain("Another system has the pool imported.", "Export it there first.")
        }
        PoolStatus::HostIdRequired => explain(
            "The pool has multihost=on, which takes a system that has a hostid.",
            "Give this one a hostid of its own: zgenhostid(8).",
        ),
        PoolStatus::LastUsedElsewhere => explain(
            "Another system was the last one to use the pool.",
            "The pool can be imported using its name or numeric identifier and\n\
             the '-f' flag, if that system does not use it any more.",
        ),
        _ => return None,
    })
}

const fn of_devices(status: PoolStatus, action: &'static str) -> Option<Texts> {
    const MISSING: &str = "Devices are missing.";
    const CORRUPT: &str = "Devices have damaged labels.";
    const FAULTED: &str = "Devices had too many errors.";
    Some(match status {
        PoolStatus::Missing | PoolStatus::Removed => explain(MISSING, action),
        PoolStatus::MissingNoReplicas | PoolStatus::GuidSum => explain(MISSING, ATTACH),
        PoolStatus::MissingNewer => explain(
            "A device is missing that has data which was written while the others were\n\
             away.",
            "The pool cannot be imported in read-write mode.  Attach the missing\n\
             devices and try again, or import the pool with '-o readonly=on': what the\n\
             others lack cannot be read then.",
        ),
        PoolStatus::CorruptLabel | PoolStatus::CorruptLabelNoReplicas => explain(CORRUPT, action),
        PoolStatus::CorruptPool => {
            explain("The metadata that holds the pool together is damaged.", action)
        }
        PoolStatus::Faulted | PoolStatus::FaultedNoReplicas => explain(FAULTED, action),
        PoolStatus::Offline => explain("Devices were taken offline.", action),
        PoolStatus::Resilvering => explain("A device was being given what it lacked.", action),
        PoolStatus::LacksData => explain("A device lacks data.", action),
        PoolStatus::NonNativeAshift => {
            explain("A device has larger sectors than the pool was made for, and is slow.", action)
        }
        _ => return None,
    })
}

const fn of_format(status: PoolStatus, action: &'static str) -> Option<Texts> {
    Some(match status {
        PoolStatus::VersionNewer => explain(
            "The pool has a format that is too new for this software.",
            "The pool cannot be imported.  Import it with newer software.",
        ),
        PoolStatus::VersionOlder => {
            explain("The pool has a format from before there were features.", UPGRADE)
        }
        PoolStatus::FeaturesDisabled => {
            explain("Features that the pool may have are not enabled.", UPGRADE)
        }
        PoolStatus::CompatibilityError => explain(
            "The list of features that the property 'compatibility' names cannot be read.",
            BY_NAME,
        ),
        PoolStatus::IncompatibleFeatures => explain(
            "Features are enabled that are not in the list which the property\n\
             'compatibility' names.",
            action,
        ),
        PoolStatus::UnsupportedFeatures => explain(
            "The pool has features that this software does not:",
            "The pool cannot be imported.  Import it on a system that has them.",
        ),
        PoolStatus::UnsupportedFeaturesForWriting => explain(
            "The pool can only be read: writing takes features that this software\n\
             does not have:",
            "The pool cannot be imported in read-write mode.  Import it with\n\
             '-o readonly=on', or on a system that has them.",
        ),
        PoolStatus::Erratum(erratum) => of_erratum(erratum),
        _ => return None,
    })
}

const fn of_erratum(erratum: Erratum) -> Texts {
    match erratum {
        Erratum::Scrub => explain(
            "Errata #1 detected.",
            "The pool can be imported using its name or numeric identifier.  A\n\
             'zpool scrub' with OpenZFS mends it.",
        ),
        Erratum::AsyncDestroy => explain(
            "Errata #2 detected.",
            "The pool cannot be imported: a dataset was being destroyed in the way of an\n\
             early version.  Import it with that, and wait until it is done.",
        ),
        Erratum::EncryptionFormat => explain(
            "Errata #3 detected.",
            "Encrypted datasets are stored as a development version did it.  Copy them\n\
             into new encrypted datasets and destroy them.",
        ),
        Erratum::EncryptionIvSets => explain(
            "Errata #4 detected.",
            "Encrypted snapshots and bookmarks lack what a raw 'zfs receive' has to\n\
             compare: it could write damaged data.  Enable the feature bookmark_v2;\n\
             snapshots and bookmarks from before are copied with a send that is not raw,\n\
             or destroyed.",
        ),
    }
}
