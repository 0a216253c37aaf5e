//! Opening an older state when the newest is damaged (spec 01, section 9.8).
//!
//! What a transaction group frees is not reused for two more, so the states of the two txgs before
//! the newest are intact except for damage. Older ones may not be.

use super::attempt::{Attempt, Purpose};
use super::discovery::DiscoveredPool;
use super::error::{ImportError, ImportFailure};
use super::options::{ImportOptions, ImportTarget, RewindPolicy};
use crate::pool::{Parts, Pool, ReadOnly};
use rzfs_format::Txg;
use rzfs_format::uberblock::Uberblock;

/// Transaction groups whose frees are not reused yet (`TXG_DEFER_SIZE`).
const DEFERRED_TXGS: u64 = 2;

impl Pool<ReadOnly> {
    /// Opens a pool for reading.
    ///
    /// # Errors
    /// [`ImportFailure`], which reports whether an older state could be opened.
    pub fn import(
        discovered: &DiscoveredPool,
        options: &ImportOptions,
    ) -> Result<Self, ImportFailure> {
        import(discovered, options).map(Self::new)
    }
}

fn import(discovered: &DiscoveredPool, options: &ImportOptions) -> Result<Parts, ImportFailure> {
    let fail = |error, recovery| {
        let (name, error) = (discovered.name().to_owned(), Box::new(error));
        ImportFailure { name, error, recovery }
    };
    let mut attempt = Attempt::new(discovered, options, Purpose::Import);
    let (limit, policy) = match options.target {
        ImportTarget::Newest => (None, options.rewind),
        ImportTarget::Txg(txg) => (Some(txg), RewindPolicy::Extreme),
        ImportTarget::Checkpoint => {
            return attempt.checkpoint().map_err(|error| fail(error, None));
        }
    };
    let error = match attempt.newest(limit, Txg(0)) {
        Ok(parts) => return Ok(parts),
        Err(error) => error,
    };
    let best = attempt.seen().uberblock.clone();
    let Some(best) = best.filter(|_| policy != RewindPolicy::Never && error.is_worth_rewinding())
    else {
        return Err(fail(error, None));
    };
    match (rewind(&mut attempt, &best, policy), policy) {
        (Ok(parts), RewindPolicy::Rewind | RewindPolicy::Extreme) => Ok(parts),
        (Ok(parts), _) => Err(fail(error, parts.rewound)),
        (Err(ImportError::Interrupted), _) => Err(fail(ImportError::Interrupted, None)),
        (Err(_), _) => Err(fail(error, None)),
    }
}

/// Tries the states before `best`, newest first, as far back as the policy allows.
fn rewind(
    attempt: &mut Attempt<'_>,
    best: &Uberblock,
    policy: RewindPolicy,
) -> Result<Parts, ImportError> {
    let safe = Txg(best.txg.get().saturating_sub(DEFERRED_TXGS));
    let oldest = if policy == RewindPolicy::Extreme { Txg::INITIAL } else { safe };
    let mut limit = best.txg;
    loop {
        limit = Txg(limit.get().checked_sub(1).ok_or(ImportError::NoUberblock)?);
        attempt.set_rewind(best, safe);
        match attempt.newest(Some(limit), oldest) {
            Ok(parts) => return Ok(parts),
            Err(error) if !error.is_worth_rewinding() => return Err(error),

            Err(error) => {
                tracing::info!(%limit, %error, "this state cannot be opened either");
                let tried = attempt.seen().uberblock.as_ref().map(|tried| tried.txg);
                limit = tried.filter(|tried| *tried <= limit).ok_or(error)?;
                if limit < oldest {
                    return Err(ImportError::NoUberblock);
                }
            }
        }
    }
}
