//! Malicious streams: each ends with an error that gives position and reason, and none makes its
//! reader allocate more than its bytes fill.

use rzfs_codec::checksum::Fletcher4;
use rzfs_format::stream::{
    Begin, BeginFlags, End, FreeRange, MAGIC, RECORD_SIZE, Record, RecordKind, StreamFeatures,
    StreamKind, StreamName, VersionInfo, Write, stamp,
};
use rzfs_format::{ByteOrder, Guid, ObjectId};
use rzfs_stream::{
    Checksums, Nesting, Problem, ReadOptions, Rules, StreamError, StreamReader, StreamWriter,
};
use rzfs_testkit::GoldenStream;
use std::io::{self, Read};

const ORDER: ByteOrder = ByteOrder::Little;

/// Makes streams with correct checksums, whatever their records contain.
struct Forger {
    bytes: Vec<u8>,
    sums: Fletcher4,
}

impl Forger {
    fn new() -> Self {
        Self { bytes: Vec::new(), sums: Fletcher4::new(ORDER) }
    }

    fn add(mut self, record: Record, payload: &[u8]) -> Self {
        if matches!(record, Record::Begin(_)) {
            self.sums = Fletcher4::new(ORDER);
        }
        let record = match record {
            Record::End(end) => Record::End(End { checksum: self.sums.value(), ..end }),
            other => other,
        };
        let mut bytes = record.encode(ORDER);
        self.sums.update(&bytes[..280]);
        if !matches!(record, Record::Begin(_)) {
            stamp(&mut bytes, self.sums.value(), ORDER);
        }
        self.sums.update(&bytes[280..]);
        self.sums.update(payload);
        self.bytes.extend(bytes);
        self.bytes.extend(payload);
        if matches!(record, Record::End(_)) {
            self.sums = Fletcher4::new(ORDER);
        }
        self
    }

    fn read(&self) -> Result<usize, StreamError> {
        read(self.bytes.as_slice())
    }
}

fn read(source: impl Read) -> Result<usize, StreamError> {
    let mut reader = StreamReader::new(source, ReadOptions::default());
    let (mut payload, mut count) = (Vec::new(), 0);
    while let Some(record) = reader.next_record()? {
        if let Record::Begin(_) = record {
            reader.read_nvlist(&mut payload)?;
        }
        count += 1;
    }
    Ok(count)
}

fn begin(kind: StreamKind) -> Record {
    Record::Begin(head(kind))
}

fn head(kind: StreamKind) -> Begin {
    Begin {
        magic: MAGIC,
        version: VersionInfo::new(kind, StreamFeatures::LARGE_BLOCKS),
        objset_type: 2,
        flags: BeginFlags::SPILL_BLOCK,
        to_name: StreamName::new(b"tank/fs@a").unwrap(),
        ..Begin::default()
    }
}

fn write(length: u64) -> Record {
    Record::Write(Write {
        object: ObjectId(3),
        object_type: 19,
        logical_size: length,
        ..Write::default()
    })
}

fn end() -> Record {
    Record::End(End::default())
}

#[test]
fn lengths_that_no_bytes_follow_allocate_little() {
    let stream =
        Forger::new().add(begin(StreamKind::Substream), &[]).add(write(16 << 20), &[7; 64]);
    let mut reader = StreamReader::new(stream.bytes.as_slice(), ReadOptions::default());
    reader.next_record().unwrap();
    reader.next_record().unwrap();
    assert_eq!(reader.payload_length(), 16 << 20);
    let mut payload = Vec::new();
    let error = reader.read_payload_to(&mut payload).unwrap_err();
    assert!(payload.capacity() <= 2 << 20, "{}", payload.capacity());
    assert!(matches!(error.problem, Problem::Truncated { need: 0x100_0000, have: 64 }), "{error}");
    assert_eq!((error.place.record, error.place.offset), (1, RECORD_SIZE as u64));
}

