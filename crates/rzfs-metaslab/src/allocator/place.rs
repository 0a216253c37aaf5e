//! Finding a place: from a request to addresses (spec 06, sections 9.5 to 9.7).

use super::Allocator;
use super::class;
use super::context::{Context, slot};
use super::devices::Writability;
use super::free::Need;
use super::group::OrderKey;
use super::metaslab::{Active, FreeTree, LiveMetaslab, State};
use super::request::{AllocationRequest, ClassKind, Content, NoSpace, Placement};
use super::topology::{Allocating, Member, Topology};
use crate::log::book::MetaslabId;
use crate::weight::Activation;
use parking_lot::MutexGuard;
use rzfs_format::{Dva, Txg};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How hard an allocation searches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Effort {
    /// The best metaslabs of good vdevs.
    Usual,
    /// All that can be written.
    Hard,
}

/// An allocation in one group.
#[derive(Clone, Copy, Debug)]
struct GroupRequest<'a> {
    asize: u64,
    txg: Txg,
    allocator: usize,
    activation: Activation,
    effort: Effort,
    /// Metaslabs that have another copy of the block.
    taken: &'a [MetaslabId],
}

impl Allocator {
    /// Allocates space for a block in `txg`: an address for each copy, on different vdevs if
    /// possible, else in different metaslabs. The gang bit is set in headers.
    ///
    /// # Errors
    /// [`NoSpace`] if not all copies fit; nothing is then allocated, and the caller may split the
    /// block.
    pub fn allocate(&self, request: &AllocationRequest, txg: Txg) -> Result<[Dva; 3], NoSpace> {
        let no_space = NoSpace { size: request.size };
        if request.size == 0 || !(1..=3).contains(&request.copies) || self.forces_gang(request) {
            return Err(no_space);
        }
        let rests = &self.context.rests;
        let before = rests.now();
        let topology = self.topology();
        let found = self.find(&topology, request, txg);
        if found.is_some() || rests.was_quiet(before) {
            return found.ok_or(no_space);
        }
        let again = rests.without(|| {
            let members = ClassKind::ALL.into_iter().flat_map(|class| topology.ring(class));
            members.for_each(|member| member.group.full.store(false, Ordering::Relaxed));
            self.find(&topology, request, txg)
        });
        again.ok_or(no_space)
    }

    fn find(&self, topology: &Topology, request: &AllocationRequest, txg: Txg) -> Option<[Dva; 3]> {
        let classes = class::candidates(topology, &self.context.tunables, request);
        let first = classes.first().copied();
        let place = |class| Some((class, self.place(topology, class, request, txg)?));
        let (class, dvas) = classes.into_iter().find_map(place)?;
        if request.content == Content::DedupTable && Some(class) != first {
            self.context.note_dedup_spill(txg);
        }
        Some(dvas)
    }

    /// Whether the allocation is made to fail, to test gang blocks.
    fn forces_gang(&self, request: &AllocationRequest) -> bool {
        let tunables = &self.context.tunables;
        request.size >= tunables.force_ganging && {
            let count = self.forced.fetch_add(tunables.force_ganging_pct, Ordering::Relaxed);
            count % 100 < tunables.force_ganging_pct
        }
    }

    fn place(
        &self,
        topology: &Topology,
        class: ClassKind,
        request: &AllocationRequest,
        txg: Txg,
    ) -> Option<[Dva; 3]> {
        let smallest = topology.ring(class).iter().map(|member| member.vdev.geometry.ashift).min();
        let try_hard = self.context.tunables.try_hard_before_gang
            || request.placement != Placement::Block
            || request.content == Content::IntentLog
            || request.size <= 1 << smallest?.min(63);
        let hard = try_hard.then_some(Effort::Hard);
        [Effort::Usual]
            .into_iter()
            .chain(hard)
            .find_map(|effort| self.place_copies(topology, class, request, txg, effort))
    }

    fn place_copies(
        &self,
        topology: &Topology,
        class: ClassKind,
        request: &AllocationRequest,
        txg: Txg,
        effort: Effort,
    ) -> Option<[Dva; 3]> {
        let mut dvas = [Dva::default(); 3];
        let mut taken: Vec<MetaslabId> = Vec::with_capacity(3);
        for copy in 0..usize::from(request.copies) {
            let earlier = dvas.get(..copy).unwrap_or_default();
            match self.place_copy(topology, class, request, txg, effort, earlier, &taken) {
                Some((dva, metaslab)) => {
                    taken.push(metaslab);
                    if let Some(slot) = dvas.get_mut(copy) {
                        *slot = dva;
                    }
                }
                None => {
                    self.unallocate(earlier, txg);
                    return None;
                }
            }
        }
        Some(dvas)
    }

