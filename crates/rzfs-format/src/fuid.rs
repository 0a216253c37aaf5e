//! Identities of users and groups (spec 05, section 6.4).
//!
//! An id has 64 bits: the index of a domain and a number in it. Index 0 is the local system: the
//! number is a POSIX id. Other domains are those of Windows; their names stand in the file
//! system's FUID table:
//!
//! ```text
//! packed nvlist {
//!     "fuid_nvlist": [ { "fuid_idx": 1, "fuid_offset": 0, "fuid_domain": "S-1-5-..." }, ... ]
//! }
//! ```

use crate::FormatError;
use crate::nvlist::{NvList, NvString};
use std::collections::BTreeMap;

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

    /// The id that has this key there; `None` if none has.
    #[must_use]
    pub fn from_accounting_key(key: &str) -> Option<Self> {
        let id = Self(u64::from_str_radix(key, 16).ok()?);
        (id.accounting_key() == key).then_some(id)
    }
}

/// The domains of a file system's identities, by index.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FuidTable(BTreeMap<u32, NvString>);

impl FuidTable {
    /// Decodes the packed list. Indexes start at 1 and none repeats; no domain is empty.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "FUID table";
        let list = NvList::decode(bytes)?;
        let mut domains = BTreeMap::new();
        for entry in list.lists("fuid_nvlist")? {
            let index = entry.u64("fuid_idx")?;
            let bad = || FormatError::field(WHAT, "index", index);
            let number = u32::try_from(index).ok().filter(|index| *index > 0).ok_or_else(bad)?;
            let domain = entry.string("fuid_domain")?;
            if domain.is_empty() {
                return Err(FormatError::invalid(WHAT, "an empty domain"));
            }
            if domains.insert(number, domain.clone()).is_some() {
                return Err(bad());
            }
        }
        Ok(Self(domains))
    }

    /// The name of a domain.
    #[must_use]
    pub fn domain(&self, index: u32) -> Option<&NvString> {
        self.0.get(&index)
    }

    /// Indexes and names, in the order of indexes.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &NvString)> {
        self.0.iter().map(|(index, domain)| (*index, domain))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvlist::{Encoding, NvValue};

    fn table(entries: &[(u64, &str)]) -> Vec<u8> {
        let entries: Vec<NvList> = entries
            .iter()
            .map(|(index, domain)| {
                let mut entry = NvList::new();
                entry.insert("fuid_idx", *index).unwrap();
                entry.insert("fuid_offset", 0_u64).unwrap();
                entry.insert("fuid_domain", NvString::try_from(*domain).unwrap()).unwrap();
                entry
            })
            .collect();
        let mut list = NvList::new();
        list.insert("fuid_nvlist", NvValue::ListArray(entries.into())).unwrap();
        list.encode(Encoding::Xdr).unwrap()
    }

    #[test]
    fn tables_name_domains() {
        let table = FuidTable::decode(&table(&[(1, "S-1-5-21-1"), (2, "S-1-5-21-2")])).unwrap();
        assert_eq!(table.domain(2).unwrap(), "S-1-5-21-2");
        assert_eq!(table.domain(3), None);
        assert_eq!(table.iter().count(), 2);
    }

    #[test]
    fn damaged_tables_are_refused() {
        for entries in [&[(0, "a")][..], &[(1, "")], &[(1, "a"), (1, "b")], &[(1 << 32, "a")]] {
            assert!(FuidTable::decode(&table(entries)).is_err(), "{entries:?}");
        }
        assert!(FuidTable::decode(b"").is_err());
    }

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
