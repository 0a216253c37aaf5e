//! Registry and layouts of one file system (spec 05, section 2.1).

use super::attribute::{Attribute, AttributeNumber, SwapClass};
use crate::FormatError;
use std::collections::HashMap;

/// Attributes that a registry may hold; also the bound of their numbers.
pub const MAX_ATTRIBUTES: u16 = 1024;
/// Bytes of a header with at most one length.
pub const HEADER_SIZE: usize = 8;
pub(super) const ALIGNMENT: usize = 8;

/// Bytes of the header of a buffer with this many variable-length values.
#[must_use]
pub const fn header_size(variable: usize) -> usize {
    if variable <= 1 {
        HEADER_SIZE
    } else {
        HEADER_SIZE + (2 * (variable - 1)).next_multiple_of(ALIGNMENT)
    }
}

/// Layouts that a file system may have: their numbers have 10 bits.
pub const MAX_LAYOUTS: u16 = 1 << 10;
/// The first number of a stored layout; 0 and 1 are implied.
pub const FIRST_LAYOUT: u16 = 2;

const REGISTRY: &str = "SA registry";
const LAYOUTS: &str = "SA layouts";

/// What a registry says about an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegisteredAttribute {
    /// The name, as stored.
    pub name: Vec<u8>,
    /// Its number in this file system.
    pub number: AttributeNumber,
    /// Bytes of a value; 0 = every value has its own length.
    pub length: u16,
    /// How values are byte-swapped.
    pub class: SwapClass,
}

impl RegisteredAttribute {
    /// Decodes the value of a registry entry.
    ///
    /// ```text
    /// bits  0 .. 15 number | 16 .. 23 byte-swap class | 24 .. 39 length | 40 .. 63 zero
    /// ```
    pub fn decode(name: &[u8], value: u64) -> Result<Self, FormatError> {
        if value >> 40 != 0 {
            return Err(FormatError::field(REGISTRY, "entry", value));
        }
        let number = (value & 0xffff) as u16;
        if number >= MAX_ATTRIBUTES {
            return Err(FormatError::field(REGISTRY, "attribute number", number));
        }
        Ok(Self {
            name: name.to_vec(),
            number: AttributeNumber(number),
            length: (value >> 24 & 0xffff) as u16,
            class: SwapClass::from_number((value >> 16 & 0xff) as u8)?,
        })
    }

    /// The value of the registry entry.
    #[must_use]
    pub fn encode(&self) -> u64 {
        u64::from(self.number.0)
            | u64::from(self.class.number()) << 16
            | u64::from(self.length) << 24
    }

    fn legacy(attribute: Attribute, number: AttributeNumber) -> Self {
        Self {
            name: attribute.name().as_bytes().to_vec(),
            number,
            length: attribute.length(),
            class: attribute.swap_class(),
        }
    }
}

/// The attributes that a file system knows, by number and by name.
///
/// Attributes of the legacy znode that are not registered have their fixed numbers. Fixed-length
/// attributes that the format names have the length that it gives them.
#[derive(Clone, Debug)]
pub struct Registry {
    by_number: HashMap<AttributeNumber, RegisteredAttribute>,
    by_attribute: [Option<AttributeNumber>; Attribute::ALL.len()],
}

impl Registry {
    /// Decodes the entries (name and value) of the registry ZAP.
    pub fn new<'a>(
        entries: impl IntoIterator<Item = (&'a [u8], u64)>,
    ) -> Result<Self, FormatError> {
        let mut registry =
            Self { by_number: HashMap::new(), by_attribute: [None; Attribute::ALL.len()] };
        for (name, value) in entries {
            registry.insert(RegisteredAttribute::decode(name, value)?)?;
        }
        for attribute in Attribute::ALL {
            let Some(number) = attribute.legacy_number() else { continue };
            let known = registry.by_attribute.get(attribute.index()).copied().flatten().is_some();
            if !known && !registry.by_number.contains_key(&number) {
                registry.insert(RegisteredAttribute::legacy(attribute, number))?;
            }
        }
        Ok(registry)
    }

