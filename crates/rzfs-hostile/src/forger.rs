//! Pools falsified on disk: blocks are changed while they are written, with right checksums.
//!
//! The writer of such a pool does not notice: its memory has the right contents. Only the next
//! reader sees the forged ones, without an injector, so that other programs can be tested too.

use crate::random::Random;
use crate::structures::Structure;
use crate::victim::Victim;
use bytes::Bytes;
use rzfs_dmu::write::WriteInjector;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, ByteOrder, Level};

/// Words replaced on disk.
///
/// A replacement is as long as what it replaces; a shorter one is followed by zeros, which end a
/// name.
#[derive(Clone, Debug)]
pub struct WordForger(pub &'static [(&'static str, &'static str)]);

impl WriteInjector for WordForger {
    fn inject(&self, _: Bookmark, _: ObjectType, contents: Bytes) -> Bytes {
        let mut bytes = contents.to_vec();
        for (meant, written) in self.0 {
            let mut at = 0;
            while let Some(found) = position(bytes.get(at..).unwrap_or_default(), meant) {
                let written = written.bytes().chain(std::iter::repeat(0));
                let place = bytes.iter_mut().skip(at + found).take(meant.len());
                place.zip(written).for_each(|(byte, new)| *byte = new);
                at += found + meant.len();
            }
        }
        bytes.into()
    }
}

fn position(bytes: &[u8], word: &str) -> Option<usize> {
    bytes.windows(word.len()).position(|window| window == word.as_bytes())
}

/// Blocks of one structure that are inconsistent on disk. The seed and their bookmarks determine
/// which ones.
#[derive(Clone, Copy, Debug)]
pub struct StructureForger {
    seed: u64,
    structure: Structure,
    /// One of this many blocks is changed.
    one_of: u64,
}

impl StructureForger {
    /// A forger of this seed, which determines the structure and the number of blocks.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let structure = random.pick(&Structure::ALL).copied().unwrap_or(Structure::Other);
        let one_of = random.pick(&[1, 3, 8, 20]).copied().unwrap_or(3);
        Self { seed, structure, one_of }
    }
}

impl WriteInjector for StructureForger {
    fn inject(&self, bookmark: Bookmark, object_type: ObjectType, contents: Bytes) -> Bytes {
        let Bookmark { objset, object, level, block } = bookmark;
        let structure = match level > Level::DATA {
            true => Structure::Indirect,
            false => Structure::of_contents(object_type),
        };
        let level = i64::from(level.0).cast_unsigned();
        let mut random = Random::of_place(self.seed, &[objset.0, object.0, level, block.0]);
        if structure != self.structure || !random.once_in(self.one_of) || contents.is_empty() {
            return contents;
        }
        let mut bytes = contents.to_vec();
        let mut victim = Victim { bytes: &mut bytes, order: ByteOrder::NATIVE };
        // The address of the block is not known yet.
        structure.damage(&mut victim, bookmark, &BlockPointer::HOLE, &mut random);
        bytes.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_replaced_wherever_they_are() {
        let forger = WordForger(&[("parent", ".."), ("name", "../x")]);
        let contents = Bytes::from_static(b"parent name\0name-parent");
        let bookmark = Bookmark::default();
        let forged = forger.inject(bookmark, ObjectType::DIRECTORY_CONTENTS, contents);
        assert_eq!(&forged[..], b"..\0\0\0\0 ../x\0../x-..\0\0\0\0");
    }
}
