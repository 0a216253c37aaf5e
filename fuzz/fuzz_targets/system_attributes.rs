//! Any bytes are a buffer of system attributes, a legacy znode or an access control list, in any
//! schema that any bytes make.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::acl::Ace;
use rzfs_format::sa::{Attribute, Layouts, Registry, Schema};
use rzfs_format::znode::LegacyZnode;

fuzz_target!(|input: (Vec<(u8, u64)>, Vec<(u16, Vec<u16>)>, Vec<u8>)| {
    let (registered, layouts, data) = input;
    let names = |index: u8| Attribute::ALL[usize::from(index) % Attribute::ALL.len()].name();
    let Ok(registry) =
        Registry::new(registered.iter().map(|(index, value)| (names(*index).as_bytes(), *value)))
    else {
        return;
    };
    let numbers: Vec<_> = layouts.iter().map(|(number, _)| number.to_string()).collect();
    let entries =
        numbers.iter().zip(&layouts).map(|(name, (_, list))| (name.as_bytes(), list.clone()));
    let Ok(layouts) = Layouts::new(entries, &registry) else { return };
    let schema = Schema { registry, layouts };
    if let Ok(buffer) = schema.buffer(&data) {
        for attribute in Attribute::ALL {
            if let Some(value) = buffer.get(attribute) {
                let _ = (value.u64(), value.u64_pair());
            }
        }
    }
    for order in [ByteOrder::Little, ByteOrder::Big] {
        if let Ok(znode) = LegacyZnode::decode(&data, order) {
            let _ = znode.link_target();
        }
        let count = data.first().copied().unwrap_or_default();
        let _ = Ace::decode_list(&data, order, u64::from(count));
        let _ = Ace::decode_old_list(&data, order, u64::from(count));
    }
});
