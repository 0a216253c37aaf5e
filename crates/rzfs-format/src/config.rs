//! What the configuration of a pool says, in labels and in the MOS (spec 01, section 4.2).
//!
//! A configuration is an [`NvList`]. The types here are its typed readings: keys of the pool as
//! fields, the tree of vdevs still a list. Unknown keys are ignored, as OpenZFS does.

mod encode;

pub use encode::{LabelledLeaf, VdevZaps};

use crate::nvlist::{NvList, NvString};
use crate::pool_state::PoolState;
use crate::{FormatError, Guid, Txg};

/// Most top-level vdevs that a configuration may have, holes included; OpenZFS has no bound, but
/// addresses have room for 2^24, and no pool has thousands. It bounds what a label can make an
/// import allocate.
pub const MAX_TOP_LEVELS: u64 = 1 << 12;

/// The keys of a pool that labels and the MOS configuration share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PoolConfig {
    /// `version`: 1 where absent.
    pub version: u64,
    /// `name`.
    pub name: String,
    /// `state`.
    pub state: PoolState,
    /// `txg`: in which this copy was written.
    pub txg: Txg,
    /// `pool_guid`.
    pub guid: Guid,
    /// `errata`.
    pub errata: Option<u64>,
    /// `comment`.
    pub comment: Option<String>,
    /// `compatibility`.
    pub compatibility: Option<String>,
    /// `hostid` and `hostname`.
    pub host: LastHost,
    /// `vdev_children`: number of top-level vdevs, holes included.
    pub vdev_children: Option<u64>,
    /// `hole_array`: which of them are holes.
    pub holes: Vec<u64>,
    /// `split_guid`: the pool from which this one is being split.
    pub split_guid: Option<Guid>,
    /// `features_for_read`: guids of active features without which the MOS cannot be read;
    /// `None` in configurations of software that did not know features.
    pub features_for_read: Option<Vec<NvString>>,
    /// `vdev_tree`.
    pub vdev_tree: NvList,
}

/// The host that wrote a configuration.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LastHost {
    /// `hostid`: the low 32 bits; 0 where absent.
    pub id: u64,
    /// `hostname`.
    pub name: Option<String>,
}

impl PoolConfig {
    /// Reads the keys of a configuration.
    ///
    /// # Errors
    /// [`FormatError`] when one that every configuration has is not there, or one has a wrong
    /// type or value.
    pub fn from_list(list: &NvList) -> Result<Self, FormatError> {
        let vdev_children = list.find_u64("vdev_children")?;
        if let Some(count) = vdev_children.filter(|count| *count > MAX_TOP_LEVELS) {
            return Err(FormatError::field("configuration", "vdev_children", count));
        }
        let text = |name| Ok(list.find_string(name)?.map(|text| text.to_text().into_owned()));
        let features = list.find_list("features_for_read")?;
        Ok(Self {
            version: list.find_u64("version")?.unwrap_or(1),
            name: list.string("name")?.to_text().into_owned(),
            state: PoolState::from_number(list.u64("state")?)?,
            txg: Txg(list.u64("txg")?),
            guid: Guid(list.u64("pool_guid")?),
            errata: list.find_u64("errata")?,
            comment: text("comment")?,
            compatibility: text("compatibility")?,
            host: LastHost { id: list.find_u64("hostid")?.unwrap_or(0), name: text("hostname")? },
            vdev_children,
            holes: list.find_u64s("hole_array")?.unwrap_or_default().to_vec(),
            split_guid: list.find_u64("split_guid")?.map(Guid),
            features_for_read: features
                .map(|features| features.iter().map(|pair| pair.name().clone()).collect()),
            vdev_tree: list.list("vdev_tree")?.clone(),
        })
    }
}

/// What a label says about its device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LabelConfig {
    /// It is part of a pool's vdev tree.
    Member(Box<MemberLabel>),
    /// It is a hot spare that is not in use, or a cache device.
    Auxiliary(AuxiliaryLabel),
}

/// The label of a leaf of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberLabel {
    /// The pool; its tree is the one of the leaf's top-level vdev only.
    pub pool: PoolConfig,
    /// `guid`: of the leaf; not 0.
    pub guid: Guid,
    /// `top_guid`: of its top-level vdev.
    pub top_guid: Guid,
    /// `is_spare`: it is a hot spare in use.
    pub is_spare: bool,
}

/// The label of a spare or cache device (spec 01, section 1.7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuxiliaryLabel {
    /// `state`: [`PoolState::Spare`] or [`PoolState::L2Cache`].
    pub state: PoolState,
    /// `guid`: not 0.
    pub guid: Guid,
    /// `version` of the pool.
    pub version: u64,
    /// `ashift`: of a cache device.
    pub ashift: Option<u64>,
    /// `path`: where the device was when the label was written.
    pub path: Option<String>,
    /// `devid`.
    pub devid: Option<String>,
    /// `phys_path`.
    pub physical_path: Option<String>,
}

