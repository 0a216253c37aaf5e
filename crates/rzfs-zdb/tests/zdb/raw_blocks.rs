//! Blocks at given addresses, and the data in embedded pointers.

use crate::harness::{agrees, zdb, zdb_of};

#[test]
fn blocks_at_addresses_are_those_of_openzfs() {
    agrees("-R", 15);
}

#[test]
fn data_of_embedded_pointers_are_written_as_they_are() {
    let pointer = "100032118000000:a01d84c15805100:50d8ff00020f00:0:0:0:8014008f360001ff:0:0:0:b\
                   :0:0:0:0:0";
    let output = zdb(["-E", pointer]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout.len(), 512);
    for words in [&["-E"][..], &["-E", "1:2"], &["-E", &["0"; 16].join(":")]] {
        assert_eq!(zdb(words).status.code(), Some(1), "{words:?}");
    }
}

#[test]
fn pointers_of_gang_headers_and_what_is_no_address() {
    // OpenZFS's zdb aborts with these arguments.
    let Some(header) = zdb_of("g18-gang", ["-R", "g18", "1:1cf000:200:g"]) else { return };
    let text = String::from_utf8(header.stdout).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().all(|line| line.contains(" gang ")), "{text}");
    for address in ["0:fffffffff000:1000", "0:4000:1000"] {
        let output = zdb_of("g15-removed", ["-R", "g15", address]).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(address == "0:4000:1000" || text.starts_with("Read of 0:fffffffff000"), "{text}");
        assert_eq!(output.status.code(), Some(0));
    }
    assert_eq!(zdb_of("g01-default", ["-R", "g01"]).unwrap().status.code(), Some(1));
}
