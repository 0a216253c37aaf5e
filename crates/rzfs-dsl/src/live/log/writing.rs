//! Writing records to the log, and the fallback when that is impossible (spec 05, sections 11.1 and
//! 11.2).
//!
//! ```text
//! take records ─> read data of writes ─> open a transaction
//!     fill the tail ─> allocate the next block ─> fill it ─> ... ─> write all blocks
//! end the transaction ─> flush ─> durable
//! ```
//! The transaction keeps its txg, to which the new blocks belong, from being synced before the
//! pointers to them are written. Data is read before that: a file that is being changed may wait
//! for the txg.

use super::chain::{ChainEnded, ChainState};
use super::contents::{LoggedContents, Parted, Placing};
use super::counters::LogBlock;
use super::head_log::HeadLog;
use super::layout::{MAX_BLOCK, Queue, Ready, UNIT, fill};
use super::not_logged::NotLogged;
use super::pending::{CommitScope, LogRecord, Scopes};
use bytes::Bytes;
use rzfs_codec::checksum::{EmbeddedVerifier, generate_embedded};
use rzfs_dmu::txg::{OpenTx, Stopped};
use rzfs_format::encryption::BlockCryptParams;
use rzfs_format::object_type::ObjectType;
use rzfs_format::zil::{
    BlockForm, CHAIN_SIZE, Chain as ChainStructure, Verifier, ZilFlags, ZilHeader,
};
use rzfs_format::{BlockPointer, ByteOrder, Txg, VdevId};
use rzfs_metaslab::allocator::{AllocationRequest, ClassKind, Content, Placement};
use rzfs_vdev::{BlockWrite, Durability, LeafFailure, Vdev, WriteClass};
use std::collections::BTreeSet;

/// Free space in the log's own classes above which no room in the others is reserved.
const PLENTY: u64 = 64 << 20;

/// A record with its data.
enum Prepared {
    Encoded(Vec<u8>),
    Write(Parted),
}

impl HeadLog {
    /// Waits until operations in these scopes, and all name operations, are durable. Commits of
    /// several threads are written together.
    ///
    /// # Errors
    /// [`Stopped`]: the pool is suspended.
    pub fn commit(
        &self,
        scopes: &[CommitScope],
        contents: &dyn LoggedContents,
    ) -> Result<(), Stopped> {
        self.pool.counters.count_commit();
        self.log().turns.commit(scopes, |scopes| self.write_out(scopes, contents))
    }

    /// Writes the records of some commits, or waits for the txg instead.
    fn write_out(&self, scopes: &Scopes, contents: &dyn LoggedContents) -> Result<(), Stopped> {
        let synced = self.pool.engine.synced_txg();
        let records = {
            let mut pending = self.log().pending.lock();
            if pending.has_unlogged(synced) { None } else { Some(pending.take(scopes, synced)) }
        };
        let Some(records) = records else { return self.wait_for_txg() };
        if records.is_empty() {
            return Ok(());
        }
        self.log_records(records, contents).or_else(|reason| {
            tracing::debug!(%reason, "a commit waits for its txg");
            self.pool.counters.count_not_logged(&reason);
            let waited = self.wait_for_txg();
            if waited.is_err() {
                // The records are gone from memory, so later commits wait for the txg as well.
                self.add_unlogged(self.pool.engine.open_txg());
            }
            waited
        })
    }

    fn wait_for_txg(&self) -> Result<(), Stopped> {
        self.pool.engine.wait_synced(self.pool.engine.open_txg())
    }

