//! ZAPs that change, against a map: every kind of key and value, both forms, reopened from their
//! blocks again and again with the reading side as the judge; and against damage.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use rzfs_format::zap::name::Form;
use rzfs_format::{BlockId, ByteOrder};
use rzfs_zap::{
    IntegerSize, Matching, MemoryBlocks, NewZap, Normalization, Tunables, Zap, ZapBlocks,
    ZapBlocksMut, ZapEntry, ZapError, ZapFlags, ZapForm, ZapKey, ZapStatistics, ZapValue, verify,
};

const SALT: u64 = 0x1234_5678_9abc_def1;

/// One of few keys, so that steps meet.
fn key_of(number: u16, words: bool) -> ZapKey {
    let number = u64::from(number);
    if words {
        let first = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        return ZapKey::Words((0..number % 4 + 1).map(|word| first ^ word).collect());
    }
    let name = match number % 7 {
        0 => format!("{}{number}", "a name that no microzap can have, ".repeat(2)),
        _ => format!("name-{number}"),
    };
    ZapKey::Name(name.into_bytes().into())
}

fn value() -> impl Strategy<Value = ZapValue> {
    let size = prop_oneof![
        Just(IntegerSize::One),
        Just(IntegerSize::Two),
        Just(IntegerSize::Four),
        Just(IntegerSize::Eight)
    ];
    prop_oneof![
        6 => any::<u64>().prop_map(ZapValue::from),
        1 => (size, prop::collection::vec(any::<u64>(), 0..40))
            .prop_map(|(size, integers)| ZapValue::new(size, &integers)),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, ZapValue),
    Update(u16, ZapValue),
    Remove(u16),
    Add(u16, i64),
    /// Removes all keys but every so manyeth.
    Thin(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u16..600;
    let step = prop_oneof![
        30 => (key.clone(), value()).prop_map(|(key, value)| Step::Insert(key, value)),
        10 => (key.clone(), value()).prop_map(|(key, value)| Step::Update(key, value)),
        12 => key.clone().prop_map(Step::Remove),
        4 => (key, -2i64..3).prop_map(|(key, delta)| Step::Add(key, delta)),
        1 => (2usize..40).prop_map(Step::Thin),
        2 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 0..400)
}

type Model = BTreeMap<ZapKey, ZapValue>;

fn take(zap: &mut Zap<MemoryBlocks>, model: &mut Model, step: &Step, words: bool) {
    let tunables = Tunables { micro_max_size: 8192, ..Tunables::default() };
    let mut writer = zap.edit().tunables(tunables);
    match step {
        Step::Insert(number, value) => {
            let key = key_of(*number, words);
            match writer.insert(&key, value.clone()) {
                Ok(()) => assert_eq!(model.insert(key, value.clone()), None),
                Err(error) => {
                    assert_eq!(error, ZapError::Exists);
                    assert!(model.contains_key(&key));
                }
            }
        }
        Step::Update(number, value) => {
            let key = key_of(*number, words);
            writer.update(&key, value.clone()).unwrap();
            model.insert(key, value.clone());
        }
        Step::Remove(number) => {
            let key = key_of(*number, words);
            assert_eq!(writer.remove(&key).unwrap(), model.remove(&key).is_some());
        }
        Step::Add(number, delta) => {
            let key = key_of(*number, words);
            let before = model.get(&key).cloned().unwrap_or(ZapValue::from(0));
            match before.first_u64().filter(|_| before.len() == 1) {
                None => assert_eq!(writer.add_u64(&key, *delta), Err(ZapError::ValueKind)),
                Some(before) => {
                    let sum = before.wrapping_add_signed(*delta);
                    assert_eq!(writer.add_u64(&key, *delta), Ok(sum));
                    if *delta != 0 && sum == 0 {
                        model.remove(&key);
                    } else if *delta != 0 {
                        model.insert(key, sum.into());
                    }
                }
            }
        }
        Step::Thin(keep) => {
            let gone = model.keys().enumerate().filter(|(index, _)| index % keep != 0);
            for key in gone.map(|(_, key)| key.clone()).collect::<Vec<_>>() {
                assert!(writer.remove(&key).unwrap());
                model.remove(&key);
            }
        }
        Step::Reopen => {
            drop(writer);
            let blocks = zap.blocks().clone();
            *zap = Zap::open(blocks).unwrap();
        }
    }
}

fn all<B: ZapBlocks>(zap: &Zap<B>) -> Vec<ZapEntry> {
    zap.entries().map(|entry| entry.unwrap()).collect()
}

/// The reading side, on the blocks alone, finds what the model has.
fn judge(zap: &Zap<MemoryBlocks>, model: &Model) {
    assert_eq!(verify(zap.blocks()).unwrap(), []);
    let fresh = Zap::open(zap.blocks()).unwrap();
    assert_eq!(all(&fresh), all(zap));
    let entries = all(&fresh);
    assert!(entries.is_sorted_by(|a, b| (a.hash, a.differentiator) < (b.hash, b.differentiator)));
    let listed: Model = entries.into_iter().map(|entry| (entry.key, entry.value)).collect();
    assert_eq!(&listed, model);
    assert_eq!(fresh.entry_count(), model.len() as u64);
    for (key, value) in model {
        let found = match key {
            ZapKey::Name(name) => fresh.lookup(name).unwrap(),
            ZapKey::Words(words) => fresh.lookup_words(words).unwrap(),
        };
        assert_eq!(found.as_ref(), Some(value));
    }
    if let ZapStatistics::Fat(statistics) = fresh.statistics().unwrap() {
        assert_eq!(statistics.leaves_with_pointers.iter().sum::<u64>(), statistics.header.leaves);
        assert_eq!(statistics.header.free_block.0, fresh.blocks().block_count().unwrap());
    }
}

/// What a ZAP is made as, and whether its keys are words.
fn shapes() -> impl Strategy<Value = (NewZap, bool)> {
    let new = NewZap::new(SALT);
    let folding = new.normalization(Normalization::FOLD_CASE);
    prop_oneof![
        Just((new, false)),
        Just((folding, false)),
        Just((new.fat(ZapFlags::NONE, 1024), false)),
        Just((new.fat(ZapFlags(1), 2048), false)),
        Just((new.fat(ZapFlags(3), 1024), true)),
        Just((new.fat(ZapFlags(7), 2048), true)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_zap_that_changes_is_a_map((new, words) in shapes(), steps in steps()) {
        let mut zap = Zap::create(MemoryBlocks::empty(), &new).unwrap();
        let mut model = Model::new();
        for step in &steps {
            take(&mut zap, &mut model, step, words);
            if matches!(step, Step::Reopen) {
                judge(&zap, &model);
            }
        }
        judge(&zap, &model);
        for key in model.keys() {
            prop_assert!(zap.edit().remove(key).unwrap());
        }
        prop_assert!(all(&zap).is_empty());
        if let ZapStatistics::Fat(statistics) = zap.statistics().unwrap() {
            prop_assert_eq!(statistics.header.entries, 0);
        }
    }

    #[test]
    fn damaged_zaps_are_changed_or_refused_but_never_loop(
        (new, words) in shapes(),
        before in steps(),
        damage in prop::collection::vec((any::<u32>(), any::<u8>()), 1..12),
        after in steps(),
    ) {
        let mut zap = Zap::create(MemoryBlocks::empty(), &new).unwrap();
        let mut model = Model::new();
        for step in &before {
            take(&mut zap, &mut model, step, words);
        }
        let mut blocks = zap.into_blocks();
        for (place, value) in damage {
            let block = place as usize % blocks.blocks().len();
            let mut bytes = blocks.blocks()[block].to_vec();
            // Headers and bucket heads are hit as often as all else.
            let range = if place & 1 << 31 == 0 { bytes.len() } else { 200.min(bytes.len()) };
            bytes[(place >> 8) as usize % range] = value;
            blocks.blocks_mut()[block] = Bytes::from(bytes);
        }
        let Ok(violations) = verify(&blocks);
        prop_assert!(violations.len() <= 100);
        let Ok(mut zap) = Zap::open(blocks) else {
            prop_assert!(!violations.is_empty());
            return Ok(());
        };
        let most = zap.blocks().block_count().unwrap() + 4 * after.len() as u64 + 64;
        for step in &after {
            let mut writer = zap.edit();
            let _ = match step {
                Step::Insert(key, value) => writer.insert(&key_of(*key, words), value.clone()),
                Step::Update(key, value) => writer.update(&key_of(*key, words), value.clone()),
                Step::Add(key, delta) => {
                    writer.add_u64(&key_of(*key, words), *delta).map(|_| ())
                }
                Step::Remove(key) => writer.remove(&key_of(*key, words)).map(|_| ()),
                Step::Thin(_) | Step::Reopen => Ok(()),
            };
        }
        // A table may double, but blocks do not come from nowhere.
        prop_assert!(zap.blocks().block_count().unwrap() <= 2 * most);
    }

    #[test]
    fn blocks_of_the_other_order_are_turned(
        (new, words) in shapes(),
        before in steps(),
        after in steps(),
    ) {
        let mut zap = Zap::create(MemoryBlocks::empty(), &new).unwrap();
        let mut model = Model::new();
        for step in &before {
            take(&mut zap, &mut model, step, words);
        }
        let other = ByteOrder::NATIVE.swapped();
        let turned: Vec<_> = zap.blocks().blocks().iter().map(|block| {
            let mut block = block.to_vec();
            rzfs_format::zap::swap_block(&mut block, ByteOrder::NATIVE).unwrap();
            Bytes::from(block)
        }).collect();
        let foreign = MemoryBlocks::new(zap.blocks().block_size(), other, turned);
        let mut foreign = Zap::open(foreign).unwrap();
        // Where the next free entry of a microzap is looked for is known only while it is open.
        let mut zap = Zap::open(zap.into_blocks()).unwrap();
        for step in &after {
            if matches!(step, Step::Reopen) {
                continue;
            }
            let mut copy = model.clone();
            take(&mut zap, &mut model, step, words);
            take(&mut foreign, &mut copy, step, words);
        }
        judge(&foreign, &model);
        let same = zap.blocks().blocks().iter().zip(0..).all(|(block, id)| {
            let (mut bytes, order) = foreign.blocks().read_block(BlockId(id)).unwrap();
            if order != ByteOrder::NATIVE {
                let mut turned = bytes.to_vec();
                rzfs_format::zap::swap_block(&mut turned, order).unwrap();
                bytes = turned.into();
            }
            bytes == *block
        });
        prop_assert!(same);
    }
}

#[test]
fn differentiators_survive_and_are_used_again() {
    for fat in [false, true] {
        let rules = Normalization { fold_case: true, form: Some(Form::D) };
        let mut new = NewZap::new(SALT).normalization(rules);
        if fat {
            new = new.fat(ZapFlags::NONE, 4096);
        }
        let mut zap = Zap::create(MemoryBlocks::empty(), &new).unwrap();
        let cds = |zap: &Zap<MemoryBlocks>| {
            let entries = all(zap).into_iter();
            let cds = entries.filter(|entry| entry.name().len() == 3);
            cds.map(|entry| (entry.differentiator, entry.name().to_vec())).collect::<Vec<_>>()
        };
        let mut writer = zap.edit();
        for name in ["foo", "Foo", "fOO", "FOO"] {
            writer.insert(name, 1).unwrap();
        }
        assert!(writer.remove("Foo").unwrap());
        assert_eq!(writer.insert("fOO", 2), Err(ZapError::Exists));
        assert_eq!(writer.insert_matching(b"FoO", Matching::Normalized, 2), Err(ZapError::Exists));
        writer.insert_matching(b"FoO", Matching::NormalizedCase, 2).unwrap();
        drop(writer);
        let expected = [(0, "foo"), (1, "FoO"), (2, "fOO"), (3, "FOO")];
        let expected = expected.map(|(cd, name)| (cd, name.as_bytes().to_vec()));
        assert_eq!(cds(&zap), expected);
        assert!(zap.is_ambiguous(b"foO", Matching::Normalized).unwrap());
        assert!(!zap.is_ambiguous(b"foo", Matching::NormalizedCase).unwrap());
        // The conversion to a fat ZAP and the splits of many more entries keep them.
        for number in 0..900 {
            zap.edit().insert(&format!("a text {number}"), "value").unwrap();
        }
        assert_eq!((cds(&zap), zap.form()), (expected.to_vec(), ZapForm::Fat));
        assert!(zap.edit().remove_matching(b"fOo", Matching::Normalized).unwrap());
        assert_eq!(cds(&zap), expected[1..]);
        assert!(!zap.edit().remove_matching(b"fOo", Matching::NormalizedCase).unwrap());
    }
}

#[test]
fn a_microzap_grows_and_becomes_fat_when_openzfs_says_so() {
    let mut zap = Zap::create(MemoryBlocks::empty(), &NewZap::new(SALT)).unwrap();
    for number in 0..2047u64 {
        zap.edit().insert(&format!("entry-number-{number}"), number).unwrap();
        let size = ((number + 2) * 64).next_multiple_of(512) as usize;
        assert_eq!((zap.form(), zap.blocks().block_size()), (ZapForm::Micro, size));
    }
    for number in 100..2047u64 {
        assert!(zap.edit().remove(&format!("entry-number-{number}")).unwrap());
    }
    assert_eq!(zap.blocks().block_size(), 128 << 10);
    let mut copy = Zap::open(zap.blocks().clone()).unwrap();
    for number in 100..2048u64 {
        zap.edit().insert(&format!("entry-number-{number}"), number).unwrap();
    }
    assert_eq!((zap.form(), zap.salt()), (ZapForm::Fat, SALT));
    // A value that is no number makes it fat at once, a name that is long too.
    copy.edit().update("entry-number-7", "text").unwrap();
    assert_eq!((copy.form(), copy.entry_count()), (ZapForm::Fat, 100));
    assert_eq!(copy.lookup("entry-number-7").unwrap().unwrap().as_str(), Some("text"));
    let mut long = Zap::create(MemoryBlocks::empty(), &NewZap::new(SALT)).unwrap();
    long.edit().insert(&"x".repeat(49), 1).unwrap();
    assert_eq!(long.form(), ZapForm::Micro);
    long.edit().insert(&"x".repeat(50), 1).unwrap();
    assert_eq!((long.form(), all(&long).len()), (ZapForm::Fat, 2));
}

#[test]
fn what_no_zap_can_have_is_refused_and_changes_nothing() {
    for fat in [false, true] {
        let new = NewZap::new(SALT);
        let new = if fat { new.fat(ZapFlags::NONE, 16384) } else { new };
        let mut zap = Zap::create(MemoryBlocks::empty(), &new).unwrap();
        zap.edit().insert("there", 1).unwrap();
        let before = zap.blocks().clone();
        let mut writer = zap.edit();
        for bad in ["", "a\0b", &"x".repeat(1024)] {
            assert_eq!(writer.insert(bad, 1), Err(ZapError::BadKey));
            assert_eq!(writer.update(bad, 1), Err(ZapError::BadKey));
        }
        assert_eq!(writer.insert(&[1u64, 2][..], 1), Err(ZapError::KeyKind));
        assert_eq!(writer.remove(&[1u64, 2][..]), Err(ZapError::KeyKind));
        let big = ZapValue::new(IntegerSize::Eight, &[0; 1025]);
        assert_eq!(writer.insert("big", big.clone()), Err(ZapError::TooBig));
        assert_eq!(writer.update("there", big), Err(ZapError::TooBig));
        assert_eq!(writer.insert("there", 2), Err(ZapError::Exists));
        assert!(!writer.remove("elsewhere").unwrap());
        let matching = writer.insert_matching(b"x", Matching::Normalized, 1);
        assert_eq!(matching, Err(ZapError::NotNormalizing));
        drop(writer);
        assert_eq!(zap.blocks(), &before);
    }
    let create = |flags, size| {
        Zap::create(MemoryBlocks::empty(), &NewZap::new(SALT).fat(ZapFlags(flags), size)).is_ok()
    };
    assert!(create(3, 512) && create(0, 128 << 10));
    assert!(!create(3, 700) && !create(3, 256 << 10) && !create(4, 512) && !create(8, 512));
}

/// 128 names with one hash would fill a leaf, which no split could empty.
#[test]
fn names_with_one_hash_run_out_before_the_table_grows_for_them() {
    let mut zap =
        Zap::create(MemoryBlocks::empty(), &NewZap::new(SALT).fat(ZapFlags(7), 2048)).unwrap();
    let mut count = 0;
    loop {
        match zap.edit().insert(&[7u64 << 32, count][..], count) {
            Ok(()) => count += 1,
            Err(error) => break assert_eq!(error, ZapError::Full),
        }
    }
    assert_eq!(count, 78 / 3);
    assert_eq!(zap.blocks().block_count(), Ok(2));
    zap.edit().insert(&[1u64 << 63][..], 1).unwrap();
    assert_eq!(all(&zap).len() as u64, count + 1);
}

#[test]
fn flags_that_are_unknown_keep_a_zap_from_being_changed() {
    let new = NewZap::new(SALT).fat(ZapFlags::NONE, 4096);
    let mut blocks = Zap::create(MemoryBlocks::empty(), &new).unwrap().into_blocks();
    blocks.modify_block(BlockId(0), |block| block.bytes[97] = 1).unwrap();
    let mut zap = Zap::open(blocks).unwrap();
    assert_eq!(zap.edit().insert("name", 1), Err(ZapError::UnknownFlags(256)));
    assert_eq!(zap.lookup("name").unwrap(), None);
}

/// A microzap's block is changed where it lies, not copied for each entry.
#[test]
fn the_block_of_a_microzap_stays_where_it_is() {
    let mut zap = Zap::create(MemoryBlocks::empty(), &NewZap::new(SALT)).unwrap();
    for number in 0..100 {
        zap.edit().insert(&format!("name{number}"), number).unwrap();
    }
    let place = |zap: &Zap<MemoryBlocks>| zap.blocks().blocks()[0].as_ptr();
    let before = place(&zap);
    for number in 0..50 {
        assert!(zap.edit().remove(&format!("name{number}")).unwrap());
        assert_eq!(zap.lookup_u64("name99").unwrap(), Some(99));
    }
    for number in 0..50 {
        zap.edit().insert(&format!("other{number}"), number).unwrap();
        assert_eq!(zap.lookup_u64(format!("other{number}")).unwrap(), Some(number));
    }
    assert_eq!(place(&zap), before);
}

/// Readers on other threads see each entry from the moment that its insertion returns, while the
/// microzap grows and becomes fat.
#[test]
fn readers_share_one_index_with_the_writer() {
    let zap = Zap::create(MemoryBlocks::empty(), &NewZap::new(SALT)).unwrap();
    let (zap, done) = (RwLock::new(zap), AtomicU64::new(0));
    const NAMES: u64 = 2500;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while seen < NAMES {
                    seen = done.load(Ordering::Acquire);
                    let zap = zap.read().unwrap();
                    assert!(zap.entry_count() >= seen);
                    for number in [0, seen / 2, seen.saturating_sub(1)] {
                        let found = zap.lookup_u64(format!("name {number}")).unwrap();
                        assert!(number >= seen || found == Some(number));
                    }
                }
            });
        }
        for number in 0..NAMES {
            zap.write().unwrap().edit().insert(&format!("name {number}"), number).unwrap();
            done.store(number + 1, Ordering::Release);
        }
    });
    let zap = zap.into_inner().unwrap();
    assert_eq!((zap.form(), all(&zap).len() as u64), (ZapForm::Fat, NAMES));
}
