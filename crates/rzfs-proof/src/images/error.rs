//! Why a round has not ended well.

use std::io;
use std::path::Path;

/// Why a round has not ended well.
#[derive(Debug, thiserror::Error)]
pub enum RoundError {
    /// The round itself cannot use something: the host's fault, or its own.
    #[error("{place}: {source}")]
    Host {
        /// A file, directory or program.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// What rzfs has done wrong.
    #[error("{0}")]
    Found(String),
}

impl RoundError {
    pub(super) fn at(place: &Path) -> impl FnOnce(io::Error) -> Self {
        let place = place.display().to_string();
        move |source| Self::Host { place, source }
    }
}
