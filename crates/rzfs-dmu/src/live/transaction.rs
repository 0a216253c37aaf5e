//! The contexts in which objects are changed.

use crate::txg::{OpenTx, QuiescedTxg};
use crate::write::{BlockWriter, Sealing, WriteContext, WriteStream};
use rzfs_format::Txg;

/// The right to change objects in one txg: a transaction of the open group, or the syncing one.
pub trait Transaction: sealed::Sealed {
    /// The txg of the changes.
    fn txg(&self) -> Txg;

    /// The engine's view: where dirty data is reported.
    fn context(&self) -> Context<'_>;
}

/// Where dirty data is counted.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    engine: &'a crate::txg::TxgEngine,
    txg: Txg,
}

impl Context<'_> {
    pub(super) fn add_dirty(&self, bytes: u64) {
        self.engine.add_dirty(self.txg, bytes);
    }

    pub(super) fn remove_dirty(&self, bytes: u64) {
        self.engine.remove_dirty(self.txg, bytes);
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::OpenTx {}
    impl Sealed for super::SyncTx<'_> {}
}

impl Transaction for OpenTx {
    fn txg(&self) -> Txg {
        Self::txg(self)
    }

    fn context(&self) -> Context<'_> {
        Context { engine: self.engine(), txg: Self::txg(self) }
    }
}

/// The right to allocate, free and write blocks, and to change what only syncing may change: the
/// objects of the MOS. Only the owner of a [`QuiescedTxg`] can create it, so only one exists at a
/// time.
#[derive(Debug)]
pub struct SyncTx<'a> {
    txg: &'a QuiescedTxg,
    pass: u32,
    writer: &'a BlockWriter,
    stream: &'a WriteStream,
}

impl<'a> SyncTx<'a> {
    /// Pass `pass`, from 1 on, of syncing a group.
    #[must_use]
    pub const fn new(
        txg: &'a QuiescedTxg,
        pass: u32,
        writer: &'a BlockWriter,
        stream: &'a WriteStream,
    ) -> Self {
        Self { txg, pass, writer, stream }
    }

    /// The sync pass.
    #[must_use]
    pub const fn pass(&self) -> u32 {
        self.pass
    }

    /// Creates block pointers.
    #[must_use]
    pub const fn writer(&self) -> &'a BlockWriter {
        self.writer
    }

    /// The context for writing blocks of a set: txg, stream and protection.
    #[must_use]
    pub(super) const fn write_context<'b>(&self, sealing: Sealing<'b>) -> WriteContext<'b>
    where
        'a: 'b,
    {
        WriteContext { txg: self.txg.txg(), pass: self.pass, stream: self.stream, sealing }
    }
}

impl Transaction for SyncTx<'_> {
    fn txg(&self) -> Txg {
        self.txg.txg()
    }

    fn context(&self) -> Context<'_> {
        Context { engine: self.txg.engine(), txg: self.txg.txg() }
    }
}
