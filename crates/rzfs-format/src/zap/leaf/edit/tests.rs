//! Leaves under every sequence of changes, sound ones and damaged ones.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const SIZE: usize = 1024;

/// Hash, cd, key and value of an entry.
type Model = BTreeMap<(ZapHash, u32), (Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Step {
    Insert { hash: u8, key: usize, value: usize },
    Replace { which: usize, value: usize },
    Remove { which: usize },
    Split,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<u8>(), 1usize..60, 0usize..60)
            .prop_map(|(hash, key, value)| Step::Insert { hash, key, value }),
        2 => (any::<usize>(), 0usize..90)
            .prop_map(|(which, value)| Step::Replace { which, value }),
        4 => any::<usize>().prop_map(|which| Step::Remove { which }),
        1 => Just(Step::Split),
    ];
    prop::collection::vec(step, 1..80)
}

const fn bytes(bytes: &[u8]) -> Integers<'_> {
    Integers { size: IntegerSize::One, bytes }
}

fn find(leaf: &Leaf<'_>, hash: ZapHash, cd: u32) -> Option<LeafEntry> {
    let mut entries = leaf.bucket(leaf.bucket_of(hash), KeyKind::Name).map(Result::unwrap);
    entries.find(|entry| (entry.hash, entry.cd) == (hash, cd))
}

fn contents(leaf: &Leaf<'_>) -> Model {
    let buckets = 0..leaf.geometry().buckets();
    let entries = buckets.flat_map(|bucket| leaf.bucket(bucket, KeyKind::Name)).map(Result::unwrap);
    let read = |array| leaf.read(array).unwrap();
    entries.map(|entry| ((entry.hash, entry.cd), (read(entry.name), read(entry.value)))).collect()
}

fn chosen(model: &Model, which: usize) -> Option<(ZapHash, u32)> {
    model.keys().nth(which.checked_rem(model.len())?).copied()
}

