//! The rotation of groups in a class: groups take turns, with bytes per turn according to their
//! space (spec 06, section 9.4).
//!
//! In each round of turns a class hands out an aliquot for each of its disks. How a round is shared
//! is our own: a group gets a part that goes with its size and with the square of its free fraction.
//! The rate at which groups fill up then makes the reciprocals of their free fractions grow alike, so
//! the differences between old and new ones go away as they become full.
//!
//! A turn ends when its bytes are used up. Blocks do not end where turns do: a group owes what it
//! has taken beyond its turn, and is skipped until that is paid, so that shares hold however large
//! blocks are.

use super::topology::Member;
use std::sync::atomic::Ordering;

/// A member of a rotation.
pub(crate) trait RotorMember {
    /// Bytes of a turn.
    fn turn(&self) -> u64;
}

impl RotorMember for Member {
    fn turn(&self) -> u64 {
        self.group.turn.load(Ordering::Relaxed)
    }
}

/// The rotation of a class, for one allocator.
#[derive(Clone, Default, Debug)]
pub(crate) struct Rotor {
    position: usize,
    /// What each may still take in its turn; negative if it owes.
    credits: Vec<i64>,
}

impl Rotor {
    /// The index of the current member.
    pub(crate) fn position(&self, ring: &[impl RotorMember]) -> usize {
        self.position % ring.len().max(1)
    }

    /// Charges the member at an index for `size` bytes, if it is its turn.
    pub(crate) fn took(&mut self, ring: &[impl RotorMember], position: usize, size: u64) {
        let Some(credit) = self.credit_in_turn(ring, position) else { return };
        *credit = credit.saturating_sub_unsigned(size);
        if *credit <= 0 {
            self.advance(ring);
        }
    }

    /// Ends the turn of the member at an index, whatever remains of it.
    pub(crate) fn passes(&mut self, ring: &[impl RotorMember], position: usize) {
        let Some(credit) = self.credit_in_turn(ring, position) else { return };
        *credit = (*credit).min(0);
        self.advance(ring);
    }

    /// The remaining credit of the member at an index, if it is its turn.
    fn credit_in_turn(&mut self, ring: &[impl RotorMember], position: usize) -> Option<&mut i64> {
        if position != self.position(ring) {
            return None;
        }
        self.credits.resize(ring.len(), 0);
        self.credits.get_mut(position)
    }

    /// Advances to the next member that owes nothing.
    fn advance(&mut self, ring: &[impl RotorMember]) {
        /// Rounds after which debts are dropped: the largest block is worth fewer usual turns.
        const MOST_ROUNDS: usize = 64;
        for _ in 0..MOST_ROUNDS * ring.len() {
            self.position = (self.position + 1) % ring.len();
            let (Some(next), Some(credit)) =
                (ring.get(self.position), self.credits.get_mut(self.position))
            else {
                return;
            };
            *credit = credit.saturating_add_unsigned(next.turn());
            if *credit > 0 {
                return;
            }
        }
        self.credits.fill(0);
    }
}

/// The factors of a group's share of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupWeight {
    /// Bytes of the group.
    pub(crate) space: u64,
    /// Those of them that are free.
    pub(crate) free: u64,
    /// Disks that take data concurrently.
    pub(crate) disks: u64,
}

/// What shares depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// Total and free space.
    BySpace,
    /// Disks only.
    ByDisks,
}

