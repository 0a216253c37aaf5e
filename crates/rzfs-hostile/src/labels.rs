//! Labels and uberblocks that lie, with right checksums.

use crate::random::Random;
use rzfs_blockdev::{BlockDevice, read_exact_at};
use rzfs_codec::checksum::{EmbeddedVerifier, generate_embedded};
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::label::{
    CONFIG_OFFSET, CONFIG_SIZE, LabelIndex, LeafSize, TRAILER_SIZE, UberblockRing, decode_config,
};
use rzfs_format::nvlist::{Encoding, NvList, NvString, NvValue};
use rzfs_format::uberblock::Uberblock;
use rzfs_testkit::{Damage, OverlayDevice};

/// Names of lists deeper than this are not looked into.
const MAX_DEPTH: usize = 12;
/// How deep a list is put into itself.
const NESTING: usize = 30;

/// Changes the configuration in all labels of a device.
pub(crate) fn damage_config(device: &OverlayDevice, random: &mut Random) {
    let Some(size) = LeafSize::of_device(device.geometry().size) else { return };
    let first = size.label_offset(LabelIndex::ALL[0]) + CONFIG_OFFSET;
    let Ok(block) = read_exact_at(device, first, CONFIG_SIZE) else { return };
    let Ok(mut list) = decode_config(&block) else { return };
    let mut payload = block.to_vec();
    if !random.once_in(4) {
        for _ in 0..=random.below(3) {
            list = changed_list(&list, random, 0);
        }
        if let Ok(encoded) = list.encode(Encoding::Xdr) {
            payload = encoded;
        }
    }
    let used = payload.len().min(4096);
    if random.once_in(4) {
        // Counts, types and lengths of the encoding itself.
        for _ in 0..=random.below(4) {
            let at = random.index(used / 4) * 4;
            let new = (random.hostile() as u32).to_be_bytes();
            payload.iter_mut().skip(at).zip(new).for_each(|(byte, new)| *byte = new);
        }
    }
    payload.resize(CONFIG_SIZE, 0);
    write_to_labels(device, size, CONFIG_OFFSET, &payload);
}

/// Changes the newest uberblock in all labels of a device.
pub(crate) fn damage_uberblock(device: &OverlayDevice, random: &mut Random) {
    let Some(size) = LeafSize::of_device(device.geometry().size) else { return };
    let mut newest: Option<(Uberblock, u64, usize)> = None;
    for ring in UberblockRing::ALL {
        for slot in 0..ring.slots() {
            let offset = ring.slot_offset(slot);
            let at = size.label_offset(LabelIndex::ALL[0]) + offset;
            let Ok(block) = read_exact_at(device, at, ring.slot_size()) else { continue };
            let Ok((found, _)) = Uberblock::decode(&block) else { continue };
            if newest.as_ref().is_none_or(|(best, ..)| found.txg > best.txg) {
                newest = Some((found, offset, ring.slot_size()));
            }
        }
    }
    let Some((uberblock, offset, slot_size)) = newest else { return };
    let mut words = uberblock.to_words();
    for _ in 0..=random.below(2) {
        let at = random.index(words.len());
        // The magic number stays, else it is no uberblock.
        if let Some(word) = words.get_mut(at).filter(|_| at > 0) {
            *word = random.instead_of(*word);
        }
    }
    let mut block: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    block.resize(slot_size, 0);
    write_to_labels(device, size, offset, &block);
}

/// Writes a part to all labels, each with the checksum of its place.
fn write_to_labels(device: &OverlayDevice, size: LeafSize, offset: u64, block: &[u8]) {
    for label in LabelIndex::ALL {
        let offset = size.label_offset(label) + offset;
        let mut block = block.to_vec();
        let end = block.len() - TRAILER_SIZE;
        block[end..].fill(0);
        let verifier = EmbeddedVerifier::Label { offset };
        let (function, order) = (ChecksumFunction::Label, ByteOrder::NATIVE);
        if generate_embedded(function, &mut block, verifier, order).is_ok() {
            device.damage(offset..offset + block.len() as u64, Damage::Bytes(block));
        }
    }
}

/// A list that differs in one place.
fn changed_list(list: &NvList, random: &mut Random, depth: usize) -> NvList {
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
            let all = lists.iter().cycle().take(300).cloned().collect();
            lists = all;
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

/// A vdev that is its own child, as far as a tree can be that.
fn nested(list: &NvList) -> NvList {
    let mut outer = list.clone();
    for _ in 0..NESTING {
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
