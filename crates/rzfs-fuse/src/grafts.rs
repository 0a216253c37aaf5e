//! Several file systems in one mount.
//!
//! ```text
//! file system 0    / ── home       its directory "home" is number 7
//! file system 1    grafted at (0, 7): a lookup of "home" finds the root of 1
//! ```
//! Each file system numbers its own files (see [`crate::inode`]), so the mount renumbers them: the
//! upper 16 bits select a file system and the upper 16 bits of the number there. The live files of
//! file system 0 keep their numbers.
//!
//! File systems come and go while the mount is used. The kernel does not report open files and
//! working directories, but it cannot forget what is in use: a file system that it has completely
//! forgotten is unused. Numbers are reused once the kernel has forgotten them.

use fuser::INodeNo;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

const UPPER: u32 = 48;
const LOWER: u64 = (1 << UPPER) - 1;

/// A name in a directory of the mount, by the directory's number there.
pub(crate) type GraftPoint = (INodeNo, OsString);

/// A grafted file system.
struct Graft<F> {
    /// `None` if it was removed while in use.
    file_system: Option<Arc<F>>,
    /// The outer file system and the directory that it replaces.
    place: (usize, INodeNo),
    /// The name of its last lookup: names may have several spellings.
    entrance: Mutex<GraftPoint>,
    /// The number of lookups that the kernel has not forgotten.
    lookups: AtomicU64,
}

struct State<F> {
    /// By number - 1: file system 0 is not grafted.
    grafts: Vec<Option<Graft<F>>>,
    /// The file systems by the directories that they replace.
    at: HashMap<(usize, INodeNo), usize>,
    /// The known pairs of file system and upper bits; the number is the position + 1.
    known: Vec<Option<(usize, u64)>>,
    /// The positions of these pairs.
    positions: HashMap<(usize, u64), usize>,
}

/// Where file systems are grafted, and the numbers of the mount.
pub(crate) struct Grafts<F> {
    /// The number of grafts: usually none, and then nothing is locked.
    count: AtomicUsize,
    state: RwLock<State<F>>,
}

impl<F> Default for Grafts<F> {
    fn default() -> Self {
        let state = State {
            grafts: Vec::new(),
            at: HashMap::new(),
            known: Vec::new(),
            positions: HashMap::new(),
        };
        Self { count: AtomicUsize::new(0), state: RwLock::new(state) }
    }
}

impl<F> State<F> {
    fn graft(&self, file_system: usize) -> Option<&Graft<F>> {
        self.grafts.get(file_system.checked_sub(1)?)?.as_ref()
    }

    /// Removes a graft and its numbers.
    fn free(&mut self, file_system: usize) -> Option<Graft<F>> {
        let slot = self.grafts.get_mut(file_system.checked_sub(1)?)?;
        let graft = slot.take();
        for known in &mut self.known {
            if let Some(one) = known.take_if(|(of, _)| *of == file_system) {
                self.positions.remove(&one);
            }
        }
        graft
    }
}

/// Puts a value into the first free slot; returns its position.
fn put<T>(slots: &mut Vec<Option<T>>, value: T) -> usize {
    match slots.iter().position(Option::is_none) {
        Some(free) => {
            if let Some(slot) = slots.get_mut(free) {
                *slot = Some(value);
            }
            free
        }
        None => {
            slots.push(Some(value));
            slots.len() - 1
        }
    }
}

impl<F> Grafts<F> {
    fn read(&self) -> RwLockReadGuard<'_, State<F>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<F>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grafts a file system onto a directory of another; returns its number, or `None` if the
    /// directory is already taken.
    pub(crate) fn insert(
        &self,
        place: (usize, INodeNo),
        entrance: GraftPoint,
        file_system: Arc<F>,
    ) -> Option<usize> {
        let mut state = self.write();
        if state.at.contains_key(&place) {
            return None;
        }
        let graft = Graft {
            file_system: Some(file_system),
            place,
            entrance: Mutex::new(entrance),
            lookups: AtomicU64::new(0),
        };
        let index = put(&mut state.grafts, graft) + 1;
        state.at.insert(place, index);
        self.count.store(state.at.len(), Ordering::Release);
        Some(index)
    }

    /// A grafted file system by its number.
    pub(crate) fn get(&self, file_system: usize) -> Option<Arc<F>> {
        self.read().graft(file_system)?.file_system.clone()
    }

    /// Replaces a grafted file system, keeping all that the kernel knows of it.
    pub(crate) fn replace(&self, file_system: usize, with: Arc<F>) {
        let mut state = self.write();
        let index = file_system.checked_sub(1);
        if let Some(graft) = index.and_then(|index| state.grafts.get_mut(index)?.as_mut()) {
            graft.file_system = Some(with);
        }
    }

