//! Valid names in a file system, and matching them with entries (spec 05, sections 3.2 and 3.3).

use crate::error::{Place, ZplError};
use crate::master::{CaseSensitivity, MasterNode};
use rzfs_dmu::DmuError;
use rzfs_zap::{Matching, Zap, ZapBlocks, ZapError};

/// The name rules of one file system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRules {
    matching: Matching,
    utf8_only: bool,
}

impl NameRules {
    pub(crate) fn new(master: &MasterNode) -> Self {
        let matching = match master.case {
            CaseSensitivity::Sensitive if master.normalization.is_none() => Matching::Exact,
            CaseSensitivity::Sensitive | CaseSensitivity::Insensitive => Matching::Normalized,
            CaseSensitivity::Mixed => Matching::NormalizedCase,
        };
        Self { matching, utf8_only: master.utf8_only }
    }

    /// How names match in a directory: one without its own rules compares bytes, whatever the file
    /// system's rules.
    pub(crate) fn matching_in<B: ZapBlocks<Error = DmuError>>(&self, zap: &Zap<B>) -> Matching {
        if zap.normalization().is_none() { Matching::Exact } else { self.matching }
    }

    /// Refuses invalid names, and those of more than `max` bytes.
    pub(crate) fn check(&self, directory: Place, name: &[u8], max: usize) -> Result<(), ZplError> {
        if name.len() > max {
            return Err(ZplError::NameTooLong { directory, length: name.len() });
        }
        if self.utf8_only && std::str::from_utf8(name).is_err() {
            return Err(ZplError::NameNotUtf8 { directory });
        }
        Ok(())
    }

    /// The value of the entry that a name matches.
    pub(crate) fn lookup<B: ZapBlocks<Error = DmuError>>(
        &self,
        zap: &Zap<B>,
        name: &[u8],
    ) -> Result<Option<u64>, ZapError<DmuError>> {
        let matching = self.matching_in(zap);
        if matching == Matching::Exact {
            return zap.lookup_u64(name);
        }
        match zap.lookup_matching(name, matching)? {
            None => Ok(None),
            Some(entry) => entry.value.first_u64().map(Some).ok_or(ZapError::ValueKind),
        }
    }
}
