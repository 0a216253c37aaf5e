//! The walk over all blocks of a pool.
//!
//! ```text
//! FreeLists          deferred frees, blocks of destroyed snapshots       free, but
//! Destroyed          remains of destroyed datasets                       not yet
//! DeletedLivelists   blocks that only livelists of destroyed clones still list
//! Mos                the meta object set
//! Datasets           every head and snapshot; of a head its intent log first
//! ```
//!
//! [`PoolWalk`] visits these [`Part`]s one after the other and passes every block pointer to a
//! [`PoolVisitor`]. That is each *reference* once: a dataset has the blocks born after its previous
//! snapshot, as all older blocks belong to that one, and blocks shared by dedup or cloning are
//! visited once per reference. So the walk finds everything that is allocated except for the copies
//! made by a running removal. It checks pools (`zdb -b`) and is what a scrub follows.
//!
//! Two orders serve its users:
//! - *A pool, by dataset*: [`DatasetOrder::ByNumber`] needs no memory, and
//!   [`DatasetOrder::OldestFirst`] visits each dataset after its previous snapshot.
//! - *One dataset, by object and offset*: [`Objset::traversal`], which a pool's walk uses for each
//!   object set. It skips blocks outside a range of txgs, shows holes with the txgs in which they
//!   were punched, and blocks of dnodes before their objects; sending needs that.
//!
//! **Visitors decide.** Blocks come with their bookmark (objset, object, level, block) and the
//! dnode of their object; a level of [`Level::ZIL`] marks those of intent logs. Unreadable blocks
//! and invalid lists are reported; the visitor skips them or stops.
//!
//! **A stopped walk resumes** at the [`Position`] that it returned. As long as the pool is
//! unchanged, what was visited before and what is visited now add up to the whole; in lists and
//! logs the walk counts its way to that position, in trees it reads only the path to it.
//!
//! **Memory** is that of a [traversal](rzfs_dmu::Traversal), 16 bytes for each dataset in the order
//! of their age, and one livelist at a time.
//!
//! [`Objset::traversal`]: rzfs_dmu::Objset::traversal
//! [`Level::ZIL`]: rzfs_format::Level::ZIL

mod datasets;
mod freed;
mod position;

pub use position::{DatasetPlace, Part, Position};

use crate::pool::{Attributes, Pool, PoolError};
use rzfs_dmu::{Objset, Visit, Visitor};
use rzfs_format::units::Bookmark;
use rzfs_format::{BlockPointer, ObjectId, Txg};
use std::ops::ControlFlow;

/// Receives the events of a pool walk, besides the blocks.
pub trait PoolVisitor: Visitor {
    /// The walk enters a part of the pool, or resumes in it.
    fn enter(&mut self, _part: Part) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A list of blocks, or a record of a dataset, cannot be read or is invalid. Its blocks are not
    /// visited.
    fn broken(&mut self, error: PoolError) -> ControlFlow<()>;
}

/// The order in which a walk visits the datasets of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatasetOrder {
    /// By the numbers of their objects in the MOS.
    ByNumber,
    /// Each after its previous snapshot, those with the oldest blocks first.
    OldestFirst,
}

/// Continue, or stop with the position to resume at.
type Flow = ControlFlow<Position>;

/// A walk over all blocks of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolWalk<'a> {
    mos: &'a Objset,
    directory: &'a Attributes,
    txg: Txg,
    parts: &'a [Part],
    order: DatasetOrder,
    next: Option<Position>,
}

impl<'a> PoolWalk<'a> {
    /// A walk over everything, datasets by number.
    #[must_use]
    pub fn new<Mode>(pool: &'a Pool<Mode>) -> Self {
        Self {
            mos: pool.mos(),
            directory: pool.directory(),
            txg: pool.txg(),
            parts: &Part::ALL,
            order: DatasetOrder::ByNumber,
            next: None,
        }
    }

    /// Restricts the walk to some parts.
    #[must_use]
    pub const fn only(mut self, parts: &'a [Part]) -> Self {
        self.parts = parts;
        self
    }

    /// Sets the order of datasets.
    #[must_use]
    pub const fn datasets_in(mut self, order: DatasetOrder) -> Self {
        self.order = order;
        self
    }

    /// Resumes an earlier walk in the same order.
    #[must_use]
    pub const fn resumed_at(mut self, next: Option<Position>) -> Self {
        self.next = next;
        self
    }

    /// Visits everything. Returns where to resume if the visitor stopped.
    pub fn run(&self, visitor: &mut dyn PoolVisitor) -> Option<Position> {
        let first = self.next.map_or(Part::ALL[0], Position::part);
        let left = self.parts.iter().copied().filter(|part| *part >= first);
        left.map(|part| self.part(part, visitor)).find_map(ControlFlow::break_value)
    }

    fn part(&self, part: Part, visitor: &mut dyn PoolVisitor) -> Flow {
        // A position in another part does not apply to this one.
        let next = self.next.filter(|next| next.part() == part);
        let start = next.unwrap_or_else(|| Position::start_of(part));
        or_at(visitor.enter(part), start)?;
        match start {
            Position::FreeLists { entry } => self.free_lists(entry, visitor),
            Position::Destroyed { entry, next } => self.destroyed((entry, next), visitor),
            Position::DeletedLivelists { entry } => self.deleted_livelists(entry, visitor),
            Position::Mos { next } => {
                let walk = self.mos.traversal().resumed_at(next);
                match walk.run(self.mos.root(), visitor) {
                    Some(next) => Flow::Break(Position::Mos { next: Some(next) }),
                    None => Flow::Continue(()),
                }
            }
            Position::Log { .. } | Position::Dataset { .. } => self.datasets(start, visitor),
        }
    }

    /// The object under a name in the object directory.
    fn entry(
        &self,
        name: &str,
        here: Position,
        visitor: &mut dyn PoolVisitor,
    ) -> ControlFlow<Position, Option<ObjectId>> {
        match self.directory.object(name) {
            Ok(object) => ControlFlow::Continue(object),
            Err(error) => or_at(visitor.broken(error), here).map_continue(|()| None),
        }
    }
}

/// Converts a visitor's result; if it stops, the walk resumes here.
fn or_at(answer: ControlFlow<()>, here: Position) -> Flow {
    answer.map_break(|()| here)
}

/// Visits a block outside of any tree.
fn show(
    visitor: &mut dyn PoolVisitor,
    bookmark: Bookmark,
    pointer: &BlockPointer,
    here: Position,
) -> Flow {
    or_at(visitor.block(&Visit { bookmark, pointer, dnode: None }), here)
}