/// Bytes of the turns of a round.
pub(crate) fn turns(stakes: &[GroupWeight], aliquot: u64, sharing: Sharing) -> Vec<u64> {
    let by_disks = |stake: &GroupWeight| aliquot.saturating_mul(stake.disks).max(1);
    let weight = |stake: &GroupWeight| {
        let free = u128::from(stake.free.min(stake.space));
        free * free / u128::from(stake.space.max(1))
    };
    let weights: u128 = stakes.iter().map(weight).sum();
    if sharing == Sharing::ByDisks || weights == 0 {
        return stakes.iter().map(by_disks).collect();
    }
    let round = stakes.iter().map(by_disks).fold(0, u64::saturating_add);
    let share = |stake: &GroupWeight| u128::from(round) * weight(stake) / weights;
    // A share is at most the whole round.
    stakes.iter().map(|stake| u64::try_from(share(stake)).unwrap_or(round).max(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    impl RotorMember for u64 {
        fn turn(&self) -> u64 {
            *self
        }
    }

    const fn stake(space: u64, free: u64) -> GroupWeight {
        GroupWeight { space, free, disks: 1 }
    }

    /// Gives blocks of these sizes to the current members; returns the sums, and calls `look` after
    /// each.
    fn give(ring: &[u64], sizes: impl IntoIterator<Item = u64>, mut look: impl FnMut(&[u64])) {
        let (mut rotor, mut got) = (Rotor::default(), vec![0; ring.len()]);
        for size in sizes {
            let position = rotor.position(ring);
            got[position] = u64::saturating_add(got[position], size);
            rotor.took(ring, position, size);
            look(&got);
        }
    }

    #[test]
    fn equal_groups_get_the_same_in_runs() {
        let mut changes = 0;
        let mut before = vec![0; 3];
        let mut last = None;
        give(&[2 * MIB; 3], std::iter::repeat_n(128 << 10, 3000), |got| {
            let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
            assert!(most - least < 4 * MIB, "{got:?}");
            let at = (0..3).find(|&at| got[at] != before[at]);
            changes += usize::from(std::mem::replace(&mut last, at) != at);
            before = got.to_vec();
        });
        // Sixteen blocks of 128 KiB are a turn.
        assert!((3000 / 16..=3000 / 16 + 3).contains(&changes), "{changes} changes");
    }

    #[test]
    fn shares_hold_for_blocks_that_are_larger_than_turns() {
        let mut total = Vec::new();
        give(&[MIB, 3 * MIB], std::iter::repeat_n(16 * MIB, 4000), |got| total = got.to_vec());
        let part = total[1] * 1000 / (total[0] + total[1]);
        assert!((745..=755).contains(&part), "{total:?}");
    }

    #[test]
    fn who_has_no_room_is_passed_by() {
        let ring = [MIB; 3];
        let mut rotor = Rotor::default();
        rotor.passes(&ring, 0);
        assert_eq!(rotor.position(&ring), 1);
        // It was not its turn.
        rotor.passes(&ring, 2);
        rotor.took(&ring, 0, 10 * MIB);
        assert_eq!(rotor.position(&ring), 1);
        // One has left, or all have.
        assert_eq!((rotor.position(&ring[..1]), rotor.position(&ring[..0])), (0, 0));
        rotor.passes(&ring[..1], 0);
        rotor.took(&ring[..0], 0, 1);
    }

    #[test]
    fn groups_of_different_ages_become_full_together() {
        let (space, block) = (1 << 30, 128 << 10);
        let mut stakes =
            [stake(space, space / 2), stake(space, space), stake(2 * space, 2 * space)];
        let used = |stake: &GroupWeight| (stake.space - stake.free) * 1000 / stake.space;
        let mut rotor = Rotor::default();
        while stakes.iter().any(|stake| used(stake) < 950) {
            // Turns are recomputed once a txg.
            let ring = turns(&stakes, MIB, Sharing::BySpace);
            for _ in 0..64 {
                let at = rotor.position(&ring);
                stakes[at].free = stakes[at].free.checked_sub(block).expect("one is full");
                rotor.took(&ring, at, block);
            }
        }
        let used: Vec<_> = stakes.iter().map(used).collect();
        assert!(used.iter().all(|used| (950..1000).contains(used)), "{used:?}");
    }

    #[test]
    fn only_disks_count_where_space_does_not() {
        let stakes = [GroupWeight { space: 10, free: 1, disks: 4 }, stake(1000, 900)];
        assert_eq!(turns(&stakes, MIB, Sharing::ByDisks), [4 * MIB, MIB]);
        assert_eq!(turns(&[stake(10, 0); 2], MIB, Sharing::BySpace), [MIB; 2]);
        assert_eq!(turns(&[], MIB, Sharing::BySpace), [0; 0]);
    }

    proptest! {
        #[test]
        fn turns_share_a_round(
            groups in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 1..20),
            aliquot in any::<u64>(),
        ) {
            let stakes: Vec<_> =
                groups.iter().map(|&(space, free, disks)| GroupWeight { space, free, disks }).collect();
            for sharing in [Sharing::BySpace, Sharing::ByDisks] {
                let turns = turns(&stakes, aliquot, sharing);
                prop_assert!(turns.iter().all(|turn| *turn > 0));
                give(&turns, [1, u64::MAX, 512], |_| ());
            }
        }
    }
}
