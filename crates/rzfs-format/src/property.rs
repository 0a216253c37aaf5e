//! Properties of datasets, pools and vdevs: everything that there is to know about each, once
//! (spec 04, section 14; spec 09, section 5).
//!
//! A property is one entry of a table: [`DatasetProperty`], [`PoolProperty`] or [`VdevProperty`].
//! Checks of values, storage, listings and usage texts all follow from that entry, so a new
//! property is a new entry and the code that acts on it.

mod compression;
mod dataset;
mod description;
mod pool;
mod table;
mod values;
mod vdev;

pub use dataset::{DatasetKind, DatasetProperty, Datasets, Inheritance, Storage};
pub use description::{DefaultValue, Description, Editing};
pub use pool::{PoolProperty, PoolStorage};
pub use values::{MAX_BLOCK_SIZE, MIN_BLOCK_SIZE, NumberFormat, Spelling, Values, Word};
pub use vdev::VdevProperty;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn check_names(descriptions: impl Iterator<Item = &'static Description>) {
        let mut names = BTreeSet::new();
        for description in descriptions {
            assert!(names.insert(description.name), "{}", description.name);
            assert!(!description.header.bytes().any(|byte| byte.is_ascii_lowercase()));
            if let (Values::Words(words), None) = (description.values, description.help) {
                assert!(!words.is_empty(), "{}", description.name);
            }
        }
    }

    #[test]
    fn no_two_properties_of_a_table_have_one_name() {
        check_names(DatasetProperty::ALL.iter().map(|property| property.description()));
        check_names(PoolProperty::ALL.iter().map(|property| property.description()));
        check_names(VdevProperty::ALL.iter().map(|property| property.description()));
    }

    #[test]
    fn properties_are_found_by_name_and_by_header() {
        let find = DatasetProperty::from_name_or_header;
        assert_eq!(find("recordsize"), Some(DatasetProperty::RecordSize));
        assert_eq!(find("recsize"), Some(DatasetProperty::RecordSize));
        assert_eq!(find("RECSIZE"), None);
        assert_eq!(DatasetProperty::from_name("recsize"), None);
        assert_eq!(PoolProperty::from_name_or_header("cap"), Some(PoolProperty::Capacity));
    }

    #[test]
    fn words_that_are_shown_can_be_typed_and_checked() {
        for property in DatasetProperty::ALL {
            let Values::Words(words) = property.values() else { continue };
            for word in words.iter().filter(|word| word.spelling == Spelling::Usual) {
                let number = property.values().number(word.text).unwrap();
                assert_eq!(number, word.number, "{property}");
                property.values().check(number).unwrap();
                assert!(property.values().word(number).is_some(), "{property}");
            }
        }
    }

    #[test]
    fn some_words_are_for_typing_and_some_for_reading() {
        let acl = DatasetProperty::AclType.values();
        assert_eq!((acl.number("posixacl"), acl.word(1)), (Some(1), Some("posix".into())));
        assert_eq!(DatasetProperty::AclType.description().usage(), "off | nfsv4 | posix");
        let checksum = DatasetProperty::Checksum.values();
        assert_eq!(
            (checksum.number("noparity"), checksum.word(10)),
            (None, Some("noparity".into()))
        );
        let xattr = DatasetProperty::Xattr.values();
        assert_eq!((xattr.number("sa"), xattr.word(2)), (Some(2), Some("on".into())));
    }
}
