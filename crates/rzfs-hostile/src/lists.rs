//! Modified name-value lists.

use crate::random::Random;
use rzfs_format::nvlist::{Encoding, NvList, NvString, NvValue};

/// Maximum depth of names examined in lists.
const MAX_DEPTH: usize = 12;
/// Nesting depth of a list in itself.
const NESTING: usize = 30;
/// Number of copies of a list beside itself.
const MAX_COPIES: usize = 300;
/// Room for an encoded list in labels and objects.
const ROOM: usize = 112 << 10;

/// A list that differs in one place; `depth` is its nesting depth.
pub(crate) fn changed_list(list: &NvList, random: &mut Random, depth: usize) -> NvList {
    let pairs: Vec<_> = list.iter().collect();
    let chosen = random.index(pairs.len());
    let mut changed = NvList::with_uniqueness(list.uniqueness());
    for (index, pair) in pairs.iter().enumerate() {
        let value = if index == chosen {
            changed_value(pair.value(), random, depth)
        } else {
            Some(pair.value().clone())
        };
        if let Some(value) = value {
            // Names are those of a list that was decoded.
            let _ = changed.insert(pair.name(), value);
        }
    }
    changed
}

/// Another value, or none.
fn changed_value(value: &NvValue, random: &mut Random, depth: usize) -> Option<NvValue> {
    if random.once_in(12) {
        return None;
    }
    if random.once_in(12) {
        return Some(foreign_value(random));
    }
    Some(match value {
        NvValue::UInt64(old) => NvValue::UInt64(random.instead_of(*old)),
        NvValue::String(_) => {
            let len = random.pick(&[0, 1, 255, 4096, 32_000]).copied().unwrap_or(1);
            let texts = ["raidz", "draid", "mirror", "hole", "indirect", "root", "missing", "log"];
            match random.below(2) {
                0 => text(random.pick(&texts).copied().unwrap_or_default()),
                _ => text(&"x".repeat(len)),
            }
        }
        NvValue::List(list) if depth < MAX_DEPTH => {
            NvValue::List(Box::new(match random.below(8) {
                0 => nested(list),
                _ => changed_list(list, random, depth + 1),
            }))
        }
        NvValue::ListArray(lists) if depth < MAX_DEPTH => {
            NvValue::ListArray(changed_lists(lists, random, depth).into())
        }
        _ => foreign_value(random),
    })
}

fn changed_lists(lists: &[NvList], random: &mut Random, depth: usize) -> Vec<NvList> {
    let mut lists = lists.to_vec();
    let at = random.index(lists.len());
    match random.below(8) {
        0 => lists.clear(),
        // Two with the same guid.
        1 => lists.extend(lists.get(at).cloned()),
        2 => {
            let copies = lists.first().map_or(0, |list| fitting(list, MAX_COPIES));
            lists = lists.iter().cycle().take(copies).cloned().collect();
        }
        3 => lists.rotate_left(at),
        4 => lists.iter_mut().for_each(|list| *list = nested(list)),
        _ => {
            if let Some(list) = lists.get_mut(at) {
                *list = changed_list(list, random, depth + 1);
            }
        }
    }
    lists
}

/// How many of `most` copies of this list fit where a configuration is stored. More would only cost
/// the case's own memory.
fn fitting(list: &NvList, most: usize) -> usize {
    let size = list.encode(Encoding::Xdr).map_or(ROOM, |bytes| bytes.len());
    (ROOM / size.max(1)).min(most)
}

/// A vdev that is its own child, as far as possible in a tree.
fn nested(list: &NvList) -> NvList {
    let mut outer = list.clone();
    for _ in 0..fitting(list, NESTING) {
        let mut next = list.clone();
        let _ = next.insert("children", NvValue::ListArray(vec![outer].into()));
        outer = next;
    }
    outer
}

/// A value of another type.
fn foreign_value(random: &mut Random) -> NvValue {
    match random.below(7) {
        0 => NvValue::Boolean,
        1 => NvValue::UInt64(random.hostile()),
        2 => NvValue::UInt64Array(vec![random.hostile(); random.index(40)].into()),
        3 => NvValue::ListArray(Vec::new().into()),
        4 => NvValue::List(Box::default()),
        5 => text(""),
        _ => NvValue::Int32(random.hostile() as i32),
    }
}

fn text(text: &str) -> NvValue {
    NvValue::String(NvString::new(text).unwrap_or_default())
}
