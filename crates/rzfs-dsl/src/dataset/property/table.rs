//! The properties that can be set (spec 04, section 14.1).

use super::value::PropertyValue;
use crate::dataset::DatasetKind;
use rzfs_zap::ZapValue;

/// Whether children get the value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inheritance {
    /// They do.
    Inherited,
    /// They do not.
    Own,
}

/// Which kinds of datasets have a property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appliance {
    file_systems: bool,
    volumes: bool,
    snapshots: bool,
}

impl Appliance {
    /// Whether it applies to datasets of this kind.
    #[must_use]
    pub const fn to(self, kind: DatasetKind) -> bool {
        match kind {
            DatasetKind::FileSystem => self.file_systems,
            DatasetKind::Volume => self.volumes,
            DatasetKind::Snapshot => self.snapshots,
        }
    }
}

const fn applies(file_systems: bool, volumes: bool, snapshots: bool) -> Appliance {
    Appliance { file_systems, volumes, snapshots }
}

const F: Appliance = applies(true, false, false);
const V: Appliance = applies(false, true, false);
const FV: Appliance = applies(true, true, false);
const FS: Appliance = applies(true, false, true);
const FVS: Appliance = applies(true, true, true);

/// How a stored value is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A number as it is.
    Number,
    /// Text.
    Text,
    /// The word of a number.
    Words(&'static [(u64, &'static str)]),
    /// A compression function with its level.
    Compression,
    /// A number, with the greatest one for "no limit".
    Limit,
}

impl Form {
    /// The value of what a ZAP has.
    pub(super) fn show(self, stored: &ZapValue) -> PropertyValue {
        match (self, stored.first_u64()) {
            (Self::Text, _) | (_, None) => PropertyValue::Text(string(stored)),
            (_, Some(number)) => self.show_number(number),
        }
    }

    /// The value of a stored number.
    #[must_use]
    pub fn show_number(self, number: u64) -> PropertyValue {
        let text = |word: &str| PropertyValue::Text(word.to_owned());
        match self {
            Self::Number | Self::Text => PropertyValue::Number(number),
            Self::Words(words) => words
                .iter()
                .find(|(known, _)| *known == number)
                .map_or(PropertyValue::Number(number), |(_, word)| text(word)),
            Self::Compression => PropertyValue::Text(compression(number)),
            Self::Limit if number == u64::MAX => text("none"),
            Self::Limit => PropertyValue::Number(number),
        }
    }
}

/// The text of a value of bytes that ends with a NUL.
pub(super) fn string(stored: &ZapValue) -> String {
    let bytes = stored.as_bytes().unwrap_or_default();
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// `zstd-fast-10`, `gzip-6`, `lz4`, ...: the function in the low 7 bits, a level above.
fn compression(number: u64) -> String {
    let level = number >> 7;
    match (number & 0x7f, level) {
        (1, _) => "on".to_owned(),
        (2, _) => "off".to_owned(),
        (3, _) => "lzjb".to_owned(),
        (10, _) => "gzip".to_owned(),
        (gzip @ 5..=13, _) => format!("gzip-{}", gzip - 4),
        (14, _) => "zle".to_owned(),
        (15, _) => "lz4".to_owned(),
        (16, 0) => "zstd".to_owned(),
        (16, 1..=19) => format!("zstd-{level}"),
        (16, 103) => "zstd-fast".to_owned(),
        (16, 104..=112) => format!("zstd-fast-{}", level - 102),
        (16, 113..=121) => format!("zstd-fast-{}", (level - 111) * 10),
        (16, 122) => "zstd-fast-500".to_owned(),
        (16, 123) => "zstd-fast-1000".to_owned(),
        _ => number.to_string(),
    }
}

/// What a property is when nobody set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Default {
    Number(u64),
    Text(&'static str),
}

/// A property that can be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeProperty {
    /// Its name.
    pub name: &'static str,
    /// Which datasets have it.
    pub applies: Appliance,
    /// Whether children get the value.
    pub inheritance: Inheritance,
    /// How it is shown.
    pub form: Form,
    default: Default,
}

impl NativeProperty {
    /// The number when nobody set it; `None` for texts.
    pub(crate) const fn default_number(&self) -> Option<u64> {
        match self.default {
            Default::Number(number) => Some(number),
            Default::Text(_) => None,
        }
    }

