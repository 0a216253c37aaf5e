//! Creating and removing bookmarks (spec 04, sections 15.2 and 15.4).

use super::destruction::left_behind;
use super::place::Place;
use super::{TaskContext, TaskError};
use crate::dataset::DatasetName;
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::error::UnlessDamaged;
use crate::live::space::limits::SpaceTier;
use crate::mos::extensible::{field, zapify};
use crate::mos::key_object::IV_SET;
use crate::mos::{MosSource, bookmarks, deadlist, names};
use rzfs_format::bookmark::{BookmarkRecord, SpaceSums};
use rzfs_format::features::Feature;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{Guid, ObjectId};
use rzfs_zap::{IntegerSize, NewZap, Normalization, ZapValue};
use std::collections::{BTreeMap, BTreeSet};

/// A bookmark to create from a snapshot or from another bookmark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewBookmark {
    /// `pool/file system@snapshot` or `pool/file system#bookmark`.
    pub source: String,
    /// `pool/file system#bookmark`.
    pub name: String,
}

/// The two parts of the name of a bookmark.
fn parts(name: &str) -> Result<(&str, &str), ChangeError> {
    let invalid = || ChangeError::InvalidName { name: name.to_owned() };
    if name.len() > DatasetName::MAX_LEN {
        return Err(ChangeError::NameTooLong { name: name.to_owned() });
    }
    let (head, mark) = name.split_once('#').ok_or_else(invalid)?;
    // The same characters as in snapshot names.
    let as_snapshot = format!("{head}@{mark}");
    DatasetName::parse(&as_snapshot).ok_or_else(invalid)?;
    Ok((head, mark))
}

