use super::*;
use proptest::prelude::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn list(pairs: impl IntoIterator<Item = (&'static str, NvValue)>) -> NvList {
    let mut list = NvList::new();
    for (name, value) in pairs {
        list.insert(name, value).unwrap();
    }
    list
}

fn text(text: &str) -> NvString {
    NvString::new(text).unwrap()
}

/// The worked examples of the specification, all from OpenZFS's own library.
fn xdr_examples() -> Vec<(NvList, &'static str)> {
    let id = || list([("id", 7_u64.into())]);
    vec![
        (list([]), "01010000 00000000 00000001 00000000 00000000"),
        (
            list([("version", 5000_u64.into())]),
            "01010000 00000000 00000001 00000024 00000020 00000007 76657273 696f6e00
             00000008 00000001 00000000 00001388 00000000 00000000",
        ),
        (
            list([("name", text("tank").into())]),
            "01010000 00000000 00000001 00000020 00000020 00000004 6e616d65 00000009
             00000001 00000004 74616e6b 00000000 00000000",
        ),
        (
            list([("b", NvValue::Boolean)]),
            "01010000 00000000 00000001 00000018 00000018 00000001 62000000 00000001
             00000000 00000000 00000000",
        ),
        (
            list([("t", id().into())]),
            "01010000 00000000 00000001 00000048 00000030 00000001 74000000 00000013
             00000001 00000000 00000001 00000020 00000020 00000002 69640000 00000008
             00000001 00000000 00000007 00000000 00000000 00000000 00000000",
        ),
        (
            list([("ua", vec![1_u64, 2].into())]),
            "01010000 00000000 00000001 0000002c 00000028 00000002 75610000 00000010
             00000002 00000002 00000000 00000001 00000000 00000002 00000000 00000000",
        ),
        (
            list([("sa", vec![text("ab"), text("c")].into())]),
            "01010000 00000000 00000001 00000028 00000030 00000002 73610000 00000011
             00000002 00000002 61620000 00000001 63000000 00000000 00000000",
        ),
        (
            list([("ba", NvValue::ByteArray([1, 2, 3, 4, 5].into()))]),
            "01010000 00000000 00000001 00000020 00000020 00000002 62610000 0000000a
             00000005 01020304 05000000 00000000 00000000",
        ),
        (
            list([("children", vec![id(), id()].into())]),
            "01010000 00000000 00000001 0000007c 00000060 00000008 6368696c 6472656e
             00000014 00000002
             00000000 00000001 00000020 00000020 00000002 69640000 00000008 00000001
             00000000 00000007 00000000 00000000
             00000000 00000001 00000020 00000020 00000002 69640000 00000008 00000001
             00000000 00000007 00000000 00000000
             00000000 00000000",
        ),
        (
            list([("e", Vec::<u64>::new().into())]),
            "01010000 00000000 00000001 0000001c 00000018 00000001 65000000 00000010
             00000000 00000000 00000000",
        ),
    ]
}

fn native_examples() -> Vec<(NvList, &'static str)> {
    vec![
        (
            list([("version", 5000_u64.into())]),
            "00010000 00000000 01000000 20000000 08000000 01000000 08000000 76657273
             696f6e00 88130000 00000000 00000000",
        ),
        (
            list([("t", list([("id", 7_u64.into())]).into())]),
            "00010000 00000000 01000000 30000000 02000000 01000000 13000000 7400 000000000000
             00000000 01000000 0000000000000000 00000000 00000000
             20000000 03000000 01000000 08000000 69640000 00000000 07000000 00000000
             00000000 00000000",
        ),
    ]
}

#[test]
fn xdr_examples_decode_and_encode_to_the_same_bytes() {
    for (list, bytes) in xdr_examples() {
        assert_eq!(NvList::decode(&hex(bytes)).unwrap(), list);
        assert_eq!(list.encode(Encoding::Xdr).unwrap(), hex(bytes), "{list:?}");
    }
}

#[test]
fn native_examples_decode_and_encode_to_the_same_bytes() {
    for (list, bytes) in native_examples() {
        let decoded = NvList::decode_with_encoding(&hex(bytes)).unwrap();
        assert_eq!(decoded, (list.clone(), Encoding::Native(ByteOrder::Little)));
        assert_eq!(list.encode(Encoding::Native(ByteOrder::Little)).unwrap(), hex(bytes));
    }
}

#[test]
fn every_truncation_is_an_error() {
    for (_, bytes) in xdr_examples().into_iter().chain(native_examples()) {
        let bytes = hex(bytes);
        for len in 0..bytes.len() {
            assert!(NvList::decode(&bytes[..len]).is_err(), "{len} of {} bytes", bytes.len());
        }
    }
}

#[test]
fn trailing_zeros_are_ignored() {
    let mut bytes = hex(xdr_examples()[1].1);
    bytes.resize(114_648, 0);
    assert_eq!(NvList::decode(&bytes).unwrap().u64("version").unwrap(), 5000);
}

/// The pair `version` with one of its words replaced.
fn damaged(word: usize, value: u32) -> Result<NvList, FormatError> {
    let mut bytes = hex(xdr_examples()[1].1);
    bytes[word * 4..word * 4 + 4].copy_from_slice(&value.to_be_bytes());
    NvList::decode(&bytes)
}

#[test]
fn damaged_words_are_refused_as_openzfs_refuses_them() {
    assert!(damaged(0, 0x0201_0000).is_err(), "unknown encoding");
    assert!(damaged(0, 0x0100_0000).is_ok(), "XDR does not care for the endian byte");
    assert!(damaged(1, 1).is_err(), "version");
    assert!(damaged(3, 0xffff_ffff).is_ok(), "the encoded size is not looked at");
    for size in [0x18, 0x28, 0xffff_ffff, 0x7fff_ffff] {
        assert!(damaged(4, size).is_err(), "decoded size {size:#x}");
    }
    for len in [0, 8, 32_767, 0x7fff_ffff, 0xffff_ffff] {
        assert!(damaged(5, len).is_err(), "name length {len:#x}");
    }
    for number in [0, 1, 16, 19, 20, 28, 0xffff_ffff] {
        assert!(damaged(8, number).is_err(), "type {number}");
    }
    for count in [0, 2, 0x7fff_ffff, 0xffff_ffff] {
        assert!(damaged(9, count).is_err(), "count {count}");
    }
    let nul_in_name = damaged(6, 0x7600_7273).unwrap_err();
    assert_eq!(nul_in_name, FormatError::invalid(WHAT, "string with a NUL inside"));
}

#[test]
fn huge_counts_fail_before_anything_is_allocated() {
    for number in [10, 11, 13, 16, 17, 20, 24, 25] {
        let mut bytes = hex(xdr_examples()[1].1);
        bytes[32..36].copy_from_slice(&u32::to_be_bytes(number));
        bytes[36..40].copy_from_slice(&u32::to_be_bytes(0x7fff_ffff));
        bytes[40..44].copy_from_slice(&u32::to_be_bytes(0x7fff_ffff));
        assert!(NvList::decode(&bytes).is_err(), "type {number}");
    }
}

fn nested(depth: usize) -> NvList {
    (0..depth).fold(list([]), |inner, _| list([("l", inner.into())]))
}

#[test]
fn nesting_is_bounded() {
    for encoding in [Encoding::Xdr, Encoding::Native(ByteOrder::Little)] {
        let bytes = nested(MAX_ENCODE_DEPTH).encode(encoding).unwrap();
        assert_eq!(NvList::decode(&bytes).unwrap(), nested(MAX_ENCODE_DEPTH));
        assert!(nested(MAX_ENCODE_DEPTH + 1).encode(encoding).is_err());
    }
    let level = &hex(xdr_examples()[4].1)[4..36];
    let mut bytes = vec![1, 1, 0, 0];
    for _ in 0..100_000 {
        bytes.extend(level);
    }
    assert_eq!(NvList::decode(&bytes), Err(FormatError::invalid(WHAT, "lists nested too deep")));
}

#[test]
fn eight_and_sixteen_bit_words_decode_sign_extended_or_not() {
    let list = list([("b", NvValue::Byte(0x80)), ("i", NvValue::Int16(-2))]);
    let kernel = list.encode(Encoding::Xdr).unwrap();
    assert_eq!(NvList::decode(&kernel).unwrap(), list);
    let mut user = kernel.clone();
    let at = user.windows(4).position(|word| word == [0, 0, 0, 0x80]).unwrap();
    user[at..at + 3].fill(0xff);
    let at = user.windows(4).position(|word| word == [0, 0, 0xff, 0xfe]).unwrap();
    user[at..at + 2].fill(0xff);
    assert_eq!(NvList::decode(&user).unwrap(), list);
}

#[test]
fn a_replaced_pair_moves_to_the_end() {
    let mut list = list([("a", 1_u64.into()), ("b", 2_u64.into())]);
    list.insert("a", text("x")).unwrap();
    let names: Vec<_> = list.iter().map(|pair| pair.name().to_text().into_owned()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(list.string("a").unwrap(), &"x");
}

#[test]
fn names_with_types_are_unique_by_both() {
    let mut list = NvList::with_uniqueness(Uniqueness::NameAndType);
    list.insert("a", 1_u64).unwrap();
    list.insert("a", text("x")).unwrap();
    list.insert("a", 2_u64).unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list.u64("a").unwrap(), 2);
    assert_eq!(list.string("a").unwrap(), &"x");
}

#[test]
fn of_decoded_duplicates_the_later_one_is_found() {
    let mut duplicates = NvList::with_uniqueness(Uniqueness::Duplicates);
    duplicates.insert("a", 1_u64).unwrap();
    duplicates.insert("a", 2_u64).unwrap();
    let mut bytes = duplicates.encode(Encoding::Xdr).unwrap();
    bytes[11] = 1;
    let decoded = NvList::decode(&bytes).unwrap();
    assert_eq!((decoded.len(), decoded.uniqueness()), (2, Uniqueness::Name));
    assert_eq!(decoded.u64("a").unwrap(), 2);
}

#[test]
fn getters_name_the_key() {
    let list = list([("txg", text("4").into())]);
    assert_eq!(list.find_u64("guid"), Ok(None));
    assert_eq!(list.u64("guid").unwrap_err().to_string(), "nvlist: there is no \"guid\"");
    assert_eq!(
        list.u64("txg").unwrap_err().to_string(),
        "nvlist: \"txg\" is of type string, not uint64"
    );
}

#[test]
fn names_are_bounded_and_without_nul() {
    let mut list = NvList::new();
    assert!(list.insert("a\0b", 1_u64).is_err());
    assert!(list.insert("x".repeat(MAX_NAME_LEN + 1), 1_u64).is_err());
    list.insert("x".repeat(MAX_NAME_LEN), 1_u64).unwrap();
    for encoding in [Encoding::Xdr, Encoding::Native(ByteOrder::Big)] {
        assert_eq!(NvList::decode(&list.encode(encoding).unwrap()).unwrap(), list);
    }
}

#[test]
fn many_names_stay_fast_and_consistent() {
    let mut list = NvList::new();
    for round in 0..3_u64 {
        for number in 0..20_000_u64 {
            list.insert(format!("pool/fs{number}"), number + round).unwrap();
        }
    }
    assert_eq!(list.len(), 20_000);
    for number in 0..20_000_u64 {
        let name = format!("pool/fs{number}");
        assert_eq!(list.u64(&name).unwrap(), number + 2);
        if number % 3 != 0 {
            assert!(list.remove(&name).is_some());
        }
    }
    for number in 0..20_000_u64 {
        assert_eq!(list.contains(format!("pool/fs{number}")), number % 3 == 0);
    }
}

fn arb_string() -> impl Strategy<Value = NvString> {
    prop::collection::vec(1_u8.., 0..12).prop_map(|bytes| NvString::new(bytes).unwrap())
}

fn arb_array<T: std::fmt::Debug + Clone>(
    element: impl Strategy<Value = T>,
) -> impl Strategy<Value = Box<[T]>> {
    prop::collection::vec(element, 0..6).prop_map(Vec::into_boxed_slice)
}

fn arb_scalar() -> impl Strategy<Value = NvValue> {
    prop_oneof![
        Just(NvValue::Boolean),
        any::<u8>().prop_map(NvValue::Byte),
        any::<i16>().prop_map(NvValue::Int16),
        any::<u16>().prop_map(NvValue::UInt16),
        any::<i32>().prop_map(NvValue::Int32),
        any::<u32>().prop_map(NvValue::UInt32),
        any::<i64>().prop_map(NvValue::Int64),
        any::<u64>().prop_map(NvValue::UInt64),
        any::<i64>().prop_map(NvValue::HrTime),
        any::<bool>().prop_map(NvValue::BooleanValue),
        any::<i8>().prop_map(NvValue::Int8),
        any::<u8>().prop_map(NvValue::UInt8),
        any::<u64>().prop_map(NvValue::Double),
        arb_string().prop_map(NvValue::String),
    ]
}

fn arb_arrays() -> impl Strategy<Value = NvValue> {
    prop_oneof![
        arb_array(any::<u8>()).prop_map(NvValue::ByteArray),
        arb_array(any::<i16>()).prop_map(NvValue::Int16Array),
        arb_array(any::<u16>()).prop_map(NvValue::UInt16Array),
        arb_array(any::<i32>()).prop_map(NvValue::Int32Array),
        arb_array(any::<u32>()).prop_map(NvValue::UInt32Array),
        arb_array(any::<i64>()).prop_map(NvValue::Int64Array),
        arb_array(any::<u64>()).prop_map(NvValue::UInt64Array),
        arb_array(any::<bool>()).prop_map(NvValue::BooleanArray),
        arb_array(any::<i8>()).prop_map(NvValue::Int8Array),
        arb_array(any::<u8>()).prop_map(NvValue::UInt8Array),
        arb_array(arb_string()).prop_map(NvValue::StringArray),
    ]
}

fn arb_list() -> impl Strategy<Value = NvList> {
    let leaf = Just(NvList::new());
    leaf.prop_recursive(4, 48, 6, |inner| {
        let value = prop_oneof![
            4 => arb_scalar(),
            3 => arb_arrays(),
            1 => inner.clone().prop_map(NvValue::from),
            1 => arb_array(inner).prop_map(NvValue::ListArray),
        ];
        let uniqueness = prop_oneof![
            Just(Uniqueness::Duplicates),
            Just(Uniqueness::Name),
            Just(Uniqueness::NameAndType)
        ];
        let pairs = prop::collection::vec((arb_string(), value), 0..8);
        (uniqueness, pairs).prop_map(|(uniqueness, pairs)| {
            let mut list = NvList::with_uniqueness(uniqueness);
            for (name, value) in pairs {
                list.insert(name, value).unwrap();
            }
            list
        })
    })
}

proptest! {
    #[test]
    fn every_list_survives_every_encoding(list in arb_list()) {
        for encoding in [
            Encoding::Xdr,
            Encoding::Native(ByteOrder::Little),
            Encoding::Native(ByteOrder::Big),
        ] {
            let bytes = list.encode(encoding).unwrap();
            let (decoded, found) = NvList::decode_with_encoding(&bytes).unwrap();
            prop_assert_eq!(found, encoding);
            prop_assert_eq!(&decoded, &list);
            prop_assert_eq!(decoded.encode(encoding).unwrap(), bytes);
        }
    }

    #[test]
    fn damaged_lists_never_panic(
        list in arb_list(),
        native in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let encoding =
            if native { Encoding::Native(ByteOrder::Little) } else { Encoding::Xdr };
        let mut bytes = list.encode(encoding).unwrap();
        for (index, value) in damage {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok((decoded, encoding)) = NvList::decode_with_encoding(&bytes) {
            prop_assert!(decoded.encode(encoding).is_ok());
        }
    }

    #[test]
    fn the_index_agrees_with_the_list(
        operations in prop::collection::vec((0_u8..3, 0_u8..20, any::<u64>()), 0..200),
    ) {
        let mut list = NvList::new();
        let mut model: Vec<(String, u64)> = Vec::new();
        for (kind, name, value) in operations {
            let name = format!("n{name}");
            model.retain(|(known, _)| *known != name || kind == 2);
            match kind {
                0 => { list.remove(&name); }
                1 => {
                    list.insert(&name, value).unwrap();
                    model.push((name.clone(), value));
                }
                _ => {}
            }
            let expected = model.iter().find(|(known, _)| *known == name).map(|(_, v)| *v);
            prop_assert_eq!(list.find_u64(&name).unwrap(), expected);
        }
        let pairs: Vec<_> = list
            .iter()
            .map(|pair| (pair.name().to_text().into_owned(), pair.value().clone()))
            .collect();
        let expected: Vec<_> =
            model.into_iter().map(|(name, value)| (name, NvValue::UInt64(value))).collect();
        prop_assert_eq!(pairs, expected);
    }
}
