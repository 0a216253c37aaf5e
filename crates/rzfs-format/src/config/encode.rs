//! Configurations as name-value lists, with the pairs in OpenZFS's order (spec 01, section 4.2).

use super::{AuxiliaryLabel, PoolConfig};
use crate::nvlist::{NvList, NvString, NvValue};
use crate::pool_state::PoolState;
use crate::{FormatError, Guid, Txg};

/// What the label of one leaf says about the leaf itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabelledLeaf {
    /// `top_guid`: of its top-level vdev.
    pub top_guid: Guid,
    /// `guid`.
    pub guid: Guid,
    /// `is_spare`: it is a hot spare in use.
    pub is_spare: bool,
    /// `is_log`: it is itself a top-level vdev for the intent log.
    pub is_log: bool,
    /// `create_txg`, in a label whose txg is 0: the txg that is to make the vdev part of the pool,
    /// or 0 after it left.
    pub create_txg: Option<Txg>,
}

impl PoolConfig {
    /// The configuration in the label of a leaf; `vdev_tree` is its top-level vdev's.
    ///
    /// # Errors
    /// [`FormatError`] when a text is not one that a list can have.
    pub fn to_label(&self, leaf: &LabelledLeaf) -> Result<NvList, FormatError> {
        let mut list = self.first_pairs()?;
        list.insert("top_guid", leaf.top_guid.get())?;
        list.insert("guid", leaf.guid.get())?;
        for (name, is_set) in [("is_spare", leaf.is_spare), ("is_log", leaf.is_log)] {
            if is_set {
                list.insert(name, 1u64)?;
            }
        }
        self.add_tree(&mut list)?;
        if let Some(txg) = leaf.create_txg {
            list.insert("create_txg", txg.get())?;
        }
        Ok(list)
    }

    /// The configuration in the MOS; `vdev_tree` is the whole tree. `vdev_zaps` tells that all
    /// vdevs have their ZAPs.
    ///
    /// # Errors
    /// [`FormatError`] when a text is not one that a list can have.
    pub fn to_mos_config(&self, vdev_zaps: VdevZaps) -> Result<NvList, FormatError> {
        let mut list = self.first_pairs()?;
        if vdev_zaps == VdevZaps::Maintained {
            list.insert("com.delphix:has_per_vdev_zaps", NvValue::Boolean)?;
        }
        self.add_tree(&mut list)?;
        Ok(list)
    }

    fn first_pairs(&self) -> Result<NvList, FormatError> {
        let mut list = NvList::new();
        list.insert("version", self.version)?;
        list.insert("name", NvString::new(self.name.as_str())?)?;
        list.insert("state", self.state.number())?;
        list.insert("txg", self.txg.get())?;
        list.insert("pool_guid", self.guid.get())?;
        if let Some(errata) = self.errata {
            list.insert("errata", errata)?;
        }
        let texts = [("comment", &self.comment), ("compatibility", &self.compatibility)];
        for (name, text) in texts {
            if let Some(text) = text {
                list.insert(name, NvString::new(text.as_str())?)?;
            }
        }
        if self.host.id != 0 {
            list.insert("hostid", self.host.id)?;
        }
        if let Some(name) = &self.host.name {
            list.insert("hostname", NvString::new(name.as_str())?)?;
        }
        Ok(list)
    }

    fn add_tree(&self, list: &mut NvList) -> Result<(), FormatError> {
        if !self.holes.is_empty() {
            list.insert("hole_array", self.holes.clone())?;
        }
        if let Some(count) = self.vdev_children {
            list.insert("vdev_children", count)?;
        }
        if let Some(guid) = self.split_guid {
            list.insert("split_guid", guid.get())?;
        }
        list.insert("vdev_tree", self.vdev_tree.clone())?;
        if let Some(features) = &self.features_for_read {
            let mut names = NvList::new();
            for name in features {
                names.insert(name, NvValue::Boolean)?;
            }
            list.insert("features_for_read", names)?;
        }
        Ok(())
    }
}

/// Whether a pool's vdevs have ZAPs (`com.delphix:has_per_vdev_zaps`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VdevZaps {
    /// They have ZAPs, which are kept up to date when the tree changes.
    Maintained,
    /// The pool is older.
    None,
}

