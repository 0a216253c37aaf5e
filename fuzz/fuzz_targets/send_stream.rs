//! Any bytes are a send stream or an error that says where; what was read can be written, and is
//! read as the same again.
//!
//! The first byte says how: bit 0 ignores checksums, which a fuzzer cannot guess, bit 1 leaves only
//! the rules that a debugger needs. Lists after BEGIN are read as well.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::stream::Record;
use rzfs_stream::{Checksums, ReadOptions, Rules, StreamReader, StreamWriter};

fuzz_target!(|data: &[u8]| {
    let Some((how, stream)) = data.split_first() else { return };
    let options = ReadOptions {
        rules: if how & 2 == 0 { Rules::default() } else { Rules::Framing },
        checksums: if how & 1 == 0 { Checksums::Verified } else { Checksums::Ignored },
    };
    let mut reader = StreamReader::new(stream, options);
    let mut writer = StreamWriter::new(Vec::new(), ByteOrder::Little);
    let (mut payload, mut records) = (Vec::new(), Vec::new());
    while let Ok(Some(record)) = reader.next_record() {
        let read = match record {
            Record::Begin(_) => reader.read_nvlist(&mut payload).map(drop),
            _ => reader.read_payload_to(&mut payload),
        };
        if read.is_err() {
            break;
        }
        writer.write(&record, &payload).expect("what was read can be written");
        records.push(record);
    }
    let place = writer.place();
    let written = writer.into_inner();
    assert_eq!(written.len() as u64, place.offset);
    let mut again = StreamReader::new(
        written.as_slice(),
        ReadOptions { checksums: Checksums::Verified, ..options },
    );
    for record in records {
        let read = again.next_record().expect("what was written is a stream");
        match (read, record) {
            // The sums are the writer's.
            (Some(Record::End(read)), Record::End(end)) => assert_eq!(read.to_guid, end.to_guid),
            (read, record) => assert_eq!(read, Some(record)),
        }
    }
});