impl LabelConfig {
    /// Reads the configuration of a label (spec 01, section 1.6).
    ///
    /// # Errors
    /// [`FormatError`] when it is not usable: something that every label has is missing, or the
    /// device was prepared for a pool that never came to be (txg 0).
    pub fn from_list(list: &NvList) -> Result<Self, FormatError> {
        let guid = Guid(list.u64("guid")?);
        if guid == Guid(0) {
            return Err(FormatError::invalid("label", "the guid is 0"));
        }
        let state = PoolState::from_number(list.u64("state")?)?;
        if matches!(state, PoolState::Spare | PoolState::L2Cache) {
            let text = |name| Ok(list.find_string(name)?.map(|text| text.to_text().into_owned()));
            return Ok(Self::Auxiliary(AuxiliaryLabel {
                state,
                guid,
                version: list.find_u64("version")?.unwrap_or(1),
                ashift: list.find_u64("ashift")?,
                path: text("path")?,
                devid: text("devid")?,
                physical_path: text("phys_path")?,
            }));
        }
        let pool = PoolConfig::from_list(list)?;
        if pool.txg == Txg(0) {
            return Err(FormatError::invalid("label", "its pool was never written"));
        }
        Ok(Self::Member(Box::new(MemberLabel {
            pool,
            guid,
            top_guid: Guid(list.u64("top_guid")?),
            is_spare: list.find_u64("is_spare")?.is_some_and(|is_spare| is_spare != 0),
        })))
    }

    /// The guid of the device.
    #[must_use]
    pub fn guid(&self) -> Guid {
        match self {
            Self::Member(label) => label.guid,
            Self::Auxiliary(label) => label.guid,
        }
    }

    /// The label of a pool's leaf.
    #[must_use]
    pub fn member(&self) -> Option<&MemberLabel> {
        match self {
            Self::Member(label) => Some(label),
            Self::Auxiliary(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvlist::NvValue;

    fn member() -> NvList {
        let mut list = NvList::new();
        for (name, value) in [
            ("version", 5000_u64.into()),
            ("name", NvValue::String(NvString::new("tank").unwrap())),
            ("state", 0_u64.into()),
            ("txg", 4_u64.into()),
            ("pool_guid", 1_u64.into()),
            ("hostid", 0xdead_beef_u64.into()),
            ("hostname", NvValue::String(NvString::new("host").unwrap())),
            ("top_guid", 2_u64.into()),
            ("guid", 3_u64.into()),
            ("hole_array", vec![1_u64].into()),
            ("vdev_children", 2_u64.into()),
            ("vdev_tree", NvList::new().into()),
            ("features_for_read", NvList::new().into()),
            ("org.example:unknown", NvValue::Boolean),
        ] {
            list.insert(name, value).unwrap();
        }
        list
    }

    #[test]
    fn the_keys_of_a_member_are_read() {
        let LabelConfig::Member(label) = LabelConfig::from_list(&member()).unwrap() else {
            panic!("not a member");
        };
        assert_eq!((label.guid, label.top_guid, label.is_spare), (Guid(3), Guid(2), false));
        assert_eq!((label.pool.guid, label.pool.txg), (Guid(1), Txg(4)));
        assert_eq!(label.pool.host, LastHost { id: 0xdead_beef, name: Some("host".into()) });
        assert_eq!((label.pool.vdev_children, label.pool.holes), (Some(2), vec![1]));
        assert_eq!(label.pool.features_for_read, Some(Vec::new()));
    }

    #[test]
    fn a_label_needs_guids_state_and_txg() {
        for name in ["guid", "state", "txg", "pool_guid", "top_guid", "name", "vdev_tree"] {
            let mut list = member();
            list.remove(name);
            assert!(LabelConfig::from_list(&list).is_err(), "without {name}");
        }
        for (name, value) in [("guid", 0), ("state", 5), ("txg", 0), ("vdev_children", u64::MAX)] {
            let mut list = member();
            list.insert(name, value).unwrap();
            assert!(LabelConfig::from_list(&list).is_err(), "{name} = {value}");
        }
    }

    #[test]
    fn old_configurations_lack_version_and_host() {
        let mut list = member();
        for name in ["version", "hostid", "hostname", "features_for_read"] {
            list.remove(name);
        }
        let config = PoolConfig::from_list(&list).unwrap();
        assert_eq!((config.version, config.host), (1, LastHost::default()));
        assert_eq!(config.features_for_read, None);
    }

    #[test]
    fn spares_and_cache_devices_say_little() {
        let mut list = NvList::new();
        list.insert("state", 3_u64).unwrap();
        assert!(LabelConfig::from_list(&list).is_err());
        list.insert("guid", 7_u64).unwrap();
        let LabelConfig::Auxiliary(label) = LabelConfig::from_list(&list).unwrap() else {
            panic!("not auxiliary");
        };
        assert_eq!((label.state, label.guid, label.path), (PoolState::Spare, Guid(7), None));
    }
}
