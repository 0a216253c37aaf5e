//! Streams that end early, and pools that are abandoned meanwhile.

use crate::{TARGET, golden, receive, state, wrong_files};
use rzfs_dsl::live::{ChangeError, Interruption, LivePool, LocalChanges, NameLookup, NewReceive};
use rzfs_format::Guid;
use rzfs_format::objset::ObjsetType;
use rzfs_proof::ImagePool;
use rzfs_receive::ReceiveError;
use std::cell::RefCell;
use std::io::Read;

#[test]
fn a_stream_that_is_cut_anywhere_leaves_the_pool_as_it_was() {
    let (Some(full), Some(increment)) = (golden("full-Lec"), golden("incr")) else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let check = |bytes: &[u8]| {
        let before = state(&pool);
        for part in 0..12 {
            for offset in [0, 1, 155] {
                let length = (bytes.len() * part / 12 + offset).min(bytes.len() - 1);
                let error = receive(&pool, &bytes[..length]).unwrap_err();
                assert_eq!(error.errno(), 1040, "{length}: {error}");
                assert_eq!(state(&pool), before, "{length}");
            }
        }
        for length in [bytes.len() - 1, bytes.len() - 312] {
            receive(&pool, &bytes[..length]).unwrap_err();
            assert_eq!(state(&pool), before, "{length}");
        }
    };
    check(&full.bytes().unwrap());
    receive(&pool, golden("full").unwrap().bytes().unwrap().as_slice()).unwrap();
    check(&increment.bytes().unwrap());
    receive(&pool, increment.bytes().unwrap().as_slice()).unwrap();
    assert_eq!(wrong_files(&pool, TARGET, &increment, "g30/a@2"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn a_payload_is_not_what_was_sent_and_nothing_is_received() {
    let Some(full) = golden("full") else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    let mut bytes = full.bytes().unwrap();
    let before = state(&pool);
    for at in [5000, bytes.len() / 2, bytes.len() - 400, bytes.len() - 20] {
        bytes[at] ^= 0x10;
        assert_eq!(receive(&pool, bytes.as_slice()).unwrap_err().errno(), 52, "{at}");
        assert_eq!(state(&pool), before, "{at}");
        bytes[at] ^= 0x10;
    }
    receive(&pool, bytes.as_slice()).unwrap();
}

/// A stream that copies the devices while it is read, as a crash would leave them.
pub(crate) struct Crashing<'a> {
    pub(crate) stream: &'a [u8],
    pub(crate) pool: &'a LivePool,
    pub(crate) world: &'a ImagePool,
    pub(crate) every: usize,
    pub(crate) read: usize,
    pub(crate) copies: &'a RefCell<Vec<ImagePool>>,
}

impl Read for Crashing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stream.read(buffer)?;
        if (self.read + read) / self.every > self.read / self.every {
            self.pool.sync().unwrap();
            self.copies.borrow_mut().push(self.world.copy());
        }
        self.read += read;
        Ok(read)
    }
}

#[test]
fn what_nobody_has_any_more_gives_way_to_the_next_receive() {
    let (Some(full), Some(increment)) = (golden("full"), golden("incr")) else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    receive(&pool, full.bytes().unwrap().as_slice()).unwrap();
    let tree = pool.dataset_tree().unwrap();
    let source = tree.open(TARGET).unwrap().snapshots().unwrap()[0].dsl_dataset().guid;
    let new = NewReceive {
        target: TARGET.to_owned(),
        snapshot: "left".to_owned(),
        guid: Guid(4711),
        creation_time: 0,
        source: Some(source),
        origin: None,
        objset_type: ObjsetType::Zfs,
        names: NameLookup::CaseSensitive,
        needs: Vec::new(),
        uses: Vec::new(),
        properties: Vec::new(),
        changes: LocalChanges::Kept,
        interruption: Interruption::Destroyed,
    };
    let receiving = pool.begin_receive(&new).unwrap();
    let stream = increment.bytes().unwrap();
    let busy = receive(&pool, stream.as_slice()).unwrap_err();
    assert!(matches!(busy, ReceiveError::Change(ChangeError::Busy { .. })), "{busy}");
    // The same happens if the pool was suspended when the dataset was to be destroyed.
    drop(receiving);
    receive(&pool, stream.as_slice()).unwrap();
    assert_eq!(wrong_files(&pool, TARGET, &increment, "g30/a@2"), Vec::<String>::new());
    pool.export().unwrap();
    world.judge_chains();
}

#[test]
fn what_a_crash_has_left_is_cleared_away_by_whoever_opens_the_pool() {
    let (Some(full), Some(increment)) = (golden("full"), golden("incr")) else { return };
    let world = ImagePool::new("A");
    let pool = world.create_pool();
    for (stream, base) in [(&full, None), (&increment, Some("g30/a@1"))] {
        let bytes = stream.bytes().unwrap();
        let before = state(&pool);
        let copies = RefCell::default();
        let every = bytes.len() / 4 + 1;
        let (pool, world) = (&pool, &world);
        let source = Crashing { stream: &bytes, pool, world, every, read: 0, copies: &copies };
        receive(pool, source).unwrap();
        let copies = copies.into_inner();
        assert_eq!(copies.len(), 3);
        for copy in copies {
            let left = copy.open_pool();
            assert_eq!(state(&left), before);
            if let Some(base) = base {
                assert_eq!(wrong_files(&left, TARGET, stream, base), Vec::<String>::new());
            }
            // And it can be received again.
            receive(&left, bytes.as_slice()).unwrap();
            left.export().unwrap();
            copy.judge_chains();
        }
    }
}
