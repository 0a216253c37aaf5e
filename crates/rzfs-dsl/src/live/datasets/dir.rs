//! Dataset directories and the space charged to them (spec 04, sections 2 and 12.2).

use crate::dataset::limits::{MAX_DEPTH, SpaceLimits};
use crate::live::LiveError;
use crate::live::amounts::{SpaceDelta, apply};
use crate::mos::MosSource;
use crate::mos::live::MosTx;
use rzfs_format::dsl::{DslDir, UsedBreakdown};
use rzfs_format::object_type::ObjectType;
use rzfs_format::{FormatError, ObjectId};
use std::collections::BTreeMap;

/// Classes of space charged to a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpaceClass {
    /// Its head dataset.
    Head,
    /// Its snapshots.
    Snapshots,
    /// The unused part of its head's reservation.
    RefReservation,
    /// Its child directories.
    Children,
    /// The unused part of their reservations.
    ChildReservations,
}

impl SpaceClass {
    fn of(self, breakdown: &mut UsedBreakdown) -> &mut u64 {
        match self {
            Self::Head => &mut breakdown.head,
            Self::Snapshots => &mut breakdown.snapshots,
            Self::RefReservation => &mut breakdown.refreservation,
            Self::Children => &mut breakdown.children,
            Self::ChildReservations => &mut breakdown.child_reservations,
        }
    }
}

/// The directories in use, with pending changes.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    entries: BTreeMap<ObjectId, Entry>,
}

/// Hypothetical changes of the space used by directories.
#[derive(Default, Debug)]
pub(crate) struct SpaceTrial {
    used: BTreeMap<ObjectId, u64>,
    /// Space returned within a directory, which may be used there again however full the pool is.
    given_back: Option<(ObjectId, u64)>,
}

impl SpaceTrial {
    fn used(&self, id: ObjectId, dir: &DslDir) -> u64 {
        self.used.get(&id).copied().unwrap_or(dir.used)
    }
}

#[derive(Debug)]
struct Entry {
    dir: DslDir,
    is_dirty: bool,
}

impl Directories {
    /// The current record of a directory.
    pub(crate) fn get(&mut self, mos: &MosTx<'_>, id: ObjectId) -> Result<&DslDir, LiveError> {
        self.entry(mos, id).map(|entry| &entry.dir)
    }

    fn entry(&mut self, mos: &MosTx<'_>, id: ObjectId) -> Result<&mut Entry, LiveError> {
        use std::collections::btree_map::Entry as Place;
        match self.entries.entry(id) {
            Place::Occupied(place) => Ok(place.into_mut()),
            Place::Vacant(place) => {
                let dir = mos.record(id)?;
                Ok(place.insert(Entry { dir, is_dirty: false }))
            }
        }
    }

    /// Changes a directory.
    pub(crate) fn change<T>(
        &mut self,
        mos: &MosTx<'_>,
        id: ObjectId,
        change: impl FnOnce(&mut DslDir) -> T,
    ) -> Result<T, LiveError> {
        let entry = self.entry(mos, id)?;
        entry.is_dirty = true;
        Ok(change(&mut entry.dir))
    }

    /// Charges a directory, and its ancestors with what exceeds its reservation.
    pub(crate) fn charge(
        &mut self,
        mos: &MosTx<'_>,
        id: ObjectId,
        class: SpaceClass,
        delta: SpaceDelta,
    ) -> Result<(), LiveError> {
        if delta.is_zero() {
            return Ok(());
        }
        let mut next = Some(id);
        let mut used = delta.used;
        let mut from_child: Option<i64> = None;
        for _ in 0..MAX_DEPTH {
            let Some(id) = next else { return Ok(()) };
            let (above, parent) = self.change(mos, id, |dir| {
                let charged = |dir: &DslDir| dir.used.max(dir.reserved);
                let before = charged(dir);
                apply(&mut dir.used, used);
                match from_child {
                    _ if dir.flags & DslDir::FLAG_USED_BREAKDOWN == 0 => {}
                    None => apply(class.of(&mut dir.breakdown), used),
                    // `used` is what the child is charged for; while it is below its reservation,
                    // its real change differs.
                    Some(real) => {
                        apply(&mut dir.breakdown.children, real);
                        apply(&mut dir.breakdown.child_reservations, used.wrapping_sub(real));
                    }
                }
                apply(&mut dir.compressed, delta.compressed);
                apply(&mut dir.uncompressed, delta.uncompressed);
                (charged(dir).wrapping_sub(before).cast_signed(), dir.parent)
            })?;
            from_child = Some(used);
            used = above;
            next = parent;
        }
        Err(LiveError::corrupt(id)(FormatError::invalid("DSL directory", "its parents are a loop")))
    }

    /// Moves space of a directory from one class to another.
    pub(crate) fn transfer(
        &mut self,
        mos: &MosTx<'_>,
        id: ObjectId,
        (from, to): (SpaceClass, SpaceClass),
        bytes: i64,
    ) -> Result<(), LiveError> {
        self.change(mos, id, |dir| {
            if dir.flags & DslDir::FLAG_USED_BREAKDOWN == 0 {
                return;
            }
            apply(from.of(&mut dir.breakdown), bytes.wrapping_neg());
            apply(to.of(&mut dir.breakdown), bytes);
        })
    }

