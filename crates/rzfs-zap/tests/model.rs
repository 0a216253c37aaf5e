//! ZAPs of both forms, byte orders and kinds of keys against a map, and against damage.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use rzfs_format::zap::name::Form;
use rzfs_format::{BlockId, ByteOrder};
use rzfs_zap::{
    BuildError, Cookie, HashBits, IntegerSize, Matching, MemoryBlocks, Normalization, Zap,
    ZapBlocks, ZapBuilder, ZapEntry, ZapError, ZapFlags, ZapForm, ZapStatistics, ZapValue,
};

const SALT: u64 = 0x1234_5678_9abc_def1;

fn build(
    names: impl IntoIterator<Item = (String, u64)>,
    order: ByteOrder,
    fat: bool,
) -> MemoryBlocks {
    let mut builder = ZapBuilder::new(SALT);
    builder.order(order);
    if fat {
        builder.fat(ZapFlags::NONE, 4096);
    }
    for (name, value) in names {
        builder.insert_u64(name, value).unwrap();
    }
    builder.build().unwrap()
}

fn numbered(count: u64) -> impl Iterator<Item = (String, u64)> {
    (0..count).map(|number| (format!("entry-number-{number}"), number))
}

fn all<B: ZapBlocks>(zap: &Zap<B>) -> Vec<ZapEntry> {
    zap.entries().map(|entry| entry.unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_zap_is_the_map_that_was_put_in(
        map in prop::collection::btree_map("[a-zA-Z0-9é☃ .]{1,60}", any::<u64>(), 0..400),
        big in any::<bool>(),
        fat in any::<bool>(),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let blocks = build(map.clone(), order, fat);
        let zap = Zap::open(&blocks).unwrap();
        prop_assert_eq!(zap.entry_count(), map.len() as u64);
        for (name, value) in &map {
            prop_assert_eq!(zap.lookup_u64(name).unwrap(), Some(*value));
            prop_assert_eq!(zap.lookup_u64(format!("{name}!")).unwrap(), None);
        }
        let entries = all(&zap);
        prop_assert!(entries.is_sorted_by_key(|entry| (entry.hash, entry.differentiator)));
        let listed: BTreeMap<_, _> = entries
            .iter()
            .map(|entry| {
                let name = String::from_utf8(entry.name().to_vec()).unwrap();
                (name, entry.value.as_u64().unwrap())
            })
            .collect();
        prop_assert_eq!(listed, map);
    }

    #[test]
    fn cookies_resume_where_they_were_taken(count in 0u64..900, fat in any::<bool>()) {
        let blocks = build(numbered(count), ByteOrder::NATIVE, fat);
        let zap = Zap::open(&blocks).unwrap();
        let entries = all(&zap);
        let mut cookie = Cookie::START;
        for entry in &entries {
            let next = zap.entries_from(cookie).next().unwrap().unwrap();
            prop_assert_eq!(&next, entry);
            cookie = next.next;
        }
        prop_assert!(zap.entries_from(cookie).next().is_none());
        prop_assert!(zap.entries_from(Cookie::END).next().is_none());
    }

    #[test]
    fn damage_is_an_error_and_never_a_panic_or_a_loop(
        fat in any::<bool>(),
        damage in prop::collection::vec((any::<u32>(), any::<u8>()), 1..24),
        count in 0u64..300,
    ) {
        let mut blocks = build(numbered(count), ByteOrder::Little, fat);
        for (place, value) in damage {
            // Headers, bucket heads and first chunks are hit as often as the rest together.
            let block = place as usize % blocks.blocks().len();
            let mut bytes = blocks.blocks()[block].to_vec();
            let range = if place & 1 << 31 == 0 { bytes.len() } else { 512.min(bytes.len()) };
            bytes[(place >> 8) as usize % range] = value;
            blocks.blocks_mut()[block] = Bytes::from(bytes);
        }
        if let Ok(zap) = Zap::open(&blocks) {
            for (name, _) in numbered(count) {
                let _ = zap.lookup_u64(&name);
            }
            let _ = zap.statistics();
            let bound = blocks.blocks().iter().map(|block| block.len() / 24 + 1).sum();
            let entries: usize = zap.entries().count();
            prop_assert!(entries <= bound);
        }
    }
}

#[test]
fn order_and_cookies_are_those_of_the_spec() {
    let mut builder = ZapBuilder::new(0xce02_cf35);
    for (name, value) in [("a", 128), ("b", 129), ("hello", 130), ("README.md", 131), ("subdir", 3)]
    {
        builder.insert_u64(name, value).unwrap();
    }
    let zap = Zap::open(builder.build().unwrap()).unwrap();
    let entries = all(&zap);
    let names: Vec<_> = entries.iter().map(|entry| entry.name()).collect();
    assert_eq!(names, [&b"README.md"[..], b"b", b"hello", b"a", b"subdir"]);
    assert_eq!(entries[0].next, Cookie(0x10fa_51c1));
    assert_eq!(entries[4].next, Cookie(0x1e92_52c8));
}

#[test]
fn the_form_follows_from_what_is_in_it() {
    let form = |builder: &ZapBuilder| {
        let blocks = builder.build().unwrap();
        (Zap::open(&blocks).unwrap().form(), blocks.block_size())
    };
    let mut names = ZapBuilder::new(SALT);
    assert_eq!(form(&names), (ZapForm::Micro, 512));
    for (name, value) in numbered(2047) {
        names.insert_u64(name, value).unwrap();
    }
    assert_eq!(form(&names), (ZapForm::Micro, 131_072));
    names.insert_u64("one more", 0).unwrap();
    assert_eq!(form(&names), (ZapForm::Fat, 16384));
    let mut large = ZapBuilder::new(SALT);
    large.micro_max_size(1 << 20);
    for (name, value) in numbered(2048) {
        large.insert_u64(name, value).unwrap();
    }
    assert_eq!(form(&large), (ZapForm::Micro, 131_584));
    let mut long = ZapBuilder::new(SALT);
    long.insert_u64("x".repeat(50), 1).unwrap();
    assert_eq!(form(&long), (ZapForm::Fat, 16384));
    let mut text = ZapBuilder::new(SALT);
    text.insert("name", "value").unwrap();
    assert_eq!(form(&text), (ZapForm::Fat, 16384));
    let zap = Zap::open(text.build().unwrap()).unwrap();
    assert_eq!(zap.lookup("name").unwrap().unwrap().as_str(), Some("value"));
    assert!(matches!(zap.lookup_u64("name"), Err(ZapError::ValueKind)));
}

#[test]
fn tables_outgrow_the_header() {
    let blocks = {
        let mut builder = ZapBuilder::new(SALT);
        builder.fat(ZapFlags::NONE, 512);
        for (name, value) in numbered(2000) {
            builder.insert_u64(name, value).unwrap();
        }
        builder.build().unwrap()
    };
    let zap = Zap::open(&blocks).unwrap();
    let ZapStatistics::Fat(stats) = zap.statistics().unwrap() else { panic!("it is fat") };
    assert!(stats.table_block() > BlockId(0));
    assert_eq!(stats.leaves_with_pointers.iter().sum::<u64>(), stats.header.leaves);
    assert_eq!(stats.entries_with_chunks[3], 2000);
    for (name, value) in numbered(2000) {
        assert_eq!(zap.lookup_u64(name).unwrap(), Some(value));
    }
    assert_eq!(all(&zap).len(), 2000);
}

#[test]
fn words_are_keys_hashed_or_as_they_are() {
    for flags in [3, 7] {
        let flags = ZapFlags(flags);
        let mut builder = ZapBuilder::new(SALT);
        builder.fat(flags, 32768);
        let value = ZapValue::new(IntegerSize::One, &[1, 2, 3]);
        for word in 0..500u64 {
            let key = [word.wrapping_mul(0x9e37_79b9_7f4a_7c15), word, 5];
            builder.insert_words(&key, value.clone()).unwrap();
        }
        assert_eq!(builder.insert_u64("name", 1), Err(BuildError::KeyKind));
        let zap = Zap::open(builder.build().unwrap()).unwrap();
        assert_eq!((zap.hash_bits(), zap.entry_count()), (HashBits::Bits48, 500));
        for entry in all(&zap) {
            let words = entry.key.as_words().unwrap();
            assert_eq!(words.len(), 3);
            assert_eq!(zap.lookup_words(words).unwrap().as_ref(), Some(&value));
            assert!(zap.lookup_words(&words[..2]).unwrap().is_none());
        }
        assert!(matches!(zap.lookup("name"), Err(ZapError::KeyKind)));
        assert!(matches!(zap.lookup_u64("name"), Err(ZapError::KeyKind)));
    }
    let micro = Zap::open(ZapBuilder::new(SALT).build().unwrap()).unwrap();
    assert!(matches!(micro.lookup_words(&[1]), Err(ZapError::KeyKind)));
}

/// `Foo`, `foo` and `FOO` of a mixed file system get the differentiators 0, 1, 2.
#[test]
fn names_match_by_the_rules_of_the_zap() {
    for fat in [false, true] {
        let rules = Normalization { fold_case: true, form: Some(Form::D) };
        let mut builder = ZapBuilder::new(SALT);
        builder.normalization(rules);
        if fat {
            builder.fat(ZapFlags::NONE, 16384);
        }
        for (value, name) in ["Foo", "foo", "FOO", "Äpfel"].into_iter().enumerate() {
            builder.insert_u64(name, value as u64).unwrap();
        }
        let zap = Zap::open(builder.build().unwrap()).unwrap();
        let find = |name: &str, matching| {
            let found = zap.lookup_matching(name.as_bytes(), matching).unwrap()?;
            Some((found.value.as_u64().unwrap(), found.differentiator))
        };
        assert_eq!(find("fOO", Matching::Exact), None);
        assert_eq!(find("FOO", Matching::Exact), Some((2, 2)));
        assert_eq!(find("fOO", Matching::Normalized), Some((0, 0)));
        assert_eq!(find("FOO", Matching::NormalizedCase), Some((2, 2)));
        assert_eq!(find("fOO", Matching::NormalizedCase), None);
        assert_eq!(find("A\u{308}PFEL", Matching::Normalized), Some((3, 0)));
        assert_eq!(find("A\u{308}pfel", Matching::NormalizedCase), Some((3, 0)));
        assert_eq!(find("A\u{308}PFEL", Matching::NormalizedCase), None);
        assert_eq!(zap.lookup_u64("foo").unwrap(), Some(1));
    }
    let plain = Zap::open(ZapBuilder::new(SALT).build().unwrap()).unwrap();
    let refused = plain.lookup_matching(b"x", Matching::Normalized);
    assert!(matches!(refused, Err(ZapError::NotNormalizing)));
}

#[test]
fn two_entries_at_one_position_are_refused() {
    let blocks = build([("a".into(), 1)], ByteOrder::Little, false);
    let mut bytes = blocks.blocks()[0].to_vec();
    bytes.copy_within(64..128, 128);
    let twice = MemoryBlocks::new(512, ByteOrder::Little, vec![bytes.into()]);
    assert!(matches!(Zap::open(twice), Err(ZapError::Corrupt { .. })));
}

#[test]
fn a_microzap_of_several_blocks_is_refused() {
    let mut blocks = build([("a".into(), 1)], ByteOrder::Little, false);
    blocks.blocks_mut().push(Bytes::from(vec![0; 512]));
    assert!(matches!(Zap::open(blocks), Err(ZapError::Corrupt { .. })));
}

#[test]
fn keys_and_values_beyond_the_format_are_not_built() {
    let mut builder = ZapBuilder::new(SALT);
    assert_eq!(builder.insert_u64("", 1), Err(BuildError::BadKey));
    assert_eq!(builder.insert_u64("a\0b", 1), Err(BuildError::BadKey));
    assert_eq!(builder.insert_u64("x".repeat(1024), 1), Err(BuildError::BadKey));
    let value = ZapValue::new(IntegerSize::Eight, &[0; 1025]);
    assert_eq!(builder.insert("x", value), Err(BuildError::TooBig));
    builder.insert_u64("x", 1).unwrap();
    assert_eq!(builder.insert_u64("x", 2), Err(BuildError::Exists));
    assert_eq!(Zap::open(ZapBuilder::new(0).build().unwrap()).unwrap().salt(), 1);
}

#[test]
fn an_open_zap_can_be_shared() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Zap::open(ZapBuilder::new(SALT).build().unwrap()).unwrap());
}
