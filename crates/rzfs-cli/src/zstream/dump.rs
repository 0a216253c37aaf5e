//! `zstream dump`: the records of send streams, and their totals.

use super::hexdump;
use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use rzfs_blockdev::without_number;
use rzfs_format::checksum::ChecksumValue;
use rzfs_format::stream::{Begin, RECORD_SIZE, Record, RecordKind};
use rzfs_stream::{Checksums, Problem, ReadOptions, Rules, StreamError, StreamReader};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};

const GRAMMAR: Grammar =
    Grammar { letters: &[('v', Value::None), ('C', Value::None), ('d', Value::None)], names: &[] };

/// The kinds of records in the summary, in this order.
const SUMMARY: [RecordKind; 9] = [
    RecordKind::Begin,
    RecordKind::End,
    RecordKind::Object,
    RecordKind::FreeObjects,
    RecordKind::Write,
    RecordKind::WriteByRef,
    RecordKind::WriteEmbedded,
    RecordKind::Free,
    RecordKind::Spill,
];

/// The amount of detail.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Detail {
    /// Only the ends of streams.
    Ends,
    /// Every record.
    Records,
    /// Every record and its checksum.
    Checksums,
    /// Payloads too.
    Payloads,
}

/// Runs `zstream dump`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let count = |letter| words.iter().filter(|word| **word == Word::Flag(letter)).count();
    let detail = match (count('d'), count('v')) {
        (1.., _) => Detail::Payloads,
        (_, 0) => Detail::Ends,
        (_, 1) => Detail::Records,
        _ => Detail::Checksums,
    };
    let checksums = if count('C') > 0 { Checksums::Ignored } else { Checksums::Verified };
    let options = ReadOptions { rules: Rules::Framing, checksums };
    let source: Box<dyn Read> = match operands(&words).first() {
        Some(path) => Box::new(File::open(path).map_err(|error| {
            let reason = without_number(&error);
            Failure::Failed(format!("Error while opening file '{path}': {reason}"))
        })?),
        None if io::stdin().is_terminal() => {
            return Err(Failure::Failed(
                "Error: The send stream is a binary format and can not be read from a\n\
                 terminal.  Standard input must be redirected, or a file must be\n\
                 specified as a command-line argument."
                    .to_owned(),
            ));
        }
        None => Box::new(io::stdin()),
    };
    let mut totals = Totals::default();
    let ending = streams(BufReader::new(source), options, detail, &mut totals, console)?;
    if let Ending::Checksum(computed) = &ending {
        console.out.flush()?;
        console.complain("invalid checksum");
        writeln!(console.out, "Incorrect checksum in record header.")?;
        writeln!(console.out, "Expected checksum = {}", Words(computed))?;
    }
    if let Ending::Failed(message) = ending {
        return Err(Failure::Failed(message));
    }
    write!(console.out, "{totals}")?;
    if let Ending::Cut(error) = ending {
        console.out.flush()?;
        console.complain(format_args!("zstream: {error}"));
    }
    Ok(())
}

/// How the input ended.
enum Ending {
    /// After the last stream.
    Whole,
    /// In the middle: where, and what is missing.
    Cut(StreamError),
    /// With a corrupt record, whose checksum should be this one.
    Checksum(ChecksumValue),
    /// With something that is not a record, or is out of place.
    Failed(String),
}

/// Shows all streams of a source, one after the other.
fn streams(
    mut source: impl Read,
    options: ReadOptions,
    detail: Detail,
    totals: &mut Totals,
    console: &mut Console<'_>,
) -> Result<Ending, Failure> {
    let mut payload = Vec::new();
    loop {
        let mut reader = StreamReader::new(&mut source, options);
        loop {
            let step = one(&mut reader, detail, totals, &mut payload, console)?;
            let error = match step {
                Ok(true) => continue,
                Ok(false) => break,
                Err(error) => error,
            };
            return Ok(match error.problem {
                Problem::Empty => Ending::Whole,
                Problem::NoEnd | Problem::Truncated { .. } => Ending::Cut(error),
                Problem::Checksum { computed, .. } => {
                    totals.length += RECORD_SIZE as u64;
                    Ending::Checksum(computed)
                }
                Problem::EndChecksum { stored, computed } => {
                    let sums = format!("{} and {}", Words(&stored), Words(&computed));
                    Ending::Failed(format!(
                        "Expected checksum differs from checksum in stream.\n\
                         {}: the checksums of the stream are {sums}",
                        error.place
                    ))
                }
                Problem::Magic => Ending::Failed("Invalid stream (bad magic number)".to_owned()),
                Problem::Io(error) => Ending::Failed(error.to_string()),
                _ => Ending::Failed(format!("zstream: {error}")),
            });
        }
    }
}

