//! Lists as text: a pair on a line, inner lists indented, as zdb shows them.

use super::{NvList, NvValue};
use std::fmt::{self, Display, Formatter};

/// Columns by which an inner list is indented.
const STEP: usize = 4;

/// A list as text, each pair on a line of its own ([`NvList::indented`]).
#[derive(Clone, Copy, Debug)]
pub struct Indented<'a> {
    list: &'a NvList,
    columns: usize,
}

impl NvList {
    /// The list as text, `columns` from the left.
    #[must_use]
    pub const fn indented(&self, columns: usize) -> Indented<'_> {
        Indented { list: self, columns }
    }
}

impl Display for Indented<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let columns = self.columns;
        for pair in self.list.iter() {
            let name = pair.name().to_text();
            match pair.value() {
                NvValue::Boolean => writeln!(f, "{:columns$}{name}", "")?,
                NvValue::List(inner) => {
                    write!(f, "{:columns$}{name}:\n{}", "", inner.indented(columns + STEP))?;
                }
                NvValue::ListArray(lists) => {
                    for (index, inner) in lists.iter().enumerate() {
                        let inner = inner.indented(columns + STEP);
                        write!(f, "{:columns$}{name}[{index}]:\n{inner}", "")?;
                    }
                }
                value => plain(f, &name, value, columns)?,
            }
        }
        Ok(())
    }
}

fn plain(f: &mut Formatter<'_>, name: &str, value: &NvValue, columns: usize) -> fmt::Result {
    let mut one = |value: &dyn Display| writeln!(f, "{:columns$}{name}: {value}", "");
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
        NvValue::ByteArray(v) | NvValue::UInt8Array(v) => array(f, name, v, columns),
        NvValue::Int8Array(v) => array(f, name, v, columns),
        NvValue::Int16Array(v) => array(f, name, v, columns),
        NvValue::UInt16Array(v) => array(f, name, v, columns),
        NvValue::Int32Array(v) => array(f, name, v, columns),
        NvValue::UInt32Array(v) => array(f, name, v, columns),
        NvValue::Int64Array(v) => array(f, name, v, columns),
        NvValue::UInt64Array(v) => array(f, name, v, columns),
        NvValue::BooleanArray(v) => array(f, name, v, columns),
        NvValue::StringArray(texts) => {
            for (index, text) in texts.iter().enumerate() {
                writeln!(f, "{:columns$}{name}[{index}]: '{}'", "", text.to_text())?;
            }
            Ok(())
        }
        NvValue::Boolean | NvValue::List(_) | NvValue::ListArray(_) => Ok(()),
    }
}

fn array<T: Display>(
    f: &mut Formatter<'_>,
    name: &str,
    values: &[T],
    columns: usize,
) -> fmt::Result {
    for (index, value) in values.iter().enumerate() {
        writeln!(f, "{:columns$}{name}[{index}]: {value}", "")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvlist::NvString;

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
        assert_eq!(
            list.indented(4).to_string(),
            "    version: 5000\n    hole_array[0]: 1\n    hole_array[1]: 3\n    children[0]:\n        \
             type: 'file'\n    features_for_read:\n        com.delphix:hole_birth\n"
        );
    }
}
