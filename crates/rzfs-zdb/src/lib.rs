//! `rzfs zdb`: shows on-disk structures in the words and the layout of OpenZFS's zdb.
//!
//! Everything here only reads, and nothing depends on a mounted or imported pool.
#![forbid(unsafe_code)]

mod arguments;
mod blocks;
pub mod calendar;
mod checkpoint;
mod cloning;
mod config;
mod copy;
mod datasets;
mod dedup;
pub mod dedup_text;
mod embedded;
mod error;
mod history;
mod io_stats;
mod labels;
mod metaslabs;
mod raw_block;
mod session;
mod source;
mod text;
mod uberblock;

pub use arguments::Arguments;
pub use error::ZdbError;
pub use session::Verdict;

use calendar::Calendar;
use clap::Parser;
use rzfs_dsl::pool::Pool;
use session::Session;
use std::ffi::OsString;
use std::io::{self, Write};
use std::iter;

/// Parses the words after the name of the program.
///
/// # Errors
/// clap's error; a request for help counts as one, too.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let words = iter::once(OsString::from("zdb")).chain(words);
    CommandLine::try_parse_from(words).map(|line| line.arguments)
}

#[derive(Parser)]
#[command(name = "zdb", disable_version_flag = true, disable_help_flag = true)]
struct CommandLine {
    #[command(flatten)]
    arguments: Arguments,
}

/// Writes the requested report, and problems to `notes`.
///
/// The exit status is 0 if all is well, 1 if the command could not be carried out, else
/// [`Verdict::exit_status`].
#[must_use]
pub fn run(
    arguments: &Arguments,
    calendar: Calendar,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> u8 {
    let result = report(arguments, calendar, out, notes)
        .and_then(|verdict| out.flush().map(|()| verdict).map_err(ZdbError::from));
    match result {
        Ok(verdict) => verdict.exit_status(),
        Err(ZdbError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => 0,
        Err(error) => {
            // Partial findings are shown before the error; if that fails too there is nowhere left
            // to report.
            let _ = out.flush();
            let _ = writeln!(notes, "zdb: {error}");
            1
        }
    }
}

/// Writes the requested report, with progress and remarks to `notes`.
///
/// # Errors
/// [`ZdbError`] if the pool, device or output fails; damage that can be reported is not an error
/// but part of the [`Verdict`].
pub fn report(
    arguments: &Arguments,
    calendar: Calendar,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<Verdict, ZdbError> {
    arguments.check()?;
    let arguments = &arguments.with_verbosity();
    let mut session = Session { arguments, out, notes, calendar };
    let target = arguments.targets.first();
    if arguments.label > 0 {
        let device = target.ok_or_else(|| ZdbError::Usage("-l needs a device".into()))?;
        return labels::run(&mut session, device);
    }
    if arguments.embedded > 0 {
        return embedded::run(&mut session).map(|()| Verdict::Clean);
    }
    let Some(target) = target else {
        if arguments.config > 0 && arguments.exported == 0 {
            return config::run_cache_file(&mut session);
        }
        return Err(ZdbError::Usage("no pool is named".into()));
    };
    let pool = source::open(arguments, source::pool_name(target))?;
    open_report(&mut session, &pool, target)
}

/// Like [`report`], for a pool that is open already; the first word on the command line is still
/// its name.
///
/// # Errors
/// As [`report`].
pub fn report_on(
    pool: &Pool,
    arguments: &Arguments,
    calendar: Calendar,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<Verdict, ZdbError> {
    arguments.check()?;
    let arguments = &arguments.with_verbosity();
    let target = arguments.targets.first().map_or_else(|| pool.name(), String::as_str);
    open_report(&mut Session { arguments, out, notes, calendar }, pool, target)
}

fn open_report(session: &mut Session<'_>, pool: &Pool, target: &str) -> Result<Verdict, ZdbError> {
    let arguments = session.arguments;
    if let Some(key) = &arguments.key {
        source::load_key(pool, key)?;
    }
    if arguments.copy_object > 0 {
        return copy::run(session, pool).map(|()| Verdict::Clean);
    }
    if arguments.read_block > 0 {
        return raw_block::run(session, pool);
    }
    if arguments.simulate_dedup > 0 {
        return dedup::simulation::run(session, pool);
    }
    let rest = arguments.targets.get(1..).unwrap_or_default();
    if arguments.object_lookup > 0 {
        let [path] = rest else {
            return Err(ZdbError::Usage("-O needs a dataset and a path".into()));
        };
        return datasets::look_up(session, pool, target, path);
    }
    if arguments.shows_objects() && (target.contains(['/', '@', '#']) || !rest.is_empty()) {
        return datasets::run_one(session, pool, target, rest);
    }
    pool_report(session, pool)
}

/// Writes the requested report of a pool that is open already.
///
/// # Errors
/// As [`report`].
pub fn report_pool(
    arguments: &Arguments,
    calendar: Calendar,
    pool: &Pool,
    out: &mut dyn Write,
    notes: &mut dyn Write,
) -> Result<Verdict, ZdbError> {
    arguments.check()?;
    let arguments = &arguments.with_verbosity();
    pool_report(&mut Session { arguments, out, notes, calendar }, pool)
}

/// Writes the requested reports of a pool.
fn pool_report(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let arguments = session.arguments;
    let mut verdict = Verdict::Clean;
    if arguments.config > 0 {
        config::run(session, pool)?;
    }
    if arguments.uberblock > 0 {
        writeln!(session.out, "\nUberblock:")?;
        uberblock::print_fields(session, pool.uberblock())?;
        writeln!(session.out)?;
    }
    if arguments.dedup > 0 {
        dedup::report::run(session, pool)?;
    }
    if arguments.block_references > 0 {
        cloning::run(session, pool)?;
    }
    if metaslabs::is_wanted(arguments) {
        verdict = verdict.max(metaslabs::run(session, pool)?);
    }
    if arguments.datasets > 0 || arguments.intent_logs > 0 {
        verdict = verdict.max(datasets::run(session, pool)?);
    }
    if arguments.blocks > 0 || arguments.checksum > 0 {
        verdict = verdict.max(blocks::run(session, pool)?);
    }
    if arguments.io_stats > 0 {
        io_stats::run(session, pool)?;
    }
    if arguments.history > 0 {
        history::run(session, pool)?;
    }
    verdict = verdict.max(checkpoint::run(session, pool)?);
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_grammar_is_sound() {
        CommandLine::command().debug_assert();
    }
}
