//! The texts of the list of importable pools.

use super::{Explanation, explain};
use rzfs::protocol::Condition;

const BY_NAME: &str = "The pool can be imported using its name or numeric identifier.";
const DESPITE: &str = "The pool can be imported despite missing or damaged devices.  The\n\
     fault tolerance of the pool may be compromised if imported.";
const WITHOUT_LOGS: &str = "The pool can be imported despite missing or damaged devices.  The\n\
     fault tolerance of the pool may be compromised if imported.\n\
     Log devices are missing: use '-m' to import the pool without them, and\n\
     without the last synced changes that only they have.";
const ATTACH: &str = "The pool cannot be imported. Attach the missing\ndevices and try again.";
const DAMAGED: &str = "The pool cannot be imported due to damaged devices or data.";
const UPGRADE: &str = "The pool can be imported using its name or numeric identifier, though\n\
     some features will not be available without an explicit 'zpool upgrade'.";

/// What would become of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outlook {
    /// The pool would be imported with all of its devices.
    Whole,
    /// The other devices would do.
    Degraded,
    /// The others would do if the pool may do without log devices.
    WithoutLogs,
    /// The pool could not be imported.
    Refused,
}

/// The texts for a pool that was found. `action` is what is said of a pool whose condition has
/// nothing to say about it.
pub(crate) const fn for_import(condition: Condition, outlook: Outlook) -> Explanation {
    let action = match outlook {
        Outlook::Whole => BY_NAME,
        Outlook::Degraded => DESPITE,
        Outlook::WithoutLogs => WITHOUT_LOGS,
        Outlook::Refused => DAMAGED,
    };
    let said = match condition {
        Condition::Healthy | Condition::Failing | Condition::CorruptData => None,
        Condition::VersionOlder
        | Condition::VersionNewer
        | Condition::UnsupportedFeatures
        | Condition::UnsupportedFeaturesForWriting
        | Condition::CompatibilityError
        | Condition::IncompatibleFeatures
        | Condition::FeaturesDisabled
        | Condition::Erratum(_) => of_format(condition, action),
        Condition::ActiveElsewhere | Condition::HostIdRequired | Condition::LastUsedElsewhere => {
            of_hosts(condition)
        }
        _ => of_devices(condition, action),
    };
    match said {
        Some(explanation) => explanation,
        None => explain("", action, None),
    }
}

const fn of_hosts(condition: Condition) -> Option<Explanation> {
    Some(match condition {
        Condition::ActiveElsewhere => explain(
            "The pool is currently imported by another system.",
            "The pool must be exported from the other system\n\
             before it can be safely imported.",
            Some("ZFS-8000-EY"),
        ),
        Condition::HostIdRequired => explain(
            "The pool has the multihost property on.  It cannot\n\
             be safely imported when the system hostid is not set.",
            "Set a unique system hostid with the zgenhostid(8) command.",
            Some("ZFS-8000-EY"),
        ),
        Condition::LastUsedElsewhere => explain(
            "The pool was last accessed by another system.",
            "The pool can be imported using its name or numeric identifier and\n\
             the '-f' flag.",
            Some("ZFS-8000-EY"),
        ),
        _ => return None,
    })
}

const fn of_devices(condition: Condition, action: &'static str) -> Option<Explanation> {
    const MISSING: &str = "One or more devices are missing from the system.";
    const CORRUPT: &str = "One or more devices contains corrupted data.";
    const FAULTED: &str = "One or more devices are faulted.";
    Some(match condition {
        Condition::Missing => explain(MISSING, action, Some("ZFS-8000-2Q")),
        Condition::MissingNoReplicas => explain(MISSING, ATTACH, Some("ZFS-8000-3C")),
        Condition::MissingNewer => explain(
            "One or more devices are missing from the system.  The others lack data\n\
             that was written while they were away.",
            "The pool cannot be imported in read-write mode.  Attach the missing\n\
             devices and try again, or import the pool with '-o readonly=on': what the\n\
             others lack cannot be read then.",
            Some("ZFS-8000-3C"),
        ),
        Condition::GuidSum => explain(MISSING, ATTACH, Some("ZFS-8000-6X")),
        Condition::CorruptLabel => explain(CORRUPT, action, Some("ZFS-8000-4J")),
        Condition::CorruptLabelNoReplicas => explain(CORRUPT, action, Some("ZFS-8000-5E")),
        Condition::CorruptPool => {
            explain("The pool metadata is corrupted.", action, Some("ZFS-8000-72"))
        }
        Condition::Faulted | Condition::FaultedNoReplicas => explain(FAULTED, action, None),
        Condition::Offline => explain("One or more devices are offlined.", action, None),
        Condition::Removed => explain(MISSING, action, None),
        Condition::Resilvering => {
            explain("One or more devices were being resilvered.", action, None)
        }
        Condition::LacksData => explain("One or more devices lack data.", action, None),
        Condition::NonNativeAshift => explain(
            "One or more devices are configured to use a non-native block size.\n\
             Expect reduced performance.",
            action,
            None,
        ),
        _ => return None,
    })
}

