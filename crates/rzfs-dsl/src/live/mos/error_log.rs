//! Remembering damaged blocks in the pool, for `zpool status -v` (spec 01, section 7.3).
//!
//! What could not be read since the last txg goes into the log of errors found since the last
//! scrub; `pool::error_log` has the layouts.

use crate::live::LiveError;
use crate::live::error::UnlessDamaged;
use crate::live::mos::features::Features;
use crate::live::mos::{MosTx, number_key};
use crate::pool::{OBJECT_DIRECTORY as DIRECTORY, bookmark_of_error};
use rzfs_dmu::{DamagedBlock, Objset};
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::units::Bookmark;
use rzfs_format::{ObjectId, ObjsetId};
use std::collections::BTreeSet;

/// The names of both logs in the object directory.
const LOGS: [&str; 2] = ["errlog_last", "errlog_scrub"];

/// Logs the blocks that turned out to be damaged since the last txg.
pub(crate) fn log_damage(mos: &MosTx<'_>, features: &Features) -> Result<(), LiveError> {
    let damaged = mos.objset().pipeline().damage().take();
    if damaged.is_empty() {
        return Ok(());
    }
    add(mos, features, LOGS[0], &damaged)
}

/// Forgets the damaged blocks of a head that is destroyed.
pub(crate) fn forget(
    mos: &MosTx<'_>,
    features: &Features,
    head: ObjectId,
) -> Result<(), LiveError> {
    if !features.is_active(Feature::HeadErrorLog) {
        return Ok(());
    }
    for log in LOGS {
        let Some(log) = mos.object_of(DIRECTORY, log)? else { continue };
        let key = number_key(head.get());
        if let Some(blocks) = mos.object_of(log, &key)? {
            mos.destroy_or_leak(blocks)?;
            mos.remove(log, key.as_str())?;
        }
    }
    Ok(())
}

/// Has logs from before `head_errlog` name heads and births, as they do from now on. Blocks that
/// are not to be found any more are left out.
pub(crate) fn convert(mos: &MosTx<'_>, features: &Features) -> Result<(), LiveError> {
    for name in LOGS {
        let Some(old) = mos.object_of(DIRECTORY, name)? else { continue };
        let lost = |error: &LiveError| tracing::warn!(%error, "a log of errors is lost");
        let entries = mos.entries(old).unless_damaged(lost)?.unwrap_or_default();
        let keys = entries.iter().filter_map(|entry| entry.key.as_name());
        let bookmarks = keys.filter_map(bookmark_of_error);
        let damaged = bookmarks.filter_map(|bookmark| damaged_block(mos, bookmark)).collect();
        mos.remove(DIRECTORY, name)?;
        mos.destroy_or_leak(old)?;
        add(mos, features, name, &damaged)?;
    }
    Ok(())
}

/// The block that is at a place now.
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
    log: &str,
    damaged: &BTreeSet<DamagedBlock>,
) -> Result<(), LiveError> {
    let log = zap_of(mos, DIRECTORY, log)?;
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

/// The ZAP that an entry of another one names, which is made if need be.
fn zap_of(mos: &MosTx<'_>, parent: ObjectId, name: &str) -> Result<ObjectId, LiveError> {
    if let Some(zap) = mos.object_of(parent, name)? {
        return Ok(zap);
    }
    let zap = mos.create_zap(ObjectType::ERROR_LOG)?;
    mos.set(parent, name, zap.get())?;
    Ok(zap)
}

/// Adds a key unless it is there: a block that is wanted again and again changes nothing.
fn insert(mos: &MosTx<'_>, zap: ObjectId, key: &str) -> Result<(), LiveError> {
    if mos.lookup(zap, key)?.is_none() {
        mos.insert(zap, key, "")?;
    }
    Ok(())
}

/// The head of the file system or volume that a dataset is of; itself 0 for the MOS. A dataset
/// that is gone has none.
fn head_of(mos: &MosTx<'_>, objset: ObjsetId) -> Option<ObjectId> {
    if objset == ObjsetId::MOS {
        return Some(ObjectId(0));
    }
    let dataset: DslDataset = mos.record(ObjectId(objset.get())).ok()?;
    mos.record::<DslDir>(dataset.dir).ok()?.head_dataset
}
