//! Runs on devices that fail, with power cuts.

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

/// A run on devices that fail, and what power cuts leave of it.
#[derive(Clone, Copy, Debug)]
pub struct FaultRound {
    /// What is done to which pool.
    pub workload: Workload,
    /// Which faults, changes and power cuts: the same seed finds the same again, as far as threads
    /// allow it.
    pub seed: u64,
}

impl FaultRound {
    /// What is wrong: something that was waited for is lost, cannot be read or is not what it was,
    /// or the round does not end.
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
