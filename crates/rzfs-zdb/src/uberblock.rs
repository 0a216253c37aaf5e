//! `zdb -u`: uberblocks.

use super::session::Session;
use super::text::pointer::Full;
use rzfs_format::uberblock::Uberblock;
use std::io;

/// The magic number of uberblocks.
const MAGIC: u64 = 0x00ba_b10c;
/// The magic number of multihost fields.
const MULTIHOST_MAGIC: u64 = 0xa11c_ea11;

/// Prints the fields of an uberblock, each on a line of its own.
pub(crate) fn print_fields(session: &mut Session<'_>, uberblock: &Uberblock) -> io::Result<()> {
    let time = session.calendar.ctime(uberblock.timestamp);
    let out = &mut *session.out;
    writeln!(out, "\tmagic = {MAGIC:016x}")?;
    writeln!(out, "\tversion = {}", uberblock.version)?;
    writeln!(out, "\ttxg = {}", uberblock.txg)?;
    writeln!(out, "\tguid_sum = {}", uberblock.guid_sum)?;
    writeln!(out, "\ttimestamp = {} UTC = {time}", uberblock.timestamp)?;
    writeln!(out, "\tbp = {}", Full(&uberblock.mos))?;
    let magic = if uberblock.multihost.is_some() { MULTIHOST_MAGIC } else { 0 };
    writeln!(out, "\tmmp_magic = {magic:016x}")?;
    if let Some(multihost) = &uberblock.multihost {
        let config = multihost.config;
        writeln!(out, "\tmmp_delay = {}", multihost.delay)?;
        if let Some(sequence) = config.sequence() {
            writeln!(out, "\tmmp_seq = {sequence}")?;
        }
        if let Some(intervals) = config.fail_intervals() {
            writeln!(out, "\tmmp_fail = {intervals}")?;
        }
        if let Some(interval) = config.interval_ms() {
            writeln!(out, "\tmmp_write = {interval}")?;
        }
        writeln!(out, "\tmmp_valid = {:x}", config.0 & 0xff)?;
    }
    writeln!(out, "\tcheckpoint_txg = {}", uberblock.checkpoint_txg)?;
    let reflow = uberblock.raidz_reflow;
    let state = reflow.0 >> 55;
    writeln!(out, "\traidz_reflow state={state} off={}", reflow.offset())
}
