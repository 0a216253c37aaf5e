//! Space accounting: what datasets use, may use, and have reserved in txgs that are not on disk yet
//! (spec 04, section 12).
//!
//! ```text
//! file system ── admit ──> head: refquota, refreservation
//!                            └─> directory: quota, reservation ─> ... ─> root: the pool
//! txg is on disk: what was asked for in it is forgotten, what is used is known
//! ```
//! Requests are counted in full until their txg is on disk, with all copies and for the least
//! favourable vdev layout; so the pool never has to write what it has no room for. When only such
//! promises prevent a change, it waits for them to be settled.

use crate::dataset::limits::{HeadLimits, MAX_DEPTH, SpaceLimits};
use crate::live::space::demand::{SpaceDemand, SpaceRefusal, SpaceUse};
use crate::live::space::limits::SpaceTier;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::{ObjectId, Txg};
use std::collections::BTreeMap;

/// Txgs that are open, quiescing or syncing at one time differ in their low bits.
const SLOTS: usize = 4;

/// Requested bytes by txg.
#[derive(Clone, Copy, Debug, Default)]
struct Promised([u64; SLOTS]);

const fn slot(txg: Txg) -> usize {
    (txg.get() % SLOTS as u64) as usize
}

impl Promised {
    fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn add(&mut self, txg: Txg, bytes: u64) {
        let of_txg = &mut self.0[slot(txg)];
        *of_txg = of_txg.saturating_add(bytes);
    }

    fn settle(&mut self, txg: Txg) {
        self.0[slot(txg)] = 0;
    }
}

#[derive(Clone, Debug, Default)]
struct DirAccount {
    parent: Option<ObjectId>,
    used: u64,
    quota: u64,
    reserved: u64,
    promised: Promised,
}

#[derive(Clone, Debug, Default)]
struct HeadAccount {
    dir: ObjectId,
    referenced: u64,
    unique: u64,
    refquota: u64,
    refreservation: u64,
    promised: Promised,
}

/// The accounts of the open heads and of their ancestor directories.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    dirs: BTreeMap<ObjectId, DirAccount>,
    heads: BTreeMap<ObjectId, HeadAccount>,
    /// Bytes in the pool for datasets, in the order of [`SpaceTier::ALL`].
    usable: [u64; SpaceTier::ALL.len()],
    room: Option<Room>,
}

/// What can really be allocated: blocks needed by a checkpoint, or freed in the last txgs, are in
/// no account but are not free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    /// The error when that is not enough.
    pub(crate) refusal: SpaceRefusal,
}

/// A limit that would be exceeded.
struct Exceeded {
    /// The room without regard to promises.
    room: u64,
    promised: u64,
    kind: SpaceRefusal,
}

impl Ledger {
    pub(crate) fn set_usable(&mut self, usable: [u64; SpaceTier::ALL.len()]) {
        self.usable = usable;
    }

    pub(crate) fn set_room(&mut self, room: Room) {
        self.room = Some(room);
    }

    /// Updates a directory.
    pub(crate) fn set_dir(&mut self, id: ObjectId, dir: &DslDir) {
        let account = self.dirs.entry(id).or_default();
        account.parent = dir.parent;
        account.used = dir.used;
        account.quota = dir.quota;
        account.reserved = dir.reserved;
    }

    /// Forgets a destroyed directory.
    pub(crate) fn close_dir(&mut self, id: ObjectId) {
        self.dirs.remove(&id);
    }

    pub(crate) fn has_dir(&self, id: ObjectId) -> bool {
        self.dirs.contains_key(&id)
    }

    /// Updates a head.
    pub(crate) fn set_head(&mut self, id: ObjectId, head: &DslDataset) {
        let account = self.heads.entry(id).or_default();
        account.dir = head.dir;
        account.referenced = head.referenced;
        account.unique = head.unique;
    }

    pub(crate) fn set_head_limits(&mut self, id: ObjectId, refquota: u64, refreservation: u64) {
        let account = self.heads.entry(id).or_default();
        account.refquota = refquota;
        account.refreservation = refreservation;
    }

    pub(crate) fn has_head(&self, id: ObjectId) -> bool {
        self.heads.contains_key(&id)
    }

    /// Forgets a head that is no longer open.
    pub(crate) fn close_head(&mut self, id: ObjectId) {
        self.heads.remove(&id);
    }

    /// Drops the promises of a txg that is on disk.
    pub(crate) fn settle(&mut self, txg: Txg) {
        self.heads.values_mut().for_each(|head| head.promised.settle(txg));
        self.dirs.values_mut().for_each(|dir| dir.promised.settle(txg));
    }