const fn of_format(condition: Condition, action: &'static str) -> Option<Explanation> {
    Some(match condition {
        Condition::VersionNewer => explain(
            "The pool is formatted using an incompatible version.",
            "The pool cannot be imported.  Access the pool on a system running newer\n\
             software, or recreate the pool from backup.",
            Some("ZFS-8000-A5"),
        ),
        Condition::VersionOlder => {
            explain("The pool is formatted using a legacy on-disk version.", UPGRADE, None)
        }
        Condition::FeaturesDisabled => explain(
            "Some supported features are not enabled on the pool.\n\
             (Note that they may be intentionally disabled if the\n\
             'compatibility' property is set.)",
            UPGRADE,
            None,
        ),
        Condition::CompatibilityError => explain(
            "Error reading or parsing the file(s) indicated by the 'compatibility'\nproperty.",
            "The pool can be imported using its name or numeric\n\
             identifier, though the file(s) indicated by its 'compatibility'\n\
             property cannot be parsed at this time.",
            None,
        ),
        Condition::IncompatibleFeatures => explain(
            "One or more features are enabled on the pool despite not being\n\
             requested by the 'compatibility' property.",
            action,
            None,
        ),
        Condition::UnsupportedFeatures => explain(
            "The pool uses the following feature(s) not supported on this system:",
            "The pool cannot be imported. Access the pool on a system that supports\n\
             the required feature(s), or recreate the pool from backup.",
            None,
        ),
        Condition::UnsupportedFeaturesForWriting => explain(
            "The pool can only be accessed in read-only mode on this system. It\n\
             cannot be accessed in read-write mode because it uses the following\n\
             feature(s) not supported on this system:",
            "The pool cannot be imported in read-write mode. Import the pool with\n\
             '-o readonly=on', access the pool on a system that supports the\n\
             required feature(s), or recreate the pool from backup.",
            None,
        ),
        Condition::Erratum(number) => return of_erratum(number),
        _ => return None,
    })
}

const fn of_erratum(number: u64) -> Option<Explanation> {
    const ID: Option<&str> = Some("ZFS-8000-ER");
    Some(match number {
        1 => explain(
            "Errata #1 detected.",
            "The pool can be imported using its name or numeric identifier,\n\
             however there is a compatibility issue which should be corrected\n\
             by running 'zpool scrub' with OpenZFS.",
            ID,
        ),
        2 => explain(
            "Errata #2 detected.",
            "The pool cannot be imported with this version of ZFS due to\n\
             an active asynchronous destroy. Revert to an earlier version\n\
             and allow the destroy to complete before updating.",
            ID,
        ),
        3 => explain(
            "Errata #3 detected.",
            "Existing encrypted datasets contain an on-disk incompatibility, which\n\
             needs to be corrected. Backup these datasets to new encrypted datasets\n\
             and destroy the old ones.",
            ID,
        ),
        4 => explain(
            "Errata #4 detected.",
            "Existing encrypted snapshots and bookmarks contain an on-disk\n\
             incompatibility. This may cause on-disk corruption if they are used\n\
             with 'zfs recv'. To correct the issue, enable the bookmark_v2 feature.\n\
             No additional action is needed if there are no encrypted snapshots or\n\
             bookmarks. If preserving the encrypted snapshots and bookmarks is\n\
             required, use a non-raw send to backup and restore them. Alternately,\n\
             they may be removed to resolve the incompatibility.",
            ID,
        ),
        _ => return None,
    })
}