    #[expect(clippy::too_many_arguments, reason = "one copy needs all that the block needs")]
    fn place_copy(
        &self,
        topology: &Topology,
        class: ClassKind,
        request: &AllocationRequest,
        txg: Txg,
        effort: Effort,
        earlier: &[Dva],
        taken: &[MetaslabId],
    ) -> Option<(Dva, MetaslabId)> {
        let ring = topology.ring(class);
        let allocator = self.allocator_of(request.locality);
        let rotor = self.rotors.get(allocator)?.get(class.index())?;
        let start = start_of(ring, request, earlier).unwrap_or_else(|| rotor.lock().position(ring));
        for position in (start..ring.len()).chain(0..start) {
            let member = ring.get(position)?;
            if !self.is_allocatable(ring, member, request, effort, earlier.is_empty()) {
                continue;
            }
            let devices = &self.context.devices;
            let vdev = member.group.vdev;
            let asize = match request.placement {
                Placement::GangHeader => devices.gang_header_size(vdev, txg),
                _ => devices.allocated_size(vdev, request.size, txg),
            };
            let Some(asize) = asize else { continue };
            let on_vdev = earlier.iter().filter(|dva| dva.vdev() == vdev).count();
            let activation = match on_vdev {
                0 => Activation::Primary,
                1 => Activation::Secondary,
                _ => Activation::Claim,
            };
            // A group with few metaslabs does not spread them over allocators.
            let allocator = if allocator >= member.group.len() / 3 { 0 } else { allocator };
            let want = GroupRequest { asize, txg, allocator, activation, effort, taken };
            let found = self.allocate_in(member, &want);
            match found {
                // Log blocks are written one by one: each goes to another device.
                Some(_) if class != ClassKind::Log => {
                    rotor.lock().took(ring, position, request.size);
                }
                _ => rotor.lock().passes(ring, position),
            }
            if let Some((range, metaslab)) = found {
                let gang = request.placement == Placement::GangHeader;
                return Some((Dva::new(vdev, range.start, asize, gang), metaslab));
            }
        }
        None
    }

    fn is_allocatable(
        &self,
        ring: &[Member],
        member: &Member,
        request: &AllocationRequest,
        effort: Effort,
        is_first: bool,
    ) -> bool {
        if member.vdev.allocating == Allocating::No {
            return false;
        }
        match self.context.devices.writability(member.group.vdev) {
            Writability::None => return false,
            Writability::Doubtful if effort == Effort::Usual && is_first && ring.len() > 1 => {
                return false;
            }
            _ => {}
        }
        let gang = request.placement != Placement::Block;
        let avoided = !gang
            && member.group.is_avoided()
            && ring.iter().any(|other| !other.group.is_avoided());
        effort == Effort::Hard || !(member.group.is_full() || avoided)
    }

    /// Allocates in one group: from the metaslab in use, or else from the best one with room.
    fn allocate_in(
        &self,
        member: &Member,
        want: &GroupRequest<'_>,
    ) -> Option<(Range<u64>, MetaslabId)> {
        let group = &member.group;
        let metaslab = |index: u64| member.vdev.metaslabs.get(usize::try_from(index).ok()?);
        let spread = want.effort == Effort::Usual && want.activation != Activation::Primary;
        let fits = |candidate: &LiveMetaslab| !(spread && want.taken.contains(&candidate.id));
        let used = group.active(want.allocator, want.activation).and_then(metaslab);
        if let Some(used) = used.filter(|used| fits(used))
            && let Some(range) = used.allocate_active(&self.context, want)
        {
            return Some((range, used.id));
        }
        let mut after: Option<OrderKey> = None;
        let mut tries = 0;
        while let Some(key) = group.next_candidate(after, want.asize) {
            after = Some(key);
            tries += 1;
            if want.effort == Effort::Usual && tries > self.context.tunables.find_max_tries {
                break;
            }
            let Some(candidate) = metaslab(key.index).filter(|candidate| fits(candidate)) else {
                continue;
            };
            self.make_room(member);
            if let Some(range) = candidate.allocate_inactive(&self.context, want) {
                return Some((range, candidate.id));
            }
        }
        if want.asize <= 1 << member.vdev.geometry.ashift.min(63) {
            group.full.store(true, Ordering::Relaxed);
        }
        None
    }

    /// Unloads metaslabs unused in this txg if loaded ones take too much memory.
    fn make_room(&self, member: &Member) {
        let limit = self.context.tunables.loaded_memory_limit();
        if member.group.class == ClassKind::Normal
            && self.context.loaded_bytes.load(Ordering::Relaxed) > limit
        {
            self.unload_until(limit);
        }
    }

    /// The allocator of blocks with this number.
    pub(crate) fn allocator_of(&self, locality: u64) -> usize {
        let count = self.rotors.len().max(1) as u64;
        usize::try_from(locality % count).unwrap_or(0)
    }

