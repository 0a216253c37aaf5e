//! Properties that bound or tell what somebody uses: `userquota@joe`, `groupused@1000`, ...
//! (spec 09, section 5.1).

use super::SettingError;
use crate::quantity::parse_size;
use rzfs_zpl::{QuotaOwner, QuotaUnit};

/// What such a property is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnerAspect {
    /// What somebody uses.
    Used,
    /// What somebody may use.
    Quota,
}

/// A property about one user, group or project.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OwnerProperty {
    /// What it is about.
    pub aspect: OwnerAspect,
    /// Whose.
    pub owner: QuotaOwner,
    /// Of what.
    pub unit: QuotaUnit,
    /// Number of the user, group or project.
    pub id: u64,
}

/// What a name begins with.
const KINDS: [(&str, QuotaOwner, QuotaUnit); 6] = [
    ("userobj", QuotaOwner::User, QuotaUnit::Objects),
    ("user", QuotaOwner::User, QuotaUnit::Bytes),
    ("groupobj", QuotaOwner::Group, QuotaUnit::Objects),
    ("group", QuotaOwner::Group, QuotaUnit::Bytes),
    ("projectobj", QuotaOwner::Project, QuotaUnit::Objects),
    ("project", QuotaOwner::Project, QuotaUnit::Bytes),
];

impl OwnerProperty {
    /// The property of this name; `None` if it is of another kind. Names of users and groups are
    /// those of this host.
    ///
    /// # Errors
    /// [`SettingError::OwnerName`]: there is nobody of this name.
    pub fn parse(name: &str) -> Result<Option<Self>, SettingError> {
        let Some((kind, who)) = name.split_once('@') else { return Ok(None) };
        let found = KINDS.iter().find_map(|(prefix, owner, unit)| {
            let aspect = match kind.strip_prefix(prefix)? {
                "used" => OwnerAspect::Used,
                "quota" => OwnerAspect::Quota,
                _ => return None,
            };
            Some((aspect, *owner, *unit))
        });
        let Some((aspect, owner, unit)) = found else { return Ok(None) };
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

    /// The quota that a word says; `None` is none.
    ///
    /// # Errors
    /// [`SettingError`]: it is no number, 0, or what is used is to be set.
    pub fn parse_quota(self, name: &str, word: &str) -> Result<Option<u64>, SettingError> {
        if self.aspect == OwnerAspect::Used {
            return Err(SettingError::ReadOnly(name.to_owned()));
        }
        match word {
            "none" => Ok(None),
            word => match parse_size(word)? {
                0 => Err(SettingError::UseNone("userquota/groupquota/projectquota".to_owned())),
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
