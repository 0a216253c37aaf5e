//! Which names a file system takes, and when one matches an entry (spec 05, sections 3.2 and 3.3).

use crate::error::{Place, ZplError};
use crate::master::{CaseSensitivity, MasterNode};
use rzfs_dmu::Object;
use rzfs_zap::{Matching, Zap, ZapError};

/// The rules of one file system for names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameRules {
    matching: Matching,
    utf8_only: bool,
    max: usize,
}

impl NameRules {
    pub(crate) fn new(master: &MasterNode, max: usize) -> Self {
        let matching = match master.case {
            CaseSensitivity::Sensitive if master.normalization.is_none() => Matching::Exact,
            CaseSensitivity::Sensitive | CaseSensitivity::Insensitive => Matching::Normalized,
            CaseSensitivity::Mixed => Matching::NormalizedCase,
        };
        Self { matching, utf8_only: master.utf8_only, max }
    }

    /// Longest name in bytes.
    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    /// Refuses names that no entry can have.
    pub(crate) fn check(&self, directory: Place, name: &[u8]) -> Result<(), ZplError> {
        if name.len() > self.max {
            return Err(ZplError::NameTooLong { directory, length: name.len() });
        }
        if self.utf8_only && std::str::from_utf8(name).is_err() {
            return Err(ZplError::NameNotUtf8 { directory });
        }
        Ok(())
    }

    /// The value of the entry that a name matches.
    pub(crate) fn lookup(
        &self,
        zap: &Zap<Object>,
        name: &[u8],
    ) -> Result<Option<u64>, ZapError<rzfs_dmu::DmuError>> {
        // A directory without rules of its own compares bytes, whatever the file system says.
        if self.matching == Matching::Exact || zap.normalization().is_none() {
            return zap.lookup_u64(name);
        }
        match zap.lookup_matching(name, self.matching)? {
            None => Ok(None),
            Some(entry) => entry.value.first_u64().map(Some).ok_or(ZapError::ValueKind),
        }
    }
}