    /// All grafted file systems.
    pub(crate) fn all(&self) -> Vec<Arc<F>> {
        self.read().grafts.iter().flatten().filter_map(|one| one.file_system.clone()).collect()
    }

    /// Their numbers.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        let state = self.read();
        let taken = (1..).zip(&state.grafts).filter(|(_, one)| one.is_some());
        taken.map(|(number, _)| number).collect()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether a file system is grafted at a file.
    pub(crate) fn is_place(&self, within: usize, directory: INodeNo) -> bool {
        self.at((within, directory)).is_some()
    }

    /// The file system that is grafted at a file.
    pub(crate) fn at(&self, place: (usize, INodeNo)) -> Option<usize> {
        if self.is_empty() {
            return None;
        }
        self.read().at.get(&place).copied()
    }

    /// The file system that is grafted at a file looked up as `parent`'s `name`. Its root counts as
    /// named by a reply.
    pub(crate) fn enter(
        &self,
        (within, directory): (usize, INodeNo),
        (parent, name): (INodeNo, &OsStr),
    ) -> Option<(usize, Arc<F>)> {
        if self.is_empty() {
            return None;
        }
        let state = self.read();
        let index = *state.at.get(&(within, directory))?;
        let graft = state.graft(index)?;
        let file_system = graft.file_system.clone()?;
        graft.lookups.fetch_add(1, Ordering::AcqRel);
        let mut entrance = graft.entrance.lock().unwrap_or_else(PoisonError::into_inner);
        if entrance.0 != parent || entrance.1 != name {
            *entrance = (parent, name.to_owned());
        }
        Some((index, file_system))
    }

    /// The directory at which a file system is grafted.
    pub(crate) fn place_of(&self, file_system: usize) -> Option<(usize, INodeNo)> {
        self.read().graft(file_system).map(|graft| graft.place)
    }