    /// Admits a change of a head, whose bytes are already counted in full.
    ///
    /// # Errors
    /// There is no room for it.
    pub(crate) fn admit(
        &mut self,
        head: ObjectId,
        txg: Txg,
        demand: SpaceDemand,
    ) -> Result<(), SpaceRefusal> {
        // The bytes charged, and those that the pool has to find room for.
        let (bytes, written, frees) = match demand {
            SpaceDemand::Takes(bytes) => (bytes, bytes, false),
            SpaceDemand::Shares { shared, written } => {
                (shared.saturating_add(written), written, false)
            }
            SpaceDemand::Frees(bytes) => (bytes, bytes, true),
        };
        let Some(account) = self.heads.get(&head) else { return Ok(()) };
        let more = account.charged(bytes);
        if !frees && account.refquota != 0 {
            check(&account.refquota_use(), bytes)?;
        }
        let mut charges = Vec::new();
        let (mut level, mut charge) = (Some(account.dir), more);
        while let Some((id, dir)) = level.and_then(|id| Some((id, self.dirs.get(&id)?))) {
            if charges.len() == MAX_DEPTH {
                break;
            }
            if dir.quota != 0 && !frees {
                check(&dir.use_of(dir.quota, SpaceRefusal::Quota), charge)?;
            }
            if dir.parent.is_none() {
                charge = charge.min(written);
                let tier = if frees { SpaceTier::Frees } else { SpaceTier::Normal };
                let pool = self.usable[tier.index()];
                check(&dir.use_of(pool, SpaceRefusal::NoSpace), charge)?;
                if let Some(Room { bytes: room, refusal: kind }) = self.room.filter(|_| !frees) {
                    check(&Exceeded { room, promised: dir.promised.total(), kind }, charge)?;
                }
            }
            charges.push((id, charge));
            charge = dir.charged(charge);
            level = dir.parent;
        }
        for (id, charge) in charges {
            if let Some(dir) = self.dirs.get_mut(&id) {
                dir.promised.add(txg, charge);
            }
        }
        if let Some(account) = self.heads.get_mut(&head) {
            account.promised.add(txg, bytes);
        }
        Ok(())
    }

    /// Admits blocks of intent logs, which are in no account but use the pool's room.
    ///
    /// # Errors
    /// There is no room for them.
    pub(crate) fn admit_log(&mut self, txg: Txg, bytes: u64) -> Result<(), SpaceRefusal> {
        let Some(root) = self.dirs.values_mut().find(|dir| dir.parent.is_none()) else {
            return Ok(());
        };
        if let Some(Room { bytes: room, refusal: kind }) = self.room {
            check(&Exceeded { room, promised: root.promised.total(), kind }, bytes)?;
        }
        root.promised.add(txg, bytes);
        Ok(())
    }

    /// Space of a head, as on disk.
    pub(crate) fn space(&self, head: ObjectId) -> SpaceUse {
        let Some(account) = self.heads.get(&head) else { return SpaceUse::default() };
        let mut chain = Vec::new();
        let mut level = Some(account.dir);
        while let Some(dir) = level.and_then(|id| self.dirs.get(&id)) {
            if chain.len() == MAX_DEPTH {
                break;
            }
            chain.push(dir.limits());
            level = dir.parent;
        }
        let pool = self.usable[SpaceTier::Normal.index()];
        let room = SpaceLimits::available(chain.into_iter().rev(), pool);
        let available = account.limits().available(room);
        SpaceUse { referenced: account.referenced, available }
    }
}

impl HeadAccount {
    const fn limits(&self) -> HeadLimits {
        HeadLimits {
            referenced: self.referenced,
            unique: self.unique,
            refquota: self.refquota,
            refreservation: self.refreservation,
        }
    }

    /// The charge to the directory when the head grows by this many bytes.
    fn charged(&self, bytes: u64) -> u64 {
        let now = self.unique.saturating_add(self.promised.total());
        let then = now.saturating_add(bytes);
        then.max(self.refreservation) - now.max(self.refreservation)
    }

    fn refquota_use(&self) -> Exceeded {
        Exceeded {
            room: self.refquota.saturating_sub(self.referenced),
            promised: self.promised.total(),
            kind: SpaceRefusal::Quota,
        }
    }
}

impl DirAccount {
    const fn limits(&self) -> SpaceLimits {
        SpaceLimits { used: self.used, quota: self.quota, reserved: self.reserved }
    }

    /// The charge to the parent when this directory grows by this many bytes.
    fn charged(&self, bytes: u64) -> u64 {
        let now = self.used.saturating_add(self.promised.total());
        let then = now.saturating_add(bytes);
        then.max(self.reserved) - now.max(self.reserved)
    }

    fn use_of(&self, limit: u64, kind: SpaceRefusal) -> Exceeded {
        let room = limit.saturating_sub(self.used);
        Exceeded { room, promised: self.promised.total(), kind }
    }
}