/// Does one step to the leaf and to the model.
fn take(leaf: &mut LeafMut<'_>, model: &mut Model, step: &Step) {
    match *step {
        Step::Insert { hash, key, value } => {
            let view = leaf.view().unwrap();
            let low = u64::from(hash) << 56 >> view.prefix_len();
            let high = view.prefix().checked_shl(64 - view.prefix_len()).unwrap_or(0);
            let hash = ZapHash(low | high);
            let cd = (0..).find(|cd| !model.contains_key(&(hash, *cd))).unwrap();
            let (key, value) = (vec![b'k'; key], vec![7; value]);
            let new = NewEntry { hash, cd, key: bytes(&key), value: bytes(&value) };
            let fits = new.chunks() <= usize::from(view.free_chunks());
            match leaf.insert(&new) {
                Ok(()) => assert!(fits && model.insert((hash, cd), (key, value)).is_none()),
                Err(error) => assert!(!fits && error == LeafEditError::Full),
            }
        }
        Step::Replace { which, value } => {
            let Some((hash, cd)) = chosen(model, which) else { return };
            let entry = find(&leaf.view().unwrap(), hash, cd).unwrap();
            let value = vec![9; value];
            if leaf.replace_value(&entry, bytes(&value)).is_ok() {
                model.get_mut(&(hash, cd)).unwrap().1 = value;
            }
        }
        Step::Remove { which } => {
            let Some((hash, cd)) = chosen(model, which) else { return };
            let entry = find(&leaf.view().unwrap(), hash, cd).unwrap();
            leaf.remove(&entry).unwrap();
            model.remove(&(hash, cd));
        }
        Step::Split => {
            let len = leaf.view().unwrap().prefix_len();
            if len >= 20 {
                return;
            }
            let mut upper = [0; SIZE];
            leaf.split(KeyKind::Name, ChainOrder::ByCd, &mut upper).unwrap();
            let upper = Leaf::decode(&upper, leaf.order).unwrap();
            upper.check(KeyKind::Name).unwrap();
            let (ones, zeros) = std::mem::take(model)
                .into_iter()
                .partition(|((hash, _), _)| hash.0 >> (63 - len) & 1 == 1);
            assert_eq!(contents(&upper), ones);
            *model = zeros;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_leaf_holds_what_was_put_in(steps in steps(), big in any::<bool>()) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let mut block = [0xa5; SIZE];
        let mut leaf = LeafMut::format(&mut block, order, (0, 0), ChainOrder::ByCd).unwrap();
        let mut model = Model::new();
        for step in &steps {
            take(&mut leaf, &mut model, step);
            let view = leaf.view().unwrap();
            view.check(KeyKind::Name).unwrap();
            prop_assert_eq!(&contents(&view), &model);
        }
    }

    #[test]
    fn damage_is_an_error_that_changes_nothing(
        steps in steps(),
        damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8),
        after in steps(),
    ) {
        let mut block = [0; SIZE];
        let native = ByteOrder::NATIVE;
        let mut leaf = LeafMut::format(&mut block, native, (0, 0), ChainOrder::ByCd).unwrap();
        let mut model = Model::new();
        for step in steps.iter().filter(|step| !matches!(step, Step::Split)) {
            take(&mut leaf, &mut model, step);
        }
        for (place, value) in damage {
            block[place % SIZE] = value;
        }
        for step in after {
            let Ok(mut leaf) = LeafMut::open(&mut block, native) else { return Ok(()) };
            let before = leaf.bytes.to_vec();
            let view = leaf.view().unwrap();
            let bucket = before[40] as usize % view.geometry().buckets();
            let entry = view.bucket(bucket, KeyKind::Name).find_map(Result::ok);
            let failed = match (step, entry) {
                (Step::Insert { hash, .. }, _) => {
                    let hash = ZapHash(u64::from(hash) << 56);
                    let key = bytes(b"key\0");
                    leaf.insert(&NewEntry { hash, cd: 0, key, value: key }).is_err()
                }
                (Step::Replace { value, .. }, Some(entry)) => {
                    leaf.replace_value(&entry, bytes(&vec![1; value])).is_err()
                }
                (Step::Remove { .. }, Some(entry)) => leaf.remove(&entry).is_err(),
                (Step::Split, _) => {
                    leaf.split(KeyKind::Name, ChainOrder::Any, &mut [0; SIZE]).is_err()
                }
                _ => false,
            };
            prop_assert!(!failed || before == leaf.bytes);
        }
    }
}

/// As OpenZFS 2.3.2 does it: an entry's chunk on top, below it the value's, the last first, and
/// the key's.
#[test]
fn freed_chunks_are_a_stack() {
    let mut block = [0; SIZE];
    let mut leaf = LeafMut::format(&mut block, ByteOrder::NATIVE, (0, 0), ChainOrder::Any).unwrap();
    let long = [b'x'; 60];
    let new =
        |hash| NewEntry { hash: ZapHash(hash), cd: 0, key: bytes(&long), value: bytes(&long) };
    leaf.insert(&new(1 << 60)).unwrap();
    leaf.insert(&new(2 << 60)).unwrap();
    let first = find(&leaf.view().unwrap(), ZapHash(1 << 60), 0).unwrap();
    leaf.remove(&first).unwrap();
    assert_eq!(leaf.free_list(8).unwrap().0, [0, 6, 5, 4, 3, 2, 1, 14]);
    let second = find(&leaf.view().unwrap(), ZapHash(2 << 60), 0).unwrap();
    leaf.replace_value(&second, bytes(&long[..30])).unwrap();
    assert_eq!(leaf.free_list(2).unwrap().0, [11, 0]);
    let second = find(&leaf.view().unwrap(), ZapHash(2 << 60), 0).unwrap();
    assert_eq!(leaf.array_chunks(second.value).unwrap(), [13, 12]);
}

#[test]
fn blocks_that_cannot_be_leaves_are_refused() {
    let format = |size, prefix| {
        LeafMut::format(&mut vec![0; size], ByteOrder::NATIVE, prefix, ChainOrder::Any).is_ok()
    };
    assert!(format(1 << 20, (0, 0)) && format(512, (1, 1)));
    assert!(!format(1 << 21, (0, 0)) && !format(700, (0, 0)));
    assert!(!format(512, (2, 1)) && !format(512, (0, 47)));
}
