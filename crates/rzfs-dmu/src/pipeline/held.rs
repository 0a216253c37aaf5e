//! Blocks of the MOS that stay in memory regardless of cache pressure: those of objects that every
//! txg changes. Damage to them while the pool is open then has no effect, and is gone once they are
//! rewritten.
//!
//! A block is identified by its place in the MOS, and valid if its pointer matches: readers of an
//! older state of the pool neither find its blocks here nor add any.

use crate::Block;
use parking_lot::RwLock;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, BlockPointer, Level, ObjectId, ObjsetId, Txg};
use std::collections::{BTreeSet, HashMap};

/// Maximum fraction of the cache's limit that is held in addition.
const SHARE_OF_CACHE: u64 = 16;

/// The place of a block in the MOS.
type Place = (ObjectId, Level, BlockId);

/// The held blocks.
#[derive(Debug)]
pub(crate) struct Held {
    state: RwLock<State>,
    /// Maximum bytes of contents held.
    limit: u64,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeSet<ObjectId>,
    blocks: HashMap<Place, Versions>,
    bytes: u64,
}

/// A block as of the last txg that wrote it, and before: on disk until that txg is complete, and
/// read by others until then.
#[derive(Debug)]
struct Versions {
    newest: Version,
    before: Option<Version>,
}

#[derive(Debug)]
struct Version {
    pointer: BlockPointer,
    block: Block,
}

impl Version {
    fn bytes(&self) -> u64 {
        self.block.data.len() as u64
    }
}

impl Versions {
    fn bytes(&self) -> u64 {
        self.newest.bytes() + self.before.as_ref().map_or(0, Version::bytes)
    }

    /// The same after it was written again.
    fn followed_by(self, newest: Version) -> Self {
        let is_of_same_txg = self.newest.pointer.logical_birth() == newest.pointer.logical_birth();
        let before = if is_of_same_txg { self.before } else { Some(self.newest) };
        Self { newest, before }
    }
}

impl State {
    /// Drops earlier versions of blocks from txgs other than the one being written: those are
    /// complete.
    fn forget_before(&mut self, txg: Txg) {
        for versions in self.blocks.values_mut() {
            if versions.newest.pointer.logical_birth() < txg
                && let Some(before) = versions.before.take()
            {
                self.bytes -= before.bytes();
            }
        }
    }

    /// Stores a version of a block, if there is room.
    fn put(&mut self, place: Place, version: Version, limit: u64) -> bool {
        let known = self.blocks.remove(&place);
        self.bytes -= known.as_ref().map_or(0, Versions::bytes);
        let birth = version.pointer.logical_birth();
        let mut versions = match known {
            Some(known) => known.followed_by(version),
            None => Versions { newest: version, before: None },
        };
        if self.bytes + versions.bytes() > limit {
            self.forget_before(birth);
        }
        if self.bytes + versions.bytes() > limit {
            versions.before = None;
        }
        let has_room = self.bytes + versions.bytes() <= limit;
        if has_room {
            self.bytes += versions.bytes();
            self.blocks.insert(place, versions);
        }
        has_room
    }
}

impl Held {
    /// Holds nothing yet, and never more than `most` bytes, beside a cache with a limit of
    /// `arc_max`.
    pub(super) fn new(arc_max: u64, most: u64) -> Self {
        Self { state: RwLock::default(), limit: (arc_max / SHARE_OF_CACHE).min(most) }
    }

    /// The place of a block, if it can be held.
    fn place(bookmark: Bookmark) -> Option<Place> {
        let Bookmark { objset, object, level, block } = bookmark;
        (objset == ObjsetId::MOS).then_some((object, level, block))
    }

    /// Holds the blocks of an object of the MOS from now on, as they are written; returns whether
    /// they were not held before.
    pub(crate) fn add_object(&self, object: ObjectId) -> bool {
        self.state.write().objects.insert(object)
    }

    /// Drops an object, whose number may be reused.
    pub(crate) fn remove_object(&self, object: ObjectId) {
        let mut state = self.state.write();
        if !state.objects.remove(&object) {
            return;
        }
        let gone = state.blocks.extract_if(|(id, ..), _| *id == object);
        let bytes: u64 = gone.map(|(_, versions)| versions.bytes()).sum();
        state.bytes -= bytes;
    }

    /// Adds a block on disk; returns whether there was room.
    pub(crate) fn add(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Block) -> bool {
        let Some(place) = Self::place(bookmark) else { return true };
        let mut state = self.state.write();
        // A version written since is newer.
        if state.blocks.contains_key(&place) {
            return true;
        }
        state.put(place, Version { pointer: *pointer, block }, self.limit)
    }

    /// Adds a written block.
    pub(super) fn wrote(&self, bookmark: Bookmark, pointer: &BlockPointer, block: &Block) {
        let Some(place) = Self::place(bookmark) else { return };
        if !self.state.read().objects.contains(&place.0) {
            return;
        }
        let version = Version { pointer: *pointer, block: block.clone() };
        // Without room it has to be read like others.
        let _ = self.state.write().put(place, version, self.limit);
    }

