//! The walk over all blocks of a pool.
//!
//! ```text
//! FreeLists          deferred frees, blocks of destroyed snapshots       free, but
//! Destroyed          what is left of destroyed datasets                  not yet
//! DeletedLivelists   blocks that only livelists of destroyed clones have given back
//! Mos                the meta object set
//! Datasets           every head and snapshot; of a head its intent log first
//! ```
//!
//! [`PoolWalk`] visits these [`Part`]s one after the other and hands every block pointer to a
//! [`PoolVisitor`]. That is each *reference* once: a dataset has what was born after the snapshot
//! before it, as all older blocks belong to that one, and blocks that are shared by dedup or
//! cloning are shown as often as something refers to them. So the walk finds everything that is
//! allocated but for the copies that a running removal makes. It is what checks a pool (`zdb -b`)
//! and what a scrub follows.
//!
//! Two orders serve its users:
//! - *A pool, by dataset*: [`DatasetOrder::ByNumber`] needs no memory, and
//!   [`DatasetOrder::OldestFirst`] comes to each dataset after the snapshot before it.
//! - *One dataset, by object and offset*: [`Objset::traversal`], which is what a pool's walk makes
//!   of each object set. It leaves out what is older or younger than txgs of interest, shows holes
//!   with the txgs in which they were punched, and blocks of dnodes before the objects in them;
//!   that is what sending needs.
//!
//! **Visitors decide.** Blocks come with their bookmark (objset, object, level, block) and the
//! dnode of their object; a level of [`Level::ZIL`] marks those of intent logs. A block that cannot
//! be read is told, and so is a list that makes no sense; the visitor passes over it or stops.
//!
//! **A walk that was stopped goes on** at the [`Position`] that it answered with. What the visitor
//! has seen then is what it had seen before, and the rest what it sees now, as long as the pool is
//! the same; in lists and logs the walk counts its way to that position, in trees it reads only
//! what leads there.
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

/// What a walk over a pool reports to, beside the blocks.
pub trait PoolVisitor: Visitor {
    /// The walk comes to a part of the pool, or goes on in it.
    fn enter(&mut self, _part: Part) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// A list of blocks, or what the pool knows of a dataset, that cannot be read or makes no
    /// sense. The blocks that it has are not visited.
    fn broken(&mut self, error: PoolError) -> ControlFlow<()>;
}

/// The order in which a walk visits the datasets of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatasetOrder {
    /// By the numbers of their objects in the MOS.
    ByNumber,
    /// Each after the snapshot before it, those with the oldest blocks first.
    OldestFirst,
}

/// Goes on, or where the next walk has to.
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
    /// A walk over everything, datasets by their numbers.
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

    /// Visits some parts only.
    #[must_use]
    pub const fn only(mut self, parts: &'a [Part]) -> Self {
        self.parts = parts;
        self
    }

    /// Visits datasets in this order.
    #[must_use]
    pub const fn datasets_in(mut self, order: DatasetOrder) -> Self {
        self.order = order;
        self
    }

    /// Begins where an earlier walk in the same order was stopped.
    #[must_use]
    pub const fn resumed_at(mut self, next: Option<Position>) -> Self {
        self.next = next;
        self
    }

    /// Visits everything. Answers where to go on if the visitor broke off.
    pub fn run(&self, visitor: &mut dyn PoolVisitor) -> Option<Position> {
        let first = self.next.map_or(Part::ALL[0], Position::part);
        let left = self.parts.iter().copied().filter(|part| *part >= first);
        left.map(|part| self.part(part, visitor)).find_map(ControlFlow::break_value)
    }

    fn part(&self, part: Part, visitor: &mut dyn PoolVisitor) -> Flow {
        // What lies in another part has no meaning in this one.
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

    /// The object that the object directory has under a name.
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

/// What a visitor answers; if it stops, the walk goes on here.
fn or_at(answer: ControlFlow<()>, here: Position) -> Flow {
    answer.map_break(|()| here)
}

/// Shows a block that is in no tree.
fn show(
    visitor: &mut dyn PoolVisitor,
    bookmark: Bookmark,
    pointer: &BlockPointer,
    here: Position,
) -> Flow {
    or_at(visitor.block(&Visit { bookmark, pointer, dnode: None }), here)
}
