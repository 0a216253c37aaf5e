//! The walk over all blocks: leaks, double allocations, checksums.

use crate::ProofError;
use rzfs::calendar::Calendar;
use rzfs::zdb::{self, Arguments, Verdict};
use rzfs_dsl::Pool;

/// Walks all blocks of a pool as `zdb -bcc` does; says what is wrong.
///
/// # Errors
/// The walk cannot be made.
pub fn walk(pool: &Pool) -> Result<Option<String>, ProofError> {
    let arguments = Arguments { blocks: 1, checksum: 2, ..Arguments::default() };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    let verdict = zdb::report_pool(&arguments, Calendar::utc(), pool, &mut out, &mut notes)?;
    Ok((verdict != Verdict::Clean).then(|| {
        let text = [out, notes].concat();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.into_iter().take(20).collect::<Vec<_>>().join(" | ")
    }))
}
