//! Files in use: their locks and cached state.
//!
//! A held file stays when its last name is removed; it is reclaimed when it is released (spec 05,
//! section 3.6).

use super::directory::{DirectoryNames, OpenNames};
use crate::error::ZplError;
use crate::node::{Attributes, Node};
use crate::sync::{Arc, Mutex, RwLock, RwLockWriteGuard};
use rzfs_dmu::live::LiveObject;
use rzfs_format::ObjectId;
use rzfs_format::dirent::FileKind;
use rzfs_format::znode::{Timestamp, Znode};
use rzfs_zap::Zap;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const SHARDS: usize = 16;
/// Maximum unused files kept by a shard.
const KEPT_PER_SHARD: usize = 512;

/// A file in use.
#[derive(Debug)]
pub(super) struct LiveNode {
    id: ObjectId,
    kind: FileKind,
    /// Attributes, names and contents of the file, and of its extended attribute tree.
    state: RwLock<NodeState>,
    life: Mutex<Life>,
}

/// The state protected by a file's lock.
#[derive(Debug)]
pub struct NodeState {
    pub(super) node: Node<LiveObject>,
    names: DirectoryNames,
    /// A pending access time, not in the object yet.
    pub(super) pending_atime: Option<Timestamp>,
    /// Whether it is a program with capabilities; looked up on demand.
    pub(super) has_capabilities: OnceLock<bool>,
    /// Whether it has lost set-user-id or set-group-id as a side effect of a change.
    lost_set_id: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    holds: u32,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It is linked.
    Named,
    /// It is unlinked, and in the unlinked set.
    Unlinked,
    /// It is being reclaimed, or is gone.
    Gone,
}

pub(super) type WriteGuard<'a> = RwLockWriteGuard<'a, NodeState>;

impl NodeState {
    /// `open` are the open directories of the file system.
    pub(super) fn new(object: LiveObject, znode: Znode, open: &Arc<OpenNames>) -> Self {
        Self {
            names: DirectoryNames::new(object.id(), Arc::clone(open)),
            node: Node::new(object, znode),
            pending_atime: None,
            has_capabilities: OnceLock::new(),
            lost_set_id: AtomicBool::new(false),
        }
    }

    /// Notes that set-user-id or set-group-id is cleared as a side effect.
    pub(super) fn note_lost_set_id(&self) {
        self.lost_set_id.store(true, Ordering::Relaxed);
    }

    /// Whether that was noted since the last call.
    pub(super) fn take_setid_cleared(&self) -> bool {
        self.lost_set_id.swap(false, Ordering::Relaxed)
    }

    /// The attributes shown by `stat`.
    pub(super) fn attributes(&self) -> Result<Attributes, ZplError> {
        let mut attributes = self.node.attributes()?;
        attributes.atime = self.pending_atime.unwrap_or(attributes.atime);
        Ok(attributes)
    }

    /// The names in the directory.
    pub(super) fn names(&self) -> Result<Arc<Zap<LiveObject>>, ZplError> {
        self.node.require_directory()?;
        self.names.get(self.node.object())
    }

    /// Changes the names in the directory. After an error they are reread.
    pub(super) fn change_names<T>(
        &mut self,
        change: impl FnOnce(&mut Zap<LiveObject>) -> Result<T, ZplError>,
    ) -> Result<T, ZplError> {
        self.node.require_directory()?;
        self.names.change(self.node.object(), change)
    }
}

impl Deref for NodeState {
    type Target = Node<LiveObject>;

    fn deref(&self) -> &Node<LiveObject> {
        &self.node
    }
}

impl LiveNode {
    pub(super) fn new(state: NodeState) -> Self {
        let is_named = state.znode().links > 0;
        let phase = if is_named { Phase::Named } else { Phase::Unlinked };
        Self {
            id: state.object().id(),
            kind: state.znode().kind,
            state: RwLock::new(state),
            life: Mutex::new(Life { holds: 0, phase }),
        }
    }

    pub(super) const fn id(&self) -> ObjectId {
        self.id
    }

    pub(super) const fn kind(&self) -> FileKind {
        self.kind
    }

    pub(super) const fn state(&self) -> &RwLock<NodeState> {
        &self.state
    }

    pub(super) fn write(&self) -> WriteGuard<'_> {
        self.state.write()
    }

    /// Holds the file; `false` if it is gone.
    pub(super) fn hold(&self) -> bool {
        let mut life = self.life.lock();
        if life.phase == Phase::Gone {
            return false;
        }
        life.holds = life.holds.saturating_add(1);
        true
    }

    /// Releases a hold; returns whether the caller has to reclaim the file.
    pub(super) fn release(&self) -> bool {
        let mut life = self.life.lock();
        life.holds = life.holds.saturating_sub(1);
        Self::take_if_unused(&mut life)
    }

    /// Marks the file as unlinked; returns whether the caller has to reclaim it.
    pub(super) fn unlinked(&self) -> bool {
        let mut life = self.life.lock();
        if life.phase == Phase::Named {
            life.phase = Phase::Unlinked;
        }
        Self::take_if_unused(&mut life)
    }

    /// Marks the file as linked again.
    pub(super) fn named(&self) {
        let mut life = self.life.lock();
        if life.phase == Phase::Unlinked {
            life.phase = Phase::Named;
        }
    }

    fn take_if_unused(life: &mut Life) -> bool {
        let is_mine = life.phase == Phase::Unlinked && life.holds == 0;
        if is_mine {
            life.phase = Phase::Gone;
        }
        is_mine
    }

    /// Whether the file is held.
    pub(super) fn is_held(&self) -> bool {
        self.life.lock().holds > 0
    }

    /// Whether the file is being reclaimed, or is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.life.lock().phase == Phase::Gone
    }

    /// Whether the file can be dropped from memory without loss. One that is being reclaimed
    /// cannot: that may span many groups, and the file must not be held again.
    fn is_idle(self: &Arc<Self>) -> bool {
        let is_unused = |life: &Life| life.holds == 0 && life.phase != Phase::Gone;
        Arc::strong_count(self) == 1
            && is_unused(&self.life.lock())
            && self.state.try_read().is_some_and(|state| state.pending_atime.is_none())
    }
}

