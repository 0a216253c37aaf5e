//! The description in the head of a package: datasets with their snapshots, properties and holds
//! (spec 08, section 6.3).
//!
//! ```text
//! BEGIN payload: XDR list
//!   fromsnap, tosnap, not_recursive
//!   fss ─> "0x<guid of the file system>" ─> name, parentfromsnap, origin, props
//!                                           snaps      name of a snapshot ─> guid
//!                                           snapprops                     ─> properties
//!                                           snapholds                     ─> tag ─> time
//! ```
//! Names and values in it are untrusted: they are only known to be text or numbers.

use rzfs_format::nvlist::{Encoding, NvList, NvString, NvValue};
use rzfs_format::{FormatError, Guid};

/// The name of the list in error messages.
const WHAT: &str = "package";

/// The part of a tree in a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PackageExtent {
    /// One file system or volume.
    One,
    /// One with all its descendants.
    Tree,
}

/// The form of blocks in a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PackagedBlocks {
    /// Decrypted.
    Plain,
    /// In encrypted form.
    Raw,
}

/// The head of a package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Package {
    /// The short name of the snapshots that the receiver has: only for trees.
    pub from: Option<String>,
    /// The same for the last ones that it gets.
    pub to: String,
    /// Its extent.
    pub extent: PackageExtent,
    /// The form of its blocks.
    pub blocks: PackagedBlocks,
    /// Parents come before children.
    pub datasets: Vec<PackagedDataset>,
}

/// A package's description of a file system or volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackagedDataset {
    /// Its identity at the sender.
    pub guid: Guid,
    /// Its full name at the sender.
    pub name: String,
    /// The snapshot of its parent that the receiver has when this one comes; none for the first.
    pub parent_snapshot: Option<Guid>,
    /// Its origin, if it is a clone.
    pub origin: Option<Guid>,
    /// Whether it is an encryption root, whose key encrypts its blocks and those of others.
    pub is_encryption_root: bool,
    /// Its own properties; `None` if they are not described.
    pub properties: Option<Vec<(String, SentValue)>>,
    /// Its snapshots, including those that are not sent.
    pub snapshots: Vec<PackagedSnapshot>,
}

/// A package's description of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PackagedSnapshot {
    /// The part of its name after the `@`.
    pub name: String,
    /// Its identity.
    pub guid: Guid,
    /// Its own properties; `None` if they are not described.
    pub properties: Option<Vec<(String, SentValue)>>,
    /// Its holds: tags with times in seconds since 1970; `None` if they are not described.
    pub holds: Option<Vec<(String, u64)>>,
}

/// The value of a sent property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SentValue {
    /// A number in on-disk form.
    Number(u64),
    /// Text.
    Text(NvString),
}

impl Package {
    /// Decodes the payload of a package's BEGIN. Values that are neither numbers nor text are
    /// skipped, as newer software may add some.
    ///
    /// # Errors
    /// [`FormatError`]: the bytes are not a list, or an entry is missing or has the wrong type.
    pub fn decode(packed: &[u8]) -> Result<Self, FormatError> {
        let list = NvList::decode(packed)?;
        let extent = match list.contains("not_recursive") {
            true => PackageExtent::One,
            false => PackageExtent::Tree,
        };
        let datasets = list.list("fss")?.iter().map(|pair| match pair.value() {
            NvValue::List(list) => PackagedDataset::of_list(pair.name(), list),
            _ => Err(FormatError::invalid(WHAT, "a file system is no list")),
        });
        Ok(Self {
            from: list.find_string("fromsnap")?.map(text).transpose()?,
            to: text(list.string("tosnap")?)?,
            extent,
            blocks: match list.contains("raw") {
                true => PackagedBlocks::Raw,
                false => PackagedBlocks::Plain,
            },
            datasets: datasets.collect::<Result<_, _>>()?,
        })
    }

    /// Whether it describes holds of a snapshot.
    #[must_use]
    pub fn has_holds(&self) -> bool {
        let snapshots = self.datasets.iter().flat_map(|dataset| &dataset.snapshots);
        snapshots.into_iter().any(|snapshot| snapshot.holds.is_some())
    }

