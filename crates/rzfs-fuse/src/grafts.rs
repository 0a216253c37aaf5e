//! Several file systems in one mount.
//!
//! ```text
//! file system 0    / ── home       its directory "home" is number 7
//! file system 1    grafted at (0, 7): whoever looks "home" up finds the root of 1
//! ```
//! Each file system numbers its files by itself (see [`crate::inode`]), so the mount numbers them
//! anew: the upper 16 bits tell for which upper 16 bits of which file system a number stands. The
//! live files of file system 0 keep their numbers.

use fuser::INodeNo;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const UPPER: u32 = 48;
const LOWER: u64 = (1 << UPPER) - 1;

/// Where file systems are grafted, and the numbers of the mount.
#[derive(Debug, Default)]
pub(crate) struct Grafts {
    /// The file systems by the directories that they stand for.
    at: HashMap<(usize, INodeNo), usize>,
    /// The file systems and upper bits that are known; the position + 1 is the number.
    known: Mutex<Vec<(usize, u64)>>,
}

impl Grafts {
    /// Has a file system stand for a directory of another.
    pub(crate) fn insert(&mut self, within: usize, directory: INodeNo, file_system: usize) {
        self.at.insert((within, directory), file_system);
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// The file system that stands for a file.
    pub(crate) fn at(&self, within: usize, directory: INodeNo) -> Option<usize> {
        self.at.get(&(within, directory)).copied()
    }

    /// The directory that a file system stands for.
    pub(crate) fn place_of(&self, file_system: usize) -> Option<(usize, INodeNo)> {
        let mut places = self.at.iter();
        places.find(|(_, grafted)| **grafted == file_system).map(|(place, _)| *place)
    }

    /// The mount's number of a file; `None` when there are too many file systems and snapshots.
    pub(crate) fn outer(&self, file_system: usize, inner: INodeNo) -> Option<INodeNo> {
        let upper = inner.0 >> UPPER;
        if self.at.is_empty() || (file_system, upper) == (0, 0) {
            return Some(inner);
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let index = known.iter().position(|one| *one == (file_system, upper));
        let index = index.unwrap_or_else(|| {
            known.push((file_system, upper));
            known.len() - 1
        });
        let number = u64::from(u16::try_from(index + 1).ok()?);
        Some(INodeNo(number << UPPER | inner.0 & LOWER))
    }

    /// The file that has a number in the mount, and its file system.
    pub(crate) fn inner(&self, outer: INodeNo) -> Option<(usize, INodeNo)> {
        let Some(index) = (outer.0 >> UPPER).checked_sub(1).filter(|_| !self.at.is_empty()) else {
            return Some((0, outer));
        };
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (file_system, upper) = *known.get(usize::try_from(index).ok()?)?;
        Some((file_system, INodeNo(upper << UPPER | outer.0 & LOWER)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_file_systems() {
        let mut grafts = Grafts::default();
        let snapshot = INodeNo(3 << UPPER | 34);
        assert_eq!(grafts.outer(0, snapshot), Some(snapshot));
        assert_eq!(grafts.inner(snapshot), Some((0, snapshot)));
        grafts.insert(0, INodeNo(7), 1);
        assert_eq!(grafts.at(0, INodeNo(7)), Some(1));
        assert_eq!(grafts.at(1, INodeNo(7)), None);
        for (file_system, inner) in
            [(0, INodeNo(34)), (0, snapshot), (1, INodeNo::ROOT), (1, snapshot)]
        {
            let outer = grafts.outer(file_system, inner).unwrap();
            assert_eq!(grafts.inner(outer), Some((file_system, inner)));
        }
        assert_eq!(grafts.outer(0, INodeNo(34)), Some(INodeNo(34)));
        assert_eq!(grafts.inner(INodeNo(9 << UPPER)), None);
    }
}
