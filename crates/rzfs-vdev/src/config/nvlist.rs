//! Configurations as name-value lists, as stored in labels and the MOS (spec 01, section 4.3).

use super::{
    AllocationBias, DeviceHints, DraidRecord, IndirectRecord, LeafRecord, PersistentFlags,
    TopLevelRecord, VdevConfig, VdevKind,
};
use rzfs_format::nvlist::{NvList, NvString, NvValue};
use rzfs_format::{FormatError, Guid, ObjectId, Txg};

/// All known names; pairs with others are kept as they are.
const KNOWN: [&str; 49] = [
    "type",
    "id",
    "guid",
    "top_guid",
    "create_txg",
    "nparity",
    "raidz_expanding",
    "raidz_expand_txgs",
    "draid_ndata",
    "draid_nspares",
    "draid_ngroups",
    "draid_nchildren",
    "path",
    "devid",
    "phys_path",
    "vdev_enc_sysfs_path",
    "fru",
    "whole_disk",
    "rotational",
    "offline",
    "faulted",
    "degraded",
    "removed",
    "not_present",
    "unspare",
    "is_spare",
    "com.datto:resilver_defer",
    "aux_state",
    "DTL",
    "resilver_txg",
    "rebuild_txg",
    "expansion_time",
    "com.delphix:vdev_zap_leaf",
    "orig_guid",
    "spareid",
    "ashift",
    "asize",
    "metaslab_array",
    "metaslab_shift",
    "min_alloc",
    "is_log",
    "non_allocating",
    "removing",
    "alloc_bias",
    "com.delphix:vdev_zap_top",
    "com.delphix:indirect_object",
    "com.delphix:indirect_births",
    "com.delphix:prev_indirect_vdev",
    "com.klarasystems:vdev_zap_root",
];

impl VdevConfig {
    /// Decodes a `vdev_tree` list, with all its children.
    ///
    /// # Errors
    /// [`FormatError`] when `type`, `id` or `guid` are missing, the type is unknown, or a pair has
    /// the wrong type. A list cannot nest deeper than its decoder allowed.
    pub fn from_nvlist(list: &NvList) -> Result<Self, FormatError> {
        let name = list.string("type")?.to_text();
        let unknown = FormatError::invalid("vdev configuration", "the type is unknown");
        let kind = VdevKind::from_name(&name).ok_or(unknown)?;
        let mut config = Self::new(kind, Guid(list.u64("guid")?));
        config.id = list.u64("id")?;
        config.top_guid = list.find_u64("top_guid")?.map(Guid);
        config.create_txg = list.find_u64("create_txg")?.map(Txg);
        config.nparity = list.find_u64("nparity")?;
        config.raidz_expanding = list.contains("raidz_expanding");
        let expansions = list.find_u64s("raidz_expand_txgs")?.unwrap_or_default();
        config.raidz_expand_txgs = expansions.iter().copied().map(Txg).collect();
        config.draid = draid(list)?;
        config.hints = hints(list)?;
        config.flags = flags(list)?;
        config.leaf = leaf(list)?;
        config.top = top_level(list)?;
        config.indirect = IndirectRecord {
            mapping: object(list, "com.delphix:indirect_object")?,
            births: object(list, "com.delphix:indirect_births")?,
            previous: list.find_u64("com.delphix:prev_indirect_vdev")?,
        };
        config.root_zap = object(list, "com.klarasystems:vdev_zap_root")?;
        let children = list.find_lists("children")?.unwrap_or_default();
        config.children = children.iter().map(Self::from_nvlist).collect::<Result<_, _>>()?;
        let is_known = |name: &NvString| {
            name.as_bytes() == b"children" || KNOWN.iter().any(|k| k.as_bytes() == name.as_bytes())
        };
        config.others = list.iter().filter(|pair| !is_known(pair.name())).cloned().collect();
        Ok(config)
    }

    /// The list of this configuration for the MOS, with all its children, pairs in OpenZFS's
    /// order.
    ///
    /// # Errors
    /// [`FormatError`] when a name in [`Self::others`] is invalid.
    pub fn to_nvlist(&self) -> Result<NvList, FormatError> {
        self.list_for(Reader::Mos)
    }

