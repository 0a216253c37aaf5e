//! Claiming intent logs when a pool is opened for writing (spec 05, section 12.1).
//!
//! Blocks logged after the last txg on disk are free space to that txg. Before anything is
//! written, all logs are followed; the first txg allocates their blocks and records their extent in
//! the headers. Then they wait to be replayed. No key is needed for that.

use crate::dataset::{Dataset, KeyStatus};
use crate::import::MissingLogs;
use crate::live::LiveError;
use crate::live::datasets::heads::Heads;
use crate::live::not_writable::NotWritable;
use crate::pool::{FeatureState, Pool};
use rzfs_dmu::intent_log::{ChainEnd, LogBlock, LogChain, OwnedBlocks, owned_blocks};
use rzfs_dmu::txg::TxgEngine;
use rzfs_dmu::{BlockError, MAX_GANG_DEPTH};
use rzfs_format::features::Feature;
use rzfs_format::zil::{Record, ZilFlags, ZilHeader};
use rzfs_format::{BlockPointer, Dva, ObjsetId, Txg};
use rzfs_metaslab::allocator::Allocator;
use rzfs_vdev::VdevError;
use rzfs_vdev::config::AllocationBias;
use std::sync::Arc;

/// Txgs by which a log can be ahead of its pool. Only a pool frozen for a test is ahead by more
/// than three.
const MAX_AHEAD: u64 = 1 << 32;

/// What happens to the logs of a pool in its first txg.
#[derive(Debug)]
pub(crate) struct LogClaims {
    heads: Vec<HeadClaim>,
    given_up: Vec<DroppedLog>,
    /// The youngest block's txg: the first txg comes after it.
    last_birth: Txg,
}

/// An intent log of which not everything is done, and nobody waits for the rest: what only the log had
/// is lost.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DroppedLog {
    /// A log device is missing.
    #[error(
        "'{dataset}': the intent log is given up, as a log device is missing; changes that are \
         only there are lost"
    )]
    Whole {
        /// The dataset.
        dataset: String,
    },
    /// A record cannot be done, though nothing of it is damaged: neither are those behind it.
    #[error(
        "'{dataset}': the rest of the intent log is given up: {reason}; changes that are only \
         there are lost"
    )]
    Record {
        /// The dataset.
        dataset: String,
        /// Which one, and why.
        reason: String,
    },
    /// Some records were passed over, as what they are about is damaged.
    #[error(
        "'{dataset}': {changes} changes in the intent log are lost, as what they are about is damaged"
    )]
    Changes {
        /// The dataset.
        dataset: String,
        /// How many.
        changes: u64,
    },
    /// It is not replayed, and stays.
    #[error(
        "'{dataset}': the intent log cannot be replayed: {reason}; changes that are only there are \
         not seen"
    )]
    Kept {
        /// The dataset.
        dataset: String,
        /// Why.
        reason: String,
    },
    /// It continues where it cannot be read.
    #[error(
        "'{dataset}': the rest of the intent log is given up: {end}; changes that are only there \
         are lost"
    )]
    Rest {
        /// The dataset.
        dataset: String,
        /// Where, and why.
        end: ChainEnd,
    },
}

/// What happens to the log of one head.
#[derive(Debug)]
struct HeadClaim {
    dataset: Dataset,
    header: ZilHeader,
    /// Space to allocate.
    claimed: Vec<Dva>,
    /// File blocks shared by its records.
    shared: Vec<BlockPointer>,
    /// Blocks of a dropped log.
    frees: Vec<BlockPointer>,
}

/// How far a log was followed.
#[derive(Debug, Default)]
struct Extent {
    blocks: u64,
    records: u64,
    block_seq: u64,
    record_seq: u64,
}

/// Follows the log of one head.
struct Claimant<'a> {
    pool: &'a Pool,
    /// The first txg that is not on disk.
    first: Txg,
    owned: OwnedBlocks,
    claimed: Vec<Dva>,
    shared: Vec<BlockPointer>,
    last_birth: Txg,
    extent: Extent,
}

/// Why following a log stops.
enum Stop {
    /// The next block does not exist: the log ends.
    Ends,
    /// The next block cannot be read.
    Unreadable(ChainEnd),
}

impl LogClaims {
    /// Follows the logs of all heads.
    pub(crate) fn plan(pool: &Pool, missing_logs: MissingLogs) -> Result<Self, NotWritable> {
        let drops_logs = lacks_log_device(pool);
        let (heads, given_up) = (Vec::new(), Vec::new());
        let mut claims = Self { heads, given_up, last_birth: pool.txg() };
        let root = pool.datasets().root()?;
        for dataset in root.descendants()? {
            let objset = dataset.open_locked()?;
            let name = || dataset.name().to_owned();
            let header = objset.log_header().map_err(|source| NotWritable::LogHeader {
                dataset: name(),
                source: Box::new(source),
            })?;
            if header.first.is_hole() {
                continue;
            }
            let claim = match header.claim_txg {
                _ if drops_logs => {
                    claims.given_up.push(DroppedLog::Whole { dataset: name() });
                    Some(drop_log(pool, &dataset, objset.id(), &header))
                }
                None => {
                    let given_up = (missing_logs, &mut claims.given_up);
                    let claim = claim_log(pool, &dataset, objset.id(), header, given_up)?;
                    claim.map(|(claim, birth)| {
                        claims.last_birth = claims.last_birth.max(birth);
                        claim
                    })
                }
                Some(_) => None,
            };
            claims.heads.extend(claim);
        }
        Ok(claims)
    }

