//! The stored properties of a pool (spec 01, section 7.1).

use super::attributes::Attributes;
use super::error::PoolError;
use crate::mos::text;
use rzfs_dmu::Objset;
use rzfs_format::ObjectId;
use rzfs_format::config::PoolConfig;
use rzfs_format::property::PoolProperty;

/// A value, and whether it was set or is the default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stored<T> {
    /// The value.
    pub value: T,
    /// Its source.
    pub source: PropertySource,
}

/// The source of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PropertySource {
    /// Not set.
    Default,
    /// Set.
    Local,
}

impl<T> Stored<T> {
    const fn local(value: T) -> Self {
        Self { value, source: PropertySource::Local }
    }

    const fn default(value: T) -> Self {
        Self { value, source: PropertySource::Default }
    }
}

impl<T: PartialEq> Stored<T> {
    /// A stored value. One that equals the default counts as not set.
    fn of(value: T, default: &T) -> Self {
        if value == *default { Self::default(value) } else { Self::local(value) }
    }
}

/// What a pool does when an essential device fails.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum FailMode {
    /// Waits for the device.
    #[default]
    Wait,
    /// Returns EIO.
    Continue,
    /// Stops the system.
    Panic,
}

impl FailMode {
    /// The mode stored as this number.
    #[must_use]
    pub const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Wait),
            1 => Some(Self::Continue),
            2 => Some(Self::Panic),
            _ => None,
        }
    }

    /// The value shown by `zpool get`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Continue => "continue",
            Self::Panic => "panic",
        }
    }
}

/// The stored properties of a pool; unset properties and those with an invalid value have their
/// defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolProperties {
    /// `ashift`: log2 of the sector size for new vdevs; 0 = as the devices say.
    pub ashift: Stored<u64>,
    /// `delegation`.
    pub delegation: Stored<bool>,
    /// `autoreplace`.
    pub autoreplace: Stored<bool>,
    /// `listsnapshots`.
    pub listsnapshots: Stored<bool>,
    /// `autoexpand`.
    pub autoexpand: Stored<bool>,
    /// `failmode`.
    pub failmode: Stored<FailMode>,
    /// `autotrim`.
    pub autotrim: Stored<bool>,
    /// `multihost`.
    pub multihost: Stored<bool>,
    /// `bootfs`: the dataset's object; `None` = none.
    pub bootfs: Stored<Option<ObjectId>>,
    /// `dedup_table_quota` in bytes; `None` = as large as the dedup vdevs.
    pub dedup_table_quota: Stored<Option<u64>>,
    /// `comment`.
    pub comment: Stored<Option<String>>,
    /// `compatibility`; `None` = off.
    pub compatibility: Stored<Option<String>>,
    /// `version`; set in pools without feature flags, the default in those with them.
    pub version: Stored<u64>,
    /// User properties by name.
    pub user: Vec<(String, String)>,
}

impl PoolProperties {
    /// Reads the properties of a pool.
    pub(super) fn read(
        mos: &Objset,
        directory: &Attributes,
        config: &PoolConfig,
        version: u64,
    ) -> Result<Self, PoolError> {
        let mut properties = Self::defaults(config, version);
        if let Some(object) = directory.object("pool_props")? {
            for entry in Attributes::open(mos, object)?.entries()? {
                let Some(name) = entry.key.as_name().map(text) else { continue };
                if let Some(number) = entry.value.first_u64() {
                    properties.set(&name, number);
                } else if let Some(value) = entry.value.as_bytes().filter(|_| name.contains(':')) {
                    properties.user.push((name, text(value)));
                }
            }
            properties.user.sort();
        }
        Ok(properties)
    }

