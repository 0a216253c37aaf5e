//! Name-value lists, indented.

use rzfs_format::nvlist::{NvList, NvValue};
use std::fmt::Display;
use std::io::{self, Write};

/// Columns by which an inner list is indented.
const STEP: usize = 4;

/// Prints a list, each pair on a line of its own, `indent` columns from the left.
pub(crate) fn print(out: &mut dyn Write, list: &NvList, indent: usize) -> io::Result<()> {
    for pair in list.iter() {
        let name = pair.name().to_text();
        match pair.value() {
            NvValue::Boolean => writeln!(out, "{:indent$}{name}", "")?,
            NvValue::List(inner) => {
                writeln!(out, "{:indent$}{name}:", "")?;
                print(out, inner, indent + STEP)?;
            }
            NvValue::ListArray(lists) => {
                for (index, inner) in lists.iter().enumerate() {
                    writeln!(out, "{:indent$}{name}[{index}]:", "")?;
                    print(out, inner, indent + STEP)?;
                }
            }
            value => print_plain(out, &name, value, indent)?,
        }
    }
    Ok(())
}

fn print_plain(out: &mut dyn Write, name: &str, value: &NvValue, indent: usize) -> io::Result<()> {
    let mut one = |value: &dyn Display| writeln!(out, "{:indent$}{name}: {value}", "");
    match value {
        NvValue::Byte(v) | NvValue::UInt8(v) => one(v),
        NvValue::Int8(v) => one(v),
        NvValue::Int16(v) => one(v),
        NvValue::UInt16(v) => one(v),
        NvValue::Int32(v) => one(v),
        NvValue::UInt32(v) => one(v),
        NvValue::Int64(v) | NvValue::HrTime(v) => one(v),
        NvValue::UInt64(v) => one(v),
        NvValue::Double(bits) => one(&f64::from_bits(*bits)),
        NvValue::BooleanValue(v) => one(v),
        NvValue::String(text) => one(&format_args!("'{}'", text.to_text())),
        NvValue::ByteArray(v) | NvValue::UInt8Array(v) => print_array(out, name, v, indent),
        NvValue::Int8Array(v) => print_array(out, name, v, indent),
        NvValue::Int16Array(v) => print_array(out, name, v, indent),
        NvValue::UInt16Array(v) => print_array(out, name, v, indent),
        NvValue::Int32Array(v) => print_array(out, name, v, indent),
        NvValue::UInt32Array(v) => print_array(out, name, v, indent),
        NvValue::Int64Array(v) => print_array(out, name, v, indent),
        NvValue::UInt64Array(v) => print_array(out, name, v, indent),
        NvValue::BooleanArray(v) => print_array(out, name, v, indent),
        NvValue::StringArray(texts) => {
            for (index, text) in texts.iter().enumerate() {
                writeln!(out, "{:indent$}{name}[{index}]: '{}'", "", text.to_text())?;
            }
            Ok(())
        }
        NvValue::Boolean | NvValue::List(_) | NvValue::ListArray(_) => Ok(()),
    }
}

fn print_array<T: Display>(
    out: &mut dyn Write,
    name: &str,
    values: &[T],
    indent: usize,
) -> io::Result<()> {
    for (index, value) in values.iter().enumerate() {
        writeln!(out, "{:indent$}{name}[{index}]: {value}", "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::nvlist::NvString;

    #[test]
    fn lists_are_shown_as_zdb_shows_them() {
        let mut child = NvList::new();
        child.insert("type", NvValue::String(NvString::new("file").unwrap())).unwrap();
        let mut features = NvList::new();
        features.insert("com.delphix:hole_birth", NvValue::Boolean).unwrap();
        let mut list = NvList::new();
        list.insert("version", NvValue::UInt64(5000)).unwrap();
        list.insert("hole_array", NvValue::UInt64Array([1, 3].into())).unwrap();
        list.insert("children", NvValue::ListArray([child].into())).unwrap();
        list.insert("features_for_read", NvValue::List(Box::new(features))).unwrap();
        let mut out = Vec::new();
        print(&mut out, &list, 4).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "    version: 5000\n    hole_array[0]: 1\n    hole_array[1]: 3\n    children[0]:\n        \
             type: 'file'\n    features_for_read:\n        com.delphix:hole_birth\n"
        );
    }
}