    /// The list of this configuration for labels: without the ZAPs, which are only in the MOS.
    ///
    /// # Errors
    /// [`FormatError`] when a name in [`Self::others`] is invalid.
    pub fn to_label_nvlist(&self) -> Result<NvList, FormatError> {
        self.list_for(Reader::Label)
    }

    /// The list of a spare or cache device for the MOS, which has no position.
    ///
    /// # Errors
    /// [`FormatError`] when a name in [`Self::others`] is invalid.
    pub fn to_auxiliary_nvlist(&self) -> Result<NvList, FormatError> {
        let mut list = self.to_nvlist()?;
        list.remove("id");
        Ok(list)
    }

    fn list_for(&self, reader: Reader) -> Result<NvList, FormatError> {
        let mut writer = Writer(NvList::new());
        let name = NvString::new(self.kind.name())?;
        writer.0.insert("type", name)?;
        writer.0.insert("id", self.id)?;
        writer.0.insert("guid", self.guid.get())?;
        self.write_device(&mut writer)?;
        self.write_redundancy(&mut writer)?;
        writer.number("whole_disk", self.hints.whole_disk)?;
        writer.one("not_present", self.flags.not_present)?;
        writer.number("is_spare", self.flags.is_spare)?;
        self.write_top_level(&mut writer)?;
        self.write_objects(&mut writer, reader)?;
        for pair in &self.others {
            writer.0.insert(pair.name(), pair.value().clone())?;
        }
        // A removed vdev has an empty list of children.
        if !self.children.is_empty() || self.kind == VdevKind::Indirect {
            let children: Result<Vec<NvList>, _> =
                self.children.iter().map(|child| child.list_for(reader)).collect();
            writer.0.insert("children", children?)?;
        }
        self.write_state(&mut writer)?;
        Ok(writer.0)
    }

    fn write_device(&self, writer: &mut Writer) -> Result<(), FormatError> {
        let DeviceHints { path, devid, physical_path, enclosure_path, fru, rotational, .. } =
            &self.hints;
        writer.text("path", path.as_ref())?;
        writer.text("devid", devid.as_ref())?;
        writer.text("phys_path", physical_path.as_ref())?;
        writer.text("vdev_enc_sysfs_path", enclosure_path.as_ref())?;
        writer.text("fru", fru.as_ref())?;
        writer.number("rotational", *rotational)
    }

    fn write_redundancy(&self, writer: &mut Writer) -> Result<(), FormatError> {
        writer.number("nparity", self.nparity)?;
        if let Some(DraidRecord { data, spares, groups, failure_group_children }) = self.draid {
            writer.number("draid_ndata", Some(data))?;
            writer.number("draid_nspares", Some(spares))?;
            writer.number("draid_ngroups", Some(groups))?;
            writer.number("draid_nchildren", failure_group_children)?;
        }
        writer.flag("raidz_expanding", self.raidz_expanding)?;
        if !self.raidz_expand_txgs.is_empty() {
            let txgs: Vec<u64> = self.raidz_expand_txgs.iter().map(|txg| txg.get()).collect();
            writer.0.insert("raidz_expand_txgs", txgs)?;
        }
        writer.number("top_guid", self.top_guid.map(Guid::get))?;
        writer.number("spareid", self.leaf.spare_id)
    }

    fn write_top_level(&self, writer: &mut Writer) -> Result<(), FormatError> {
        let TopLevelRecord {
            ashift,
            asize,
            metaslab_array,
            metaslab_shift,
            min_alloc,
            is_log,
            non_allocating,
            removing,
            allocation_bias,
            zap: _,
        } = self.top;
        writer.number("metaslab_array", metaslab_array.map(ObjectId::get))?;
        writer.number("metaslab_shift", metaslab_shift)?;
        writer.number("ashift", ashift)?;
        writer.number("asize", asize)?;
        writer.number("min_alloc", min_alloc)?;
        writer.number("is_log", is_log)?;
        writer.one("non_allocating", non_allocating)?;
        writer.one("removing", removing)?;
        if let Some(bias) = allocation_bias {
            writer.0.insert("alloc_bias", NvString::new(bias.name())?)?;
        }
        Ok(())
    }