    fn insert(&mut self, entry: RegisteredAttribute) -> Result<(), FormatError> {
        let number = entry.number;
        if let Some(attribute) = Attribute::from_name(&entry.name) {
            if entry.length != attribute.length() {
                return Err(FormatError::field(REGISTRY, attribute.name(), entry.length));
            }
            if let Some(slot) = self.by_attribute.get_mut(attribute.index()) {
                *slot = Some(number);
            }
        }
        match self.by_number.insert(number, entry) {
            None => Ok(()),
            Some(_) => Err(FormatError::field(REGISTRY, "repeated number", number.0)),
        }
    }

    /// Registers an attribute that is not known yet, under the next number: the count of those
    /// that are, but none of the legacy znode's.
    ///
    /// # Errors
    /// It is registered already, or no number is left.
    pub fn register(&mut self, attribute: Attribute) -> Result<RegisteredAttribute, FormatError> {
        if self.number(attribute).is_some() {
            return Err(FormatError::invalid(REGISTRY, "the attribute is registered already"));
        }
        let first = u16::try_from(self.by_number.len()).unwrap_or(MAX_ATTRIBUTES);
        let free = |number: &u16| !self.by_number.contains_key(&AttributeNumber(*number));
        let number = (first.max(Attribute::LEGACY_COUNT)..MAX_ATTRIBUTES).find(free);
        let number = number.ok_or_else(|| FormatError::invalid(REGISTRY, "no number is left"))?;
        let entry = RegisteredAttribute::legacy(attribute, AttributeNumber(number));
        self.insert(entry.clone())?;
        Ok(entry)
    }

    /// The number of an attribute that the format names.
    #[must_use]
    pub fn number(&self, attribute: Attribute) -> Option<AttributeNumber> {
        self.by_attribute.get(attribute.index()).copied().flatten()
    }

    /// What is registered under a number.
    #[must_use]
    pub fn get(&self, number: AttributeNumber) -> Option<&RegisteredAttribute> {
        self.by_number.get(&number)
    }

    /// Everything that is registered, in the order of numbers.
    #[must_use]
    pub fn entries(&self) -> Vec<&RegisteredAttribute> {
        let mut entries: Vec<_> = self.by_number.values().collect();
        entries.sort_by_key(|entry| entry.number);
        entries
    }
}

/// One attribute's place in a layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    pub(super) number: AttributeNumber,
    pub(super) known: Option<Attribute>,
    pub(super) length: u16,
    pub(super) class: SwapClass,
}

/// Which attributes a buffer holds, in storage order. Every one of them is registered, none
/// twice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    number: u16,
    slots: Vec<Slot>,
    variable: usize,
}

impl Layout {
    fn new(number: u16, attributes: &[u16], registry: &Registry) -> Result<Self, FormatError> {
        let mut slots: Vec<Slot> = Vec::with_capacity(attributes.len());
        for &attribute in attributes {
            let attribute = AttributeNumber(attribute);
            let entry = registry.get(attribute).ok_or_else(|| {
                FormatError::field(LAYOUTS, "unregistered attribute", attribute.0)
            })?;
            if slots.iter().any(|slot| slot.number == attribute) {
                return Err(FormatError::field(LAYOUTS, "repeated attribute", attribute.0));
            }
            slots.push(Slot {
                number: attribute,
                known: Attribute::from_name(&entry.name),
                length: entry.length,
                class: entry.class,
            });
        }
        let variable = slots.iter().filter(|slot| slot.length == 0).count();
        Ok(Self { number, slots, variable })
    }

