//! Lists as text: numbers in hex, inner lists between brackets of words, as `zstream dump` and
//! `zfs send -v` show them.

use super::{NvList, NvString, NvValue};
use std::fmt::{self, Display, Formatter, LowerHex};

/// A list as text, with a head of its own ([`NvList::printed`]).
#[derive(Clone, Copy, Debug)]
pub struct Printed<'a> {
    list: &'a NvList,
    depth: usize,
}

impl NvList {
    /// The list as text, its pairs a tab from the left.
    #[must_use]
    pub const fn printed(&self) -> Printed<'_> {
        Printed { list: self, depth: 0 }
    }
}

/// As many tabs as the depth says.
struct Tabs(usize);

impl Display for Tabs {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        (0..self.0).try_for_each(|_| f.write_str("\t"))
    }
}

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // The format knows no other version.
        writeln!(f, "{}nvlist version: 0", Tabs(self.depth))?;
        let depth = self.depth + 1;
        self.list.iter().try_for_each(|pair| print(f, depth, pair.name(), pair.value()))
    }
}

fn print(f: &mut Formatter<'_>, depth: usize, name: &NvString, value: &NvValue) -> fmt::Result {
    let (tabs, name) = (Tabs(depth), name.to_text());
    // An empty array is an empty line.
    if value.count() == 0 && !matches!(value, NvValue::Boolean) {
        return writeln!(f);
    }
    match value {
        NvValue::List(list) => {
            let list = Printed { list, depth };
            write!(f, "{tabs}{name} = (embedded nvlist)\n{list}{tabs}(end {name})\n\n")
        }
        NvValue::ListArray(lists) => {
            writeln!(f, "{tabs}{name} = (array of embedded nvlists)")?;
            for (index, list) in lists.iter().enumerate() {
                let list = Printed { list, depth };
                write!(f, "{tabs}(start {name}[{index}])\n{list}{tabs}(end {name}[{index}])\n")?;
            }
            writeln!(f)
        }
        value => {
            write!(f, "{tabs}{name} =")?;
            plain(f, value)?;
            writeln!(f)
        }
    }
}

/// A value, or values, each after a space. What has a sign is decimal.
fn plain(f: &mut Formatter<'_>, value: &NvValue) -> fmt::Result {
    match value {
        NvValue::Boolean => write!(f, " 1"),
        NvValue::BooleanValue(v) => write!(f, " {}", u8::from(*v)),
        NvValue::Byte(v) => hex(f, &[*v]),
        NvValue::UInt8(v) => hex(f, &[*v]),
        NvValue::UInt16(v) => hex(f, &[*v]),
        NvValue::UInt32(v) => hex(f, &[*v]),
        NvValue::UInt64(v) => hex(f, &[*v]),
        NvValue::HrTime(v) => hex(f, &[*v]),
        NvValue::Int8(v) => signed(f, &[*v]),
        NvValue::Int16(v) => signed(f, &[*v]),
        NvValue::Int32(v) => signed(f, &[*v]),
        NvValue::Int64(v) => signed(f, &[*v]),
        NvValue::Double(bits) => write!(f, " 0x{:.6}", f64::from_bits(*bits)),
        NvValue::String(text) => write!(f, " {}", text.to_text()),
        NvValue::StringArray(texts) => {
            texts.iter().try_for_each(|text| write!(f, " {}", text.to_text()))
        }
        NvValue::BooleanArray(all) => all.iter().try_for_each(|v| write!(f, " {}", u8::from(*v))),
        NvValue::ByteArray(all) => all.iter().try_for_each(|v| write!(f, " 0x{v:02x}")),
        NvValue::UInt8Array(all) => hex(f, all),
        NvValue::UInt16Array(all) => hex(f, all),
        NvValue::UInt32Array(all) => hex(f, all),
        NvValue::UInt64Array(all) => hex(f, all),
        NvValue::Int8Array(all) => signed(f, all),
        NvValue::Int16Array(all) => signed(f, all),
        NvValue::Int32Array(all) => signed(f, all),
        NvValue::Int64Array(all) => signed(f, all),
        NvValue::List(_) | NvValue::ListArray(_) => Ok(()),
    }
}

fn hex(f: &mut Formatter<'_>, values: &[impl LowerHex]) -> fmt::Result {
    values.iter().try_for_each(|value| write!(f, " 0x{value:x}"))
}

fn signed(f: &mut Formatter<'_>, values: &[impl Display]) -> fmt::Result {
    values.iter().try_for_each(|value| write!(f, " {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What libnvpair of OpenZFS 2.3.2 prints about the same list.
    #[test]
    fn lists_are_printed_as_libnvpair_prints_them() {
        let mut inner = NvList::new();
        inner.insert("in", NvValue::UInt64(1)).unwrap();
        let mut list = NvList::new();
        let text = |text: &str| NvString::new(text).unwrap();
        for (name, value) in [
            ("b", NvValue::Boolean),
            ("bt", NvValue::BooleanValue(true)),
            ("by", NvValue::Byte(200)),
            ("i8", NvValue::Int8(-3)),
            ("u16", NvValue::UInt16(65530)),
            ("u64", NvValue::UInt64(u64::MAX - 2)),
            ("hr", NvValue::HrTime(255)),
            ("dbl", NvValue::Double(1.5_f64.to_bits())),
            ("s", NvValue::String(text("a b"))),
            ("se", NvValue::String(text(""))),
            ("ba", NvValue::BooleanArray([true, false].into())),
            ("bya", NvValue::ByteArray([1, 200].into())),
            ("u8a", NvValue::UInt8Array([1, 200].into())),
            ("i32a", NvValue::Int32Array([-1, 2].into())),
            ("u64a", NvValue::UInt64Array([1, 2].into())),
            ("u64e", NvValue::UInt64Array([].into())),
            ("sa", NvValue::StringArray([text("x"), text("y z")].into())),
            ("l", NvValue::List(Box::new(inner.clone()))),
            ("le", NvValue::List(Box::new(NvList::new()))),
            ("la", NvValue::ListArray([inner.clone(), inner].into())),
            ("last", NvValue::UInt64(9)),
        ] {
            list.insert(name, value).unwrap();
        }
        let expected = "nvlist version: 0\n\tb = 1\n\tbt = 1\n\tby = 0xc8\n\ti8 = -3\n\
            \tu16 = 0xfffa\n\tu64 = 0xfffffffffffffffd\n\thr = 0xff\n\tdbl = 0x1.500000\n\
            \ts = a b\n\tse = \n\tba = 1 0\n\tbya = 0x01 0xc8\n\tu8a = 0x1 0xc8\n\
            \ti32a = -1 2\n\tu64a = 0x1 0x2\n\n\tsa = x y z\n\
            \tl = (embedded nvlist)\n\tnvlist version: 0\n\t\tin = 0x1\n\t(end l)\n\n\
            \tle = (embedded nvlist)\n\tnvlist version: 0\n\t(end le)\n\n\
            \tla = (array of embedded nvlists)\n\
            \t(start la[0])\n\tnvlist version: 0\n\t\tin = 0x1\n\t(end la[0])\n\
            \t(start la[1])\n\tnvlist version: 0\n\t\tin = 0x1\n\t(end la[1])\n\n\tlast = 0x9\n";
        assert_eq!(list.printed().to_string(), expected);
    }
}
