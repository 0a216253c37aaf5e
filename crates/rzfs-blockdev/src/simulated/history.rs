//! The write history of a simulated device, and the states that crashes would leave.
//!
//! At the moment of a crash every write that was submitted is either *durable* (it had completed
//! before a flush was submitted, and that flush has completed) or *loose*. Of a loose write, any
//! set of sectors may have reached the medium:
//!
//! ```text
//! submitted  |--- write A ---|            |--- write B ---|
//!                              |- flush -|                       X crash: A durable, B loose
//! ```

use super::random::Random;
use bytes::Bytes;
use std::ops::Range;

/// A point in simulated time; all devices of a [`Simulation`](super::Simulation) share one clock,
/// which moves with every submission and completion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Moment(pub u64);

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// These bytes were written at this offset. A discard is a write of what the device makes of
    /// discarded sectors.
    Write {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
    /// All writes completed before the submission were made durable.
    Flush,
    /// The medium itself was changed, durably, without a write.
    Damage {
        /// Byte offset.
        offset: u64,
        /// The bytes.
        bytes: Bytes,
    },
}

/// A write or flush that reached the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When it was submitted.
    pub submitted: Moment,
    /// When success was reported; `None` if it was not.
    pub completed: Option<Moment>,
    /// The event.
    pub kind: EventKind,
}

/// The effect of a crash on loose writes.
#[derive(Clone, Debug)]
pub enum Loss {
    /// They reach the medium.
    Nothing,
    /// They are lost.
    Everything,
    /// They are lost except for those with `true` in the list, in the order of submission.
    AllBut(Vec<bool>),
    /// Each is lost, kept or torn at random: of a torn one, each sector is kept or not.
    Random {
        /// Same seed, same loss.
        seed: u64,
    },
}

/// All writes to a device, in order.
#[derive(Clone, Debug)]
pub struct History {
    pub(super) base: Bytes,
    pub(super) sector: u64,
    pub(super) events: Vec<Event>,
}

impl History {
    pub(super) const fn new(base: Bytes, sector: u64) -> Self {
        Self { base, sector, events: Vec::new() }
    }

    /// Writes and flushes, in the order in which the device performed them.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Every moment at which something was submitted or completed, in order: the moments at which
    /// crashes can differ.
    #[must_use]
    pub fn moments(&self) -> Vec<Moment> {
        let mut moments: Vec<_> = self
            .events
            .iter()
            .flat_map(|event| [Some(event.submitted), event.completed])
            .flatten()
            .collect();
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    /// How many writes a crash at this moment could lose.
    #[must_use]
    pub fn loose_writes(&self, at: Moment) -> usize {
        let durable_before = self.durable_before(at);
        self.events.iter().filter(|event| event.is_loose(at, durable_before)).count()
    }

    /// The contents of the medium after a crash at this moment.
    #[must_use]
    pub fn crash_image(&self, at: Moment, loss: &Loss) -> Vec<u8> {
        let mut image = self.base.to_vec();
        for (offset, bytes) in self.crash_writes(at, loss) {
            place(&mut image, offset, bytes);
        }
        image
    }

    /// The parts of all writes that survive a crash at this moment, in order: applied to the
    /// initial content, they give [`Self::crash_image`].
    #[must_use]
    pub fn crash_writes(&self, at: Moment, loss: &Loss) -> Vec<(u64, Bytes)> {
        let durable_before = self.durable_before(at);
        let mut writes = Vec::new();
        let mut index = 0;
        for event in self.events.iter().filter(|event| event.submitted <= at) {
            let (EventKind::Write { offset, bytes } | EventKind::Damage { offset, bytes }) =
                &event.kind
            else {
                continue;
            };
            if event.is_loose(at, durable_before) {
                for part in loss.kept(index, bytes.len(), self.sector) {
                    writes.push((*offset + part.start as u64, bytes.slice(part)));
                }
                index += 1;
            } else {
                writes.push((*offset, bytes.clone()));
            }
        }
        writes
    }

    /// Drops writes that have completed and are not durable: no later crash finds anything of them.
    /// Returns the contents of the medium, including writes in progress.
    pub(super) fn drop_loose(&mut self, at: Moment) -> Vec<u8> {
        let durable_before = self.durable_before(at);
        for event in &mut self.events {
            let is_dropped = event.completed.is_some() && event.is_loose(at, durable_before);
            if let EventKind::Write { bytes, .. } = &mut event.kind
                && is_dropped
            {
                bytes.clear();
            }
        }
        self.crash_image(at, &Loss::Nothing)
    }

    /// Writes that completed before this moment are durable at the moment of the crash.
    fn durable_before(&self, at: Moment) -> Moment {
        let flushes = self.events.iter().filter(|event| {
            event.kind == EventKind::Flush && event.completed.is_some_and(|when| when <= at)
        });
        flushes.map(|flush| flush.submitted).max().unwrap_or(Moment(0))
    }
}

impl Event {
    /// Whether this is a write that a crash at this moment could lose.
    fn is_loose(&self, at: Moment, durable_before: Moment) -> bool {
        matches!(self.kind, EventKind::Write { .. })
            && self.submitted <= at
            && self.completed.is_none_or(|when| when >= durable_before)
    }
}

impl Loss {
    /// The parts of the loose write number `index`, of `len` bytes, that reach the medium.
    fn kept(&self, index: usize, len: usize, sector: u64) -> Vec<Range<usize>> {
        let all = 0..len;
        let keep = match self {
            Self::Nothing => true,
            Self::Everything => false,
            Self::AllBut(kept) => kept.get(index).copied().unwrap_or(false),
            Self::Random { seed } => {
                let mut random = Random::derive(*seed, index as u64);
                match random.below(3) {
                    0 => false,
                    1 => true,
                    _ => return torn(&mut random, len, sector),
                }
            }
        };
        if keep { vec![all] } else { Vec::new() }
    }
}

/// A random choice of the sectors of something `len` bytes long.
pub(super) fn torn(random: &mut Random, len: usize, sector: u64) -> Vec<Range<usize>> {
    let sector = usize::try_from(sector).unwrap_or(usize::MAX);
    let starts = (0..len).step_by(sector);
    starts
        .filter(|_| random.coin())
        .map(|start| start..start.saturating_add(sector).min(len))
        .collect()
}

/// Writes bytes to an image; those outside are dropped.
pub(super) fn place(image: &mut [u8], offset: u64, bytes: Bytes) {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(image.len());
    let end = start.saturating_add(bytes.len()).min(image.len());
    if let (Some(target), Some(source)) = (image.get_mut(start..end), bytes.get(..end - start)) {
        target.copy_from_slice(source);
    }
}