    /// The number.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.number
    }

    /// The attributes' numbers in storage order.
    pub fn attributes(&self) -> impl Iterator<Item = AttributeNumber> + '_ {
        self.slots.iter().map(|slot| slot.number)
    }

    /// Attributes with a length of their own.
    #[must_use]
    pub const fn variable_count(&self) -> usize {
        self.variable
    }

    /// Bytes of the header of a buffer with this layout.
    #[must_use]
    pub const fn header_size(&self) -> usize {
        header_size(self.variable)
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

/// The layouts of a file system.
#[derive(Clone, Debug)]
pub struct Layouts {
    by_number: HashMap<u16, Layout>,
    empty: Layout,
}

impl Layouts {
    /// Decodes the entries of the layouts ZAP: a decimal name and 16-bit attribute numbers.
    pub fn new<'a>(
        entries: impl IntoIterator<Item = (&'a [u8], Vec<u16>)>,
        registry: &Registry,
    ) -> Result<Self, FormatError> {
        let mut by_number = HashMap::new();
        for (name, attributes) in entries {
            let number = layout_number(name)?;
            if attributes.len() > usize::from(MAX_ATTRIBUTES) {
                return Err(FormatError::field(LAYOUTS, "length", attributes.len() as u64));
            }
            by_number.insert(number, Layout::new(number, &attributes, registry)?);
        }
        Ok(Self { by_number, empty: Layout { number: 1, slots: Vec::new(), variable: 0 } })
    }

    /// The layout that a buffer's header names. 0 and 1 are the empty layout.
    #[must_use]
    pub fn get(&self, number: u16) -> Option<&Layout> {
        if number < FIRST_LAYOUT { Some(&self.empty) } else { self.by_number.get(&number) }
    }

    /// The layout of these attributes in this order.
    #[must_use]
    pub fn find(&self, attributes: &[AttributeNumber]) -> Option<&Layout> {
        if attributes.is_empty() {
            return Some(&self.empty);
        }
        let is_it = |layout: &&Layout| layout.attributes().eq(attributes.iter().copied());
        // The one with the lowest number, as there may be several.
        self.by_number.values().filter(is_it).min_by_key(|layout| layout.number)
    }

    /// Adds a layout of these attributes in this order, under the next number: the count of
    /// those that are known, the two implied ones among them.
    ///
    /// # Errors
    /// An attribute is not registered or repeats, or no number is left.
    pub fn add(
        &mut self,
        attributes: &[AttributeNumber],
        registry: &Registry,
    ) -> Result<&Layout, FormatError> {
        let first = u16::try_from(self.by_number.len()).unwrap_or(MAX_LAYOUTS);
        let free = |number: &u16| !self.by_number.contains_key(number);
        let number = (first.saturating_add(FIRST_LAYOUT)..MAX_LAYOUTS).find(free);
        let number = number.ok_or_else(|| FormatError::invalid(LAYOUTS, "no number is left"))?;
        let attributes: Vec<u16> = attributes.iter().map(|attribute| attribute.0).collect();
        let layout = Layout::new(number, &attributes, registry)?;
        Ok(self.by_number.entry(number).or_insert(layout))
    }

    /// The stored layouts, in the order of numbers.
    #[must_use]
    pub fn entries(&self) -> Vec<&Layout> {
        let mut layouts: Vec<_> = self.by_number.values().collect();
        layouts.sort_by_key(|layout| layout.number);
        layouts
    }
}

/// The number that is a layout's name: decimal, without leading zeros.
fn layout_number(name: &[u8]) -> Result<u16, FormatError> {
    let bad = FormatError::invalid(LAYOUTS, "a name that is no layout number");
    if name.is_empty() || name.len() > 4 || name.first() == Some(&b'0') {
        return Err(bad);
    }
    let mut number = 0_u16;
    for digit in name {
        if !digit.is_ascii_digit() {
            return Err(bad);
        }
        number = number * 10 + u16::from(digit - b'0');
    }
    if (FIRST_LAYOUT..MAX_LAYOUTS).contains(&number) { Ok(number) } else { Err(bad) }
}

/// Everything that is needed to read system attributes: one file system's registry and layouts.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The attributes.
    pub registry: Registry,
    /// The layouts.
    pub layouts: Layouts,
}

