//! The intent log of a dataset: its header, its blocks and records, and counts by kind.

use super::record;
use crate::error::ZdbError;
use crate::session::Session;
use crate::text::pointer::Full;
use rzfs_dmu::Objset;
use rzfs_dmu::intent_log::{LogBlock, LogChain};
use rzfs_dsl::pool::Pool;
use rzfs_format::block_pointer::Protection;
use rzfs_format::zil::{Record, RecordKind, ZilHeader};
use std::io;

/// Minimum verbosity for more than the header.
const RECORDS: u8 = 2;
/// Minimum verbosity for the bodies of records.
const BODIES: u8 = 3;
/// Minimum verbosity for blocks.
const BLOCKS: u8 = 4;
/// Minimum verbosity for the addresses of blocks.
const ADDRESSES: u8 = 5;
/// Kinds of records.
const KINDS: usize = 25;

/// Prints the log of an object set, if it has one.
pub(super) fn print(
    session: &mut Session<'_>,
    pool: &Pool,
    objset: &Objset,
) -> Result<(), ZdbError> {
    let Ok(header) = ZilHeader::decode(&objset.block().zil_header, objset.block().order) else {
        return Ok(());
    };
    if header.first.is_hole() {
        return Ok(());
    }
    let verbosity = session.arguments.datasets.max(session.arguments.intent_logs);
    writeln!(
        session.out,
        "\n    ZIL header: claim_txg {}, claim_blk_seq {}, claim_lr_seq {} replay_seq {}, flags {:#x}",
        header.claim_txg.unwrap_or_default(),
        header.claimed_block_seq,
        header.claimed_record_seq,
        header.replayed_seq,
        header.flags.0
    )?;
    if verbosity < RECORDS {
        return Ok(());
    }
    writeln!(session.out)?;
    let mut printer = Printer {
        verbosity,
        header: &header,
        log: record::Log { objset, claim_txg: header.claim_txg, last_txg: pool.txg(), verbosity },
        is_encrypted: !matches!(objset.root().protection(), Protection::None),
        counts: [0; KINDS],
        session,
    };
    // Blocks of later txgs than the pool's were never claimed, but are shown.
    for block in LogChain::new(pool.pipeline(), objset.id(), &header) {
        printer.print_block(&block)?;
    }
    printer.print_counts()?;
    Ok(())
}

struct Printer<'a, 's> {
    session: &'a mut Session<'s>,
    verbosity: u8,
    header: &'a ZilHeader,
    log: record::Log<'a>,
    is_encrypted: bool,
    /// Records by kind; the total is at 0.
    counts: [u64; KINDS],
}

impl Printer<'_, '_> {
    fn print_block(&mut self, block: &LogBlock) -> io::Result<()> {
        let (pointer, seq) = (&block.pointer, block.seq());
        let is_claimed = self.header.claim_txg.is_some();
        if self.verbosity >= BLOCKS {
            let claim = match is_claimed {
                true => "already claimed",
                false if pointer.logical_birth() > self.log.last_txg => "will claim",
                false => "won't claim",
            };
            write!(self.session.out, "\tBlock seqno {seq}, {claim}")?;
            if self.verbosity >= ADDRESSES {
                write!(self.session.out, ", {}", Full(pointer))?;
            }
            writeln!(self.session.out)?;
        }
        for record in block.records() {
            self.print_record(&record)?;
        }
        Ok(())
    }

    fn print_record(&mut self, record: &Record<'_>) -> io::Result<()> {
        let Some(kind) = record.kind else { return Ok(()) };
        for index in [0, kind as usize] {
            if let Some(count) = self.counts.get_mut(index) {
                *count += 1;
            }
        }
        writeln!(
            self.session.out,
            "\t\t{}{:<19} len {:6}, txg {}, seq {}",
            if record.case_insensitive { "CI-" } else { "" },
            kind.name(),
            record.bytes().len(),
            record.txg,
            record.seq
        )?;
        if self.verbosity < BODIES {
            return Ok(());
        }
        if self.is_encrypted {
            return writeln!(self.session.out, "\t\t\t(encrypted)");
        }
        match record.body() {
            Ok(body) => record::print(self.session, &self.log, kind, &body),
            Err(_) => Ok(()),
        }
    }

    /// Prints the number of records: of the kinds present, or of all.
    fn print_counts(&mut self) -> io::Result<()> {
        let out = &mut *self.session.out;
        if self.verbosity >= BLOCKS {
            writeln!(out)?;
        }
        if self.counts[0] == 0 {
            return Ok(());
        }
        // The numbers are as wide as the largest.
        let width = self.counts[0].to_string().len();
        for (number, count) in (0..).zip(self.counts) {
            let name = RecordKind::from_number(number).map_or("Total", RecordKind::name);
            if count > 0 || self.verbosity >= BODIES {
                writeln!(out, "\t\t{name:<20}{count:width$}")?;
            }
        }
        writeln!(out)
    }
}