    /// Changes a directory's reservation, and charges its ancestors for it.
    pub(crate) fn set_reservation(
        &mut self,
        mos: &MosTx<'_>,
        id: ObjectId,
        reserved: u64,
    ) -> Result<(), LiveError> {
        let (more, parent) = self.change(mos, id, |dir| {
            let before = dir.used.max(dir.reserved);
            dir.reserved = reserved;
            (dir.used.max(reserved).wrapping_sub(before).cast_signed(), dir.parent)
        })?;
        let Some(parent) = parent else { return Ok(()) };
        let delta = SpaceDelta { used: more, ..SpaceDelta::default() };
        self.charge(mos, parent, SpaceClass::ChildReservations, delta)
    }

    /// Bytes that can still be charged to a directory of a pool with `pool` bytes in total (spec
    /// 04, section 12.4).
    pub(crate) fn available(
        &mut self,
        mos: &MosTx<'_>,
        id: ObjectId,
        pool: u64,
    ) -> Result<u64, LiveError> {
        self.available_in(&SpaceTrial::default(), mos, id, pool)
    }

    /// The same if the charges of a trial were made.
    pub(crate) fn available_in(
        &mut self,
        trial: &SpaceTrial,
        mos: &MosTx<'_>,
        id: ObjectId,
        pool: u64,
    ) -> Result<u64, LiveError> {
        let mut chain = Vec::new();
        let mut level = Some(id);
        while let Some(id) = level {
            if chain.len() == MAX_DEPTH {
                let problem = FormatError::invalid("DSL directory", "its parents are a loop");
                return Err(LiveError::corrupt(id)(problem));
            }
            let dir = self.get(mos, id)?;
            chain.push((id, SpaceLimits { used: trial.used(id, dir), ..SpaceLimits::of(dir) }));
            level = dir.parent;
        }
        let mut chain = chain.into_iter().rev();
        let Some((_, root)) = chain.next() else { return Ok(pool) };
        let space = SpaceLimits::available(std::iter::once(root), pool);
        Ok(chain.fold(space, |space, (id, limits)| match trial.given_back {
            Some((within, bytes)) if within == id => limits.within(space.saturating_add(bytes)),
            _ => limits.within(space),
        }))
    }

    /// Charges a directory, and its ancestors with what exceeds its reservation, in a trial. Space
    /// subtracted this way stays in `within`, if that is one of them.
    pub(crate) fn try_charge(
        &mut self,
        trial: &mut SpaceTrial,
        mos: &MosTx<'_>,
        (id, within): (ObjectId, Option<ObjectId>),
        bytes: i64,
    ) -> Result<(), LiveError> {
        let (mut level, mut bytes) = (Some(id), bytes);
        for _ in 0..MAX_DEPTH {
            let Some(id) = level else { return Ok(()) };
            let dir = self.get(mos, id)?;
            let before = trial.used(id, dir);
            let after = before.saturating_add_signed(bytes);
            trial.used.insert(id, after);
            if within == Some(id) && dir.parent.is_some() {
                let bytes = u64::try_from(bytes.wrapping_neg()).unwrap_or(0);
                trial.given_back = Some((id, bytes));
                return Ok(());
            }
            let charged = |used: u64| used.max(dir.reserved);
            bytes = charged(after).wrapping_sub(charged(before)).cast_signed();
            level = dir.parent;
        }
        Err(LiveError::corrupt(id)(FormatError::invalid("DSL directory", "its parents are a loop")))
    }

    /// The directories used so far, with their current records.
    pub(crate) fn known(&self) -> impl Iterator<Item = (ObjectId, &DslDir)> {
        self.entries.iter().map(|(id, entry)| (*id, &entry.dir))
    }

    /// Forgets a destroyed directory.
    pub(crate) fn forget(&mut self, id: ObjectId) {
        self.entries.remove(&id);
    }

    /// Writes the changed directories.
    pub(crate) fn write(&mut self, mos: &MosTx<'_>) -> Result<(), LiveError> {
        for (id, entry) in &mut self.entries {
            if std::mem::take(&mut entry.is_dirty) {
                mos.set_record(*id, &entry.dir)?;
            }
        }
        Ok(())
    }

    /// Creates a directory without a head: `name` in `parent`, or the root.
    pub(crate) fn create(
        &mut self,
        mos: &MosTx<'_>,
        place: Option<(ObjectId, &str)>,
        now: u64,
    ) -> Result<ObjectId, LiveError> {
        let mut dir = DslDir {
            creation_time: now,
            parent: place.map(|(parent, _)| parent),
            flags: DslDir::FLAG_USED_BREAKDOWN,
            ..DslDir::default()
        };
        let id = mos.create_record(ObjectType::DSL_DIR, 512, &dir)?;
        dir.properties = Some(mos.create_zap(ObjectType::DSL_PROPS)?);
        dir.children = Some(mos.create_zap(ObjectType::DSL_DIR_CHILD_MAP)?);
        if let Some((parent, name)) = place {
            let children = self.get(mos, parent)?.children;
            let missing = || FormatError::invalid("DSL directory", "it has no map of children");
            let children = children.ok_or_else(missing).map_err(LiveError::corrupt(parent))?;
            mos.insert(children, name, id.get())?;
        }
        self.entries.insert(id, Entry { dir, is_dirty: true });
        Ok(id)
    }
}
