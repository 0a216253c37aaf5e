//! The `rzfs` command, which also acts as `zpool`, `zfs`, `zdb` and `zstream`: through a link with
//! such a name, or by its first word. As `mount.rzfs` it is the helper of mount(8).
#![forbid(unsafe_code)]

mod absent;
mod arguments;
mod console;
mod files;
mod getopt;
mod history;
mod host_names;
mod json;
mod key_input;
mod mount;
mod mount_helper;
mod mount_options;
mod paths;
mod property;
mod quantity;
mod source;
mod stats;
mod table;
mod tunables_list;
mod tuning;
mod umount;
mod version;
mod zfs;
mod zpool;
mod zstream;

use arguments::{Arguments, Command, MOUNT_HELPER, Words};
use clap::Parser;
use console::{Console, Shown, conclude};
use rzfs_server::sandbox::{self, Duty};
use rzfs_zdb::calendar::Calendar;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter};
use std::path::Path;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// glibc's allocator returns little memory, and wastes as much as it provides when many buffers are
/// page-aligned, as those for devices are.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Names under which the binary acts as that program.
const PROGRAMS: [&str; 4] = ["zpool", "zfs", "zdb", "zstream"];

/// OpenZFS's other name for `zstream dump`.
const DUMP: &str = "zstreamdump";

/// Names under which mount(8) calls it.
const HELPERS: [&str; 2] = ["mount.rzfs", "mount.fuse.rzfs"];

fn main() -> ExitCode {
    let words = files::expand_devices(with_subcommand(std::env::args_os().collect()));
    // zdb has its own `-v`, which must not be taken for that of rzfs.
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
        calendar: Calendar::system(),
    };
    match arguments.command {
        Command::Ls(_) | Command::Cat(_) | Command::Stat(_) | Command::Find(_) => {
            sandbox::enter(Duty::Reading);
        }
        Command::Zstream(_) => sandbox::enter(Duty::Reading),
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
        Command::Stats(arguments) => stats::run(arguments, &mut console),
        Command::Tunables(tunables) => tunables_list::run(&tunables, &mut console),
        Command::Zpool(words) => with_text(words, &mut console, zpool::run),
        Command::Zfs(words) => with_text(words, &mut console, zfs::run),
        Command::Zstream(words) => with_text(words, &mut console, zstream::run),
        Command::Zdb(words) => return zdb(words.raw().into_iter()),
        Command::MountHelper(words) => with_text(words, &mut console, |words, console| {
            mount_helper::run(words, arguments.verbose, console)
        }),
        Command::ServeMount => mount::serve_in_background(&mut console),
    })
}

/// Runs a command whose words must be text.
fn with_text(
    words: Words,
    console: &mut Console<'_>,
    run: impl FnOnce(&[String], &mut Console<'_>) -> u8,
) -> u8 {
    match words.text() {
        Ok(words) => run(&words, console),
        Err(failure) => conclude(Err(failure), "", console),
    }
}

/// Runs zdb with the words after its name.
fn zdb(words: impl Iterator<Item = OsString>) -> ExitCode {
    match rzfs_zdb::parse(words) {
        Ok(arguments) => {
            sandbox::enter(Duty::Reading);
            let mut out = BufWriter::new(io::stdout().lock());
            let status =
                rzfs_zdb::run(&arguments, Calendar::system(), &mut out, &mut io::stderr().lock());
            ExitCode::from(status)
        }
        Err(error) => {
            // OpenZFS's zdb has no special status for a wrong command line.
            let status = if error.use_stderr() { 1 } else { 0 };
            // If this cannot be written either, there is nowhere to report it.
            let _ = error.print();
            ExitCode::from(status)
        }
    }
}

/// The command line with the subcommand implied by the program's name.
fn with_subcommand(mut words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().and_then(|word| Path::new(word).file_name()).and_then(OsStr::to_str);
    if let Some(program) = PROGRAMS.into_iter().find(|program| name == Some(program)) {
        words.splice(..1, ["rzfs".into(), program.into()]);
    } else if name == Some(DUMP) {
        words.splice(..1, ["rzfs".into(), "zstream".into(), "dump".into()]);
    } else if HELPERS.into_iter().any(|helper| name == Some(helper)) || is_call_of_fuse(&words) {
        words.splice(..1, ["rzfs".into(), MOUNT_HELPER.into()]);
    }
    words
}

/// Whether this is a call by mount.fuse(8), which runs the program named in the type `fuse.rzfs`
/// where no helper is installed.
fn is_call_of_fuse(words: &[OsString]) -> bool {
    matches!(words, [_, source, directory, option, _]
        if !Arguments::has_command(source)
            && Path::new(directory).is_absolute()
            && option == "-o")
}

/// Logs warnings, or more with `-v`; `RUST_LOG` takes precedence. Phases of work are logged when
/// they end, with their duration.
fn log_to_stderr(verbose: u8) {
    let usual = match verbose {
        0 => "warn,fuser=off",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let stderr = || Shown::new(io::stderr());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(stderr)
        .with_span_events(FmtSpan::CLOSE)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_counts() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(with_subcommand(words("/sbin/zpool list -v")), words("rzfs zpool list -v"));
        assert_eq!(with_subcommand(words("zfs")), words("rzfs zfs"));
        assert_eq!(with_subcommand(words("zdb -v m")), words("rzfs zdb -v m"));
        assert_eq!(with_subcommand(words("rzfs zfs list")), words("rzfs zfs list"));
        assert_eq!(with_subcommand(words("zstream token 1-")), words("rzfs zstream token 1-"));
        assert_eq!(with_subcommand(words("zstreamdump -v")), words("rzfs zstream dump -v"));
        let helper = words("rzfs mount-helper a.img /mnt -o ro");
        for called in ["/sbin/mount.rzfs", "mount.fuse.rzfs", "/bin/rzfs"] {
            assert_eq!(with_subcommand(words(&format!("{called} a.img /mnt -o ro"))), helper);
        }
        for own in ["rzfs mount /img -o ro", "rzfs cp /a -o b", "rzfs a.img /mnt"] {
            assert_eq!(with_subcommand(words(own)), words(own));
        }
    }
}
