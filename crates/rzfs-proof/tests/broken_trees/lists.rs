//! Lists of blocks to free, in lists whose array is damaged.

use super::{damage_object, works};
use bytes::Bytes;
use rzfs_clock::Clock;
use rzfs_dmu::write::WriteInjector;
use rzfs_dsl::import::HostIdentity;
use rzfs_dsl::live::Environment;
use rzfs_format::bpobj::BpobjHeader;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{ObjectId, ObjsetId};
use rzfs_proof::crash::Workload;
use rzfs_proof::{Files, Rig};
use std::sync::Arc;

/// Dnodes of a block, and the bytes of one.
const PER_BLOCK: u64 = 32;
const DNODE: usize = 512;
/// Where a dnode says how many pointers it has, where these begin, and the bytes of each.
const POINTER_COUNT: usize = 3;
const POINTERS: usize = 64;
const POINTER: usize = 128;
/// Where the bonus behind them names the array of lists.
const ARRAY: usize = 32;
/// Lists that the array is said to have.
const LISTS: u64 = 2;

/// Says that a list has lists in it.
#[derive(Clone, Copy, Debug)]
struct WithLists {
    list: ObjectId,
    array: ObjectId,
}

impl WriteInjector for WithLists {
    fn inject(&self, bookmark: Bookmark, _: ObjectType, contents: Bytes) -> Bytes {
        let Bookmark { objset, object, level, block } = bookmark;
        let is_dnodes = objset == ObjsetId::MOS && object == ObjectId::META_DNODE && level.0 == 0;
        if !is_dnodes || block.0 != self.list.get() / PER_BLOCK {
            return contents;
        }
        let mut contents = contents.to_vec();
        let dnode = (self.list.get() % PER_BLOCK) as usize * DNODE;
        let pointers = usize::from(contents[dnode + POINTER_COUNT]) * POINTER;
        let at = dnode + POINTERS + pointers + ARRAY;
        contents[at..at + 8].copy_from_slice(&self.array.get().to_ne_bytes());
        contents[at + 8..at + 16].copy_from_slice(&LISTS.to_ne_bytes());
        contents.into()
    }
}

#[derive(Debug)]
struct Lying {
    inner: Arc<dyn Environment>,
    lie: WithLists,
}

impl Environment for Lying {
    fn clock(&self) -> Clock {
        self.inner.clock()
    }

    fn now(&self) -> u64 {
        self.inner.now()
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn host(&self) -> &HostIdentity {
        self.inner.host()
    }

    fn write_injector(&self) -> Option<Arc<dyn WriteInjector>> {
        Some(Arc::new(self.lie))
    }
}

/// A pool whose list of what destroyed snapshots had has lists in it, as the history says, which is
/// taken for their array.
fn with_lists() -> (Rig, ObjectId) {
    let mut rig = Rig::new(Workload::Single);
    let open = rig.create().unwrap();
    open.export().unwrap();
    let pool = rig.read().unwrap();
    let list = pool.directory().object("free_bpobj").unwrap().unwrap();
    let array = pool.directory().object("history").unwrap().unwrap();
    let honest = Arc::clone(&rig.settings.environment);
    let (inner, lie) = (Arc::clone(&honest), WithLists { list, array });
    rig.settings.environment = Arc::new(Lying { inner, lie });
    let open = rig.open().unwrap();
    for number in 0..8 {
        Files(open.root().unwrap().1).put(&format!("later-{number}"), b"x").unwrap();
        open.sync().unwrap();
    }
    Files(open.root().unwrap().1).put("whole", &[8; 500_000]).unwrap();
    open.export().unwrap();
    rig.settings.environment = honest;
    let pool = rig.read().unwrap();
    let list = pool.mos().object(list).unwrap();
    let header = BpobjHeader::decode(list.bonus(), list.order()).unwrap();
    assert_eq!((header.subobjects, header.subobject_count), (Some(array), LISTS));
    (rig, array)
}

fn frees_and_works(rig: &Rig) {
    let open = rig.open().unwrap();
    open.sync().unwrap();
    works(&open);
    open.export().unwrap();
    let open = rig.open().unwrap();
    works(&open);
    open.export().unwrap();
}

#[test]
fn lists_of_blocks_that_a_damaged_array_has_are_lost() {
    let (rig, array) = with_lists();
    let pool = rig.read().unwrap();
    assert!(damage_object(&rig, &pool.mos().object(array).unwrap()) > 0);
    frees_and_works(&rig);
}

#[test]
fn lists_of_blocks_that_are_not_there_are_lost() {
    let (rig, _) = with_lists();
    frees_and_works(&rig);
}
