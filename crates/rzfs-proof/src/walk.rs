//! The walk over all blocks: leaks, double allocations, checksums.

use crate::ProofError;
use rzfs_dsl::Pool;
use rzfs_zdb::calendar::Calendar;
use rzfs_zdb::{self as zdb, Arguments, Verdict};

/// Maximum lines of findings shown.
const SHOWN: usize = 20;

/// Walks all blocks of a pool as `zdb -bcc` does; returns a summary of errors.
///
/// # Errors
/// The walk cannot be made.
pub fn walk(pool: &Pool) -> Result<Option<String>, ProofError> {
    let findings = walk_in_full(pool)?;
    let shown = findings.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(" | ");
    Ok((!findings.is_empty()).then_some(shown))
}

/// As [`walk`]; returns all errors, line by line.
///
/// # Errors
/// The walk cannot be made.
pub fn walk_in_full(pool: &Pool) -> Result<Vec<String>, ProofError> {
    let arguments = Arguments { blocks: 1, checksum: 2, ..Arguments::default() };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let verdict = zdb::report_pool(&arguments, Calendar::utc(), pool, &mut out, &mut notes)?;
    if verdict == Verdict::Clean {
        return Ok(Vec::new());
    }
    let text = [out, notes].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
}
