//! Subcommands of OpenZFS that this software does not have yet.
//!
//! Typing one is not a mistake, and must not be reported as an unknown command. Once implemented, a
//! command moves from here into the usage.

use crate::console::{Failure, Outcome};
use crate::getopt::Word;

/// The missing ones of `zpool`, up to OpenZFS 2.4.
const ZPOOL: [&str; 13] = [
    "attach",
    "checkpoint",
    "condense",
    "detach",
    "iostat",
    "offline",
    "online",
    "remove",
    "reopen",
    "replace",
    "resilver",
    "scrub",
    "split",
];

/// The missing ones of `zfs`, up to OpenZFS 2.4 and on any system, with their short names.
const ZFS: [&str; 11] = [
    "allow", "jail", "program", "redact", "rewrite", "share", "unallow", "unjail", "unshare",
    "unzone", "zone",
];

/// The missing ones of `zstream`, up to OpenZFS 2.4.
const ZSTREAM: [&str; 5] = ["decompress", "drop_record", "raw", "recompress", "redup"];

/// A program of OpenZFS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// `zpool`.
    Zpool,
    /// `zfs`.
    Zfs,
    /// `zstream`.
    Zstream,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Zpool => "zpool",
            Self::Zfs => "zfs",
            Self::Zstream => "zstream",
        }
    }

    const fn absent(self) -> &'static [&'static str] {
        match self {
            Self::Zpool => &ZPOOL,
            Self::Zfs => &ZFS,
            Self::Zstream => &ZSTREAM,
        }
    }

    /// The failure for a missing subcommand: OpenZFS's message and the usage, unless OpenZFS has
    /// it. The status is the same.
    pub(crate) fn refuse(self, command: &str) -> Failure {
        if !self.absent().contains(&command) {
            return Failure::Usage(format!("unrecognized command '{command}'"));
        }
        self.not_implemented(command)
    }

    /// Refuses options of a subcommand that are parsed but not implemented: ignoring them would do
    /// something other than requested.
    pub(crate) fn refuse_options(self, command: &str, absent: &str, words: &[Word]) -> Outcome {
        let mut letters = words.iter().filter_map(|word| match word {
            Word::Flag(letter) | Word::Option(letter, _) => Some(*letter),
            _ => None,
        });
        match letters.find(|letter| absent.contains(*letter)) {
            Some(letter) => Err(self.not_implemented(&format!("{command} -{letter}"))),
            None => Ok(()),
        }
    }

    fn not_implemented(self, what: &str) -> Failure {
        const NO_COMMAND: u8 = 2;
        let name = self.name();
        let message = format!("'{name} {what}' of OpenZFS is not supported by this software yet");
        Failure::Status(message, NO_COMMAND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{zfs, zpool};

    /// The roadmap, which tells readers about commands.
    fn roadmap() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/roadmap.md");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn what_is_absent_is_not_in_the_usage() {
        for command in ZPOOL {
            assert_eq!(zpool::usage::of(command), "usage:\n", "zpool {command}");
        }
        for command in ZFS {
            assert_eq!(zfs::usage::of(command), "usage:\n", "zfs {command}");
        }
    }

    #[test]
    fn the_roadmap_says_what_is_absent() {
        let roadmap = roadmap();
        for program in [Program::Zpool, Program::Zfs, Program::Zstream] {
            let start = format!("- Not there of `{}`: ", program.name());
            let (_, entry) = roadmap.split_once(&start).unwrap();
            let entry = entry.split("\n- ").next().unwrap();
            let words: Vec<_> = entry.split('`').skip(1).step_by(2).collect();
            assert_eq!(words, program.absent(), "{}", program.name());
        }
    }
}