    /// Returns unreferenced space that [`Allocator::allocate`] gave in this txg.
    pub fn unallocate(&self, dvas: &[Dva], txg: Txg) {
        let topology = self.topology();
        for dva in dvas.iter().filter(|dva| dva.is_valid()) {
            let range = dva.offset()..dva.offset().saturating_add(dva.asize());
            let vdev = topology.vdevs.get(&dva.vdev());
            if let Some(metaslab) = vdev.and_then(|vdev| vdev.metaslab_of(&range)) {
                metaslab.give_back(&self.context, range, txg);
            }
        }
    }
}

/// The group where the search begins, unless the rotor decides.
fn start_of(ring: &[Member], request: &AllocationRequest, earlier: &[Dva]) -> Option<usize> {
    let position = |dva: &Dva| ring.iter().position(|member| member.group.vdev == dva.vdev());
    match (earlier.last(), request.placement) {
        (Some(previous), _) => Some((position(previous)? + 1) % ring.len()),
        (None, Placement::GangMember(header)) => position(&header),
        (None, _) => None,
    }
}

impl LiveMetaslab {
    /// Allocates from the metaslab if it is still in use; else deactivates it.
    fn allocate_active(&self, context: &Context, want: &GroupRequest<'_>) -> Option<Range<u64>> {
        let mut state = self.state.lock();
        let active = state.active.filter(|active| {
            active.activation == want.activation && active.allocator == want.allocator
        })?;
        let found = if state.disabled == 0 && self.load(&mut state, context) {
            self.take_space(&mut state, context, want.asize, want.txg)
        } else {
            None
        };
        if found.is_none() || self.is_used_up(&mut state, context, active) {
            self.passivate(&mut state, context);
        }
        found
    }

    /// Whether the segments of an active metaslab have become so small that another one is better.
    fn is_used_up(&self, state: &mut State, context: &Context, active: Active) -> bool {
        let FreeTree::Loaded(free) = &mut state.free else { return true };
        let largest = free.largest();
        let space = free.segments().space();
        let index = largest.checked_ilog2().unwrap_or(0);
        largest <= space / 16 * 15
            && index.saturating_add(context.tunables.switch_threshold) <= active.index
    }

    /// Deactivates the metaslab.
    pub(crate) fn passivate(&self, state: &mut State, context: &Context) {
        if let Some(active) = state.active.take() {
            self.group.passivate(active.allocator, active.activation, self.id.index);
        }
        self.reweigh(state, &context.features());
    }

    /// Allocates from the metaslab, and activates it if the allocator has none.
    fn allocate_inactive(
        self: &Arc<Self>,
        context: &Context,
        want: &GroupRequest<'_>,
    ) -> Option<Range<u64>> {
        let mut state = self.state.lock();
        if !state.available || state.disabled > 0 || !state.may_fit(want.asize) {
            self.reorder(&mut state);
            return None;
        }
        if !self.load(&mut state, context) || state.disabled > 0 {
            return None;
        }
        let found = self.take_space(&mut state, context, want.asize, want.txg);
        if found.is_none() {
            self.reweigh(&mut state, &context.features());
        } else {
            self.activate(&mut state, context, want);
        }
        found
    }

    fn activate(
        &self,
        state: &mut MutexGuard<'_, State>,
        context: &Context,
        want: &GroupRequest<'_>,
    ) {
        let GroupRequest { activation, allocator, .. } = *want;
        if state.active.is_none() && self.group.activate(allocator, activation, self.id.index) {
            self.reweigh(state, &context.features());
            let index = state.weight.index().unwrap_or(0);
            state.active = Some(Active { activation, allocator, index });
            self.reorder(state);
        }
    }

    /// Makes a range allocated in `txg` free again; if the allocation is already recorded, it is
    /// freed.
    fn give_back(&self, context: &Context, range: Range<u64>, txg: Txg) {
        let unrecorded = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let transient = self.transient(state);
            let removed = transient.allocating[slot(txg)].remove(range.clone());
            let added = removed.and_then(|()| match &mut state.free {
                FreeTree::Loaded(free) => free.add(range.clone()),
                _ => Ok(()),
            });
            self.reweigh(state, &context.features());
            added
        };
        if unrecorded.is_err() {
            context.mark_dirty(txg, self.id);
            if let Err(error) = self.free(range, Need::Nobody) {
                tracing::error!(%error, "space that was not used is lost");
            }
        }
    }
}

impl State {
    /// Whether the metaslab may have room, as far as is known.
    fn may_fit(&mut self, asize: u64) -> bool {
        match &mut self.free {
            FreeTree::Loaded(free) => free.largest() >= asize,
            FreeTree::Unusable => false,
            FreeTree::Unloaded | FreeTree::Loading => self.weight.may_fit(asize),
        }
    }
}