    /// The block that a pointer refers to, if it is held.
    pub(super) fn get(&self, bookmark: Bookmark, pointer: &BlockPointer) -> Option<Block> {
        let place = Self::place(bookmark)?;
        let state = self.state.read();
        let Versions { newest, before } = state.blocks.get(&place)?;
        let found = std::iter::once(newest).chain(before).find(|it| it.pointer == *pointer)?;
        found.block.can_be_of(pointer).then(|| found.block.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::Dva;
    use rzfs_format::block_pointer::StoredBlock;
    use rzfs_format::checksum::{ChecksumFunction, ChecksumValue};
    use rzfs_format::compression::CompressionFunction;
    use rzfs_format::object_type::ObjectType;

    const BLOCK: usize = 16 << 10;
    const OBJECT: ObjectId = ObjectId(7);

    fn pointer(birth: u64, checksum: u64) -> BlockPointer {
        BlockPointer::stored(&StoredBlock {
            object_type: ObjectType::DNODE,
            level: Level::DATA,
            logical_size: BLOCK as u64,
            physical_size: BLOCK as u64,
            compression: CompressionFunction::Off,
            checksum_function: ChecksumFunction::Fletcher4,
            checksum: ChecksumValue([checksum, 0, 0, 0]),
            dvas: [Dva::default(); 3],
            birth: Txg(birth),
        })
    }

    fn block(fill: u8) -> Block {
        Block { data: vec![fill; BLOCK].into(), order: rzfs_format::ByteOrder::NATIVE }
    }

    fn bookmark(objset: ObjsetId, block: u64) -> Bookmark {
        Bookmark { objset, object: OBJECT, level: Level::DATA, block: BlockId(block) }
    }

    fn held(blocks: u64) -> Held {
        let held = Held::new(blocks * BLOCK as u64 * SHARE_OF_CACHE, u64::MAX);
        held.add_object(OBJECT);
        held
    }

    #[test]
    fn a_block_and_what_it_was_before_are_held() {
        let held = held(2);
        let at = bookmark(ObjsetId::MOS, 3);
        assert!(held.add(at, &pointer(5, 1), block(1)));
        held.wrote(at, &pointer(6, 2), &block(2));
        held.wrote(at, &pointer(6, 3), &block(3));
        assert_eq!(held.get(at, &pointer(5, 1)), Some(block(1)));
        assert_eq!(held.get(at, &pointer(6, 2)), None);
        assert_eq!(held.get(at, &pointer(6, 3)), Some(block(3)));
        held.wrote(at, &pointer(7, 4), &block(4));
        assert_eq!(held.get(at, &pointer(5, 1)), None);
        assert_eq!(held.get(at, &pointer(6, 3)), Some(block(3)));
        assert_eq!(held.get(at, &pointer(7, 4)), Some(block(4)));
    }

    #[test]
    fn nothing_is_held_beyond_the_limit() {
        let held = held(2);
        let at = |block| bookmark(ObjsetId::MOS, block);
        assert!(held.add(at(0), &pointer(5, 0), block(0)));
        assert!(held.add(at(1), &pointer(5, 1), block(1)));
        assert!(!held.add(at(2), &pointer(5, 2), block(2)));
        assert_eq!(held.get(at(2), &pointer(5, 2)), None);
        // There is no room for its previous version.
        held.wrote(at(1), &pointer(6, 3), &block(3));
        assert_eq!(held.get(at(1), &pointer(5, 1)), None);
        assert_eq!(held.get(at(1), &pointer(6, 3)), Some(block(3)));
        assert_eq!(held.state.read().bytes, 2 * BLOCK as u64);
    }

    #[test]
    fn what_blocks_were_before_makes_room_for_others() {
        let held = held(3);
        let at = |block| bookmark(ObjsetId::MOS, block);
        assert!(held.add(at(0), &pointer(5, 0), block(0)));
        held.wrote(at(0), &pointer(6, 1), &block(1));
        assert!(held.add(at(1), &pointer(5, 2), block(2)));
        held.wrote(at(1), &pointer(7, 3), &block(3));
        assert_eq!(held.get(at(0), &pointer(5, 0)), None);
        assert_eq!(held.get(at(0), &pointer(6, 1)), Some(block(1)));
        assert_eq!(held.get(at(1), &pointer(5, 2)), Some(block(2)));
        assert_eq!(held.get(at(1), &pointer(7, 3)), Some(block(3)));
    }

    #[test]
    fn an_object_that_was_let_go_of_has_no_blocks() {
        let held = held(2);
        let at = bookmark(ObjsetId::MOS, 0);
        assert!(held.add(at, &pointer(5, 0), block(0)));
        held.remove_object(OBJECT);
        assert_eq!(held.get(at, &pointer(5, 0)), None);
        held.wrote(at, &pointer(6, 1), &block(1));
        assert_eq!(held.get(at, &pointer(6, 1)), None);
        assert_eq!(held.state.read().bytes, 0);
    }

    #[test]
    fn only_blocks_of_the_mos_are_held_and_of_objects_that_are_added() {
        let held = held(2);
        let elsewhere = bookmark(ObjsetId(54), 0);
        held.wrote(elsewhere, &pointer(5, 1), &block(1));
        assert_eq!(held.get(elsewhere, &pointer(5, 1)), None);
        let other = Bookmark { object: ObjectId(8), ..bookmark(ObjsetId::MOS, 0) };
        held.wrote(other, &pointer(5, 1), &block(1));
        assert_eq!(held.get(other, &pointer(5, 1)), None);
    }
}