#[test]
fn lengths_beyond_every_block_are_refused_before_they_are_read() {
    for length in [(16 << 20) + 4, 1 << 40, u64::MAX - 3, u64::MAX] {
        let stream = Forger::new().add(begin(StreamKind::Substream), &[]).add(write(length), &[]);
        let error = stream.read().unwrap_err();
        let too_large = matches!(error.problem, Problem::TooLarge { value, .. } if value == length);
        assert!(too_large, "{error}");
        assert_eq!(error.place.record, 1);
    }
    let head = Begin { payload_length: (64 << 20) + 4, ..head(StreamKind::Package) };
    let error = Forger::new().add(Record::Begin(head), &[]).read().unwrap_err();
    assert!(matches!(error.problem, Problem::TooLarge { .. }), "{error}");
}

#[test]
fn lists_that_are_none_are_refused() {
    let head = Begin { payload_length: 64, ..head(StreamKind::Substream) };
    let error =
        Forger::new().add(Record::Begin(head), &[0xff; 64]).add(end(), &[]).read().unwrap_err();
    assert!(matches!(error.problem, Problem::Format(_)), "{error}");
    assert_eq!(error.place.record, 0);
}

#[test]
fn records_stand_where_they_may() {
    use StreamKind::{Package, Substream};
    let hole = Record::Free(FreeRange { object: ObjectId(1), ..FreeRange::default() });
    let (plain, package) = (begin(Substream), begin(Package));
    let right: [&[Record]; 4] = [
        &[plain, end()],
        &[plain, hole, write(512), end()],
        &[package, end(), end()],
        &[package, end(), plain, hole, end(), plain, end(), end()],
    ];
    let wrong: [&[Record]; 7] = [
        &[plain, plain],
        &[plain, package],
        &[plain, hole, plain],
        &[package, hole],
        &[package, plain],
        &[package, end(), hole],
        &[package, end(), package],
    ];
    let forge = |records: &[Record]| {
        records.iter().fold(Forger::new(), |forger, record| {
            let payload = vec![1; record.payload_length() as usize];
            forger.add(*record, &payload)
        })
    };
    for records in right {
        assert_eq!(forge(records).read().unwrap(), records.len());
        let mut out = Vec::new();
        let mut writer = StreamWriter::new(&mut out, ORDER);
        for record in records {
            writer.write(record, &vec![1; record.payload_length() as usize]).unwrap();
        }
        assert_eq!(writer.nesting(), Nesting::Done);
        assert!(matches!(writer.end(Guid(0)).unwrap_err().problem, Problem::Order { .. }));
        assert_eq!(read(out.as_slice()).unwrap(), records.len());
    }
    for records in wrong {
        let (last, found) = (records.len() as u64 - 1, records[records.len() - 1].kind());
        let error = forge(records).read().unwrap_err();
        assert_eq!(error.place.record, last, "{error}");
        assert!(matches!(error.problem, Problem::Order { found: it } if it == found), "{error}");
    }
}

#[test]
fn what_is_no_stream_is_refused_at_once() {
    let empty: &[u8] = &[];
    assert!(matches!(read(empty).unwrap_err().problem, Problem::Empty));
    assert!(matches!(read(&[0; 400][..]).unwrap_err().problem, Problem::Magic));
    assert!(matches!(read(io::repeat(0x5a)).unwrap_err().problem, Problem::Magic));
    // The first bytes of a record are enough to decide.
    let almost = [0, 0, 0, 0, 9, 9, 9, 9, 0xac, 0xcb, 0xbb];
    for wrong in [&b"g"[..], b"garbage\n", &almost] {
        let problem = read(wrong).unwrap_err().problem;
        assert!(matches!(problem, Problem::Magic), "{wrong:?}: {problem}");
    }
    for begun in [&[0; 3][..], &almost[..10]] {
        let problem = read(begun).unwrap_err().problem;
        assert!(matches!(problem, Problem::Truncated { .. }), "{begun:?}: {problem}");
    }
    let mut kindless = head(StreamKind::Substream);
    kindless.version = VersionInfo(3);
    let error = Forger::new().add(Record::Begin(kindless), &[]).read().unwrap_err();
    assert!(matches!(error.problem, Problem::Field { kind: RecordKind::Begin, value: 3, .. }));
}

