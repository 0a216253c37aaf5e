//! Chains of intent logs: where they end, and which parts count.

use rzfs_blockdev::{Access, BlockDevice, CompletionQueue, IoOperation, IoRequest, MemoryDevice};
use rzfs_codec::checksum::{EmbeddedVerifier, Salt, generate_embedded};
use rzfs_dmu::intent_log::{ChainEnd, LogBlock, LogChain};
use rzfs_dmu::{BlockPipeline, PipelineOptions};
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::object_type::ObjectType;
use rzfs_format::zil::{CHAIN_MAGIC, CHAIN_SIZE, ZilFlags, ZilHeader};
use rzfs_format::{BlockPointer, ByteOrder, Dva, Guid, ObjsetId, Txg, VdevId};
use rzfs_vdev::{TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::sync::Arc;

const DATA_START: u64 = 4 << 20;
const SIZE: usize = 192 << 20;
const BLOCK: usize = 4096;
const OBJSET: ObjsetId = ObjsetId(54);
const RECORD: usize = 48;

struct World {
    device: Arc<dyn BlockDevice>,
    pipeline: Arc<BlockPipeline>,
    function: ChecksumFunction,
    order: ByteOrder,
}

impl World {
    fn new(function: ChecksumFunction, order: ByteOrder) -> Self {
        let device = MemoryDevice::new("memory", vec![0; SIZE], Access::ReadWrite);
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let mut leaf = VdevConfig::new(VdevKind::File, Guid(2));
        leaf.top.ashift = Some(12);
        leaf.top.asize = Some(SIZE as u64 - (5 << 20));
        let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children([leaf]);
        let devices = HashMap::from([(Guid(2), Arc::clone(&device))]);
        let vdevs = Arc::new(VdevTree::open(root, &devices, TreeOptions::default()).unwrap());
        let options = PipelineOptions {
            salt: Salt::new([0; 32]),
            dynamic_gang_headers: false,
            arc_max: 1 << 20,
            tunables: Default::default(),
            injector: None,
        };
        Self { device, pipeline: BlockPipeline::new(vdevs, options), function, order }
    }

    fn ordinary() -> Self {
        Self::new(ChecksumFunction::Zilog2, ByteOrder::NATIVE)
    }

    /// The pointer to block `seq` at block address `place`, born in txg 100 + `seq`.
    fn pointer(&self, seq: u64, place: u64) -> BlockPointer {
        let mut words = [0; 16];
        words[..2]
            .copy_from_slice(&Dva::new(VdevId(0), place * BLOCK as u64, BLOCK as u64, false).0);
        let sectors = BLOCK as u64 / 512 - 1;
        let function = u64::from(self.function.number());
        words[6] = sectors
            | sectors << 16
            | u64::from(CompressionFunction::Off.number()) << 32
            | function << 40
            | u64::from(ObjectType::INTENT_LOG.number()) << 48
            | u64::from(self.order == ByteOrder::Little) << 63;
        words[10] = 100 + seq;
        words[12..].copy_from_slice(&[7, 8, OBJSET.0, seq]);
        BlockPointer::from_words(words)
    }

    /// Writes the block under `own` with records of these numbers.
    fn write(&self, own: &BlockPointer, next: &BlockPointer, records: &[u64]) {
        let mut block = vec![0; BLOCK];
        let used = records.len() * RECORD;
        let (chain, first, used) = match self.function {
            ChecksumFunction::Zilog => (BLOCK - CHAIN_SIZE, 0, used),
            _ => (0, CHAIN_SIZE, CHAIN_SIZE + used),
        };
        let put = |block: &mut [u8], at: usize, word: u64| {
            block[at..at + 8].copy_from_slice(&self.order.bytes64(word));
        };
        block[chain + 8..chain + 8 + BlockPointer::SIZE].copy_from_slice(&next.encode(self.order));
        put(&mut block, chain + 136, used as u64);
        put(&mut block, chain + 144, CHAIN_MAGIC);
        for (index, seq) in records.iter().enumerate() {
            for (word, value) in [5, RECORD as u64, 100, *seq].into_iter().enumerate() {
                put(&mut block, first + index * RECORD + 8 * word, value);
            }
        }
        let verifier = EmbeddedVerifier::Zil(own.checksum().0);
        generate_embedded(self.function, &mut block, verifier, self.order).unwrap();
        let mut data = rzfs_blockdev::IoBuffer::zeroed(BLOCK).unwrap();
        data.copy_from_slice(&block);
        let completions = CompletionQueue::new();
        let offset = DATA_START + own.dvas().next().unwrap().offset();
        let operation = IoOperation::Write(data.freeze());
        self.device.submit(vec![IoRequest { token: 0, offset, operation }], &completions);
        completions.wait().result.unwrap();
    }

    /// Writes a log: block n at place n with two records each, numbered from 1 on, and an allocated
    /// block that was never written.
    fn write_log(&self, blocks: u64) -> ZilHeader {
        for seq in 1..=blocks {
            let (own, next) = (self.pointer(seq, seq), self.pointer(seq + 1, seq + 1));
            self.write(&own, &next, &[2 * seq - 1, 2 * seq]);
        }
        ZilHeader { first: self.pointer(1, 1), ..ZilHeader::default() }
    }

    fn chain(&self, header: &ZilHeader) -> LogChain<'_> {
        LogChain::new(&self.pipeline, OBJSET, header)
    }

    /// Numbers of blocks and records, and how the chain ends.
    fn walk(&self, header: &ZilHeader) -> (Vec<u64>, Vec<u64>, ChainEnd) {
        follow(self.chain(header))
    }
}