/// Shows the next record; returns whether there was one.
fn one(
    reader: &mut StreamReader<impl Read>,
    detail: Detail,
    totals: &mut Totals,
    payload: &mut Vec<u8>,
    console: &mut Console<'_>,
) -> Result<Result<bool, StreamError>, Failure> {
    let last = reader.place();
    let next = reader.next_record();
    if next.as_ref().err().is_none_or(|error| error.place != last) {
        totals.payload_was_read();
    }
    let record = match next {
        Ok(record) => record,
        Err(error) => return Ok(Err(error)),
    };
    let Some(record) = record else { return Ok(Ok(false)) };
    let length = reader.payload_length();
    totals.add(&record, length);
    match &record {
        Record::Begin(begin) => {
            write!(console.out, "{}", Head(begin))?;
            if length > 0 {
                writeln!(console.out)?;
                match reader.read_nvlist(payload) {
                    Ok(list) => write!(console.out, "{}", list.printed())?,
                    Err(error) => return Ok(Err(error)),
                }
            } else if detail >= Detail::Records {
                writeln!(console.out)?;
            }
            return Ok(Ok(true));
        }
        Record::End(end) => {
            writeln!(console.out, "END checksum = {}", Words(&end.checksum))?;
        }
        _ if detail >= Detail::Records => writeln!(console.out, "{}", Line(&record, length))?,
        _ => {}
    }
    if detail == Detail::Payloads && length > 0 {
        if let Err(error) = reader.read_payload_to(payload) {
            return Ok(Err(error));
        }
        hexdump::write(console.out, payload)?;
    }
    if detail >= Detail::Checksums {
        let checksum = reader.record_checksum().unwrap_or_default();
        writeln!(console.out, "    checksum = {}", Words(&checksum))?;
    }
    Ok(Ok(true))
}

/// Records and bytes.
#[derive(Default)]
struct Totals {
    /// Records of each kind, and bytes of their payloads.
    kinds: BTreeMap<RecordKind, (u64, u64)>,
    /// Bytes read.
    length: u64,
    /// Bytes of the last payload, which may be missing.
    pending: u64,
}

impl Totals {
    fn add(&mut self, record: &Record, payload: u64) {
        let (count, bytes) = self.kinds.entry(record.kind()).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(payload);
        self.length += RECORD_SIZE as u64;
        self.pending = payload;
    }

    fn payload_was_read(&mut self) {
        self.length = self.length.saturating_add(std::mem::take(&mut self.pending));
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "SUMMARY:")?;
        for kind in SUMMARY {
            let (count, bytes) = self.kinds.get(&kind).copied().unwrap_or_default();
            writeln!(f, "\tTotal {} records = {count} ({bytes} bytes)", kind.name())?;
        }
        let records: u64 = self.kinds.values().map(|(count, _)| count).sum();
        let payload: u64 = self.kinds.values().map(|(_, bytes)| bytes).sum();
        let headers = records * RECORD_SIZE as u64;
        writeln!(f, "\tTotal records = {records}")?;
        writeln!(f, "\tTotal payload size = {payload} ({payload:#x})")?;
        writeln!(f, "\tTotal header overhead = {headers} ({headers:#x})")?;
        writeln!(f, "\tTotal stream length = {0} ({0:#x})", self.length)
    }
}

/// A checksum as four words.
struct Words<'a>(&'a ChecksumValue);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.0.0;
        write!(f, "{a:x}/{b:x}/{c:x}/{d:x}")
    }
}

/// The fields of a BEGIN.
struct Head<'a>(&'a Begin);

