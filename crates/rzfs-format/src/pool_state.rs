//! States of pools and vdevs by their numbers (spec 01, section 4.5; spec 07, section 4).

use crate::FormatError;

macro_rules! numbered {
    ($(#[$enum_doc:meta])* $enum:ident, $what:literal, $field:literal:
     $($(#[$doc:meta])* $variant:ident = $number:literal,)*) => {
        $(#[$enum_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $enum {
            $($(#[$doc])* $variant = $number,)*
        }

        impl $enum {
            /// The value with this number.
            ///
            /// # Errors
            /// [`FormatError::Field`] for a number without meaning.
            pub fn from_number(number: u64) -> Result<Self, FormatError> {
                Ok(match number {
                    $($number => Self::$variant,)*
                    _ => return Err(FormatError::field($what, $field, number)),
                })
            }

            /// The number.
            #[must_use]
            pub const fn number(self) -> u64 {
                self as u64
            }
        }
    };
}

numbered! {
    /// What a label or configuration says about its pool.
    PoolState, "pool", "state":
    /// Imported, or never exported.
    Active = 0,
    /// Cleanly exported.
    Exported = 1,
    /// Destroyed; can still be imported.
    Destroyed = 2,
    /// The label of a hot spare.
    Spare = 3,
    /// The label of a cache device.
    L2Cache = 4,
}

numbered! {
    /// State of a vdev, worst first.
    VdevState, "vdev", "state":
    /// Not opened yet.
    Unknown = 0,
    /// Closed.
    Closed = 1,
    /// Taken offline by the administrator.
    Offline = 2,
    /// The device vanished.
    Removed = 3,
    /// Opening or validation failed.
    CantOpen = 4,
    /// Closed because of faults.
    Faulted = 5,
    /// Works, but not perfectly.
    Degraded = 6,
    /// Healthy.
    Healthy = 7,
}

numbered! {
    /// Why a vdev has its state.
    VdevAux, "vdev", "aux state":
    /// No reason needed.
    None = 0,
    /// The device could not be opened.
    OpenFailed = 1,
    /// The label or the data is damaged or belongs to another pool.
    CorruptData = 2,
    /// Too many children failed.
    NoReplicas = 3,
    /// The sum of guids is not the uberblock's.
    BadGuidSum = 4,
    /// The device is too small.
    TooSmall = 5,
    /// The label is damaged or missing.
    BadLabel = 6,
    /// The pool's version is newer than the software.
    VersionNewer = 7,
    /// The pool's version is too old.
    VersionOlder = 8,
    /// The pool uses features that the software does not have.
    UnsupportedFeature = 9,
    /// The spare is in use.
    Spared = 10,
    /// Too many errors.
    ErrorsExceeded = 11,
    /// I/O failed.
    IoFailure = 12,
    /// A log record could not be read.
    BadLog = 13,
    /// Faulted from outside.
    External = 14,
    /// Split off into a new pool.
    SplitPool = 15,
    /// The ashift is not possible.
    BadAshift = 16,
    /// Faulted from outside, to be remembered.
    ExternalPersist = 17,
    /// The device is in use.
    Active = 18,
    /// All children are offline.
    ChildrenOffline = 19,
    /// The device's sectors are too big.
    AshiftTooBig = 20,
}

impl VdevState {
    /// The word that `zpool status` shows for this state and reason.
    #[must_use]
    pub const fn word(self, aux: VdevAux) -> &'static str {
        match self {
            Self::Closed | Self::Offline => "OFFLINE",
            Self::Removed => "REMOVED",
            Self::CantOpen => match aux {
                VdevAux::CorruptData | VdevAux::BadLog => "FAULTED",
                VdevAux::SplitPool => "SPLIT",
                _ => "UNAVAIL",
            },
            Self::Faulted => "FAULTED",
            Self::Degraded => "DEGRADED",
            Self::Healthy => "ONLINE",
            Self::Unknown => "UNKNOWN",
        }
    }
}

impl VdevAux {
    /// The words that `zpool status` puts behind a vdev; `None` when there is nothing to say.
    #[must_use]
    pub const fn words(self) -> Option<&'static str> {
        Some(match self {
            Self::None => return None,
            Self::OpenFailed => "cannot open",
            Self::CorruptData => "corrupted data",
            Self::NoReplicas => "insufficient replicas",
            Self::BadGuidSum => "missing device",
            Self::TooSmall => "one or more devices is too small",
            Self::BadLabel => "invalid label",
            Self::VersionNewer => "newer version",
            Self::VersionOlder => "older version",
            Self::UnsupportedFeature => "unsupported feature(s)",
            Self::Spared | Self::Active => "currently in use",
            Self::ErrorsExceeded => "too many errors",
            Self::IoFailure => "experienced I/O failures",
            Self::BadLog => "bad intent log",
            Self::External | Self::ExternalPersist => "external device fault",
            Self::SplitPool => "split into new pool",
            Self::BadAshift | Self::AshiftTooBig => "unsupported minimum blocksize",
            Self::ChildrenOffline => "all children offline",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_both_ways() {
        for number in 0..5 {
            assert_eq!(PoolState::from_number(number).unwrap().number(), number);
        }
        for number in 0..8 {
            assert_eq!(VdevState::from_number(number).unwrap().number(), number);
        }
        for number in 0..21 {
            assert_eq!(VdevAux::from_number(number).unwrap().number(), number);
        }
        assert!(PoolState::from_number(5).is_err());
        assert!(VdevState::from_number(8).is_err());
        assert!(VdevAux::from_number(21).is_err());
    }

    #[test]
    fn words_depend_on_the_reason() {
        assert_eq!(VdevState::CantOpen.word(VdevAux::OpenFailed), "UNAVAIL");
        assert_eq!(VdevState::CantOpen.word(VdevAux::CorruptData), "FAULTED");
        assert_eq!(VdevState::CantOpen.word(VdevAux::SplitPool), "SPLIT");
        assert_eq!(VdevState::Healthy.word(VdevAux::None), "ONLINE");
        assert!(VdevState::Healthy > VdevState::Degraded);
    }
}
