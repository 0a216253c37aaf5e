//! Writing entries: which form a segment takes and where padding goes (spec 06, sections 4.5, 4.6
//! and 4.10).

use super::{
    Action, Entry, Form, Geometry, ONE_WORD_MAX_RUN, ONE_WORD_OFFSET_LIMIT, Run, TWO_WORD_MAX_RUN,
    WORD_SIZE,
};
use crate::units::{Txg, VdevId};

/// Which entry forms a pool's space maps may have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SpaceMapVersion {
    /// One word only.
    One,
    /// Also two words: the feature `spacemap_v2` is active.
    Two,
}

/// Collects the words that one append adds to a space map.
///
/// It knows where in a block of the object the next word goes, so that no entry of two words
/// crosses the end of a block.
#[derive(Debug)]
pub struct EntryWriter {
    words: Vec<u64>,
    position: u64,
    block_words: u64,
    version: SpaceMapVersion,
}

impl EntryWriter {
    /// A writer that continues a map of `length` bytes in blocks of `block_size` bytes.
    #[must_use]
    pub fn new(length: u64, block_size: u64, version: SpaceMapVersion) -> Self {
        Self {
            words: Vec::new(),
            position: length / WORD_SIZE,
            block_words: (block_size / WORD_SIZE).max(2),
            version,
        }
    }

    /// Adds the note that opens the entries of one txg, sync pass and action.
    pub fn debug(&mut self, action: Action, pass: u16, txg: Txg) {
        self.push(Entry::Debug { action: action.bit() as u8, pass, txg });
    }

    /// Adds a segment of `length` units from `offset` on; `vdev` is given in log maps.
    ///
    /// The form is chosen once for the segment, which is then cut into entries of at most the
    /// form's longest run.
    pub fn segment(&mut self, action: Action, offset: u64, length: u64, vdev: Option<VdevId>) {
        let wide = self.version == SpaceMapVersion::Two
            && (vdev.is_some() || offset >= ONE_WORD_OFFSET_LIMIT || length > ONE_WORD_MAX_RUN);
        let (form, max_run) = if wide {
            (Form::TwoWords { vdev: vdev.unwrap_or(VdevId(0)) }, TWO_WORD_MAX_RUN)
        } else {
            (Form::OneWord, ONE_WORD_MAX_RUN)
        };
        let (mut offset, mut rest) = (offset, length);
        while rest > 0 {
            let run = rest.min(max_run);
            self.push(Entry::Run(Run { action, offset, length: run, form }));
            offset += run;
            rest -= run;
        }
    }

    fn push(&mut self, entry: Entry) {
        if entry.words() == 2 && self.position % self.block_words == self.block_words - 1 {
            self.push(Entry::Padding);
        }
        let (first, second) = entry.to_words();
        self.words.push(first);
        self.words.extend(second);
        self.position += entry.words();
    }

    /// Length of the map in bytes once the words are appended.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.position * WORD_SIZE
    }

    /// The words to append.
    #[must_use]
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }
}

/// An upper bound of the bytes that segments take in a metaslab's map, the figure that decides
/// about condensing (spec 06, section 4.10).
///
/// `segments[i]` counts the segments of `1 << i` bytes up to twice that. The result saturates.
#[must_use]
pub fn encoded_size_bound(
    segments: &[u64; 64],
    geometry: Geometry,
    block_size: u64,
    version: SpaceMapVersion,
) -> u64 {
    let one_word_top = geometry.shift + 14;
    let two_word_top = geometry.shift + 35;
    let pieces = |bucket: u32, top: u32| 1_u64 << bucket.saturating_sub(top).min(63);
    let narrow = geometry.size < ONE_WORD_OFFSET_LIMIT - 1;
    let mut size = 0_u64;
    for (bucket, &count) in (0_u32..).zip(segments) {
        let cost = match version {
            SpaceMapVersion::One => pieces(bucket, one_word_top).saturating_mul(WORD_SIZE),
            SpaceMapVersion::Two if bucket <= one_word_top && narrow => WORD_SIZE,
            SpaceMapVersion::Two => pieces(bucket, two_word_top).saturating_mul(2 * WORD_SIZE),
        };
        size = size.saturating_add(count.saturating_mul(cost));
    }
    if version == SpaceMapVersion::Two {
        let padding = (size / block_size.max(1)).saturating_add(1).saturating_mul(WORD_SIZE);
        size = size.saturating_add(padding);
    }
    size
}