    fn log_records(
        &self,
        records: Vec<(Txg, LogRecord)>,
        contents: &dyn LoggedContents,
    ) -> Result<(), NotLogged> {
        let synced = self.pool.engine.synced_txg();
        let placing = self.placing();
        let bytes = records.iter().map(|(_, record)| record.size()).fold(0, u64::saturating_add);
        if placing == Placing::Never {
            self.check_size(bytes)?;
        }
        self.require_chain()?;
        let has_xattrs = records.iter().any(|(_, record)| matches!(record, LogRecord::Xattr(_)));
        if has_xattrs && !self.log().may_write_xattrs(self.pool.engine.synced_txg()) {
            return Err(NotLogged::Feature);
        }
        self.pool.counters.count_writing(records.len());
        let (mut queue, mut vdevs) = self.prepare(records, contents, placing)?;
        if queue.is_empty() {
            return Ok(());
        }
        if !queue.fits_blocks(self.pool.tunables.max_block) {
            return Err(NotLogged::TooLong);
        }
        self.check_size(queue.size())?;
        let (mut written, oldest) = self.write_blocks(&mut queue)?;
        vdevs.append(&mut written);
        // Placed blocks belong to a txg that is not on disk yet; the tail was allocated by an
        // earlier commit, perhaps in one that is.
        let since = oldest.map_or(synced.next(), |oldest| oldest.min(synced.next()));
        let what = Durability::Records { since, vdevs: &vdevs };
        let flushed = self.pool.devices.vdevs().make_durable(what);
        let flushed = flushed.inspect_err(|_| self.log().chain.lock().break_off())?;
        // A device that has come back may have these blocks, but not their predecessors.
        self.require_trust()?;
        for LeafFailure { leaf, error } in flushed {
            // At debug level, since it repeats with every commit; the end of the txg warns.
            tracing::debug!(%leaf, %error, "a leaf missed blocks of an intent log");
        }
        Ok(())
    }

    /// Reads the data of writes, and places blocks as needed: returns the records and the vdevs
    /// written.
    fn prepare(
        &self,
        records: Vec<(Txg, LogRecord)>,
        contents: &dyn LoggedContents,
        placing: Placing,
    ) -> Result<(Queue, BTreeSet<VdevId>), NotLogged> {
        let mut parted = Vec::with_capacity(records.len());
        for (txg, record) in records {
            parted.push((
                txg,
                match record {
                    LogRecord::Encoded(bytes) | LogRecord::Xattr(bytes) => Prepared::Encoded(bytes),
                    LogRecord::Write(write) => {
                        let read = Parted::read(write, contents, placing);
                        Prepared::Write(read.map_err(|_| NotLogged::Unreadable)?)
                    }
                },
            ));
        }
        let writes = parted.iter().filter_map(|(_, one)| match one {
            Prepared::Write(write) => Some(write),
            Prepared::Encoded(_) => None,
        });
        let placed = self.place(writes.flat_map(Parted::blocks))?;
        let mut queue = Queue::default();
        for (txg, one) in parted {
            match one {
                Prepared::Encoded(bytes) => queue.push(txg, Ready::Encoded(bytes)),
                Prepared::Write(write) => {
                    let records = write.records(&placed, &self.pool.counters);
                    records.into_iter().for_each(|record| queue.push(txg, record));
                }
            }
        }
        // Gang members may be on any vdev.
        let vdevs = if placed.has_gang() {
            self.pool.devices.vdevs().top_levels().filter_map(Vdev::vdev_id).collect()
        } else {
            placed.vdevs()
        };
        Ok((queue, vdevs))
    }

    /// Refuses more bytes of records than the txg would take no longer to write.
    fn check_size(&self, bytes: u64) -> Result<(), NotLogged> {
        let has_device = self.pool.accounts.allocator().usage().class(ClassKind::Log).space > 0;
        let tunables = &self.pool.tunables;
        let most = match has_device {
            true => tunables.commit_max_on_log_device,
            false => tunables.commit_max,
        };
        if bytes > most { Err(NotLogged::Large { bytes }) } else { Ok(()) }
    }