    fn defaults(config: &PoolConfig, version: u64) -> Self {
        let optional = |text: &Option<String>| match text {
            Some(text) => Stored::local(Some(text.clone())),
            None => Stored::default(None),
        };
        Self {
            ashift: Stored::default(0),
            delegation: Stored::default(true),
            autoreplace: Stored::default(false),
            listsnapshots: Stored::default(false),
            autoexpand: Stored::default(false),
            failmode: Stored::default(FailMode::Wait),
            autotrim: Stored::default(false),
            multihost: Stored::default(false),
            bootfs: Stored::default(None),
            dedup_table_quota: Stored::default(None),
            comment: optional(&config.comment),
            compatibility: optional(&config.compatibility),
            version: if version == rzfs_format::uberblock::FEATURES_VERSION {
                Stored::default(version)
            } else {
                Stored::local(version)
            },
            user: Vec::new(),
        }
    }

    /// Overrides a default with a stored number.
    fn set(&mut self, name: &str, number: u64) {
        let flag = match number {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        let flag_of = |property: &mut Stored<bool>| {
            if let Some(flag) = flag {
                *property = Stored::of(flag, &property.value);
            }
        };
        let Some(property) = PoolProperty::from_name(name) else { return };
        match property {
            PoolProperty::Ashift if property.values().check(number).is_ok() => {
                self.ashift = Stored::of(number, &0);
            }
            PoolProperty::Delegation => flag_of(&mut self.delegation),
            PoolProperty::AutoReplace => flag_of(&mut self.autoreplace),
            PoolProperty::ListSnapshots => flag_of(&mut self.listsnapshots),
            PoolProperty::AutoExpand => flag_of(&mut self.autoexpand),
            PoolProperty::Autotrim => flag_of(&mut self.autotrim),
            PoolProperty::Multihost => flag_of(&mut self.multihost),
            PoolProperty::FailMode => {
                if let Some(mode) = FailMode::from_number(number) {
                    self.failmode = Stored::of(mode, &FailMode::default());
                }
            }
            PoolProperty::BootFs => self.bootfs = Stored::of(ObjectId(number).non_zero(), &None),
            PoolProperty::DedupTableQuota => {
                let quota = Some(number).filter(|number| *number != u64::MAX);
                self.dedup_table_quota = Stored::of(quota, &None);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::config::LastHost;
    use rzfs_format::nvlist::NvList;
    use rzfs_format::pool_state::PoolState;
    use rzfs_format::{Guid, Txg};

    fn properties(version: u64) -> PoolProperties {
        let config = PoolConfig {
            version,
            name: "tank".into(),
            state: PoolState::Active,
            txg: Txg(4),
            guid: Guid(1),
            errata: None,
            comment: Some("mine".into()),
            compatibility: None,
            host: LastHost::default(),
            vdev_children: None,
            holes: Vec::new(),
            split_guid: None,
            features_for_read: None,
            vdev_tree: NvList::new(),
        };
        PoolProperties::defaults(&config, version)
    }

    #[test]
    fn stored_numbers_replace_defaults() {
        let mut properties = properties(5000);
        for (name, number) in [("ashift", 12), ("delegation", 0), ("failmode", 2), ("bootfs", 54)] {
            properties.set(name, number);
        }
        assert_eq!(properties.ashift, Stored::local(12));
        assert_eq!(properties.delegation, Stored::local(false));
        assert_eq!(properties.failmode.value.name(), "panic");
        assert_eq!(properties.bootfs, Stored::local(Some(ObjectId(54))));
        assert_eq!(properties.autotrim, Stored::default(false));
        assert_eq!(properties.comment, Stored::local(Some("mine".into())));
    }

    #[test]
    fn senseless_numbers_are_ignored() {
        let mut changed = properties(5000);
        for (name, number) in
            [("ashift", 64), ("delegation", 2), ("failmode", 3), ("dedupditto", 1)]
        {
            changed.set(name, number);
        }
        assert_eq!(changed, properties(5000));
    }

    #[test]
    fn numbered_versions_count_as_set() {
        assert_eq!(properties(28).version, Stored::local(28));
        assert_eq!(properties(5000).version, Stored::default(5000));
    }
}
