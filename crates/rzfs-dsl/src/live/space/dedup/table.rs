//! One dedup table in memory: the entries used by the syncing txg.

use super::codec;
use super::log::{LogLimits, Logged, TableLog};
use crate::live::LiveError;
use crate::mos::live::LiveMos;
use crate::mos::{MosSource, OBJECT_DIRECTORY};
use rzfs_dmu::write::DedupPlace;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::ddt::{DdtClass, DdtHistogram, DdtKey, DdtLayout, DdtSlot, DdtStats, DdtValue};
use rzfs_format::{FormatError, ObjectId};
use std::collections::BTreeMap;

/// An entry that was looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) value: DdtValue,
    /// The ZAP that has an older version of it.
    pub(super) stored: Option<DdtClass>,
    /// The value counted in the histogram of that ZAP.
    pub(super) counted: Option<DdtValue>,
    pub(super) is_changed: bool,
}

impl Entry {
    pub(super) fn slots_mut(&mut self) -> &mut [DdtSlot] {
        match &mut self.value {
            DdtValue::Traditional(slots) => slots,
            DdtValue::Flat { slot, .. } => std::slice::from_mut(slot),
        }
    }

    pub(super) fn used_slots(&self) -> impl Iterator<Item = &DdtSlot> {
        self.value.used_slots()
    }

    /// The slot of blocks with this many copies.
    pub(super) fn slot_of(&mut self, copies: usize) -> Option<&mut DdtSlot> {
        match &mut self.value {
            DdtValue::Traditional(slots) => slots.get_mut(copies),
            DdtValue::Flat { slot, .. } => Some(slot),
        }
    }

    /// Records a change at `now`, in seconds since 1970.
    pub(super) fn touch(&mut self, now: u64) {
        self.is_changed = true;
        if let DdtValue::Flat { class_start, .. } = &mut self.value {
            *class_start = now;
        }
    }
}

/// Where the names of a table's objects are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// The pool's object directory.
    Pool,
    /// The table's own directory, with its logs.
    Own { directory: ObjectId },
}

/// The table of a checksum function.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) checksum: ChecksumFunction,
    pub(super) layout: DdtLayout,
    /// The limits of its logs.
    pub(super) limits: LogLimits,
    /// `None`: it is not on disk.
    pub(super) home: Option<Home>,
    pub(super) zaps: BTreeMap<DdtClass, ObjectId>,
    pub(super) histograms: BTreeMap<DdtClass, DdtHistogram>,
    pub(super) entries: BTreeMap<DdtKey, Entry>,
    /// Its logs, if any.
    pub(super) log: Option<TableLog>,
    /// Whether it is damaged: an entry may be in two ZAPs.
    pub(super) is_damaged: bool,
    /// Whether its logs cannot be read: the ZAPs may be out of date, so lookups find nothing,
    /// nothing is added, and blocks that it may have are not freed.
    pub(super) is_unusable: bool,
}

impl Table {
    pub(super) const fn new(
        checksum: ChecksumFunction,
        layout: DdtLayout,
        limits: LogLimits,
    ) -> Self {
        Self {
            checksum,
            layout,
            limits,
            home: None,
            zaps: BTreeMap::new(),
            histograms: BTreeMap::new(),
            entries: BTreeMap::new(),
            log: None,
            is_damaged: false,
            is_unusable: false,
        }
    }

    /// Whether it is empty and removed.
    pub(super) fn is_gone(&self) -> bool {
        self.home.is_none() && self.entries.is_empty()
    }

    /// The entry of a key.
    pub(super) fn entry(
        &mut self,
        mos: &LiveMos,
        key: DdtKey,
    ) -> Result<Option<&mut Entry>, LiveError> {
        if self.is_unusable {
            let problem = FormatError::invalid("dedup table", "its logs cannot be read");
            return Err(LiveError::corrupt(self.directory())(problem));
        }
        if !self.entries.contains_key(&key)
            && let Some(entry) = self.find(mos, &key)?
        {
            self.entries.insert(key, entry);
        }
        Ok(self.entries.get_mut(&key))
    }

    /// The object with the names of its objects.
    fn directory(&self) -> ObjectId {
        match self.home {
            Some(Home::Own { directory }) => directory,
            _ => OBJECT_DIRECTORY,
        }
    }

    /// The entry of a key in the logs, or else in the ZAPs.
    fn find(&self, mos: &LiveMos, key: &DdtKey) -> Result<Option<Entry>, LiveError> {
        if let Some(&Logged { value, stored }) = self.log.as_ref().and_then(|log| log.get(key)) {
            // The version in the ZAPs is older.
            let entry = Entry { value, stored, counted: None, is_changed: false };
            return Ok(value.used_slots().next().map(|_| entry));
        }
        for (class, zap) in &self.zaps {
            let Some(value) = mos.lookup(*zap, key.0.as_slice())? else { continue };
            let value = codec::decode(value.as_bytes().unwrap_or_default(), self.layout);
            let value = value.map_err(LiveError::corrupt(*zap))?;
            let (stored, counted) = (Some(*class), Some(value));
            return Ok(Some(Entry { value, stored, counted, is_changed: false }));
        }
        Ok(None)
    }

    /// Adds an entry of a block with one reference.
    pub(super) fn insert(&mut self, key: DdtKey, place: DedupPlace, copies: usize, now: u64) {
        let slot = DdtSlot { dvas: place.dvas, references: 1, birth: place.birth };
        let value = match self.layout {
            DdtLayout::Flat => DdtValue::Flat { slot, class_start: now },
            DdtLayout::Traditional => {
                let mut slots = [DdtSlot::default(); 4];
                if let Some(place) = slots.get_mut(copies) {
                    *place = slot;
                }
                DdtValue::Traditional(slots)
            }
        };
        let entry = Entry { value, stored: None, counted: None, is_changed: true };
        self.entries.insert(key, entry);
    }

    /// Bytes used by its ZAPs and logs.
    pub(super) fn size_on_disk(&self, mos: &LiveMos) -> Result<u64, LiveError> {
        let logs = self.log.iter().flat_map(TableLog::objects);
        let mut size = 0_u64;
        for object in self.zaps.values().copied().chain(logs) {
            size = size.saturating_add(mos.objset().object(object)?.used());
        }
        Ok(size)
    }

    /// Deflated bytes saved by shared references.
    pub(super) fn saved(&self) -> u64 {
        let mut total = DdtStats::default();
        self.histograms.values().for_each(|histogram| total.add(&histogram.total()));
        self.log.iter().for_each(|log| total.add(&log.total()));
        total.ref_dsize.saturating_sub(total.dsize)
    }
}
