//! The persistent error logs: damaged blocks (spec 01, section 7.3).
//!
//! ```text
//! without head_errlog:  ZAP "objset:object:level:block"
//! with it:              ZAP "head" ──> ZAP "object:level:block:birth"
//! ```
//! All numbers are in hex.
//!
//! Read errors since the last txg go into the log of errors found since the last scrub.

use super::error::MosError;
use super::features::{FeatureStates, Features};
use super::live::MosTx;
use super::{MAX_ENTRIES, MosSource, OBJECT_DIRECTORY as DIRECTORY, number_key, one_number};
use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use rzfs_dmu::{DamagedBlock, Objset};
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockId, Level, ObjectId, ObjsetId, Txg};
use std::collections::BTreeSet;

/// The log that an error is in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ErrorLog {
    /// Found since the last completed scrub.
    Last,
    /// Found by the current or last scrub.
    Scrub,
}

impl ErrorLog {
    const ALL: [Self; 2] = [Self::Last, Self::Scrub];

    /// The name in the object directory.
    const fn name(self) -> &'static str {
        match self {
            Self::Last => "errlog_last",
            Self::Scrub => "errlog_scrub",
        }
    }
}

/// A damaged block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ErrorLogEntry {
    /// Its log.
    pub log: ErrorLog,
    /// The block; with `head_errlog` the objset is that of the head dataset, whatever snapshot or
    /// clone the block was found in.
    pub bookmark: Bookmark,
    /// The birth txg; known with `head_errlog`.
    pub birth: Option<Txg>,
}

/// Reads both logs.
pub(crate) fn read<M: MosSource>(
    mos: &M,
    features: &FeatureStates,
) -> Result<Vec<ErrorLogEntry>, M::Error> {
    let mut errors = Vec::new();
    for log in ErrorLog::ALL {
        let Some(zap) = mos.object_of(DIRECTORY, log.name())? else { continue };
        for entry in mos.short_list(zap)? {
            let key = entry.key.as_name().unwrap_or_default();
            if !features.is_active(Feature::HeadErrorLog) {
                errors.push(entry_of(zap, log, key, None)?);
                continue;
            }
            let [head] = numbers(key).ok_or_else(|| bad_key(zap, key))?;
            let blocks = ObjectId(one_number(zap, &String::from_utf8_lossy(key), &entry.value)?);
            for block in mos.short_list(blocks)? {
                let key = block.key.as_name().unwrap_or_default();
                errors.push(entry_of(blocks, log, key, Some(ObjsetId(head)))?);
            }
            if errors.len() > MAX_ENTRIES {
                let (object, what, limit) = (zap, "errors", MAX_ENTRIES);
                return Err(MosError::TooMany { object, what, limit }.into());
            }
        }
    }
    errors.sort();
    Ok(errors)
}

fn bad_key(object: ObjectId, key: &[u8]) -> MosError {
    let name = String::from_utf8_lossy(key).into_owned();
    MosError::Entry { object, name, problem: "it does not name a block" }
}

/// The entry of a key; `head` is the head dataset that owns the log, with `head_errlog`.
fn entry_of(
    zap: ObjectId,
    log: ErrorLog,
    key: &[u8],
    head: Option<ObjsetId>,
) -> Result<ErrorLogEntry, MosError> {
    let bad = || bad_key(zap, key);
    let Some(head) = head else {
        return Ok(ErrorLogEntry { log, bookmark: bookmark_of(key).ok_or_else(bad)?, birth: None });
    };
    let [object, level, block, birth] = numbers(key).ok_or_else(bad)?;
    let bookmark = bookmark([head.get(), object, level, block]).ok_or_else(bad)?;
    Ok(ErrorLogEntry { log, bookmark, birth: Some(Txg(birth)) })
}

