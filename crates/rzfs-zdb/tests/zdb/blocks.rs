//! Uberblocks, configurations, histories and blocks.

use crate::harness::{agrees, zdb, zdb_of};

/// Number of golden pools.
const ALL: usize = 24;

#[test]
fn uberblocks_are_shown_as_by_openzfs() {
    agrees("-u", ALL);
}

#[test]
fn configurations_are_shown_as_by_openzfs() {
    agrees("-C", ALL);
}

#[test]
fn histories_are_shown_as_by_openzfs() {
    agrees("-h", ALL);
}

#[test]
fn blocks_are_counted_as_by_openzfs() {
    agrees("-bbb", ALL);
}

#[test]
fn blocks_are_verified_as_by_openzfs() {
    agrees("-bcc", ALL);
}

#[test]
fn io_is_counted_by_vdev() {
    let Some(output) = zdb_of("g04-mirror3", ["-bs", "g04"]) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let table = text.split("cksum\n").nth(1).unwrap();
    let words: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words.len(), 5, "{table}");
    assert_eq!(words[0][..3], ["g04", "4.41M", "75.6M"]);
    assert_eq!(words[1][..3], ["mirror", "4.41M", "75.6M"]);
    let reads: u64 = words[2..].iter().map(|leaf| leaf[1].parse::<u64>().unwrap()).sum();
    assert_eq!(words[0][3].parse(), Ok(reads), "{table}");
    assert!(reads > 0);
}

#[test]
fn wrong_command_lines_have_the_status_of_failures() {
    for words in [&["--nonsense"][..], &["-b"], &["-l"], &["-e", "-p", "/nonexistent", "none"]] {
        let output = zdb(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(!output.stderr.is_empty());
    }
    assert_eq!(zdb(["--help"]).status.code(), Some(0));
}
