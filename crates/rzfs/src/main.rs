//! The `rzfs` command, which is `zpool`, `zfs` and `zdb` as well: through a link with one of these
//! names, or as the first word.
#![forbid(unsafe_code)]

mod absent;
mod arguments;
mod console;
mod daemon;
mod files;
mod getopt;
mod history;
mod json;
mod key_input;
mod mount;
mod property;
mod sandbox;
mod source;
mod table;
mod umount;
mod version;
mod zfs;
mod zpool;

use rzfs::{calendar, dedup_text, quantity};

use arguments::{Arguments, Command};
use clap::Parser;
use console::{Console, Shown};
use sandbox::Duty;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter};
use std::path::Path;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

/// glibc's allocator gives little back, and wastes as much as it gives out when many buffers are
/// aligned to pages, as those for devices are.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Programs that the binary is when it is called by their names.
const PROGRAMS: [&str; 3] = ["zpool", "zfs", "zdb"];

fn main() -> ExitCode {
    let words = files::spread_devices(with_subcommand(std::env::args_os().collect()));
    // zdb has a `-v` of its own, which must not be taken for that of rzfs.
    if let [_, first, rest @ ..] = words.as_slice()
        && first == "zdb"
    {
        log_to_stderr(0);
        return zdb(rest.iter().cloned());
    }
    let arguments = Arguments::parse_from(words);
    log_to_stderr(arguments.verbose);
    let mut console = Console {
        out: &mut BufWriter::new(Shown::new(io::stdout())),
        err: &mut Shown::new(io::stderr()),
        calendar: calendar::Calendar::system(),
    };
    match arguments.command {
        Command::Ls(_) | Command::Cat(_) | Command::Stat(_) | Command::Find(_) => {
            sandbox::enter(Duty::Reading);
        }
        Command::Cp(_) => sandbox::enter(Duty::Copying),
        _ => {}
    }
    ExitCode::from(match arguments.command {
        Command::Mount(mount) => mount::run(&mount, arguments.verbose, &mut console),
        Command::Umount(umount) => umount::run(&umount, &mut console),
        Command::Ls(ls) => files::ls(&ls, &mut console),
        Command::Cat(cat) => files::cat(&cat, &mut console),
        Command::Stat(stat) => files::stat(&stat, &mut console),
        Command::Find(find) => files::find(&find, &mut console),
        Command::Cp(cp) => files::cp(&cp, &mut console),
        Command::Zpool(words) => zpool::run(&words.text(), &mut console),
        Command::Zfs(words) => zfs::run(&words.text(), &mut console),
        Command::Zdb(words) => return zdb(words.text().into_iter().map(OsString::from)),
        Command::ServeMount => mount::serve_in_background(&mut console),
    })
}

/// The command line of zdb.
#[derive(Parser)]
#[command(name = "zdb", disable_version_flag = true, disable_help_flag = true)]
struct Zdb {
    #[command(flatten)]
    arguments: rzfs::zdb::Arguments,
}

/// Runs zdb with the words that follow its name.
fn zdb(words: impl Iterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from("zdb")).chain(words);
    match Zdb::try_parse_from(words) {
        Ok(zdb) => {
            sandbox::enter(Duty::Reading);
            rzfs::zdb::run(&zdb.arguments)
        }
        Err(error) => {
            // OpenZFS's zdb has no status of its own for a wrong command line.
            let status = if error.use_stderr() { 1 } else { 0 };
            // If not even this can be written, there is nobody to tell.
            let _ = error.print();
            ExitCode::from(status)
        }
    }
}

/// The command line with the subcommand that the program's name stands for.
fn with_subcommand(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_name()).and_then(OsStr::to_str);
    if let Some(program) = PROGRAMS.into_iter().find(|program| name == Some(program)) {
        words.splice(..1, ["rzfs".into(), program.into()]);
    }
    words
}

/// Warnings, or more with `-v`; `RUST_LOG` has the last word.
fn log_to_stderr(verbose: u8) {
    let usual = match verbose {
        0 => "warn,fuser=off",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let stderr = || Shown::new(io::stderr());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(stderr).init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_of_zdb_is_sound() {
        use clap::CommandFactory;
        Zdb::command().debug_assert();
    }

    #[test]
    fn the_name_of_the_program_counts() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(with_subcommand(words("/sbin/zpool list -v")), words("rzfs zpool list -v"));
        assert_eq!(with_subcommand(words("zfs")), words("rzfs zfs"));
        assert_eq!(with_subcommand(words("zdb -v m")), words("rzfs zdb -v m"));
        assert_eq!(with_subcommand(words("rzfs zfs list")), words("rzfs zfs list"));
    }
}