    /// The dropped logs.
    pub(crate) fn given_up(&self) -> &[DroppedLog] {
        &self.given_up
    }

    /// The last txg before the first one that the pool may write.
    pub(crate) const fn last_birth(&self) -> Txg {
        self.last_birth
    }
}

/// Whether a log device is missing and the pool was imported anyway: then logs are dropped, as a
/// log without an end is worse than none.
fn lacks_log_device(pool: &Pool) -> bool {
    let mut logs =
        pool.vdevs().top_levels().filter(|top| top.allocation_bias() == Some(AllocationBias::Log));
    logs.any(|top| !top.health().is_usable())
}

/// Drops a log because a log device is missing. Unclaimed blocks are free already.
fn drop_log(pool: &Pool, dataset: &Dataset, objset: ObjsetId, header: &ZilHeader) -> HeadClaim {
    let synced = pool.txg();
    let is_there = |pointer: &BlockPointer| {
        let vdevs = pool.vdevs();
        let mut dvas = pointer.dvas();
        dvas.all(|dva| vdevs.top_level(dva.vdev()).is_some_and(|top| top.health().is_usable()))
    };
    let mut frees = owned_blocks(pool.pipeline(), objset, header);
    frees.retain(|pointer| pointer.logical_birth() <= synced && is_there(pointer));
    let (dataset, header) = (dataset.clone(), ZilHeader::default());
    HeadClaim { dataset, header, claimed: Vec::new(), shared: Vec::new(), frees }
}

/// Follows an unclaimed log, up to an unreadable block if the rest may be dropped; `None` if it is
/// only a block reserved for the first record.
fn claim_log(
    pool: &Pool,
    dataset: &Dataset,
    objset: ObjsetId,
    header: ZilHeader,
    (missing_logs, given_up): (MissingLogs, &mut Vec<DroppedLog>),
) -> Result<Option<(HeadClaim, Txg)>, NotWritable> {
    let mut claimant = Claimant {
        pool,
        first: pool.txg().next(),
        owned: OwnedBlocks::default(),
        claimed: Vec::new(),
        shared: Vec::new(),
        last_birth: Txg(0),
        extent: Extent::default(),
    };
    let mut chain = LogChain::new(pool.pipeline(), objset, &header);
    let mut stop = None;
    for block in chain.by_ref() {
        if let Err(reason) = claimant.take_block(&block) {
            stop = Some(reason);
            break;
        }
    }
    let name = dataset.name().to_owned();
    let end = match stop {
        Some(Stop::Unreadable(end)) => Some(end),
        Some(Stop::Ends) => None,
        None => chain.end().filter(|end| !end.is_regular()).cloned(),
    };
    match end {
        Some(end) if missing_logs == MissingLogs::Ignore => {
            given_up.push(DroppedLog::Rest { dataset: name, end });
        }
        Some(end) => return Err(unreadable(name, end)),
        None => {}
    }
    let Claimant { first, claimed, shared, last_birth, extent, .. } = claimant;
    let is_idle = extent.records == 0 && extent.blocks == 1 && claimed.is_empty();
    if is_idle && !header.flags.has(ZilFlags::REPLAY_NEEDED) {
        return Ok(None);
    }
    let header = extent.header(header, first);
    Ok(Some((
        HeadClaim { dataset: dataset.clone(), header, claimed, shared, frees: Vec::new() },
        last_birth,
    )))
}

/// Why a pool is not imported whose log may continue.
fn unreadable(dataset: String, end: ChainEnd) -> NotWritable {
    match end {
        ChainEnd::Unreadable { source, .. } if is_missing(&source) => {
            NotWritable::MissingLog { dataset }
        }
        end => NotWritable::UnreadableLog { dataset, end: Box::new(end) },
    }
}

impl Extent {
    /// The header of the claimed log.
    fn header(&self, old: ZilHeader, first: Txg) -> ZilHeader {
        if self.blocks == 0 {
            return ZilHeader::default();
        }
        let needs_replay = self.records > 0 || self.blocks > 1;
        let replay = if needs_replay { ZilFlags::REPLAY_NEEDED } else { 0 };
        ZilHeader {
            claim_txg: Some(first),
            claimed_block_seq: self.block_seq,
            claimed_record_seq: self.record_seq,
            flags: ZilFlags(old.flags.0 | ZilFlags::CLAIMED_RECORD_SEQ_VALID | replay),
            ..old
        }
    }
}