/// The block named by a key without `head_errlog`.
fn bookmark_of(key: &[u8]) -> Option<Bookmark> {
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

/// Logs the blocks found damaged since the last txg.
pub(crate) fn log_damage(mos: &MosTx<'_>, features: &Features) -> Result<(), LiveError> {
    let damaged = mos.objset().pipeline().damage().take();
    if damaged.is_empty() {
        return Ok(());
    }
    add(mos, features, ErrorLog::Last, &damaged)
}

/// Removes the damaged blocks of a destroyed head.
pub(crate) fn forget(
    mos: &MosTx<'_>,
    features: &Features,
    head: ObjectId,
) -> Result<(), LiveError> {
    if !features.is_active(Feature::HeadErrorLog) {
        return Ok(());
    }
    for log in ErrorLog::ALL {
        let Some(log) = mos.object_of(DIRECTORY, log.name())? else { continue };
        let key = number_key(head.get());
        if let Some(blocks) = mos.object_of(log, &key)? {
            mos.destroy_or_leak(blocks)?;
            mos.remove(log, key.as_str())?;
        }
    }
    Ok(())
}

/// Moves damaged blocks born up to a txg from one head to another.
pub(crate) fn hand_over(
    mos: &MosTx<'_>,
    features: &Features,
    (from, to): (ObjectId, ObjectId),
    up_to: Txg,
) -> Result<(), LiveError> {
    if !features.is_active(Feature::HeadErrorLog) {
        return Ok(());
    }
    for log in ErrorLog::ALL {
        let Some(log) = mos.object_of(DIRECTORY, log.name())? else { continue };
        let Some(blocks) = mos.object_of(log, &number_key(from.get()))? else { continue };
        for entry in mos.entries(blocks)? {
            let key = entry.key.as_name().and_then(|key| std::str::from_utf8(key).ok());
            let Some(key) = key.filter(|key| born_in(key).is_some_and(|txg| txg <= up_to)) else {
                continue;
            };
            insert(mos, zap_of(mos, log, &number_key(to.get()))?, key)?;
            mos.remove(blocks, key)?;
        }
    }
    Ok(())
}

/// The birth txg in a key of a head's log.
fn born_in(key: &str) -> Option<Txg> {
    let [_, _, _, birth] = numbers(key.as_bytes())?;
    Some(Txg(birth))
}

/// Converts logs to the `head_errlog` format, with heads and births. Blocks that no longer exist
/// are left out.
pub(crate) fn convert(mos: &MosTx<'_>, features: &Features) -> Result<(), LiveError> {
    for log in ErrorLog::ALL {
        let Some(old) = mos.object_of(DIRECTORY, log.name())? else { continue };
        let lost = |error: &LiveError| tracing::warn!(%error, "a log of errors is lost");
        let entries = mos.entries(old).unless_damaged(lost)?.unwrap_or_default();
        let keys = entries.iter().filter_map(|entry| entry.key.as_name());
        let bookmarks = keys.filter_map(bookmark_of);
        let damaged = bookmarks.filter_map(|bookmark| damaged_block(mos, bookmark)).collect();
        mos.remove(DIRECTORY, log.name())?;
        mos.destroy_or_leak(old)?;
        add(mos, features, log, &damaged)?;
    }
    Ok(())
}

/// The current block at a location.
fn damaged_block(mos: &MosTx<'_>, bookmark: Bookmark) -> Option<DamagedBlock> {
    let dataset: DslDataset = mos.record(ObjectId(bookmark.objset.get())).ok()?;
    let pipeline = mos.objset().synced().pipeline().clone();
    let objset = Objset::open(&pipeline, bookmark.objset, &dataset.root, None).ok()?;
    let pointer = objset.pointer_at(&bookmark).ok().filter(|pointer| !pointer.is_hole())?;
    Some(DamagedBlock { bookmark, birth: pointer.physical_birth() })
}

/// Adds blocks to a log.
fn add(
    mos: &MosTx<'_>,
    features: &Features,
    log: ErrorLog,
    damaged: &BTreeSet<DamagedBlock>,
) -> Result<(), LiveError> {
    let log = zap_of(mos, DIRECTORY, log.name())?;
    for DamagedBlock { bookmark, birth } in damaged {
        if !features.is_active(Feature::HeadErrorLog) {
            let key = format!("{:x}:{}", bookmark.objset.get(), place(bookmark));
            insert(mos, log, &key)?;
        } else if let Some(head) = head_of(mos, bookmark.objset) {
            let blocks = zap_of(mos, log, &number_key(head.0))?;
            insert(mos, blocks, &format!("{}:{:x}", place(bookmark), birth.get()))?;
        }
    }
    Ok(())
}

/// A block's place in its object set.
fn place(bookmark: &Bookmark) -> String {
    let Bookmark { object, level, block, .. } = bookmark;
    let level = i64::from(level.0).cast_unsigned();
    format!("{:x}:{level:x}:{:x}", object.get(), block.0)
}

/// The ZAP under a name in another one, created if needed.
fn zap_of(mos: &MosTx<'_>, parent: ObjectId, name: &str) -> Result<ObjectId, LiveError> {
    if let Some(zap) = mos.object_of(parent, name)? {
        return Ok(zap);
    }
    let zap = mos.create_zap(ObjectType::ERROR_LOG)?;
    mos.set(parent, name, zap.get())?;
    Ok(zap)
}

/// Adds a missing key, so that a block that is read again and again changes nothing.
fn insert(mos: &MosTx<'_>, zap: ObjectId, key: &str) -> Result<(), LiveError> {
    if mos.lookup(zap, key)?.is_none() {
        mos.insert(zap, key, "")?;
    }
    Ok(())
}

/// The head of the file system or volume that a dataset belongs to; 0 for the MOS. A destroyed
/// dataset has none.
fn head_of(mos: &MosTx<'_>, objset: ObjsetId) -> Option<ObjectId> {
    if objset == ObjsetId::MOS {
        return Some(ObjectId(0));
    }
    let dataset: DslDataset = mos.record(ObjectId(objset.get())).ok()?;
    mos.record::<DslDir>(dataset.dir).ok()?.head_dataset
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