    /// The property with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SETTABLE.iter().find(|property| property.name == name)
    }

    /// The value when nobody set it.
    #[must_use]
    pub fn default_value(&self) -> PropertyValue {
        match self.default {
            Default::Number(number) => self.form.show_number(number),
            Default::Text(text) => PropertyValue::Text(text.to_owned()),
        }
    }
}

use Form::{Compression, Limit, Number, Text, Words};
use Inheritance::{Inherited, Own};

const fn number(
    name: &'static str,
    applies: Appliance,
    inheritance: Inheritance,
    form: Form,
    default: u64,
) -> NativeProperty {
    NativeProperty { name, applies, inheritance, form, default: Default::Number(default) }
}

const fn text(
    name: &'static str,
    applies: Appliance,
    inheritance: Inheritance,
    default: &'static str,
) -> NativeProperty {
    NativeProperty { name, applies, inheritance, form: Text, default: Default::Text(default) }
}

const ON_OFF: Form = Words(&[(0, "off"), (1, "on")]);
const CACHED: Form = Words(&[(0, "none"), (1, "metadata"), (2, "all")]);
const CHECKSUM: Form = Words(&[
    (1, "on"),
    (2, "off"),
    (6, "fletcher2"),
    (7, "fletcher4"),
    (8, "sha256"),
    (10, "noparity"),
    (11, "sha512"),
    (12, "skein"),
    (13, "edonr"),
    (14, "blake3"),
]);
const DEDUP: Form = Words(&[
    (1, "on"),
    (2, "off"),
    (0x101, "verify"),
    (8, "sha256"),
    (0x108, "sha256,verify"),
    (11, "sha512"),
    (0x10b, "sha512,verify"),
    (12, "skein"),
    (0x10c, "skein,verify"),
    (0x10d, "edonr,verify"),
    (14, "blake3"),
    (0x10e, "blake3,verify"),
]);
const ACL_INHERIT: Form = Words(&[
    (0, "discard"),
    (1, "noallow"),
    (3, "passthrough"),
    (4, "restricted"),
    (5, "passthrough-x"),
]);
const ACL_MODE: Form =
    Words(&[(0, "discard"), (2, "groupmask"), (3, "passthrough"), (4, "restricted")]);
const DNODE_SIZE: Form = Words(&[
    (0, "legacy"),
    (1, "auto"),
    (1024, "1k"),
    (2048, "2k"),
    (4096, "4k"),
    (8192, "8k"),
    (16384, "16k"),
]);
pub(super) const NORMALIZATION: Form =
    Words(&[(0, "none"), (0x10, "formD"), (0x20, "formKD"), (0x50, "formC"), (0x60, "formKC")]);
pub(super) const CASE_SENSITIVITY: Form =
    Words(&[(0, "sensitive"), (1, "insensitive"), (2, "mixed")]);
pub(super) const UTF8_ONLY: Form = ON_OFF;
pub(super) const ENCRYPTION: Form = Words(&[
    (1, "on"),
    (2, "off"),
    (3, "aes-128-ccm"),
    (4, "aes-192-ccm"),
    (5, "aes-256-ccm"),
    (6, "aes-128-gcm"),
    (7, "aes-192-gcm"),
    (8, "aes-256-gcm"),
]);
pub(super) const KEY_FORMAT: Form =
    Words(&[(0, "none"), (1, "raw"), (2, "hex"), (3, "passphrase")]);