#[test]
fn nothing_follows_an_error() {
    let mut stream =
        Forger::new().add(begin(StreamKind::Substream), &[]).add(write(512), &[1; 512]);
    stream.bytes[700] ^= 1;
    let stream = stream.add(end(), &[]);
    let mut reader = StreamReader::new(stream.bytes.as_slice(), ReadOptions::default());
    reader.next_record().unwrap();
    reader.next_record().unwrap();
    reader.read_payload(&mut [0; 512]).unwrap();
    let error = reader.confirm().unwrap_err();
    assert!(matches!(error.problem, Problem::Checksum { .. }), "{error}");
    assert_eq!(error.place.record, 2);
    for _ in 0..2 {
        assert!(matches!(reader.next_record().unwrap_err().problem, Problem::Failed));
    }
}

#[test]
fn a_record_says_what_its_writer_has() {
    let mut writer = StreamWriter::new(Vec::new(), ORDER);
    writer.write(&begin(StreamKind::Substream), &[]).unwrap();
    let error = writer.write(&write(512), &[0; 508]).unwrap_err();
    assert!(matches!(error.problem, Problem::Payload { says: 512, have: 508, .. }), "{error}");
    assert!(matches!(writer.end(Guid(0)).unwrap_err().problem, Problem::Failed));
}

/// A writer that accepts few bytes at a time and is interrupted.
struct Narrow(Vec<u8>, usize);

impl io::Write for Narrow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        if self.1.is_multiple_of(3) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = bytes.len().min(100);
        self.0.extend(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn sinks_may_take_a_part() {
    let mut narrow = StreamWriter::new(Narrow(Vec::new(), 0), ORDER);
    let mut wide = StreamWriter::new(Vec::new(), ORDER);
    let payload: Vec<u8> = (0..1024_u32).map(|i| (i * i) as u8).collect();
    for (record, payload) in
        [(begin(StreamKind::Substream), &[][..]), (write(1024), &payload), (end(), &[])]
    {
        narrow.write(&record, payload).unwrap();
        wide.write(&record, payload).unwrap();
    }
    assert_eq!(wide.place().offset, 3 * RECORD_SIZE as u64 + 1024);
    assert_eq!(narrow.into_inner().0, wide.into_inner());
}

/// Reproducible pseudo-random numbers.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }
}

/// A short fuzz run: fields of real records get random values, and checksums are not verified.
#[test]
fn wild_fields_are_refused_or_harmless() {
    let Some(golden) = GoldenStream::all().into_iter().find(|it| it.name() == "enc-raw-incr")
    else {
        return;
    };
    let stream = golden.bytes().unwrap();
    let mut reader = StreamReader::new(stream.as_slice(), ReadOptions::default());
    let mut starts = Vec::new();
    while reader.next_record().unwrap().is_some() {
        starts.push(reader.place().offset as usize);
    }
    let mut numbers = Numbers(1);
    let (mut refused, mut harmless) = (0, 0);
    for round in 0..2000 {
        let mut stream = stream.clone();
        for _ in 0..=numbers.next(3) {
            let at = starts[numbers.next(starts.len())] + numbers.next(128);
            let wild = [0, 1, 0x7f, 0x80, 0xff][numbers.next(5)];
            stream[at..at + 1 + numbers.next(8)].fill(wild);
        }
        let rules = if round % 2 == 0 { Rules::default() } else { Rules::Framing };
        let options = ReadOptions { rules, checksums: Checksums::Ignored };
        let mut reader = StreamReader::new(stream.as_slice(), options);
        let mut writer = StreamWriter::new(io::sink(), ORDER);
        let mut payload = Vec::new();
        let end = loop {
            match reader.next_record() {
                Ok(Some(record)) => {
                    if let Err(error) = reader.read_payload_to(&mut payload) {
                        break Err(error);
                    }
                    writer.write(&record, &payload).unwrap();
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        assert!(payload.capacity() <= 2 << 20, "{}", payload.capacity());
        match end {
            Ok(()) => harmless += 1,
            Err(error) => {
                assert!(error.place.offset <= stream.len() as u64, "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100 && harmless > 100, "{refused} refused, {harmless} harmless");
}
