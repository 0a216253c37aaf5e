//! Identities of users and groups (spec 05, section 6.4).
//!
//! An id has 64 bits: the index of a domain and a number in it. Index 0 is the local system: the
//! number is a POSIX id. Other domains are those of Windows; their names stand in the file
//! system's FUID table:
//!
//! ```text
//! packed nvlist { "fuid_nvlist": [ { "fuid_idx": 1, "fuid_offset": 0, "fuid_domain": "S-1-5-..." }, ... ] }
//! ```

/// The id of a user or group.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fuid(pub u64);

impl Fuid {
    /// The POSIX id that stands for every identity of another domain.
    pub const NOBODY: u32 = 65534;

    /// An id of the local system.
    #[must_use]
    pub const fn posix(id: u32) -> Self {
        Self(id as u64)
    }

    /// Index of the domain; 0 = the local system.
    #[must_use]
    pub const fn domain(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number in the domain.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// The POSIX id; [`Self::NOBODY`] for identities of other domains, so that a number of
    /// another domain is never mistaken for a local user.
    #[must_use]
    pub const fn to_posix(self) -> u32 {
        if self.domain() == 0 { self.number() } else { Self::NOBODY }
    }

    /// The key of this id in the accounting and quota objects: lower-case hex.
    #[must_use]
    pub fn accounting_key(self) -> String {
        format!("{:x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_other_domains_are_nobody() {
        assert_eq!(Fuid(1000).to_posix(), 1000);
        let windows = Fuid(2 << 32 | 1000);
        assert_eq!((windows.domain(), windows.number()), (2, 1000));
        assert_eq!(windows.to_posix(), Fuid::NOBODY);
    }

    #[test]
    fn accounting_keys_are_hex() {
        assert_eq!(Fuid::posix(1000).accounting_key(), "3e8");
        assert_eq!(Fuid::posix(77).accounting_key(), "4d");
        assert_eq!(Fuid::posix(0).accounting_key(), "0");
    }
}
