//! Why a round failed.

use std::io;
use std::path::Path;

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// A failure of the host, or of the round itself.
    #[error("{place}: {source}")]
    Host {
        /// A file, directory or program.
        place: String,
        /// The error of the system.
        source: io::Error,
    },
    /// An error of rzfs.
    #[error("{0}")]
    Found(String),
}

impl RoundError {
    pub(super) fn at(place: &Path) -> impl FnOnce(io::Error) -> Self {
        let place = place.display().to_string();
        move |source| Self::Host { place, source }
    }
}