fn follow(mut chain: LogChain<'_>) -> (Vec<u64>, Vec<u64>, ChainEnd) {
    let blocks: Vec<LogBlock> = chain.by_ref().collect();
    let records = blocks.iter().flat_map(LogBlock::records).map(|record| record.seq).collect();
    (blocks.iter().map(LogBlock::seq).collect(), records, chain.end().unwrap().clone())
}

#[test]
fn a_chain_ends_with_the_block_that_was_never_written() {
    for function in [ChecksumFunction::Zilog2, ChecksumFunction::Zilog] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let world = World::new(function, order);
            let (blocks, records, end) = world.walk(&world.write_log(3));
            assert_eq!(blocks, [1, 2, 3, 4], "{function:?} {order:?}");
            assert_eq!(records, [1, 2, 3, 4, 5, 6]);
            assert!(matches!(end, ChainEnd::Unreadable { seq: 4, .. }), "{end}");
        }
    }
    let (blocks, _, end) = World::ordinary().walk(&ZilHeader::default());
    assert!(blocks.is_empty() && matches!(end, ChainEnd::Hole));
}

#[test]
fn a_claimed_log_ends_where_it_was_claimed() {
    let world = World::ordinary();
    let claimed = ZilHeader {
        claim_txg: Some(Txg(100)),
        flags: ZilFlags(ZilFlags::CLAIMED_RECORD_SEQ_VALID),
        claimed_block_seq: 3,
        claimed_record_seq: 3,
        ..world.write_log(5)
    };
    let (blocks, records, end) = world.walk(&claimed);
    assert_eq!((blocks, records), (vec![1, 2, 3], vec![1, 2, 3]));
    assert!(matches!(end, ChainEnd::Claimed { seq: 3 }), "{end}");
    // No records of block 4 were claimed, so it is not even read.
    let claimed = ZilHeader { claimed_block_seq: 4, claimed_record_seq: 6, ..claimed };
    let mut chain = world.chain(&claimed);
    assert!(chain.by_ref().last().unwrap().contents.is_none());
    assert!(matches!(chain.end(), Some(ChainEnd::Claimed { seq: 4 })));
}

#[test]
fn blocks_of_later_txgs_can_be_left_out() {
    let world = World::ordinary();
    let header = world.write_log(3);
    let (blocks, _, end) = follow(world.chain(&header).up_to(Txg(102)));
    assert_eq!(blocks, [1, 2]);
    assert!(matches!(end, ChainEnd::Young { seq: 3 }), "{end}");
}

#[test]
fn a_chain_that_comes_back_to_itself_ends() {
    let world = World::ordinary();
    // Block 3 is at the place of block 1, whose own checksum is restored after it was read.
    let header = world.write_log(2);
    world.write(&world.pointer(2, 2), &world.pointer(3, 1), &[3]);
    let (blocks, _, end) = world.walk(&header);
    assert_eq!(blocks, [1, 2]);
    assert!(matches!(end, ChainEnd::Repeated { seq: 3 }), "{end}");
}

#[test]
fn a_block_that_does_not_continue_the_chain_does_not_count() {
    let world = World::ordinary();
    for next in [BlockPointer::HOLE, world.pointer(4, 3)] {
        let header = world.write_log(2);
        world.write(&world.pointer(2, 2), &next, &[3]);
        let (blocks, records, end) = world.walk(&header);
        assert_eq!((blocks, records), (vec![1, 2], vec![1, 2]));
        assert!(matches!(end, ChainEnd::Broken { seq: 2 }), "{end}");
    }
    let foreign = ZilHeader { first: world.pointer(1, 1), ..ZilHeader::default() };
    let mut chain = LogChain::new(&world.pipeline, ObjsetId(55), &foreign);
    assert!(chain.next().is_none());
    assert!(matches!(chain.end(), Some(ChainEnd::Pointer(_))));
}