    /// Writes the MOS objects, and when the vdev was added and changed.
    fn write_objects(&self, writer: &mut Writer, reader: Reader) -> Result<(), FormatError> {
        writer.number("DTL", self.leaf.dtl_object.map(ObjectId::get))?;
        let IndirectRecord { mapping, births, previous } = self.indirect;
        writer.number("com.delphix:indirect_object", mapping.map(ObjectId::get))?;
        writer.number("com.delphix:indirect_births", births.map(ObjectId::get))?;
        writer.number("com.delphix:prev_indirect_vdev", previous)?;
        writer.number("create_txg", self.create_txg.map(Txg::get))?;
        writer.number("expansion_time", self.leaf.expansion_time)?;
        if reader == Reader::Mos {
            writer.number("com.delphix:vdev_zap_leaf", self.leaf.zap.map(ObjectId::get))?;
            writer.number("com.delphix:vdev_zap_top", self.top.zap.map(ObjectId::get))?;
            writer.number("com.klarasystems:vdev_zap_root", self.root_zap.map(ObjectId::get))?;
            writer.flag("com.datto:resilver_defer", self.flags.resilver_deferred)?;
        }
        Ok(())
    }

    fn write_state(&self, writer: &mut Writer) -> Result<(), FormatError> {
        let flags = &self.flags;
        writer.one("offline", flags.offline)?;
        writer.number("resilver_txg", self.leaf.resilver_txg.map(Txg::get))?;
        writer.number("rebuild_txg", self.leaf.rebuild_txg.map(Txg::get))?;
        writer.one("faulted", flags.faulted)?;
        writer.one("degraded", flags.degraded)?;
        writer.one("removed", flags.removed)?;
        writer.one("unspare", flags.unspare)?;
        writer.text("aux_state", flags.aux_state.as_ref())?;
        writer.number("orig_guid", self.leaf.original_guid.map(Guid::get))
    }
}

/// The reader of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    Mos,
    Label,
}

fn object(list: &NvList, name: &str) -> Result<Option<ObjectId>, FormatError> {
    Ok(list.find_u64(name)?.map(ObjectId))
}

/// A number that is stored where it is 1.
fn is_set(list: &NvList, name: &str) -> Result<bool, FormatError> {
    Ok(list.find_u64(name)?.is_some_and(|value| value != 0))
}

fn text(list: &NvList, name: &str) -> Result<Option<NvString>, FormatError> {
    Ok(list.find_string(name)?.cloned())
}

fn draid(list: &NvList) -> Result<Option<DraidRecord>, FormatError> {
    let Some(data) = list.find_u64("draid_ndata")? else { return Ok(None) };
    Ok(Some(DraidRecord {
        data,
        spares: list.u64("draid_nspares")?,
        groups: list.u64("draid_ngroups")?,
        failure_group_children: list.find_u64("draid_nchildren")?,
    }))
}

fn hints(list: &NvList) -> Result<DeviceHints, FormatError> {
    Ok(DeviceHints {
        path: text(list, "path")?,
        devid: text(list, "devid")?,
        physical_path: text(list, "phys_path")?,
        enclosure_path: text(list, "vdev_enc_sysfs_path")?,
        fru: text(list, "fru")?,
        whole_disk: list.find_u64("whole_disk")?,
        rotational: list.find_u64("rotational")?,
    })
}

fn flags(list: &NvList) -> Result<PersistentFlags, FormatError> {
    Ok(PersistentFlags {
        offline: is_set(list, "offline")?,
        faulted: is_set(list, "faulted")?,
        degraded: is_set(list, "degraded")?,
        removed: is_set(list, "removed")?,
        not_present: is_set(list, "not_present")?,
        unspare: is_set(list, "unspare")?,
        is_spare: list.find_u64("is_spare")?,
        resilver_deferred: list.contains("com.datto:resilver_defer"),
        aux_state: text(list, "aux_state")?,
    })
}

fn leaf(list: &NvList) -> Result<LeafRecord, FormatError> {
    Ok(LeafRecord {
        dtl_object: object(list, "DTL")?,
        resilver_txg: list.find_u64("resilver_txg")?.map(Txg),
        rebuild_txg: list.find_u64("rebuild_txg")?.map(Txg),
        expansion_time: list.find_u64("expansion_time")?,
        zap: object(list, "com.delphix:vdev_zap_leaf")?,
        original_guid: list.find_u64("orig_guid")?.map(Guid),
        spare_id: list.find_u64("spareid")?,
    })
}