    /// The name of its last lookup.
    pub(crate) fn entrance(&self, file_system: usize) -> Option<GraftPoint> {
        let state = self.read();
        let entrance = &state.graft(file_system)?.entrance;
        Some(entrance.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Counts a reply that names a file.
    pub(crate) fn count(&self, file_system: usize) {
        if file_system > 0
            && let Some(graft) = self.read().graft(file_system)
        {
            graft.lookups.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Drops `lookups` references to files of a file system.
    pub(crate) fn forget(&self, file_system: usize, lookups: u64) {
        if file_system == 0 {
            return;
        }
        let is_over = {
            let state = self.read();
            let Some(graft) = state.graft(file_system) else { return };
            let less = |now: u64| Some(now.saturating_sub(lookups));
            let before = graft.lookups.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
            graft.file_system.is_none() && before.is_ok_and(|before| before <= lookups)
        };
        if is_over {
            let mut state = self.write();
            let is_over = |one: &Graft<F>| {
                one.file_system.is_none() && one.lookups.load(Ordering::Acquire) == 0
            };
            if state.graft(file_system).is_some_and(is_over) {
                state.free(file_system);
            }
        }
    }

    /// The number of lookups of its files that the kernel has not forgotten.
    pub(crate) fn lookups(&self, file_system: usize) -> u64 {
        let state = self.read();
        state.graft(file_system).map_or(0, |graft| graft.lookups.load(Ordering::Acquire))
    }

    /// Removes a file system that the kernel has forgotten and that contains no other.
    pub(crate) fn remove_forgotten(&self, file_system: usize) -> Option<Arc<F>> {
        let mut state = self.write();
        let is_outer = state.at.keys().any(|(within, _)| *within == file_system);
        let graft = state.graft(file_system)?;
        if is_outer || graft.lookups.load(Ordering::Acquire) > 0 {
            return None;
        }
        let graft = state.free(file_system)?;
        self.close_place(&mut state, graft.place);
        graft.file_system
    }

    /// Removes a file system regardless of what the kernel knows. Its numbers are invalid until
    /// they are forgotten.
    pub(crate) fn force_remove(&self, file_system: usize) -> Option<Arc<F>> {
        let mut state = self.write();
        let slot = state.grafts.get_mut(file_system.checked_sub(1)?)?.as_mut()?;
        let (place, removed) = (slot.place, slot.file_system.take());
        let is_forgotten = slot.lookups.load(Ordering::Acquire) == 0;
        self.close_place(&mut state, place);
        if is_forgotten {
            state.free(file_system);
        }
        removed
    }

    fn close_place(&self, state: &mut State<F>, place: (usize, INodeNo)) {
        state.at.remove(&place);
        self.count.store(state.at.len(), Ordering::Release);
    }

    /// The mount's number of a file; `None` if there are too many file systems and snapshots.
    pub(crate) fn outer(&self, file_system: usize, inner: INodeNo) -> Option<INodeNo> {
        let upper = inner.0 >> UPPER;
        if (file_system, upper) == (0, 0) {
            return Some(inner);
        }
        let found = self.read().positions.get(&(file_system, upper)).copied();
        let position = found.unwrap_or_else(|| {
            let mut state = self.write();
            match state.positions.get(&(file_system, upper)) {
                Some(position) => *position,
                None => {
                    let position = put(&mut state.known, (file_system, upper));
                    state.positions.insert((file_system, upper), position);
                    position
                }
            }
        });
        let number = u64::from(u16::try_from(position + 1).ok()?);
        Some(INodeNo(number << UPPER | inner.0 & LOWER))
    }

    /// The file with a number in the mount, and its file system.
    pub(crate) fn inner(&self, outer: INodeNo) -> Option<(usize, INodeNo)> {
        let Some(position) = (outer.0 >> UPPER).checked_sub(1) else { return Some((0, outer)) };
        let (file_system, upper) = (*self.read().known.get(usize::try_from(position).ok()?)?)?;
        Some((file_system, INodeNo(upper << UPPER | outer.0 & LOWER)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graft(grafts: &Grafts<&'static str>, directory: u64, name: &'static str) -> usize {
        let place = (0, INodeNo(directory));
        grafts.insert(place, (INodeNo::ROOT, name.into()), Arc::new(name)).unwrap()
    }

    #[test]
    fn numbers_lead_back_to_their_file_systems() {
        let grafts = Grafts::default();
        let snapshot = INodeNo(3 << UPPER | 34);
        let early = grafts.outer(0, snapshot).unwrap();
        assert_eq!(grafts.inner(early), Some((0, snapshot)));
        assert_eq!(graft(&grafts, 7, "home"), 1);
        assert!(grafts.is_place(0, INodeNo(7)) && !grafts.is_place(1, INodeNo(7)));
        for (file_system, inner) in
            [(0, INodeNo(34)), (0, snapshot), (1, INodeNo::ROOT), (1, snapshot)]
        {
            let outer = grafts.outer(file_system, inner).unwrap();
            assert_eq!(grafts.inner(outer), Some((file_system, inner)));
        }
        assert_eq!(grafts.outer(0, snapshot), Some(early), "the kernel may know it");
        assert_eq!(grafts.outer(0, INodeNo(34)), Some(INodeNo(34)));
        assert_eq!(grafts.inner(INodeNo(9 << UPPER)), None);
    }

    #[test]
    fn what_the_kernel_knows_is_not_taken_away() {
        let grafts = Grafts::default();
        let index = graft(&grafts, 7, "home");
        let taken = (INodeNo::ROOT, "home".into());
        assert_eq!(grafts.insert((0, INodeNo(7)), taken, Arc::new("other")), None);
        let entrance = (INodeNo::ROOT, OsStr::new("HOME"));
        let (entered, _) = grafts.enter((0, INodeNo(7)), entrance).unwrap();
        grafts.count(entered);
        assert_eq!(grafts.entrance(index), Some((INodeNo::ROOT, "HOME".into())));
        grafts.forget(index, 1);
        assert_eq!(grafts.remove_forgotten(index), None);
        grafts.forget(index, 1);
        assert_eq!(grafts.remove_forgotten(index), Some(Arc::new("home")));
        assert_eq!(grafts.enter((0, INodeNo(7)), entrance), None);
    }

    #[test]
    fn numbers_are_given_out_again_when_the_kernel_has_forgotten_them() {
        let grafts = Grafts::default();
        let first = graft(&grafts, 7, "first");
        grafts.enter((0, INodeNo(7)), (INodeNo::ROOT, OsStr::new("first"))).unwrap();
        let number = grafts.outer(first, INodeNo(34)).unwrap();
        assert_eq!(grafts.force_remove(first), Some(Arc::new("first")));
        let (index, _) = grafts.inner(number).unwrap();
        assert_eq!(grafts.get(index), None, "it leads nowhere");
        let second = graft(&grafts, 7, "second");
        assert_ne!(second, first);
        assert_ne!(grafts.outer(second, INodeNo(34)), Some(number));
        grafts.forget(first, 1);
        let third = graft(&grafts, 8, "third");
        assert_eq!(third, first);
        assert_eq!(grafts.outer(third, INodeNo(34)), Some(number));
    }

    #[test]
    fn what_another_one_is_in_is_not_taken_away() {
        let grafts = Grafts::default();
        let outer = graft(&grafts, 7, "outer");
        let inside = ((outer, INodeNo(9)), (INodeNo(7), "inner".into()));
        let inner = grafts.insert(inside.0, inside.1, Arc::new("inner")).unwrap();
        assert_eq!(grafts.remove_forgotten(outer), None);
        assert!(grafts.remove_forgotten(inner).is_some());
        assert!(grafts.remove_forgotten(outer).is_some());
    }
}
