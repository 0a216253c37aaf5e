//! Intent logs: the chain of blocks from the header in the objset block on.

use rzfs_dmu::BlockPipeline;
use rzfs_format::units::Bookmark;
use rzfs_format::zil::{BlockForm, Chain, Verifier, ZilHeader};
use rzfs_format::{BlockId, BlockPointer, Level, ObjectId, ObjsetId, Txg};

/// Blocks of one log that are followed at most.
const MAX_BLOCKS: u64 = 1 << 24;

/// A block of a log that was read.
pub(crate) struct LogBlock<'a> {
    /// Its contents, encrypted if the log is.
    pub(crate) data: &'a [u8],
    /// Its place in the chain.
    pub(crate) chain: &'a Chain,
}

/// The bookmark of a log block.
pub(crate) fn bookmark(objset: ObjsetId, pointer: &BlockPointer) -> Bookmark {
    Bookmark {
        objset,
        object: ObjectId(0),
        level: Level::ZIL,
        block: BlockId(Verifier::of(pointer).seq),
    }
}

/// Calls `visit` for each block of a log: with its pointer, and with its contents if it was ever
/// written. The last block of a chain is allocated ahead and has no contents.
///
/// A log that nobody claimed counts only up to the last txg of the pool: what is younger was
/// never committed.
pub(crate) fn visit(
    pipeline: &BlockPipeline,
    objset: ObjsetId,
    header: &ZilHeader,
    last_txg: Txg,
    visit: &mut dyn FnMut(&BlockPointer, Option<LogBlock<'_>>),
) {
    let mut pointer = header.first;
    let mut expected: Option<Verifier> = None;
    for _ in 0..MAX_BLOCKS {
        let unclaimed_young = header.claim_txg.is_none() && pointer.logical_birth() > last_txg;
        if pointer.is_hole()
            || unclaimed_young
            || Chain::check_pointer(&pointer, objset).is_err()
            || expected.is_some_and(|expected| Verifier::of(&pointer) != expected)
        {
            return;
        }
        let own = Verifier::of(&pointer);
        let contents = pipeline.read_stored(&[&pointer]).pop().and_then(Result::ok);
        let form = pointer.checksum_function().and_then(BlockForm::of).ok();
        let decoded = contents.as_ref().zip(form).and_then(|(data, form)| {
            Chain::decode(data, form, pointer.order()).ok().map(|chain| (data, chain))
        });
        let Some((data, chain)) = decoded else {
            visit(&pointer, None);
            return;
        };
        visit(&pointer, Some(LogBlock { data, chain: &chain }));
        let Some(seq) = own.seq.checked_add(1) else { return };
        expected = Some(Verifier { seq, ..own });
        pointer = chain.next;
    }
}