    /// The payload of the package's BEGIN.
    ///
    /// # Errors
    /// [`FormatError`]: a name or a text has a NUL, or is too long for a list.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut list = NvList::new();
        if let Some(from) = &self.from {
            list.insert("fromsnap", NvString::new(from)?)?;
        }
        list.insert("tosnap", NvString::new(&self.to)?)?;
        if self.extent == PackageExtent::One {
            list.insert("not_recursive", NvValue::Boolean)?;
        }
        if self.blocks == PackagedBlocks::Raw {
            list.insert("raw", NvValue::Boolean)?;
        }
        let mut datasets = NvList::new();
        for dataset in &self.datasets {
            datasets.insert(format!("{:#x}", dataset.guid.0), dataset.to_list()?)?;
        }
        list.insert("fss", datasets)?;
        list.encode(Encoding::Xdr)
    }
}

impl PackagedDataset {
    fn of_list(name: &NvString, list: &NvList) -> Result<Self, FormatError> {
        let guid = name.to_text();
        let guid = guid.strip_prefix("0x").and_then(|guid| u64::from_str_radix(guid, 16).ok());
        let guid = guid.ok_or(FormatError::invalid(WHAT, "a file system has no guid"))?;
        let is_some = |guid: &u64| *guid != 0;
        Ok(Self {
            guid: Guid(guid),
            name: text(list.string("name")?)?,
            parent_snapshot: list.find_u64("parentfromsnap")?.filter(is_some).map(Guid),
            origin: list.find_u64("origin")?.filter(is_some).map(Guid),
            is_encryption_root: list.contains("is_encroot"),
            properties: list.find_list("props")?.map(properties).transpose()?,
            snapshots: snapshots(list)?,
        })
    }

    fn to_list(&self) -> Result<NvList, FormatError> {
        let mut list = NvList::new();
        list.insert("name", NvString::new(&self.name)?)?;
        list.insert("parentfromsnap", self.parent_snapshot.map_or(0, |guid| guid.0))?;
        if let Some(origin) = self.origin {
            list.insert("origin", origin.0)?;
        }
        if self.is_encryption_root {
            list.insert("is_encroot", NvValue::Boolean)?;
        }
        if let Some(properties) = &self.properties {
            list.insert("props", property_list(properties)?)?;
        }
        let (mut guids, mut all, mut holds) = (NvList::new(), NvList::new(), NvList::new());
        for snapshot in &self.snapshots {
            guids.insert(&snapshot.name, snapshot.guid.0)?;
            if let Some(properties) = &snapshot.properties {
                all.insert(&snapshot.name, property_list(properties)?)?;
            }
            if let Some(tags) = &snapshot.holds {
                let mut times = NvList::new();
                tags.iter().try_for_each(|(tag, time)| times.insert(tag, *time))?;
                holds.insert(&snapshot.name, times)?;
            }
        }
        list.insert("snaps", guids)?;
        list.insert("snapprops", all)?;
        if !holds.is_empty() {
            list.insert("snapholds", holds)?;
        }
        Ok(list)
    }
}

/// The snapshots of a dataset.
fn snapshots(list: &NvList) -> Result<Vec<PackagedSnapshot>, FormatError> {
    let (all, holds) = (list.find_list("snapprops")?, list.find_list("snapholds")?);
    let snapshots = list.list("snaps")?.iter().map(|pair| {
        let NvValue::UInt64(guid) = pair.value() else {
            return Err(FormatError::invalid(WHAT, "a snapshot has no guid"));
        };
        let holds = list_of(holds, pair.name()).map(|tags| {
            let tags = tags.iter().filter_map(|pair| match pair.value() {
                NvValue::UInt64(time) => Some(text(pair.name()).map(|tag| (tag, *time))),
                _ => None,
            });
            tags.collect::<Result<Vec<_>, _>>()
        });
        Ok(PackagedSnapshot {
            name: text(pair.name())?,
            guid: Guid(*guid),
            properties: list_of(all, pair.name()).map(properties).transpose()?,
            holds: holds.transpose()?,
        })
    });
    snapshots.collect()
}

fn list_of<'l>(lists: Option<&'l NvList>, name: &NvString) -> Option<&'l NvList> {
    match lists?.get(name) {
        Some(NvValue::List(list)) => Some(list),
        _ => None,
    }
}