    /// Makes sure that there is a chain. A new one is usable when its header is on disk.
    fn require_chain(&self) -> Result<(), NotLogged> {
        let synced = self.pool.engine.synced_txg();
        let state = self.log().chain.lock().state();
        match state {
            ChainState::Since(since) if since <= synced => return self.require_trust(),
            ChainState::Since(_) => return Err(NotLogged::NewChain),
            ChainState::Broken => return Err(NotLogged::Broken),
            ChainState::Over(_) => return Err(ChainEnded.into()),
            ChainState::Absent => {}
        }
        let trust = self.pool.devices.vdevs().trust_in_logs();
        let header = self.contents.objset().log_header()?;
        if header.flags.has(ZilFlags::REPLAY_NEEDED) {
            return Err(NotLogged::NotReplayed);
        }
        let first = header.first;
        if is_set_aside(&header, self.form(), synced)
            && ChainStructure::check_pointer(&first, self.contents.objset().id()).is_ok()
        {
            let durable = self.contents.objset().synced();
            let is_durable =
                durable.root().logical_birth() <= synced && durable.log_header()? == header;
            let since = if is_durable { synced } else { self.pool.engine.open_txg() };
            self.log().chain.lock().start(first, since, trust, None);
            return if is_durable { Ok(()) } else { Err(NotLogged::NewChain) };
        }
        let tx = self.pool.engine.begin_unthrottled(&[])?;
        let guid = [(); 2].map(|()| self.pool.environment.random_nonzero());
        let verifier = Verifier { guid, objset: self.contents.objset().id(), seq: 1 };
        let size = self.log().writing.lock().guess.next_size(0, self.pool.tunables.max_block);
        let pointer = self.allocate(&verifier, size, &tx)?;
        let replaced = (!first.is_hole()).then_some(first);
        self.log().chain.lock().start(pointer, tx.txg(), trust, replaced);
        let header = ZilHeader { first: pointer, ..ZilHeader::default() };
        self.contents.objset().set_log_header(&tx, header);
        Err(NotLogged::NewChain)
    }

    /// Ensures that all earlier blocks are still readable, or ends the chain.
    fn require_trust(&self) -> Result<(), NotLogged> {
        let trust = self.pool.devices.vdevs().trust_in_logs();
        Ok(self.log().chain.lock().require_trust(trust)?)
    }

    /// The form of this pool's log blocks.
    fn form(&self) -> BlockForm {
        const LEADER_VERSION: u64 = 23;
        let version = self.pool.durable.uberblock().version;
        if version >= LEADER_VERSION { BlockForm::Leader } else { BlockForm::Trailer }
    }

    /// Reserves room for blocks that may go to the ordinary space, so that the txg does not run out
    /// of it.
    fn claim_room(&self, txg: Txg, bytes: u64) -> Result<(), NotLogged> {
        let usage = self.pool.accounts.allocator().usage();
        let own = [ClassKind::Log, ClassKind::EmbeddedLog].map(|class| usage.class(class).free());
        if own.iter().any(|free| *free >= PLENTY) {
            return Ok(());
        }
        self.claim(txg, bytes)
    }

    fn allocate(
        &self,
        verifier: &Verifier,
        size: u64,
        tx: &OpenTx,
    ) -> Result<BlockPointer, NotLogged> {
        let txg = tx.txg();
        self.claim_room(txg, size)?;
        let request = AllocationRequest {
            size,
            copies: 1,
            content: Content::IntentLog,
            placement: Placement::Block,
            locality: verifier.objset.get(),
        };
        let dvas = self
            .pool
            .accounts
            .allocator()
            .allocate(&request, txg)
            .map_err(|_| NotLogged::NoSpace)?;
        let dva = dvas.first().copied().unwrap_or_default();
        let pointer = verifier.pointer(self.form(), dva, size, txg);
        match self.contents.objset().key() {
            Some(key) => {
                let (salt, iv) = key.next_salt_and_iv()?;
                Ok(pointer.with_crypt_bit().with_salt_and_iv(salt, iv))
            }
            None => Ok(pointer),
        }
    }