impl AuxiliaryLabel {
    /// The configuration in the label.
    ///
    /// # Errors
    /// [`FormatError`] when a text is not one that a list can have.
    pub fn to_list(&self) -> Result<NvList, FormatError> {
        let mut list = NvList::new();
        list.insert("version", self.version)?;
        list.insert("state", self.state.number())?;
        list.insert("guid", self.guid.get())?;
        if let Some(ashift) = self.ashift.filter(|_| self.state == PoolState::L2Cache) {
            list.insert("ashift", ashift)?;
        }
        let texts =
            [("path", &self.path), ("devid", &self.devid), ("phys_path", &self.physical_path)];
        for (name, text) in texts {
            if let Some(text) = text {
                list.insert(name, NvString::new(text.as_str())?)?;
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LabelConfig, LastHost};
    use super::*;

    fn names(list: &NvList) -> Vec<String> {
        list.iter().map(|pair| pair.name().to_text().into_owned()).collect()
    }

    fn pool() -> PoolConfig {
        PoolConfig {
            version: 5000,
            name: "tank".into(),
            state: PoolState::Active,
            txg: Txg(4),
            guid: Guid(1),
            errata: Some(0),
            comment: Some("a comment".into()),
            compatibility: None,
            host: LastHost { id: 7, name: Some("host".into()) },
            vdev_children: Some(2),
            holes: vec![1],
            split_guid: None,
            features_for_read: Some(vec![NvString::new("org.example:one").unwrap()]),
            vdev_tree: NvList::new(),
        }
    }

    #[test]
    fn labels_read_back() {
        let (top_guid, guid) = (Guid(2), Guid(3));
        let leaf = LabelledLeaf { top_guid, guid, is_spare: true, is_log: false, create_txg: None };
        let list = pool().to_label(&leaf).unwrap();
        let LabelConfig::Member(label) = LabelConfig::from_list(&list).unwrap() else {
            panic!("not a member");
        };
        assert_eq!(label.pool, pool());
        assert_eq!((label.top_guid, label.guid, label.is_spare), (top_guid, guid, true));
        let order = [
            "version",
            "name",
            "state",
            "txg",
            "pool_guid",
            "errata",
            "comment",
            "hostid",
            "hostname",
            "top_guid",
            "guid",
            "is_spare",
            "hole_array",
            "vdev_children",
            "vdev_tree",
            "features_for_read",
        ];
        assert_eq!(names(&list), order);
    }

    #[test]
    fn the_mos_configuration_names_no_leaf() {
        let list = pool().to_mos_config(VdevZaps::Maintained).unwrap();
        assert_eq!(PoolConfig::from_list(&list), Ok(pool()));
        assert!(list.contains("com.delphix:has_per_vdev_zaps"));
        assert!(!list.contains("guid") && !list.contains("top_guid"));
        let old = pool().to_mos_config(VdevZaps::None).unwrap();
        assert!(!old.contains("com.delphix:has_per_vdev_zaps"));
    }

    #[test]
    fn a_device_that_is_prepared_has_txg_0_and_tells_when_it_joins() {
        let label = LabelledLeaf {
            top_guid: Guid(2),
            guid: Guid(3),
            is_spare: false,
            is_log: true,
            create_txg: Some(Txg(4)),
        };
        let list = PoolConfig { txg: Txg(0), ..pool() }.to_label(&label).unwrap();
        assert_eq!(list.find_u64("create_txg"), Ok(Some(4)));
        assert_eq!(list.find_u64("is_log"), Ok(Some(1)));
        assert!(LabelConfig::from_list(&list).is_err());
    }

    #[test]
    fn auxiliary_labels_read_back() {
        for (state, ashift) in [(PoolState::Spare, None), (PoolState::L2Cache, Some(12))] {
            let label = AuxiliaryLabel {
                state,
                guid: Guid(9),
                version: 5000,
                ashift,
                path: Some("/dev/sda1".into()),
                devid: Some("ata-x".into()),
                physical_path: None,
            };
            let list = label.to_list().unwrap();
            assert_eq!(LabelConfig::from_list(&list), Ok(LabelConfig::Auxiliary(label)));
        }
    }
}
