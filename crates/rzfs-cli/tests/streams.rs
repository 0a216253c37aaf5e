//! `rzfs zstream` on streams made by OpenZFS, compared with the output of OpenZFS's zstream.

use rzfs_format::stream::{
    Begin, FreeObjects, FreeRange, MAGIC, Object, ObjectRange, Record, Spill, StreamFeatures,
    StreamKind, StreamName, VersionInfo, Write, WriteByRef, WriteEmbedded,
};
use rzfs_format::{ByteOrder, Guid, ObjectId};
use rzfs_stream::StreamWriter;
use rzfs_testkit::{GoldenStream, zstream_program};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn ours(words: &[&str], file: &Path) -> Output {
    let mut rzfs = Command::new(env!("CARGO_BIN_EXE_rzfs"));
    rzfs.arg("zstream").args(words).arg(file).stdin(Stdio::null()).output().unwrap()
}

fn theirs(words: &[&str], file: &Path) -> Option<Output> {
    let mut zstream = Command::new(zstream_program()?);
    Some(zstream.args(words).arg(file).stdin(Stdio::null()).output().unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reports the first difference of two texts, not all of both.
fn assert_same(ours: &[u8], theirs: &[u8], what: &str) {
    let (ours, theirs) = (text(ours), text(theirs));
    for (number, (own, other)) in ours.lines().zip(theirs.lines()).enumerate() {
        assert_eq!(own, other, "{what}, line {}", number + 1);
    }
    assert!(ours == theirs, "{what}: {} and {} bytes", ours.len(), theirs.len());
}

/// A directory for streams in files.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

#[test]
fn golden_streams_are_dumped_as_openzfs_dumped_them() {
    let files = Files::new();
    for golden in GoldenStream::all() {
        let file = files.file(golden.name(), &golden.bytes().unwrap());
        let dump = ours(&["dump"], &file);
        assert_eq!((dump.status.code(), text(&dump.stderr).as_str()), (Some(0), ""));
        let (dump, tail) = (text(&dump.stdout), golden.dump_tail().unwrap());
        assert!(dump.ends_with(&tail), "{}:\n{dump}\n{tail}", golden.name());
    }
}

#[test]
fn every_record_of_golden_streams_is_shown_as_openzfs_shows_it() {
    let files = Files::new();
    for golden in GoldenStream::all() {
        let stream = golden.bytes().unwrap();
        let file = files.file(golden.name(), &stream);
        for options in ["-v", "-vv", "-d", "-vC"] {
            // A full dump would be too long.
            if options.contains('d') && stream.len() > 1 << 20 {
                continue;
            }
            let words = ["dump", options];
            let Some(theirs) = theirs(&words, &file) else { return };
            let ours = ours(&words, &file);
            assert_eq!(ours.status.code(), theirs.status.code());
            assert_same(&ours.stdout, &theirs.stdout, golden.name());
            assert_same(&ours.stderr, &theirs.stderr, golden.name());
        }
    }
}

#[test]
fn streams_come_through_pipes_one_after_the_other() {
    let Some(golden) = GoldenStream::all().into_iter().find(|it| it.name() == "enc-raw-incr")
    else {
        return;
    };
    let files = Files::new();
    let stream = golden.bytes().unwrap();
    let both = files.file("both", &[stream.clone(), stream].concat());
    let mut rzfs = Command::new(env!("CARGO_BIN_EXE_rzfs"));
    rzfs.args(["zstream", "dump", "-v"]).stdin(fs::File::open(&both).unwrap());
    let piped = rzfs.output().unwrap();
    assert_same(&piped.stdout, &ours(&["dump", "-v"], &both).stdout, "a pipe and a file");
    let Some(theirs) = theirs(&["dump", "-v"], &both) else { return };
    assert_same(&piped.stdout, &theirs.stdout, "two streams");
}

/// A stream with a record of each kind, where each field has a different value.
fn every_kind() -> Vec<u8> {
    let mut writer = StreamWriter::new(Vec::new(), ByteOrder::Little);
    let begin = Begin {
        magic: MAGIC,
        version: VersionInfo::new(StreamKind::Substream, StreamFeatures::KNOWN),
        creation_time: 0x1234_5678_9abc,
        objset_type: 3,
        to_guid: Guid(u64::MAX),
        from_guid: Guid(1 << 63),
        to_name: StreamName::new("tank/ä@b".as_bytes()).unwrap(),
        ..Begin::default()
    };
    writer.write(&Record::Begin(begin), &[]).unwrap();
    let payload: Vec<u8> = (0..=255_u8).chain(0..=251).collect();
    for record in [
        Record::Object(Object {
            object: ObjectId(1 << 63),
            object_type: 196,
            bonus_type: u32::MAX,
            block_size: u32::MAX,
            bonus_length: 7,
            checksum: 255,
            compression: 255,
            slots: 255,
            raw_bonus_length: 12,
            max_block_id: u64::MAX,
            indirect_shift: 255,
            levels: 254,
            pointers: 253,
            ..Object::default()
        }),
        Record::FreeObjects(FreeObjects { count: u64::MAX, ..FreeObjects::default() }),
        Record::Write(Write {
            object: ObjectId(u64::MAX),
            object_type: u32::MAX,
            offset: 1 << 63,
            logical_size: u64::MAX,
            checksum: 255,
            compression: 254,
            key_properties: u64::MAX,
            compressed_size: 508,
            salt: *b"\0\x01\x02\x03\xfc\xfd\xfe\xff",
            iv: *b"\0\x01\x02\x03\xfc\xfd\xfe\xffabcd",
            mac: *b"\0\x01\x02\x03\xfc\xfd\xfe\xff01234567",
            ..Write::default()
        }),
        Record::Free(FreeRange { length: 1 << 63, ..FreeRange::default() }),
        Record::WriteByRef(WriteByRef {
            object: ObjectId(11),
            offset: 4096,
            length: 1 << 63,
            from_guid: Guid(0xdead),
            from_object: ObjectId(77),
            from_offset: u64::MAX,
            checksum: 8,
            key_properties: 0xf_00bf_00ff,
            ..WriteByRef::default()
        }),
        Record::Spill(Spill { length: 508, compression: 15, ..Spill::default() }),
        Record::WriteEmbedded(WriteEmbedded {
            length: u64::MAX,
            compression: 255,
            embedded_type: 254,
            logical_size: u32::MAX,
            physical_size: 17,
            ..WriteEmbedded::default()
        }),
        Record::ObjectRange(ObjectRange { slots: u64::MAX, ..ObjectRange::default() }),
        Record::Redact(FreeRange { length: u64::MAX, ..FreeRange::default() }),
    ] {
        writer.write(&record, &payload[..record.payload_length() as usize]).unwrap();
    }
    writer.end(Guid(7)).unwrap();
    writer.into_inner()
}

#[test]
fn every_kind_of_record_is_shown_as_openzfs_shows_it() {
    let files = Files::new();
    let file = files.file("every", &every_kind());
    for options in ["-C", "-v", "-d"] {
        let words = ["dump", options];
        let dump = ours(&words, &file);
        assert_eq!((dump.status.code(), text(&dump.stderr).as_str()), (Some(0), ""));
        let Some(theirs) = theirs(&words, &file) else { return };
        assert_same(&dump.stdout, &theirs.stdout, options);
    }
}

#[test]
fn damaged_streams_end_as_they_end_for_openzfs() {
    let files = Files::new();
    let stream = every_kind();
    let flipped = |at: usize| {
        let mut stream = stream.clone();
        stream[at] ^= 1;
        stream
    };
    let last = stream.len() - 312;
    for (what, stream, complaint) in [
        ("a wrong field", flipped(312 + 100), "invalid checksum\n"),
        ("a wrong payload", flipped(2 * 312 + 4), "invalid checksum\n"),
        ("a wrong checksum", flipped(312 + 300), "invalid checksum\n"),
        ("a wrong end", flipped(last + 8), "invalid checksum\n"),
        ("nothing", Vec::new(), ""),
    ] {
        let file = files.file("damaged", &stream);
        let dump = ours(&["dump", "-v"], &file);
        assert_eq!((dump.status.code(), text(&dump.stderr).as_str()), (Some(0), complaint));
        let Some(theirs) = theirs(&["dump", "-v"], &file) else { return };
        assert_eq!((theirs.status.code(), text(&theirs.stderr).as_str()), (Some(0), complaint));
        assert_same(&dump.stdout, &theirs.stdout, what);
    }
}

#[test]
fn a_stream_that_is_cut_is_shown_as_far_as_it_goes() {
    let files = Files::new();
    let stream = every_kind();
    for cut in [200, 312, 400, 700, 1500, stream.len() - 312, stream.len() - 40] {
        let file = files.file("cut", &stream[..cut]);
        let dump = ours(&["dump", "-v"], &file);
        assert_eq!(dump.status.code(), Some(0));
        assert!(text(&dump.stderr).contains("the stream ends"), "{}", text(&dump.stderr));
        let Some(theirs) = theirs(&["dump", "-v"], &file) else { return };
        assert_same(&dump.stdout, &theirs.stdout, &format!("cut at {cut}"));
    }
}

#[test]
fn what_cannot_be_shown_has_the_words_and_the_status_of_openzfs() {
    let files = Files::new();
    let nonsense = files.file("nonsense", &[0; 400]);
    let nowhere = files.0.path().join("nowhere");
    for (words, file) in [(&["dump"][..], &nonsense), (&["dump"], &nowhere)] {
        let own = ours(words, file);
        assert_eq!((own.status.code(), text(&own.stdout).as_str()), (Some(1), ""));
        let Some(theirs) = theirs(words, file) else { return };
        assert_eq!(own.status.code(), theirs.status.code());
        assert_same(&own.stderr, &theirs.stderr, &format!("{words:?}"));
    }
    for words in [&[][..], &["dump", "-x"], &["bogus"], &["token"]] {
        let run = |program: &Path, first: &[&str]| {
            let mut command = Command::new(program);
            command.args(first).args(words).stdin(Stdio::null());
            let output = command.output().unwrap();
            let first = text(&output.stderr).lines().next().unwrap_or_default().to_owned();
            (output.status.code(), text(&output.stdout), first)
        };
        let own = run(env!("CARGO_BIN_EXE_rzfs").as_ref(), &["zstream"]);
        assert_eq!(own.0, Some(1), "{own:?}");
        let Some(zstream) = zstream_program() else { return };
        assert_eq!(own, run(zstream, &[]), "{words:?}");
    }
    let own = ours(&["redup"], &nonsense);
    assert_eq!(own.status.code(), Some(1));
    assert!(text(&own.stderr).contains("not supported by this software yet"));
}

#[test]
fn a_token_is_shown_or_is_corrupt() {
    const TOKEN: &str = "1-885856a9b-b8-789c636064000310a500c4ec50360710e72765a5269730303041946\
                         0caa7a515a796806498e0f26c48f2499525a9c540ba808705abfe92fcf4d2cc140606\
                         d335fc25f10efb9f6920c97382e5f31273538174625eb67e7151b24322031c0000bdbe1522";
    let token = ours(&["token"], Path::new(TOKEN));
    assert_eq!(token.status.code(), Some(0));
    assert_eq!(
        text(&token.stdout),
        "     object: 2\n     offset: 131072\n     bytes: 265328\n     \
         toguid: 16627079127988415541\n     toname: 'tank/src@a'\n"
    );
    let damaged = ours(&["token"], Path::new(&TOKEN.replace("b8-", "b9-")));
    assert_eq!(damaged.status.code(), Some(1));
    let message = "resume token is corrupt (decompression failed)";
    assert!(text(&damaged.stderr).contains(message), "{damaged:?}");
}
