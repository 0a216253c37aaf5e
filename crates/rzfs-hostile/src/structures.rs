//! Structure-aware damage: loops, sizes, counts and references of each structure.
//!
//! ```text
//! pointers    indirect blocks that contain themselves, each other, or one child many times
//! dnodes      levels, sizes, counts, spill pointers; bonuses that refer to themselves or others
//! zaps        headers, pointer tables, chains of chunks in leaves that loop or leave the block
//! logs        chains of intent log blocks that loop, records that are longer than they are
//! the rest    space maps, lists of pointers, configurations, arrays of objects
//! ```

mod dnodes;
mod logs;
mod pointers;
mod zaps;

use crate::lists::changed_list;
use crate::random::Random;
use crate::victim::Victim;
use rzfs_format::nvlist::NvList;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, Level};

pub(crate) use dnodes::raise_all;
pub(crate) use logs::{damage_gang_header, damage_intent_log};
pub(crate) use pointers::endless;

/// The structure of a block, as far as it matters for damage.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Structure {
    Indirect,
    Dnodes,
    Objset,
    Zap,
    NvList,
    SpaceMap,
    PointerList,
    ObjectNumbers,
    /// File contents, history, access control lists, ...
    Other,
}

impl Structure {
    /// All of them.
    pub(crate) const ALL: [Self; 9] = [
        Self::Indirect,
        Self::Dnodes,
        Self::Objset,
        Self::Zap,
        Self::NvList,
        Self::SpaceMap,
        Self::PointerList,
        Self::ObjectNumbers,
        Self::Other,
    ];

    /// The structure of the block under this pointer.
    pub(crate) fn of(pointer: &BlockPointer) -> Self {
        match pointer.object_type() {
            _ if pointer.level() > Level::DATA => Self::Indirect,
            Ok(kind) => Self::of_contents(kind),
            Err(_) => Self::Other,
        }
    }

    /// The structure of the contents of an object of this type.
    pub(crate) fn of_contents(kind: ObjectType) -> Self {
        match kind {
            ObjectType::DNODE => Self::Dnodes,
            ObjectType::OBJSET => Self::Objset,
            ObjectType::PACKED_NVLIST => Self::NvList,
            ObjectType::SPACE_MAP => Self::SpaceMap,
            ObjectType::BPOBJ => Self::PointerList,
            ObjectType::OBJECT_ARRAY | ObjectType::BPOBJ_SUBOBJ => Self::ObjectNumbers,
            kind if kind.is_zap() => Self::Zap,
            _ => Self::Other,
        }
    }

    /// Damages the contents of a block of this structure.
    pub(crate) fn damage(
        self,
        victim: &mut Victim<'_>,
        bookmark: Bookmark,
        own: &BlockPointer,
        random: &mut Random,
    ) {
        match self {
            Self::Indirect => pointers::damage(victim, own, random),
            Self::Dnodes => dnodes::damage(victim, bookmark, random),
            Self::Objset => dnodes::damage_objset(victim, random),
            Self::Zap => zaps::damage(victim, random),
            Self::NvList => damage_nvlist(victim, random),
            Self::SpaceMap => damage_words(victim, random),
            Self::PointerList => {
                let entries = victim.len() / BlockPointer::SIZE;
                let at = random.index(entries.min(16)) * BlockPointer::SIZE;
                victim.change_word(at + 8 * random.index(16), random);
            }
            Self::ObjectNumbers => {
                let at = random.index((victim.len() / 8).min(64)) * 8;
                let own = bookmark.object.0;
                let value = if random.once_in(3) { own } else { random.hostile() };
                victim.put_word(at, value);
            }
            Self::Other => victim.number(random),
        }
    }
}

/// Entries of a space map: others, and the same ones again.
fn damage_words(victim: &mut Victim<'_>, random: &mut Random) {
    let used = (0..victim.len() / 8).rev().find(|word| victim.word(word * 8) != 0).unwrap_or(0) + 1;
    let at = random.index(used) * 8;
    match random.below(4) {
        0 => victim.copy(random.index(used) * 8, at, 8),
        1 => victim.copy(0, at, victim.len() - at.min(victim.len())),
        // Two words, which the next entry's word completes.
        2 => victim.put_word(at, victim.word(at) | 3 << 62),
        _ => victim.change_word(at, random),
    }
}

/// A configuration that says something else, or whose encoding contradicts itself.
fn damage_nvlist(victim: &mut Victim<'_>, random: &mut Random) {
    match NvList::decode_with_encoding(victim.bytes) {
        Ok((list, encoding)) if !random.once_in(3) => {
            if let Ok(bytes) = changed_list(&list, random, 0).encode(encoding) {
                victim.put(0, &bytes);
            }
        }
        _ => {
            let at = random.index(victim.len().min(4096) / 4) * 4;
            victim.put(at, &(random.hostile() as u32).to_be_bytes());
        }
    }
}
