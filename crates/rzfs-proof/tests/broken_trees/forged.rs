//! Objects of pools that say what they should not, with right checksums.

use bytes::Bytes;
use rzfs_blockdev::{Access, OpenOptions};
use rzfs_dmu::BlockInjector;
use rzfs_dsl::Pool;
use rzfs_dsl::import::{Discovery, HostCheck, ImportOptions};
use rzfs_dsl::live::{ChangeError, Destruction, LivePool, NewSnapshots};
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, Level, ObjectId, ObjsetId, Txg};
use rzfs_proof::Rig;
use std::sync::Arc;

/// Bytes of a dnode's slot, and how many a block has.
const SLOT: usize = 512;
const SLOTS: u64 = 32;
/// Where a dnode says how deep its tree is, how many pointers it has, and how many blocks; where
/// the pointers begin, and the bytes of each.
const LEVELS: usize = 2;
const POINTER_COUNT: usize = 3;
const LAST_BLOCK: usize = 16;
const POINTERS: usize = 64;
/// Where the entries of a micro ZAP begin, the bytes of each, and where its name is.
const ENTRY: usize = 64;
const NAME: usize = 14;

type Change = Box<dyn Fn(&mut [u8]) + Send + Sync>;
/// What becomes of the names and numbers of a micro ZAP.
type EntryChange<'a> = &'a dyn Fn(&mut [(String, u64)]);

/// What of a pool is read otherwise than it is on the devices, until it is written anew. All numbers
/// are little-endian, as this is where these pools were made.
#[derive(Default)]
pub(crate) struct Forger {
    dnodes: Vec<(ObjectId, Change)>,
    contents: Vec<(ObjectId, Change)>,
    gangs: bool,
}

impl Forger {
    /// Words in the bonus of an object, from byte `at` of it on.
    pub(crate) fn bonus(mut self, object: ObjectId, at: usize, words: &[u64]) -> Self {
        let words = words.to_vec();
        self.dnodes.push((
            object,
            Box::new(move |dnode| {
                let bonus = POINTERS + usize::from(dnode[POINTER_COUNT]) * BlockPointer::SIZE;
                for (index, word) in words.iter().enumerate() {
                    put(dnode, bonus + at + index * 8, *word);
                }
            }),
        ));
        self
    }

    /// An object is a hole of so many blocks.
    pub(crate) fn hole(mut self, object: ObjectId, blocks: u64) -> Self {
        self.dnodes.push((
            object,
            Box::new(move |dnode| {
                dnode[LEVELS] = 6;
                put(dnode, LAST_BLOCK, blocks - 1);
                let pointers = usize::from(dnode[POINTER_COUNT]) * BlockPointer::SIZE;
                dnode[POINTERS..POINTERS + pointers].fill(0);
            }),
        ));
        self
    }

    /// The entries of a micro ZAP: the numbers of the names.
    pub(crate) fn entries(
        mut self,
        object: ObjectId,
        change: impl Fn(&mut [(String, u64)]) + Send + Sync + 'static,
    ) -> Self {
        self.contents.push((object, Box::new(move |block| change_entries(block, &change))));
        self
    }

    /// The blocks of an object.
    pub(crate) fn contents(
        mut self,
        object: ObjectId,
        change: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        self.contents.push((object, Box::new(change)));
        self
    }

    /// Every gang header of files has itself as its first member.
    pub(crate) fn circular_gangs(mut self) -> Self {
        self.gangs = true;
        self
    }

    /// The pool as it is read then, if it is.
    pub(crate) fn read(self, rig: &Rig) -> Option<Pool> {
        let honest = rig.read().unwrap();
        let until = honest.txg();
        for (object, _) in &self.contents {
            let object = honest.mos().object(*object).unwrap();
            let pointers = object.pointers(0, 0..object.dnode().max_block_id.0 + 1);
            let mut pointers = pointers.into_iter().map(Result::unwrap);
            let has_one = pointers.any(|one| !one.is_embedded() && !one.is_hole());
            assert!(has_one, "{object:?} has no block of its own");
        }
        let discovery =
            Discovery::search(&rig.sources(), &OpenOptions::new().access(Access::ReadWrite));
        let found = discovery.matching(rig.name()).next().unwrap();
        let options = ImportOptions {
            host: rig.settings.environment.host().clone(),
            host_check: HostCheck::Override,
            tunables: rig.settings.pool.tunables,
            injector: Some(Arc::new(Forgery { forger: self, until })),
            ..ImportOptions::default()
        };
        Pool::import(found, &options).ok()
    }

