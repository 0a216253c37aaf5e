//! The `rzfs` command, which is `zpool`, `zfs` and `zdb` as well: through a link with one of these
//! names, or as the first word.
#![forbid(unsafe_code)]

mod console;
mod getopt;
mod json;
mod property;
mod source;
mod table;
mod version;
mod zfs;
mod zpool;

use rzfs::{calendar, quantity};

use console::Console;
use std::io::{self, BufWriter};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut console = Console {
        out: &mut BufWriter::new(io::stdout().lock()),
        err: &mut io::stderr().lock(),
        calendar: calendar::Calendar::system(),
    };
    let Some((program, rest)) = words.split_first() else { return ExitCode::from(2) };
    let status = match program.as_str() {
        "zpool" => zpool::run(rest, &mut console),
        _ => zfs::run(rest, &mut console),
    };
    ExitCode::from(status)
}