    /// Writes records to the tail and to as many new blocks as needed; returns where, and the
    /// oldest txg of one of the blocks.
    fn write_blocks(
        &self,
        queue: &mut Queue,
    ) -> Result<(BTreeSet<VdevId>, Option<Txg>), NotLogged> {
        let mut writing = self.log().writing.lock();
        let bytes = queue.size();
        writing.guess.note(bytes);
        let tx = self.pool.engine.begin_unthrottled(&[])?;
        let mut writes: Vec<BlockWrite> = Vec::new();
        while !queue.is_empty() {
            let tail = self.log().chain.lock().tail().ok_or(NotLogged::Broken)?;
            let filled = fill(queue, tail.logical_size(), &mut writing.seq);
            let size = writing.guess.next_size(queue.size(), self.pool.tunables.max_block);
            let next = self.allocate(&Verifier::of(&tail).next(), size, &tx);
            let next = next.inspect_err(|_| {
                // Earlier blocks are not written, but later ones already exist.
                if !writes.is_empty() {
                    self.log().chain.lock().break_off();
                }
            })?;
            let write = self.encode(&tail, &next, &filled.records)?;
            self.count_block(&write, filled.records.len(), tail.logical_size());
            writes.push(write);
            self.log().chain.lock().append(&tail, next, filled.last_txg)?;
        }
        drop(writing);
        let vdevs = writes.iter().map(|write| write.dva.vdev()).collect();
        let oldest = writes.iter().map(|write| write.birth).min();
        let results = self.pool.devices.vdevs().write_as(WriteClass::Sync, writes);
        let mut chain = self.log().chain.lock();
        if results.iter().any(Result::is_err) {
            chain.break_off();
            return Err(NotLogged::Write);
        }
        chain.note_written();
        Ok((vdevs, oldest))
    }

    fn count_block(&self, write: &BlockWrite, records: usize, allocated: u64) {
        let (records, written) = (records as u64, write.data.len() as u64);
        let vdevs = self.pool.devices.vdevs();
        let is_log = vdevs.top_level(write.dva.vdev()).is_some_and(Vdev::is_log);
        let class = if is_log { ClassKind::Log } else { ClassKind::Normal };
        self.pool.counters.count_block(class, LogBlock { records, written, allocated });
    }

    /// The stored form of a block.
    fn encode(
        &self,
        block: &BlockPointer,
        next: &BlockPointer,
        records: &[u8],
    ) -> Result<BlockWrite, NotLogged> {
        let dva = block.dvas().next().ok_or(NotLogged::Broken)?;
        let size = block.logical_size();
        let form = if block.checksum_function() == Ok(BlockForm::Trailer.checksum_function()) {
            BlockForm::Trailer
        } else {
            BlockForm::Leader
        };
        // A block with parity must be complete, as it is read as a whole.
        let stored = if form == BlockForm::Trailer || dva.asize() > size {
            size
        } else {
            let used = (CHAIN_SIZE + records.len()) as u64;
            let unit =
                self.pool.devices.vdevs().min_allocation(dva.vdev()).unwrap_or(UNIT).max(UNIT);
            used.next_multiple_of(unit).min(size)
        };
        let mut data = vec![0; stored as usize];
        let at = form.records_at();
        let place = data.get_mut(at..at + records.len()).ok_or(NotLogged::TooLong)?;
        place.copy_from_slice(records);
        ChainStructure::encode(&mut data, form, next, records.len(), ByteOrder::NATIVE);
        let words = Verifier::of(block).words();
        let verifier = match self.contents.objset().key() {
            Some(key) => {
                let BlockCryptParams { salt, iv, .. } = block.crypt_params();
                let kind = ObjectType::INTENT_LOG;
                key.encrypt_block(kind, ByteOrder::NATIVE, salt, iv, &mut data)?;
                EmbeddedVerifier::EncryptedZil(words)
            }
            None => EmbeddedVerifier::Zil(words),
        };
        generate_embedded(form.checksum_function(), &mut data, verifier, ByteOrder::NATIVE)
            .map_err(|_| NotLogged::TooLong)?;
        Ok(BlockWrite { dva, birth: block.physical_birth(), data: Bytes::from(data) })
    }
}

/// Whether the header points only to a block reserved for the first record of a log. If it is
/// encrypted, it may have been written before a crash, and must not be written again with the same
/// IV.
fn is_set_aside(header: &ZilHeader, form: BlockForm, synced: Txg) -> bool {
    let first = header.first;
    !first.is_hole()
        && *header == ZilHeader { first, ..ZilHeader::default() }
        && first.logical_birth() <= synced
        && first.logical_size() <= MAX_BLOCK
        && first.checksum_function() == Ok(form.checksum_function())
        && first.order() == ByteOrder::NATIVE
        && !first.has_crypt_bit()
}