impl TaskContext<'_> {
    /// Creates bookmarks: all of them, or none.
    pub(crate) fn create_bookmarks(&mut self, new: &[NewBookmark]) -> Result<(), TaskError> {
        let targets: Vec<String> = new.iter().map(|new| new.name.clone()).collect();
        let mut sources = new.iter().map(|new| new.source.as_str());
        let made = self.check_each(&targets, |this, name| {
            this.check_bookmark(name, sources.next().unwrap_or_default())
        })?;
        let mut marks = BTreeMap::new();
        for (name, (head, mark)) in targets.iter().zip(&made) {
            if *marks.entry((*head, parts(name)?.1)).or_insert(mark) != mark {
                return Err(ChangeError::Exists { name: name.clone() }.into());
            }
        }
        self.require_space(SpaceTier::Normal)?;
        for (name, (head, mark)) in targets.iter().zip(made) {
            let (_, short) = parts(name)?;
            if self.bookmark(head, short)?.is_some() {
                // It was requested twice.
                continue;
            }
            self.add_bookmark_entry(head, short, &mark)?;
            let text = format!("name={short} creation_txg={}", mark.creation_txg);
            self.log_dataset("bookmark", (name, head), text)?;
        }
        Ok(())
    }

    /// Removes bookmarks: all of them, or none. Missing ones are skipped.
    pub(crate) fn destroy_bookmarks_named(&mut self, names: &[String]) -> Result<(), TaskError> {
        let found = self.check_each(names, |this, name| {
            let (head, short) = parts(name)?;
            let Some(place) = this.find(head)? else { return Ok(None) };
            let mark = this.bookmark(place.head, short)?;
            Ok(mark.map(|(short, mark)| (place, short, mark)))
        })?;
        self.require_space(SpaceTier::Frees)?;
        let mut seen = BTreeSet::new();
        for (place, name, mark) in found.into_iter().flatten() {
            if !seen.insert((place.head, name.clone())) {
                // It was requested twice.
                continue;
            }
            self.remove_bookmark_entry(place.head, &name, &mark)?;
            self.free_redaction(&mark)?;
            self.unpin(&place, &mark)?;
            let text = format!("name={name}");
            self.log_dataset("remove bookmark", (&place.name, place.head), text)?;
        }
        Ok(())
    }

    /// All bookmarks of a head, by name.
    pub(super) fn bookmarks_of(
        &self,
        head: ObjectId,
    ) -> Result<Vec<(String, BookmarkRecord)>, LiveError> {
        let zap = bookmarks::of_head(&self.mos, head)?;
        zap.map_or_else(|| Ok(Vec::new()), |zap| bookmarks::all(&self.mos, zap))
    }

    /// A bookmark of a head, and its stored name.
    pub(super) fn bookmark(
        &self,
        head: ObjectId,
        name: &str,
    ) -> Result<Option<(String, BookmarkRecord)>, LiveError> {
        let Some(zap) = bookmarks::of_head(&self.mos, head)? else { return Ok(None) };
        let record = self.dataset(head)?;
        let Some((name, value)) = names::find(&self.mos, (&record, zap), name)? else {
            return Ok(None);
        };
        Ok(Some((name, bookmarks::record(zap, &value)?)))
    }

    fn check_bookmark(
        &mut self,
        name: &str,
        source: &str,
    ) -> Result<(ObjectId, BookmarkRecord), TaskError> {
        if !self.state.features.is_enabled(Feature::Bookmarks) {
            return Err(ChangeError::FeatureDisabled { feature: Feature::Bookmarks.name() }.into());
        }
        let (head, short) = parts(name)?;
        let place = self.head(head)?;
        if self.bookmark(place.head, short)?.is_some() {
            return Err(ChangeError::Exists { name: name.to_owned() }.into());
        }
        let not_ancestor = || ChangeError::NotAnAncestor { name: source.to_owned() };
        let mark = if source.contains('#') {
            let (of, mark) = parts(source)?;
            let of = self.head(of)?;
            let not_found = || ChangeError::NotFound { name: source.to_owned() };
            let (_, mark) = self.bookmark(of.head, mark)?.ok_or_else(not_found)?;
            if !self.is_before(place.head, (of.head, &mark))? {
                return Err(not_ancestor().into());
            }
            BookmarkRecord { redaction: None, ..mark }
        } else {
            let snapshot = self.snapshot(source)?;
            if !self.has_in_history(place.head, snapshot.id)? {
                return Err(not_ancestor().into());
            }
            self.bookmark_record_of(snapshot.id)?
        };
        Ok((place.head, mark))
    }

    /// Whether a snapshot belongs to a head or to its chain of origins.
    fn has_in_history(&self, head: ObjectId, snapshot: ObjectId) -> Result<bool, LiveError> {
        let chain = self.chain(head, None)?;
        Ok(chain.iter().skip(1).any(|(id, _)| *id == snapshot))
    }

    /// Whether a bookmark of another head lies in this head's own past.
    fn is_before(
        &mut self,
        head: ObjectId,
        (of, mark): (ObjectId, &BookmarkRecord),
    ) -> Result<bool, LiveError> {
        if of == head {
            return Ok(true);
        }
        let dir = self.dataset(of)?.dir;
        // The youngest of the other head's snapshots that is in this one's past.
        let chain = self.chain(head, None)?;
        let last = chain.iter().skip(1).find(|(_, snapshot)| snapshot.dir == dir);
        Ok(last.is_some_and(|(_, snapshot)| mark.creation_txg <= snapshot.creation_txg))
    }

    /// The bookmark of a snapshot.
    fn bookmark_record_of(&mut self, id: ObjectId) -> Result<BookmarkRecord, LiveError> {
        let snapshot = self.dataset(id)?;
        let identity = field(&self.mos, id, IV_SET)?.unwrap_or_default();
        let mut mark = BookmarkRecord {
            guid: snapshot.guid,
            creation_txg: snapshot.creation_txg,
            creation_time: snapshot.creation_time,
            ivset_guid: Guid(identity),
            ..BookmarkRecord::default()
        };
        let has_sums = self.state.features.is_enabled(Feature::BookmarkV2)
            && self.state.features.is_enabled(Feature::BookmarkWritten);
        if has_sums {
            mark.flags = BookmarkRecord::FLAG_HAS_SUMS | BookmarkRecord::FLAG_SNAPSHOT_EXISTS;
            mark.referenced = SpaceSums {
                used: snapshot.referenced,
                compressed: snapshot.compressed,
                uncompressed: snapshot.uncompressed,
            };
            let next = snapshot.next_snapshot.map(|next| self.dataset(next)).transpose()?;
            mark.freed_before_next = self.freed_sums(next.and_then(|next| next.deadlist))?;
        }
        Ok(mark)
    }

    /// The space sums of a dead list.
    pub(super) fn freed_sums(&self, list: Option<ObjectId>) -> Result<SpaceSums, LiveError> {
        let Some(list) = list else { return Ok(SpaceSums::default()) };
        let sums = deadlist::sums(&self.mos, list)?;
        Ok(SpaceSums {
            used: sums.used,
            compressed: sums.compressed,
            uncompressed: sums.uncompressed,
        })
    }

    /// Stores a bookmark of a head.
    pub(super) fn add_bookmark_entry(
        &mut self,
        head: ObjectId,
        name: &str,
        mark: &BookmarkRecord,
    ) -> Result<(), LiveError> {
        let mos = self.mos;
        let zap = match bookmarks::of_head(&mos, head)? {
            Some(zap) => zap,
            None => {
                let new = NewZap::new(mos.random()).normalization(Normalization::FOLD_CASE);
                let zap =
                    mos.create_zap_with(ObjectType::ZAP_METADATA, ObjectType::NONE, &[], &new)?;
                zapify(&mos, &mut self.state.features, head)?;
                mos.set(head, bookmarks::FIELD, zap.get())?;
                self.state.features.add(&mos, Feature::Bookmarks, 1)?;
                zap
            }
        };
        let words = mark.encode();
        let needed: &[u64] = if mark.needs_second_version() {
            self.state.features.add(&mos, Feature::BookmarkV2, 1)?;
            &words
        } else {
            words.get(..BookmarkRecord::FIRST_VERSION_WORDS).unwrap_or(&words)
        };
        if mark.has_sums() {
            self.state.features.add(&mos, Feature::BookmarkWritten, 1)?;
        }
        mos.insert(zap, name, ZapValue::new(IntegerSize::Eight, needed))
    }

    /// Removes a bookmark from a head.
    pub(super) fn remove_bookmark_entry(
        &mut self,
        head: ObjectId,
        name: &str,
        mark: &BookmarkRecord,
    ) -> Result<(), LiveError> {
        let mos = self.mos;
        let Some(zap) = bookmarks::of_head(&mos, head)? else { return Ok(()) };
        let words = mos.lookup(zap, name)?.map_or(0, |value| value.len());
        mos.remove(zap, name)?;
        if words > BookmarkRecord::FIRST_VERSION_WORDS {
            self.state.features.add(&mos, Feature::BookmarkV2, -1)?;
        }
        if mark.has_sums() {
            self.state.features.add(&mos, Feature::BookmarkWritten, -1)?;
        }
        if mos.entry_count(zap)? == 0 {
            mos.remove(head, bookmarks::FIELD)?;
            mos.destroy(zap)?;
            self.state.features.add(&mos, Feature::Bookmarks, -1)?;
        }
        Ok(())
    }

    /// Removes the key of a bookmark's txg from the dead lists, if it is no longer needed.
    fn unpin(&mut self, place: &Place, mark: &BookmarkRecord) -> Result<(), TaskError> {
        if !mark.has_sums() || mark.flags & BookmarkRecord::FLAG_SNAPSHOT_EXISTS != 0 {
            return Ok(());
        }
        let others = self.bookmarks_of(place.head)?;
        let is_pinned = others
            .iter()
            .any(|(_, other)| other.has_sums() && other.creation_txg == mark.creation_txg);
        if is_pinned {
            return Ok(());
        }
        let dropped = self.drop_keys((place.dir, Some(place.head)), mark.creation_txg);
        Ok(dropped.unless_damaged(left_behind).map(drop)?)
    }
}
