//! Runs on failing devices, with power cuts.

use super::synced::SyncedRecording;
use super::trouble::Trouble;
use super::workload::Workload;
use crate::ProofError;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Power cuts of a round.
const CRASHES: u64 = 4;

/// Longer than any round takes on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// A run on failing devices, and the results of power cuts.
#[derive(Clone, Copy, Debug)]
pub struct FaultRound {
    /// The workload.
    pub workload: Workload,
    /// Determines faults, changes and power cuts: the same seed reproduces them, as far as threads
    /// allow.
    pub seed: u64,
}

impl FaultRound {
    /// The error found: something that was waited for is lost, unreadable or changed, or the round
    /// does not end.
    #[must_use]
    pub fn finding(self) -> Option<String> {
        let (done, waiting) = mpsc::channel();
        thread::spawn(move || done.send(self.examine()));
        match waiting.recv_timeout(PATIENCE) {
            Ok(Ok(finding)) => finding,
            Ok(Err(error)) => Some(error.to_string()),
            Err(mpsc::RecvTimeoutError::Timeout) => Some("it does not end".to_owned()),
            Err(mpsc::RecvTimeoutError::Disconnected) => Some("it panics".to_owned()),
        }
    }

    fn examine(self) -> Result<Option<String>, ProofError> {
        let trouble = Trouble::of_seed(self.seed);
        let recording = SyncedRecording::with_trouble(self.workload, self.seed, &trouble)?;
        Ok((0..CRASHES).find_map(|number| recording.finding(number)))
    }
}
