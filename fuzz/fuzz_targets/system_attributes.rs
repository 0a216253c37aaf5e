//! Any bytes are a buffer of system attributes, a legacy znode or an access control list, in any
//! schema that any bytes make.
//!
//! ```text
//! input     changes (1), changes x [attribute (1), registry entry (5)]
//!           layouts (1), layouts x [length (1), attribute numbers (1 each)]
//!           buffer
//! ```
//! The registry is the one that OpenZFS makes, but for the changes; layouts count from 2.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::acl::Ace;
use rzfs_format::sa::{
    Attribute, AttributeNumber, FIRST_LAYOUT, Layouts, RegisteredAttribute, Registry, Schema,
};
use rzfs_format::znode::LegacyZnode;

/// The schema at the start of an input, and what follows.
fn schema(input: &[u8]) -> Option<(Schema, &[u8])> {
    let mut values: Vec<u64> = Vec::new();
    for attribute in Attribute::ALL {
        let number = AttributeNumber(attribute as u16);
        let (name, class) = (attribute.name().as_bytes().to_vec(), attribute.swap_class());
        let length = attribute.length();
        values.push(RegisteredAttribute { name, number, length, class }.encode());
    }
    let (changes, mut rest) = input.split_first()?;
    for _ in 0..changes % 8 {
        let (change, after) = rest.split_first_chunk::<6>()?;
        let [index, a, b, c, d, e] = *change;
        let index = usize::from(index) % values.len();
        values[index] = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        rest = after;
    }
    let names = Attribute::ALL.iter().map(|attribute| attribute.name().as_bytes());
    let registry = Registry::new(names.zip(values)).ok()?;
    let (count, mut rest) = rest.split_first()?;
    let mut layouts = Vec::new();
    for number in (FIRST_LAYOUT..).take(usize::from(*count)) {
        let (length, after) = rest.split_first()?;
        let (numbers, after) = after.split_at_checked(usize::from(*length))?;
        let numbers: Vec<u16> = numbers.iter().map(|number| u16::from(*number)).collect();
        layouts.push((number.to_string(), numbers));
        rest = after;
    }
    let entries = layouts.iter().map(|(name, list)| (name.as_bytes(), list.clone()));
    let layouts = Layouts::new(entries, &registry).ok()?;
    Some((Schema { registry, layouts }, rest))
}

fuzz_target!(|input: &[u8]| {
    let Some((schema, data)) = schema(input) else { return };
    if let Ok(buffer) = schema.buffer(data) {
        for attribute in Attribute::ALL {
            if let Some(value) = buffer.get(attribute) {
                let _ = (value.u64(), value.u64_pair());
            }
        }
    }
    for order in [ByteOrder::Little, ByteOrder::Big] {
        if let Ok(znode) = LegacyZnode::decode(data, order) {
            let _ = znode.link_target();
        }
        let count = data.first().copied().unwrap_or_default();
        let _ = Ace::decode_list(data, order, u64::from(count));
        let _ = Ace::decode_old_list(data, order, u64::from(count));
    }
});