/// The files in use, by number. There is at most one [`LiveNode`] of a file: files not in the table
/// are unused.
#[derive(Debug, Default)]
pub(super) struct NodeTable {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug)]
struct Shard {
    nodes: HashMap<ObjectId, Arc<LiveNode>>,
    /// Counts removals.
    departures: u64,
    /// Number of nodes at which the shard looks for unused ones. It grows with those in use, so
    /// that the search stays cheap per added file.
    full: usize,
}

impl Default for Shard {
    fn default() -> Self {
        Self { nodes: HashMap::new(), departures: 0, full: KEPT_PER_SHARD }
    }
}

impl NodeTable {
    fn shard(&self, id: ObjectId) -> &Mutex<Shard> {
        let mixed = id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[mixed as usize % SHARDS]
    }

    /// The file with this number, read with `open` if it is not in the table.
    pub(super) fn get_or_open(
        &self,
        id: ObjectId,
        open: impl Fn() -> Result<NodeState, ZplError>,
    ) -> Result<Arc<LiveNode>, ZplError> {
        loop {
            let departures = {
                let shard = self.shard(id).lock();
                if let Some(node) = shard.nodes.get(&id) {
                    return Ok(Arc::clone(node));
                }
                shard.departures
            };
            let node = Arc::new(LiveNode::new(open()?));
            let mut shard = self.shard(id).lock();
            if let Some(node) = shard.nodes.get(&id) {
                return Ok(Arc::clone(node));
            }
            // What was read is valid only if the file was not in use meanwhile.
            if shard.departures == departures {
                shard.insert(Arc::clone(&node));
                return Ok(node);
            }
        }
    }

    /// Whether a file is in the table.
    pub(super) fn contains(&self, id: ObjectId) -> bool {
        self.shard(id).lock().nodes.contains_key(&id)
    }

    /// Adds a newly created file.
    pub(super) fn insert(&self, node: LiveNode) -> Arc<LiveNode> {
        let node = Arc::new(node);
        self.shard(node.id).lock().insert(Arc::clone(&node));
        node
    }

    /// Removes a file that is gone.
    pub(super) fn remove(&self, id: ObjectId) {
        let mut shard = self.shard(id).lock();
        if shard.nodes.remove(&id).is_some() {
            shard.departures += 1;
        }
    }

    /// The files in the table.
    pub(super) fn all(&self) -> Vec<Arc<LiveNode>> {
        let of_shard =
            |shard: &Mutex<Shard>| shard.lock().nodes.values().cloned().collect::<Vec<_>>();
        self.shards.iter().flat_map(of_shard).collect()
    }
}

impl Shard {
    fn insert(&mut self, node: Arc<LiveNode>) {
        if self.nodes.len() >= self.full {
            let before = self.nodes.len();
            let mut spare = before - KEPT_PER_SHARD / 4 * 3;
            self.nodes.retain(|_, node| {
                let goes = spare > 0 && node.is_idle();
                spare -= usize::from(goes);
                !goes
            });
            self.departures += (before - self.nodes.len()) as u64;
            self.full = KEPT_PER_SHARD.max(self.nodes.len() + self.nodes.len() / 4);
        }
        self.nodes.insert(node.id, node);
    }
}

/// Locks files for changes, each once, in numeric order.
pub(super) fn lock_in_order<'a>(nodes: &[&'a LiveNode]) -> Locked<'a> {
    let mut nodes = nodes.to_vec();
    nodes.sort_by_key(|node| node.id);
    nodes.dedup_by_key(|node| node.id);
    Locked(nodes.into_iter().map(|node| (node.id, node.write())).collect())
}

/// Locked files.
pub(super) struct Locked<'a>(Vec<(ObjectId, WriteGuard<'a>)>);

impl Locked<'_> {
    /// One of them; `None` if it was not locked.
    pub(super) fn get(&self, id: ObjectId) -> Option<&NodeState> {
        self.0.iter().find(|(found, _)| *found == id).map(|(_, guard)| &**guard)
    }

    /// All of them.
    pub(super) fn states(&self) -> impl Iterator<Item = &NodeState> {
        self.0.iter().map(|(_, guard)| &**guard)
    }

    /// One of them, for changes.
    pub(super) fn get_mut(&mut self, id: ObjectId) -> Option<&mut NodeState> {
        self.0.iter_mut().find(|(found, _)| *found == id).map(|(_, guard)| &mut **guard)
    }
}