/// The properties that can be set, also those that only creation can set.
pub const SETTABLE: &[NativeProperty] = &[
    number("quota", F, Own, Number, 0),
    number("reservation", FV, Own, Number, 0),
    number("volsize", applies(false, true, true), Own, Number, 0),
    number("volblocksize", V, Own, Number, 16384),
    number("recordsize", F, Inherited, Number, 131_072),
    text("mountpoint", F, Inherited, "/"),
    text("sharenfs", F, Inherited, "off"),
    number("checksum", FV, Inherited, CHECKSUM, 1),
    number("compression", FV, Inherited, Compression, 1),
    number("atime", F, Inherited, ON_OFF, 1),
    number("devices", FS, Inherited, ON_OFF, 1),
    number("exec", FS, Inherited, ON_OFF, 1),
    number("setuid", FS, Inherited, ON_OFF, 1),
    number("readonly", FV, Inherited, ON_OFF, 0),
    number("zoned", F, Inherited, ON_OFF, 0),
    number("snapdir", F, Inherited, Words(&[(0, "hidden"), (1, "visible"), (2, "disabled")]), 0),
    number("aclmode", F, Inherited, ACL_MODE, 0),
    number("aclinherit", F, Inherited, ACL_INHERIT, 4),
    number("canmount", F, Own, Words(&[(0, "off"), (1, "on"), (2, "noauto")]), 1),
    number("xattr", FS, Inherited, Words(&[(0, "off"), (1, "dir"), (2, "on")]), 2),
    number("copies", FV, Inherited, Words(&[(1, "1"), (2, "2"), (3, "3")]), 1),
    number("version", FS, Own, Number, 0),
    number("utf8only", FS, Own, UTF8_ONLY, 0),
    number("normalization", FS, Own, NORMALIZATION, 0),
    number("casesensitivity", FS, Own, CASE_SENSITIVITY, 0),
    number("vscan", F, Inherited, ON_OFF, 0),
    number("nbmand", FS, Inherited, ON_OFF, 0),
    text("sharesmb", F, Inherited, "off"),
    number("refquota", F, Own, Number, 0),
    number("refreservation", FV, Own, Number, 0),
    number("primarycache", FVS, Inherited, CACHED, 2),
    number("secondarycache", FVS, Inherited, CACHED, 2),
    number("logbias", FV, Inherited, Words(&[(0, "latency"), (1, "throughput")]), 0),
    number("dedup", FV, Inherited, DEDUP, 2),
    text("mlslabel", FVS, Inherited, "none"),
    number("sync", FV, Inherited, Words(&[(0, "standard"), (1, "always"), (2, "disabled")]), 0),
    number("dnodesize", F, Inherited, DNODE_SIZE, 0),
    number(
        "volmode",
        FV,
        Inherited,
        Words(&[(0, "default"), (1, "full"), (2, "dev"), (3, "none")]),
        0,
    ),
    number("filesystem_limit", F, Own, Limit, u64::MAX),
    number("snapshot_limit", FV, Own, Limit, u64::MAX),
    number("snapdev", FV, Inherited, Words(&[(0, "hidden"), (1, "visible")]), 0),
    number("acltype", FS, Inherited, Words(&[(0, "off"), (1, "posix"), (2, "nfsv4")]), 0),
    text("context", FVS, Own, "none"),
    text("fscontext", FVS, Own, "none"),
    text("defcontext", FVS, Own, "none"),
    text("rootcontext", FVS, Own, "none"),
    number("relatime", F, Inherited, ON_OFF, 1),
    number(
        "redundant_metadata",
        FV,
        Inherited,
        Words(&[(0, "all"), (1, "most"), (2, "some"), (3, "none")]),
        0,
    ),
    number("overlay", F, Inherited, ON_OFF, 1),
    number("encryption", FVS, Own, ENCRYPTION, 2),
    text("keylocation", FV, Own, "none"),
    number("keyformat", FV, Own, KEY_FORMAT, 0),
    number("pbkdf2iters", FV, Own, Number, 0),
    number("special_small_blocks", F, Inherited, Number, 0),
    number("prefetch", FVS, Inherited, CACHED, 2),
    number("volthreading", V, Own, ON_OFF, 1),
    number("direct", F, Inherited, Words(&[(0, "disabled"), (1, "standard"), (2, "always")]), 1),
    number("longname", F, Inherited, ON_OFF, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_levels_are_spelt_out() {
        let shown = |number| compression(number);
        assert_eq!(shown(400), "zstd-3");
        assert_eq!(shown(16 | 112 << 7), "zstd-fast-10");
        assert_eq!(shown(16 | 113 << 7), "zstd-fast-20");
        assert_eq!(shown(16 | 121 << 7), "zstd-fast-100");
        assert_eq!(shown(5), "gzip-1");
        assert_eq!(shown(10), "gzip");
        assert_eq!(shown(16), "zstd");
    }

    #[test]
    fn every_settable_property_has_a_place_in_the_order() {
        for property in SETTABLE {
            assert!(super::super::NATIVE_ORDER.contains(&property.name), "{}", property.name);
        }
    }
}