impl Claimant<'_> {
    fn take_block(&mut self, block: &LogBlock) -> Result<(), Stop> {
        self.take(&block.pointer, block.seq())?;
        self.extent.blocks += 1;
        self.extent.block_seq = block.seq();
        for record in block.records() {
            self.take_shared(&record)?;
            if let Some(data) = record.data_pointer() {
                self.take_data(&data, block.seq())?;
            }
            self.extent.records += 1;
            self.extent.record_seq = self.extent.record_seq.max(record.seq);
        }
        Ok(())
    }

    /// Takes references to the blocks that a record shares. They were on disk before the record, so
    /// the pool must have them; if not, the log ends here.
    fn take_shared(&mut self, record: &Record<'_>) -> Result<(), Stop> {
        let known = self.shared.len();
        self.shared.extend(record.shared_pointers());
        let new = self.shared.get(known..).unwrap_or_default();
        let is_sound = |pointer: &BlockPointer| {
            pointer.validate().is_ok() && pointer.physical_birth() < self.first
        };
        let state = self.pool.features().state(Feature::BlockCloning);
        let can_share = state != FeatureState::Disabled;
        if new.iter().all(is_sound) && (new.is_empty() || can_share) {
            return Ok(());
        }
        self.shared.truncate(known);
        Err(Stop::Ends)
    }

    /// Takes the data of a write stored outside the log: without it the log ends here.
    fn take_data(&mut self, pointer: &BlockPointer, seq: u64) -> Result<(), Stop> {
        if pointer.is_embedded() || pointer.logical_birth() < self.first {
            return Ok(());
        }
        if pointer.validate().is_err() {
            return Err(Stop::Ends);
        }
        // Its target may be unwritten if the record was written first.
        match self.pool.pipeline().read_speculative(&[pointer]).pop() {
            Some(Ok(_)) => self.take(pointer, seq),
            Some(Err(source)) => Err(Stop::of_error(seq, source)),
            None => Err(Stop::Ends),
        }
    }

    /// Takes a block, if it is younger than the pool.
    fn take(&mut self, pointer: &BlockPointer, seq: u64) -> Result<(), Stop> {
        let birth = pointer.logical_birth();
        if birth.get().saturating_sub(self.first.get()) > MAX_AHEAD {
            return Err(Stop::Ends);
        }
        if birth < self.first {
            return Ok(());
        }
        let known = self.owned.blocks().len();
        self.owned.add(pointer);
        if self.owned.blocks().len() > known {
            self.claim(pointer, seq, MAX_GANG_DEPTH)?;
            self.last_birth = self.last_birth.max(birth);
        }
        Ok(())
    }

    fn claim(&mut self, pointer: &BlockPointer, seq: u64, depth: u32) -> Result<(), Stop> {
        self.claimed.extend(pointer.dvas());
        if !pointer.is_gang() {
            return Ok(());
        }
        let depth = depth.checked_sub(1).ok_or(Stop::Ends)?;
        let members = self.pool.pipeline().gang_members(pointer);
        let members = members.map_err(|source| Stop::of_error(seq, source))?;
        members.iter().try_for_each(|member| self.claim(member, seq, depth))
    }
}

impl Stop {
    /// The consequence of an unreadable block that block `seq` of the log refers to.
    fn of_error(seq: u64, source: BlockError) -> Self {
        match source.is_device_error() {
            true => Self::Unreadable(ChainEnd::Unreadable { seq, source }),
            false => Self::Ends,
        }
    }
}

/// Whether a block cannot be read because devices are missing.
const fn is_missing(error: &BlockError) -> bool {
    matches!(error, BlockError::Device(VdevError::Unavailable { .. }))
}

impl LogClaims {
    /// Claims logs in the first txg, before anything else is allocated.
    pub(crate) fn claim(
        self,
        engine: &Arc<TxgEngine>,
        allocator: &Allocator,
        heads: &Heads,
    ) -> Result<(), NotWritable> {
        if self.heads.is_empty() {
            return Ok(());
        }
        let stopped = |_| NotWritable::from(LiveError::Suspended { reason: None });
        let tx = engine.begin_unthrottled(&[]).map_err(stopped)?;
        for claim in self.heads {
            for dva in &claim.claimed {
                allocator.claim(*dva, tx.txg()).map_err(|source| NotWritable::LogSpace {
                    dataset: claim.dataset.name().to_owned(),
                    source: Box::new(source),
                })?;
            }
            // What is unknown without the key is not needed.
            let objset = match claim.dataset.key_status()? {
                KeyStatus::Unavailable => claim.dataset.open_locked()?,
                KeyStatus::None | KeyStatus::Available => claim.dataset.open_objset()?,
            };
            let head = heads.open_for_log(&claim.dataset, objset)?.generation();
            head.share_with_log(&tx, &claim.shared);
            head.change_log(&tx, claim.header, &claim.frees);
        }
        Ok(())
    }
}
