//! Properties for the usage and quota of an owner: `userquota@joe`, `groupused@1000`, ... (spec 09,
//! section 5.1).

use super::SettingError;
use crate::quantity::parse_size;
use rzfs_format::property::NumberFormat;
use rzfs_zpl::{QuotaOwner, QuotaUnit};

/// The aspect of such a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerAspect {
    /// The usage.
    Used,
    /// The quota.
    Quota,
}

impl OwnerAspect {
    pub(super) const ALL: [Self; 2] = [Self::Used, Self::Quota];

    const fn word(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Quota => "quota",
        }
    }
}

/// A property of one user, group or project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerProperty {
    /// Its aspect.
    pub aspect: OwnerAspect,
    /// The kind of owner.
    pub owner: QuotaOwner,
    /// The unit.
    pub unit: QuotaUnit,
    /// Number of the user, group or project.
    pub id: u64,
}

/// Prefixes of the names, in the order of the usage.
const KINDS: [(&str, QuotaOwner, QuotaUnit); 6] = [
    ("user", QuotaOwner::User, QuotaUnit::Bytes),
    ("group", QuotaOwner::Group, QuotaUnit::Bytes),
    ("project", QuotaOwner::Project, QuotaUnit::Bytes),
    ("userobj", QuotaOwner::User, QuotaUnit::Objects),
    ("groupobj", QuotaOwner::Group, QuotaUnit::Objects),
    ("projectobj", QuotaOwner::Project, QuotaUnit::Objects),
];

/// The names of all such properties up to the `@`.
pub(super) fn names(aspect: OwnerAspect) -> impl Iterator<Item = String> {
    KINDS.iter().map(move |(kind, ..)| format!("{kind}{}", aspect.word()))
}

/// Splits a name into aspect, kind of owner, unit, and owner.
fn parts(name: &str) -> Option<(OwnerAspect, QuotaOwner, QuotaUnit, &str)> {
    let (about, who) = name.split_once('@')?;
    KINDS.iter().find_map(|(kind, owner, unit)| {
        let word = about.strip_prefix(kind)?;
        let aspect = OwnerAspect::ALL.into_iter().find(|aspect| aspect.word() == word)?;
        Some((aspect, *owner, *unit, who))
    })
}

impl OwnerProperty {
    /// The property of this name; `None` if it is of another kind. Names of users and groups are
    /// those of this host.
    ///
    /// # Errors
    /// [`SettingError::OwnerName`]: there is no such user or group.
    pub fn parse(name: &str) -> Result<Option<Self>, SettingError> {
        let Some((aspect, owner, unit, who)) = parts(name) else { return Ok(None) };
        let id = match who.parse() {
            Ok(id) => Some(id),
            Err(_) => match owner {
                QuotaOwner::User => number_of("/etc/passwd", who),
                QuotaOwner::Group => number_of("/etc/group", who),
                QuotaOwner::Project => None,
            },
        };
        let id = id.ok_or_else(|| SettingError::OwnerName(name.to_owned()))?;
        Ok(Some(Self { aspect, owner, unit, id }))
    }

    /// The display format of the property of this name, for any owner; `None` if it is of another
    /// kind or has no owner.
    #[must_use]
    pub fn format(name: &str) -> Option<NumberFormat> {
        let (aspect, _, unit, who) = parts(name)?;
        let format = match (aspect, unit) {
            (OwnerAspect::Used, QuotaUnit::Bytes) => NumberFormat::Bytes,
            (OwnerAspect::Quota, QuotaUnit::Bytes) => NumberFormat::BytesOrNone,
            (OwnerAspect::Used, QuotaUnit::Objects) => NumberFormat::Scaled,
            (OwnerAspect::Quota, QuotaUnit::Objects) => NumberFormat::ScaledOrNone,
        };
        Some(format).filter(|_| !who.is_empty())
    }

    /// Parses a quota; `None` for no quota.
    ///
    /// # Errors
    /// [`SettingError`]: it is not a number, 0, or the usage is to be set.
    pub fn parse_quota(self, name: &str, word: &str) -> Result<Option<u64>, SettingError> {
        if self.aspect == OwnerAspect::Used {
            return Err(SettingError::ReadOnly(name.to_owned()));
        }
        match word {
            "none" => Ok(None),
            word => match parse_size(word)? {
                0 => Err(SettingError::ZeroLimit("userquota/groupquota/projectquota".to_owned())),
                quota => Ok(Some(quota)),
            },
        }
    }
}

/// The number of a name in a table like `/etc/passwd`.
fn number_of(table: &str, name: &str) -> Option<u64> {
    let table = std::fs::read_to_string(table).ok()?;
    table.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() == Some(name) { fields.nth(1)?.parse().ok() } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_and_what() {
        let quota = OwnerProperty::parse("userobjquota@1000").unwrap().unwrap();
        let expected = OwnerProperty {
            aspect: OwnerAspect::Quota,
            owner: QuotaOwner::User,
            unit: QuotaUnit::Objects,
            id: 1000,
        };
        assert_eq!(quota, expected);
        let used = OwnerProperty::parse("groupused@root").unwrap().unwrap();
        assert_eq!((used.owner, used.aspect, used.id), (QuotaOwner::Group, OwnerAspect::Used, 0));
        for other in ["quota", "written@snap", "org.example:x@y", "userquotas@1"] {
            assert_eq!(OwnerProperty::parse(other).unwrap(), None, "{other}");
        }
        let unknown = OwnerProperty::parse("userquota@nobody-has-this-name").unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "'userquota@nobody-has-this-name' has an invalid user/group name"
        );
        assert!(OwnerProperty::parse("projectquota@root").is_err());
    }

    #[test]
    fn quotas_are_sizes_or_none() {
        let quota = OwnerProperty::parse("userquota@1").unwrap().unwrap();
        assert_eq!(quota.parse_quota("userquota@1", "1G").unwrap(), Some(1 << 30));
        assert_eq!(quota.parse_quota("userquota@1", "none").unwrap(), None);
        assert!(quota.parse_quota("userquota@1", "0").is_err());
        let used = OwnerProperty::parse("userused@1").unwrap().unwrap();
        let error = used.parse_quota("userused@1", "1").unwrap_err();
        assert_eq!(error.to_string(), "'userused@1' is readonly");
    }
}
