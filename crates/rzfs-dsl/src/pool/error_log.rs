//! The persistent error logs: blocks that were found damaged (spec 01, section 7.3).
//!
//! ```text
//! without head_errlog:  ZAP "objset:object:level:block"
//! with it:              ZAP "head" ──> ZAP "object:level:block:birth"
//! ```
//! All numbers are in hex.

use super::attributes::{Attributes, MAX_ENTRIES};
use super::error::PoolError;
use super::features::FeatureStates;
use rzfs_dmu::Objset;
use rzfs_format::features::Feature;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, Level, ObjectId, ObjsetId, Txg};

/// Which log an error is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ErrorLog {
    /// Found since the last scrub was complete.
    Last,
    /// Found by the running or last scrub.
    Scrub,
}

/// A damaged block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ErrorLogEntry {
    /// Which log it is in.
    pub log: ErrorLog,
    /// The block; with `head_errlog` the objset is the head dataset's, whatever snapshot or clone
    /// the block was found in.
    pub bookmark: Bookmark,
    /// When the block was born; known with `head_errlog`.
    pub birth: Option<Txg>,
}

/// Reads both logs.
pub(super) fn read(
    mos: &Objset,
    directory: &Attributes,
    features: &FeatureStates,
) -> Result<Vec<ErrorLogEntry>, PoolError> {
    let mut errors = Vec::new();
    for (name, log) in [("errlog_last", ErrorLog::Last), ("errlog_scrub", ErrorLog::Scrub)] {
        let Some(object) = directory.object(name)? else { continue };
        let zap = Attributes::open(mos, object)?;
        for entry in zap.entries()? {
            let key = entry.key.as_name().unwrap_or_default();
            if !features.is_active(Feature::HeadErrorLog) {
                errors.push(entry_of(&zap, log, key, None)?);
                continue;
            }
            let head = numbers::<1>(key).ok_or_else(|| bad_key(&zap, key))?[0];
            let blocks = entry.value.first_u64().ok_or_else(|| bad_key(&zap, key))?;
            let blocks = Attributes::open(mos, ObjectId(blocks))?;
            for block in blocks.entries()? {
                let key = block.key.as_name().unwrap_or_default();
                errors.push(entry_of(&blocks, log, key, Some(ObjsetId(head)))?);
            }
            if errors.len() > MAX_ENTRIES {
                let (object, what, limit) = (zap.id(), "errors", MAX_ENTRIES);
                return Err(PoolError::TooMany { object, what, limit });
            }
        }
    }
    errors.sort();
    Ok(errors)
}

fn bad_key(zap: &Attributes, key: &[u8]) -> PoolError {
    let name = String::from_utf8_lossy(key).into_owned();
    PoolError::Entry { object: zap.id(), name, problem: "it does not name a block" }
}

/// The entry of a key; `head` is the head dataset whose log it is in, with `head_errlog`.
fn entry_of(
    zap: &Attributes,
    log: ErrorLog,
    key: &[u8],
    head: Option<ObjsetId>,
) -> Result<ErrorLogEntry, PoolError> {
    let bad = || bad_key(zap, key);
    let Some(head) = head else {
        return Ok(ErrorLogEntry { log, bookmark: bookmark_of(key).ok_or_else(bad)?, birth: None });
    };
    let [object, level, block, birth] = numbers(key).ok_or_else(bad)?;
    let bookmark = bookmark([head.get(), object, level, block]).ok_or_else(bad)?;
    Ok(ErrorLogEntry { log, bookmark, birth: Some(Txg(birth)) })
}

/// The block that a key names without `head_errlog`.
pub(crate) fn bookmark_of(key: &[u8]) -> Option<Bookmark> {
    bookmark(numbers(key)?)
}

fn bookmark([objset, object, level, block]: [u64; 4]) -> Option<Bookmark> {
    Some(Bookmark {
        objset: ObjsetId(objset),
        object: ObjectId(object),
        level: Level(i8::try_from(level.cast_signed()).ok()?),
        block: BlockId(block),
    })
}

/// `N` numbers in hex, joined by colons.
fn numbers<const N: usize>(key: &[u8]) -> Option<[u64; N]> {
    let text = std::str::from_utf8(key).ok()?;
    let mut numbers = [0; N];
    let mut parts = text.split(':');
    for number in &mut numbers {
        let digits = parts.next()?;
        if digits.starts_with('+') {
            return None;
        }
        *number = u64::from_str_radix(digits, 16).ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_hex_numbers_joined_by_colons() {
        assert_eq!(numbers(b"36:2:0:0"), Some([0x36, 2, 0, 0]));
        assert_eq!(numbers(b"0:1:ffffffffffffffff:a"), Some([0, 1, u64::MAX, 10]));
        assert_eq!(numbers(b"36"), Some([0x36]));
        for key in ["", "1:2:3", "1:2:3:4:5", "1:2:x:4", "+1:2:3:4", "1:2:3:10000000000000000"] {
            assert_eq!(numbers::<4>(key.as_bytes()), None, "{key}");
        }
    }
}