/// Checks this many additional bytes against a limit.
fn check(limit: &Exceeded, bytes: u64) -> Result<(), SpaceRefusal> {
    if bytes.saturating_add(limit.promised) <= limit.room {
        Ok(())
    } else if limit.promised > 0 {
        Err(SpaceRefusal::Later)
    } else {
        Err(limit.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: ObjectId = ObjectId(1);
    const CHILD: ObjectId = ObjectId(2);
    const HEAD: ObjectId = ObjectId(9);
    const TXG: Txg = Txg(7);

    fn ledger(child: &DslDir) -> Ledger {
        let mut ledger = Ledger::default();
        ledger.set_usable([1000, 1200, 1300]);
        ledger.set_dir(ROOT, &DslDir { used: 500, ..DslDir::default() });
        ledger.set_dir(CHILD, &DslDir { parent: Some(ROOT), ..child.clone() });
        ledger.set_head(HEAD, &DslDataset { dir: CHILD, ..DslDataset::default() });
        ledger
    }

    #[test]
    fn promises_count_until_their_txg_is_on_disk() {
        let mut ledger = ledger(&DslDir::default());
        ledger.admit(HEAD, TXG, SpaceDemand::Takes(400)).unwrap();
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(200)), Err(SpaceRefusal::Later));
        ledger.settle(TXG);
        ledger.admit(HEAD, Txg(8), SpaceDemand::Takes(200)).unwrap();
        ledger.settle(Txg(8));
        assert_eq!(ledger.admit(HEAD, Txg(9), SpaceDemand::Takes(501)), Err(SpaceRefusal::NoSpace));
        ledger.admit(HEAD, Txg(9), SpaceDemand::Frees(501)).unwrap();
    }

    #[test]
    fn what_is_not_free_yet_is_waited_for() {
        let mut ledger = ledger(&DslDir::default());
        ledger.set_room(Room { bytes: 100, refusal: SpaceRefusal::Later });
        ledger.admit(HEAD, TXG, SpaceDemand::Takes(60)).unwrap();
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(60)), Err(SpaceRefusal::Later));
        ledger.settle(TXG);
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(101)), Err(SpaceRefusal::Later));
        ledger.admit(HEAD, TXG, SpaceDemand::Frees(101)).unwrap();
    }

    #[test]
    fn logs_take_what_nobody_was_promised() {
        let mut ledger = ledger(&DslDir::default());
        ledger.admit_log(TXG, u64::MAX).unwrap();
        ledger.settle(TXG);
        ledger.set_room(Room { bytes: 100, refusal: SpaceRefusal::NoSpace });
        ledger.admit(HEAD, TXG, SpaceDemand::Takes(60)).unwrap();
        assert_eq!(ledger.admit_log(TXG, 60), Err(SpaceRefusal::Later));
        ledger.admit_log(TXG, 40).unwrap();
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(1)), Err(SpaceRefusal::Later));
        ledger.settle(TXG);
        assert_eq!(ledger.admit_log(TXG, 101), Err(SpaceRefusal::NoSpace));
    }

    #[test]
    fn quotas_hold_back_what_takes_but_not_what_frees() {
        let mut ledger = ledger(&DslDir { quota: 100, used: 60, ..DslDir::default() });
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(50)), Err(SpaceRefusal::Quota));
        assert_eq!(ledger.space(HEAD).available, 40);
        ledger.admit(HEAD, TXG, SpaceDemand::Frees(50)).unwrap();
        ledger.set_head_limits(HEAD, 20, 0);
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(1)), Err(SpaceRefusal::Later));
        ledger.settle(TXG);
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(21)), Err(SpaceRefusal::Quota));
        assert_eq!(ledger.space(HEAD).available, 20);
    }

    #[test]
    fn what_is_shared_counts_for_quotas_but_not_for_the_pool() {
        let shares = |shared| SpaceDemand::Shares { shared, written: 10 };
        let mut ledger = ledger(&DslDir { quota: 5000, ..DslDir::default() });
        ledger.admit(HEAD, TXG, shares(4000)).unwrap();
        // Only what is written was requested from the pool.
        ledger.admit(HEAD, TXG, SpaceDemand::Takes(490)).unwrap();
        assert_eq!(ledger.admit(HEAD, TXG, shares(1000)), Err(SpaceRefusal::Later));
        ledger.settle(TXG);
        assert_eq!(ledger.admit(HEAD, TXG, shares(5000)), Err(SpaceRefusal::Quota));
        ledger.set_head_limits(HEAD, 2000, 0);
        assert_eq!(ledger.admit(HEAD, TXG, shares(2000)), Err(SpaceRefusal::Quota));
        ledger.admit(HEAD, TXG, shares(1990)).unwrap();
    }

    #[test]
    fn reservations_are_room_in_a_full_pool() {
        let mut ledger = ledger(&DslDir { reserved: 300, used: 100, ..DslDir::default() });
        ledger.set_dir(ROOT, &DslDir { used: 1000, ..DslDir::default() });
        assert_eq!(ledger.space(HEAD).available, 200);
        ledger.admit(HEAD, TXG, SpaceDemand::Takes(200)).unwrap();
        ledger.settle(TXG);
        assert_eq!(ledger.admit(HEAD, TXG, SpaceDemand::Takes(201)), Err(SpaceRefusal::NoSpace));
        ledger.set_head_limits(HEAD, 0, 50);
        assert_eq!(ledger.space(HEAD).available, 250);
    }
}