fn properties(list: &NvList) -> Result<Vec<(String, SentValue)>, FormatError> {
    let properties = list.iter().filter_map(|pair| {
        let value = match pair.value() {
            NvValue::UInt64(number) => SentValue::Number(*number),
            NvValue::String(text) => SentValue::Text(text.clone()),
            _ => return None,
        };
        Some(text(pair.name()).map(|name| (name, value)))
    });
    properties.collect()
}

fn property_list(properties: &[(String, SentValue)]) -> Result<NvList, FormatError> {
    let mut list = NvList::new();
    for (name, value) in properties {
        let value: NvValue = match value {
            SentValue::Number(number) => (*number).into(),
            SentValue::Text(text) => text.clone().into(),
        };
        list.insert(name, value)?;
    }
    Ok(list)
}

fn text(string: &NvString) -> Result<String, FormatError> {
    let text = std::str::from_utf8(string);
    text.map(str::to_owned).map_err(|_| FormatError::invalid(WHAT, "a name is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        let number = |name: &str, number| (name.to_owned(), SentValue::Number(number));
        let word = SentValue::Text(NvString::new("c").unwrap());
        let snapshot = |name: &str, guid| PackagedSnapshot {
            name: name.to_owned(),
            guid: Guid(guid),
            properties: Some(vec![("a:b".to_owned(), word.clone())]),
            holds: Some(vec![("tag".to_owned(), 1_234)]),
        };
        let dataset = |name: &str, guid, parent: Option<u64>| PackagedDataset {
            guid: Guid(guid),
            name: name.to_owned(),
            parent_snapshot: parent.map(Guid),
            origin: parent.map(Guid),
            is_encryption_root: parent.is_none(),
            properties: Some(vec![number("compression", 15), ("a:b".to_owned(), word.clone())]),
            snapshots: vec![snapshot("one", guid + 1), snapshot("two", guid + 2)],
        };
        Package {
            from: Some("one".to_owned()),
            to: "two".to_owned(),
            extent: PackageExtent::Tree,
            blocks: PackagedBlocks::Plain,
            datasets: vec![dataset("p/a", 10, None), dataset("p/a/b", 20, Some(11))],
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let tree = package();
        assert_eq!(Package::decode(&tree.encode().unwrap()).unwrap(), tree);
        let mut one = tree;
        (one.from, one.extent) = (None, PackageExtent::One);
        one.datasets.truncate(1);
        one.datasets[0].properties = None;
        for snapshot in &mut one.datasets[0].snapshots {
            (snapshot.properties, snapshot.holds) = (None, None);
        }
        assert_eq!(Package::decode(&one.encode().unwrap()).unwrap(), one);
    }

    #[test]
    fn what_lacks_something_or_has_it_otherwise_is_refused() {
        let decoded = |list: &NvList| Package::decode(&list.encode(Encoding::Xdr).unwrap());
        let with = |name: &str, value: NvValue| {
            let mut list = NvList::decode(&package().encode().unwrap()).unwrap();
            list.insert(name, value).unwrap();
            list
        };
        assert!(decoded(&NvList::new()).is_err());
        assert!(decoded(&with("tosnap", 1_u64.into())).is_err());
        assert!(decoded(&with("fss", 1_u64.into())).is_err());
        for (name, value) in [("nonsense", NvList::new()), ("0x1", NvList::new())] {
            let mut datasets = NvList::new();
            datasets.insert(name, value).unwrap();
            assert!(decoded(&with("fss", datasets.into())).is_err(), "{name}");
        }
        let mut list = with("later", NvValue::Boolean);
        assert_eq!(decoded(&list).unwrap(), package(), "what nobody knows is passed over");
        list.remove("tosnap");
        assert!(decoded(&list).is_err());
    }

    /// No change of the bytes causes a panic, or a package that is not encoded to itself.
    #[test]
    fn changed_bytes_give_an_error_or_a_package() {
        let packed = package().encode().unwrap();
        let mut accepted = 0;
        for at in 0..packed.len() {
            for change in [1, 0x80, 0xff] {
                let mut changed = packed.clone();
                changed[at] ^= change;
                let Ok(package) = Package::decode(&changed) else { continue };
                accepted += 1;
                let again = package.encode().unwrap();
                assert_eq!(Package::decode(&again).unwrap(), package, "{at} {change}");
            }
            assert!(Package::decode(&packed[..at]).is_err(), "{at}");
        }
        assert!(accepted > 0);
    }
}
