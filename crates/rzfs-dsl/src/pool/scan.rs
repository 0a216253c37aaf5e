//! The last scrub or resilver, and RAID-Z expansions (spec 01, section 6; spec 07, sections 10
//! and 16).

use rzfs_format::FormatError;
use rzfs_format::Txg;
use serde::{Deserialize, Serialize};

const WHAT: &str = "scan";

/// The purpose of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScanFunction {
    /// Reads and checks every block.
    Scrub,
    /// Writes missing data to a device.
    Resilver,
}

/// The progress of a scan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScanStatus {
    /// It is running, or will be once the pool is open for writing.
    Running,
    /// It is complete.
    Finished,
    /// It was cancelled.
    Canceled,
}

/// The state of the last scan: `scan` in the object directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanState {
    /// Its purpose.
    pub function: ScanFunction,
    /// Its progress.
    pub status: ScanStatus,
    /// Blocks born after this txg are examined ...
    pub min_txg: Txg,
    /// ... up to and including this one.
    pub max_txg: Txg,
    /// Start time, in seconds since 1970.
    pub start_time: u64,
    /// End time, in seconds since 1970; 0 while it is running.
    pub end_time: u64,
    /// Bytes to examine.
    pub to_examine: u64,
    /// Bytes examined.
    pub examined: u64,
    /// Bytes skipped because they need no repair.
    pub skipped: u64,
    /// Bytes repaired or resilvered.
    pub processed: u64,
    /// Errors that could not be repaired.
    pub errors: u64,
    /// `DSF_*`.
    pub flags: u64,
}

impl ScanState {
    /// Decodes the entry's words; `None` when there was no scan. Old pools have fewer words, and in
    /// other positions if written by software before version 25.
    ///
    /// # Errors
    /// [`FormatError::Field`] for an unknown function or state.
    pub fn from_words(words: &[u64]) -> Result<Option<Self>, FormatError> {
        let word = |index: usize| words.get(index).copied().unwrap_or(0);
        let function = match word(0) {
            0 => return Ok(None),
            1 => ScanFunction::Scrub,
            2 => ScanFunction::Resilver,
            number => return Err(FormatError::field(WHAT, "function", number)),
        };
        let status = match word(1) {
            0 => return Ok(None),
            1 => ScanStatus::Running,
            2 => ScanStatus::Finished,
            3 => ScanStatus::Canceled,
            number => return Err(FormatError::field(WHAT, "state", number)),
        };
        Ok(Some(Self {
            function,
            status,
            min_txg: Txg(word(3)),
            max_txg: Txg(word(4)),
            start_time: word(7),
            end_time: word(8),
            to_examine: word(9),
            examined: word(10),
            skipped: word(11),
            processed: word(12),
            errors: word(13),
            flags: word(23),
        }))
    }
}

/// The progress of the last expansion of a RAID-Z vdev.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpansionState {
    /// Its progress.
    pub status: ScanStatus,
    /// Start time, in seconds since 1970.
    pub start_time: u64,
    /// End time, in seconds since 1970; 0 while it is running.
    pub end_time: u64,
    /// Bytes copied.
    pub copied: u64,
}

impl ExpansionState {
    /// The state from the values in the vdev's ZAP; `None` when there was no expansion.
    ///
    /// # Errors
    /// [`FormatError::Field`] for an unknown state.
    pub(super) fn new(
        state: u64,
        start_time: u64,
        end_time: u64,
        copied: u64,
    ) -> Result<Option<Self>, FormatError> {
        let status = match state {
            0 => return Ok(None),
            1 => ScanStatus::Running,
            2 => ScanStatus::Finished,
            3 => ScanStatus::Canceled,
            number => return Err(FormatError::field("RAID-Z expansion", "state", number)),
        };
        Ok(Some(Self { status, start_time, end_time, copied }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_finished_scrub() {
        let mut words = [0; 24];
        words[..14].copy_from_slice(&[1, 2, 0, 0, 46, 0, 0, 100, 102, 5, 5, 0, 0, 1]);
        let scan = ScanState::from_words(&words).unwrap().unwrap();
        assert_eq!((scan.function, scan.status), (ScanFunction::Scrub, ScanStatus::Finished));
        assert_eq!((scan.max_txg, scan.start_time, scan.end_time), (Txg(46), 100, 102));
        assert_eq!((scan.to_examine, scan.errors), (5, 1));
        assert_eq!(ScanState::from_words(&words[..20]), Ok(Some(scan)));
    }

    #[test]
    fn no_scan_and_no_sense() {
        assert_eq!(ScanState::from_words(&[]), Ok(None));
        assert_eq!(ScanState::from_words(&[1, 0]), Ok(None));
        assert!(ScanState::from_words(&[9, 1]).is_err());
        assert!(ScanState::from_words(&[1, 9]).is_err());
    }
}