impl fmt::Display for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = self.0;
        writeln!(f, "BEGIN record")?;
        writeln!(f, "\thdrtype = {}", begin.version.kind_number())?;
        writeln!(f, "\tfeatures = {:x}", begin.version.features().0)?;
        writeln!(f, "\tmagic = {:x}", begin.magic)?;
        writeln!(f, "\tcreation_time = {:x}", begin.creation_time)?;
        writeln!(f, "\ttype = {}", begin.objset_type)?;
        writeln!(f, "\tflags = 0x{:x}", begin.flags.0)?;
        writeln!(f, "\ttoguid = {:x}", begin.to_guid.get())?;
        writeln!(f, "\tfromguid = {:x}", begin.from_guid.get())?;
        writeln!(f, "\ttoname = {}", begin.to_name.to_text())?;
        writeln!(f, "\tpayloadlen = {}", begin.payload_length)
    }
}

/// Bytes as hex digits.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The encryption parameters of a block; zeros if it is not encrypted.
fn encryption(f: &mut fmt::Formatter<'_>, salt: &[u8], iv: &[u8], mac: &[u8]) -> fmt::Result {
    write!(f, " salt = {} iv = {} mac = {}", Hex(salt), Hex(iv), Hex(mac))
}

/// A record and the length of its payload, on one line.
struct Line<'a>(&'a Record, u64);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.1;
        match self.0 {
            // These have lines of their own.
            Record::Begin(_) | Record::End(_) => Ok(()),
            Record::Object(it) => write!(
                f,
                "OBJECT object = {} type = {} bonustype = {} blksz = {} bonuslen = {} \
                 dn_slots = {} raw_bonuslen = {} flags = {} maxblkid = {} indblkshift = {} \
                 nlevels = {} nblkptr = {}",
                it.object,
                it.object_type,
                it.bonus_type,
                it.block_size,
                it.bonus_length,
                it.slots,
                it.raw_bonus_length,
                it.flags.0,
                it.max_block_id,
                it.indirect_shift,
                it.levels,
                it.pointers,
            ),
            Record::FreeObjects(it) => {
                write!(f, "FREEOBJECTS firstobj = {} numobjs = {}", it.first, it.count)
            }
            Record::Write(it) => {
                write!(
                    f,
                    "WRITE object = {} type = {} checksum type = {} compression type = {} \
                     flags = {} offset = {} logical_size = {} compressed_size = {} \
                     payload_size = {payload} props = {:x}",
                    it.object,
                    it.object_type,
                    it.checksum,
                    it.compression,
                    it.flags.0,
                    it.offset,
                    it.logical_size,
                    it.compressed_size,
                    it.key_properties,
                )?;
                encryption(f, &it.salt, &it.iv, &it.mac)
            }
            Record::Free(it) => write!(
                f,
                "FREE object = {} offset = {} length = {}",
                it.object,
                it.offset,
                it.length.cast_signed()
            ),
            Record::WriteByRef(it) => write!(
                f,
                "WRITE_BYREF object = {} checksum type = {} props = {:x} offset = {} length = {} \
                 toguid = {:x} refguid = {:x} refobject = {} refoffset = {}",
                it.object,
                it.checksum,
                it.key_properties,
                it.offset,
                it.length,
                it.to_guid.get(),
                it.from_guid.get(),
                it.from_object,
                it.from_offset,
            ),
            Record::Spill(it) => {
                write!(
                    f,
                    "SPILL block for object = {} length = {} flags = {} compression type = {} \
                     compressed_size = {} payload_size = {payload}",
                    it.object, it.length, it.flags.0, it.compression, it.compressed_size,
                )?;
                encryption(f, &it.salt, &it.iv, &it.mac)
            }
            Record::WriteEmbedded(it) => write!(
                f,
                "WRITE_EMBEDDED object = {} offset = {} length = {} toguid = {:x} comp = {} \
                 etype = {} lsize = {} psize = {}",
                it.object,
                it.offset,
                it.length,
                it.to_guid.get(),
                it.compression,
                it.embedded_type,
                it.logical_size,
                it.physical_size,
            ),
            Record::ObjectRange(it) => {
                write!(
                    f,
                    "OBJECT_RANGE firstobj = {} numslots = {} flags = {}",
                    it.first, it.slots, it.flags.0
                )?;
                encryption(f, &it.salt, &it.iv, &it.mac)
            }
            Record::Redact(it) => write!(
                f,
                "REDACT object = {} offset = {} length = {}",
                it.object, it.offset, it.length
            ),
        }
    }
}