    /// The pool, opened for changes, if it can be.
    pub(crate) fn try_open(self, rig: &Rig) -> Option<LivePool> {
        let environment = Arc::clone(&rig.settings.environment);
        LivePool::open(&self.read(rig)?, environment, &rig.settings.pool).ok()
    }

    /// The pool, opened for changes.
    pub(crate) fn open(self, rig: &Rig) -> LivePool {
        self.try_open(rig).expect("it is opened all the same")
    }
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Changes the entries of a block of a micro ZAP.
pub(crate) fn change_entries(block: &mut [u8], change: EntryChange<'_>) {
    let places: Vec<usize> =
        (ENTRY..block.len()).step_by(ENTRY).filter(|at| block[at + NAME] != 0).collect();
    let name = |at: usize| {
        let name = block[at + NAME..at + ENTRY].split(|byte| *byte == 0).next().unwrap();
        String::from_utf8_lossy(name).into_owned()
    };
    let value = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().unwrap());
    let mut entries: Vec<_> = places.iter().map(|at| (name(*at), value(*at))).collect();
    change(&mut entries);
    for (at, (name, value)) in places.into_iter().zip(entries) {
        put(block, at, value);
        block[at + NAME..at + ENTRY].fill(0);
        block[at + NAME..at + NAME + name.len()].copy_from_slice(name.as_bytes());
    }
}

struct Forgery {
    forger: Forger,
    /// Blocks that were born later are those of who has read the others.
    until: Txg,
}

impl BlockInjector for Forgery {
    fn inject(&self, bookmark: Bookmark, pointer: &BlockPointer, block: Bytes) -> Bytes {
        let Bookmark { objset, object, level, block: number } = bookmark;
        if objset != ObjsetId::MOS || level != Level::DATA || pointer.logical_birth() > self.until {
            return block;
        }
        let mut bytes = block.to_vec();
        for (changed, change) in &self.forger.dnodes {
            if object == ObjectId::META_DNODE && changed.get() / SLOTS == number.0 {
                let at = (changed.get() % SLOTS) as usize * SLOT;
                change(&mut bytes[at..at + SLOT]);
            }
        }
        for (changed, change) in &self.forger.contents {
            if object == *changed {
                change(&mut bytes);
            }
        }
        bytes.into()
    }

    fn inject_stored(&self, pointer: &BlockPointer, stored: Bytes) -> Bytes {
        let is_header = pointer.is_gang()
            && pointer.object_type_number() == ObjectType::PLAIN_FILE_CONTENTS.number()
            && stored.len() == rzfs_format::gang::CLASSIC_SIZE
            && pointer.physical_size() != stored.len() as u64;
        if !self.forger.gangs || !is_header {
            return stored;
        }
        let mut bytes = stored.to_vec();
        let member = pointer.encode(rzfs_format::ByteOrder::Little);
        bytes[..BlockPointer::SIZE].copy_from_slice(&member);
        bytes.into()
    }
}

/// A snapshot that is to be taken.
pub(crate) fn snapshot_called(name: &str) -> NewSnapshots {
    NewSnapshots { names: vec![name.to_owned()], ..NewSnapshots::default() }
}

pub(crate) fn destroy_snapshot(pool: &LivePool, snapshot: &str) -> Result<(), ChangeError> {
    pool.destroy_snapshots(&[snapshot.to_owned()], Destruction::AtOnce)
}

/// The pool goes on, and can be given back.
pub(crate) fn goes_on(pool: LivePool) {
    pool.sync().unwrap();
    assert!(pool.failure().is_none(), "{:?}", pool.failure());
    pool.export().unwrap();
}