impl Schema {
    /// The schema of a file system in which nothing was ever written: no layouts.
    pub fn empty() -> Result<Self, FormatError> {
        let registry = Registry::new([])?;
        let layouts = Layouts::new([], &registry)?;
        Ok(Self { registry, layouts })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The schema of the specification's examples: registry of a new file system, layouts 2 to 8.
    pub(in crate::sa) fn sample() -> Schema {
        let values: Vec<_> = Attribute::ALL
            .into_iter()
            .map(|attribute| {
                let number = AttributeNumber(attribute as u16);
                (attribute.name(), RegisteredAttribute::legacy(attribute, number).encode())
            })
            .collect();
        let registry =
            Registry::new(values.iter().map(|(name, value)| (name.as_bytes(), *value))).unwrap();
        let common = [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8];
        let with = |rest: &[u16]| [&common[..], rest].concat();
        let layouts = Layouts::new(
            [
                (&b"2"[..], with(&[21, 16, 19])),
                (b"3", with(&[16, 19])),
                (b"4", with(&[16, 19, 17])),
                (b"5", vec![17]),
                (b"6", with(&[10, 16, 19])),
                (b"7", with(&[21, 16, 19, 20])),
                (b"8", vec![20]),
            ],
            &registry,
        )
        .unwrap();
        Schema { registry, layouts }
    }

    #[test]
    fn registry_words_of_the_spec_decode() {
        let size = RegisteredAttribute::decode(b"ZPL_SIZE", 0x800_0006).unwrap();
        assert_eq!((size.number.0, size.length, size.class), (6, 8, SwapClass::Uint64), "ZPL_SIZE");
        let aces = RegisteredAttribute::decode(b"ZPL_DACL_ACES", 0x4_0013).unwrap();
        assert_eq!((aces.number.0, aces.length, aces.class), (19, 0, SwapClass::Acl));
        let acl = RegisteredAttribute::decode(b"ZPL_ZNODE_ACL", 0x5803_000f).unwrap();
        assert_eq!((acl.number.0, acl.length, acl.class), (15, 88, SwapClass::Bytes));
        let projid = RegisteredAttribute::decode(b"ZPL_PROJID", 0x0800_0015).unwrap();
        assert_eq!(projid.encode(), 0x0800_0015);
    }

    #[test]
    fn hostile_registries_are_refused() {
        for entries in [
            vec![("A", 0x5_0010)],
            vec![("A", 1024)],
            vec![("A", 1 << 40)],
            vec![("A", 16), ("B", 16)],
            vec![("ZPL_MODE", 0x1000_0005)],
        ] {
            let entries = entries.iter().map(|(name, value)| (name.as_bytes(), *value));
            assert!(Registry::new(entries.clone()).is_err(), "{entries:?}");
        }
    }

    #[test]
    fn a_registry_may_number_attributes_freely_and_leave_out_the_legacy_ones() {
        let registry =
            Registry::new([(&b"ZPL_DXATTR"[..], 0x3_0031), (b"ZPL_MODE", 0x800_0020)]).unwrap();
        assert_eq!(registry.number(Attribute::Dxattr), Some(AttributeNumber(0x31)));
        assert_eq!(registry.number(Attribute::Mode), Some(AttributeNumber(0x20)));
        assert_eq!(registry.number(Attribute::Size), Some(AttributeNumber(6)));
        assert_eq!(registry.number(Attribute::Projid), None);
    }

    #[test]
    fn attributes_and_layouts_get_the_next_numbers() {
        let mut schema = Schema::empty().unwrap();
        for attribute in Attribute::ALL.into_iter().skip(16) {
            let entry = schema.registry.register(attribute).unwrap();
            assert_eq!(entry.number, AttributeNumber(attribute as u16));
            assert!(schema.registry.register(attribute).is_err());
        }
        let attributes = [21, 5, 19].map(AttributeNumber);
        for number in FIRST_LAYOUT..MAX_LAYOUTS {
            let layout = schema.layouts.add(&attributes, &schema.registry).unwrap();
            assert_eq!(layout.number(), number);
        }
        assert!(schema.layouts.add(&attributes, &schema.registry).is_err());
        assert_eq!(schema.layouts.find(&attributes).unwrap().number(), FIRST_LAYOUT);
        assert_eq!(schema.layouts.find(&[]).unwrap().number(), 1);
        assert!(schema.layouts.find(&attributes[..2]).is_none());
    }

    #[test]
    fn header_sizes_are_those_of_the_spec() {
        let sizes = [0, 1, 2, 3, 5, 6].map(header_size);
        assert_eq!(sizes, [8, 8, 16, 16, 16, 24]);
    }

    #[test]
    fn hostile_layouts_are_refused() {
        let registry = sample().registry;
        for (name, attributes) in [
            (&b"2"[..], vec![99]),
            (b"2", vec![5, 5]),
            (b"02", vec![5]),
            (b"1", vec![5]),
            (b"1024", vec![5]),
            (b"x", vec![5]),
            (b"", vec![5]),
        ] {
            assert!(Layouts::new([(name, attributes)], &registry).is_err(), "{name:?}");
        }
    }
}
