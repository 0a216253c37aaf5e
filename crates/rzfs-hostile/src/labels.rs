//! Labels and uberblocks with false contents and right checksums.

use crate::lists::changed_list;
use crate::random::Random;
use rzfs_blockdev::{BlockDevice, read_exact_at};
use rzfs_codec::checksum::{EmbeddedVerifier, generate_embedded};
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::label::{
    CONFIG_OFFSET, CONFIG_SIZE, LabelIndex, LeafSize, TRAILER_SIZE, UberblockRing, decode_config,
};
use rzfs_format::nvlist::Encoding;
use rzfs_format::uberblock::Uberblock;
use rzfs_testkit::{Damage, OverlayDevice};

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
    let Some(newest) = newest_uberblock(device) else { return };
    let mut words = newest.uberblock.to_words();
    for _ in 0..=random.below(2) {
        let at = random.index(words.len());
        // The magic number stays, otherwise it would not be an uberblock.
        if let Some(word) = words.get_mut(at).filter(|_| at > 0) {
            *word = random.instead_of(*word);
        }
    }
    newest.write(device, &words);
}

/// Writes a word into the newest uberblock in all labels of a device.
pub(crate) fn patch_uberblock(device: &OverlayDevice, place: usize, value: u64) {
    let Some(newest) = newest_uberblock(device) else { return };
    let mut words = newest.uberblock.to_words();
    let at = place % words.len();
    if let Some(word) = words.get_mut(at).filter(|_| at > 0) {
        *word = value;
    }
    newest.write(device, &words);
}

/// Writes bytes into the encoded configuration in all labels of a device.
pub(crate) fn patch_config(device: &OverlayDevice, place: usize, bytes: &[u8]) {
    let Some(size) = LeafSize::of_device(device.geometry().size) else { return };
    let first = size.label_offset(LabelIndex::ALL[0]) + CONFIG_OFFSET;
    let Ok(block) = read_exact_at(device, first, CONFIG_SIZE) else { return };
    let mut payload = block.to_vec();
    let used = payload.iter().take(CONFIG_SIZE - TRAILER_SIZE).rposition(|byte| *byte != 0);
    let place = place % (used.unwrap_or(0) + 1);
    payload.iter_mut().skip(place).zip(bytes).for_each(|(byte, new)| *byte = *new);
    write_to_labels(device, size, CONFIG_OFFSET, &payload);
}

/// An uberblock and where in a label it is.
struct PlacedUberblock {
    uberblock: Uberblock,
    size: LeafSize,
    offset: u64,
    slot_size: usize,
}

impl PlacedUberblock {
    /// Writes these words in its place.
    fn write(&self, device: &OverlayDevice, words: &[u64]) {
        let mut block: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        block.resize(self.slot_size, 0);
        write_to_labels(device, self.size, self.offset, &block);
    }
}

fn newest_uberblock(device: &OverlayDevice) -> Option<PlacedUberblock> {
    let size = LeafSize::of_device(device.geometry().size)?;
    let mut newest: Option<PlacedUberblock> = None;
    for ring in UberblockRing::ALL {
        for slot in 0..ring.slots() {
            let (offset, slot_size) = (ring.slot_offset(slot), ring.slot_size());
            let at = size.label_offset(LabelIndex::ALL[0]) + offset;
            let Ok(block) = read_exact_at(device, at, slot_size) else { continue };
            let Ok((uberblock, _)) = Uberblock::decode(&block) else { continue };
            if newest.as_ref().is_none_or(|best| uberblock.txg > best.uberblock.txg) {
                newest = Some(PlacedUberblock { uberblock, size, offset, slot_size });
            }
        }
    }
    newest
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