fn top_level(list: &NvList) -> Result<TopLevelRecord, FormatError> {
    let bias = list.find_string("alloc_bias")?;
    Ok(TopLevelRecord {
        ashift: list.find_u64("ashift")?,
        asize: list.find_u64("asize")?,
        metaslab_array: object(list, "metaslab_array")?,
        metaslab_shift: list.find_u64("metaslab_shift")?,
        min_alloc: list.find_u64("min_alloc")?,
        is_log: list.find_u64("is_log")?,
        non_allocating: is_set(list, "non_allocating")?,
        removing: is_set(list, "removing")?,
        allocation_bias: bias.and_then(|bias| AllocationBias::from_name(&bias.to_text())),
        zap: object(list, "com.delphix:vdev_zap_top")?,
    })
}

/// Adds pairs that have a value.
struct Writer(NvList);

impl Writer {
    fn number(&mut self, name: &str, value: Option<u64>) -> Result<(), FormatError> {
        value.map_or(Ok(()), |value| self.0.insert(name, value))
    }

    fn one(&mut self, name: &str, is_set: bool) -> Result<(), FormatError> {
        self.number(name, is_set.then_some(1))
    }

    fn flag(&mut self, name: &str, is_set: bool) -> Result<(), FormatError> {
        if is_set { self.0.insert(name, NvValue::Boolean) } else { Ok(()) }
    }

    fn text(&mut self, name: &str, value: Option<&NvString>) -> Result<(), FormatError> {
        value.map_or(Ok(()), |value| self.0.insert(name, value.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list in which every known name has a value, and one more.
    fn full_list() -> NvList {
        let mut list = NvList::new();
        for (value, name) in (1u64..).zip(KNOWN) {
            match name {
                "type" => list.insert(name, NvString::new("draid").unwrap()),
                "alloc_bias" => list.insert(name, NvString::new("special").unwrap()),
                "path" | "devid" | "phys_path" | "vdev_enc_sysfs_path" | "fru" | "aux_state" => {
                    list.insert(name, NvString::new(name).unwrap())
                }
                "raidz_expanding" | "com.datto:resilver_defer" => {
                    list.insert(name, NvValue::Boolean)
                }
                "raidz_expand_txgs" => list.insert(name, vec![value, value + 1]),
                "offline" | "faulted" | "degraded" | "removed" | "not_present" | "unspare"
                | "non_allocating" | "removing" => list.insert(name, 1u64),
                _ => list.insert(name, value),
            }
            .unwrap();
        }
        list.insert("com.example:unheard_of", 7u64).unwrap();
        list
    }

    fn sorted(list: &NvList) -> Vec<(Vec<u8>, NvValue)> {
        let mut pairs: Vec<(Vec<u8>, NvValue)> = list
            .iter()
            .map(|pair| (pair.name().as_bytes().to_vec(), pair.value().clone()))
            .collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs
    }

    #[test]
    fn nothing_is_lost_on_the_way_through() {
        let mut list = full_list();
        let config = VdevConfig::from_nvlist(&list).unwrap();
        assert_eq!(config.others.len(), 1);
        assert_eq!(sorted(&config.to_nvlist().unwrap()), sorted(&list));

        list.insert("children", vec![full_list(), full_list()]).unwrap();
        let nested = VdevConfig::from_nvlist(&list).unwrap();
        assert_eq!(nested.children.len(), 2);
        assert_eq!(VdevConfig::from_nvlist(&nested.to_nvlist().unwrap()), Ok(nested));
    }

    #[test]
    fn what_a_vdev_needs_must_be_there() {
        for name in ["type", "id", "guid"] {
            let mut list = full_list();
            list.remove(name);
            assert!(VdevConfig::from_nvlist(&list).is_err(), "{name}");
            list.insert(name, NvString::new("l2cache").unwrap()).unwrap();
            assert!(VdevConfig::from_nvlist(&list).is_err(), "{name}");
        }
    }
}
