//! The parts of a block for every leaf.

use super::queue::LeafWrite;
use crate::error::{AddressProblem, VdevError};
use crate::plan::MAX_STEPS;
use crate::stripe::{DeviceArea, StripeMap};
use crate::tree::{NodeId, Role, VdevTree};
use bytes::Bytes;
use rzfs_blockdev::{DeviceError, IoBuffer};
use rzfs_codec::parity;
use rzfs_format::label;
use rzfs_format::units::MAX_BLOCK_SIZE;
use rzfs_format::{Dva, Txg};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// A block to write.
#[derive(Clone, Debug)]
pub struct BlockWrite {
    /// Its address; for a gang block, that of one of its pieces.
    pub dva: Dva,
    /// Its physical birth.
    pub birth: Txg,
    /// The stored data: PSIZE bytes, a multiple of 512.
    pub data: Bytes,
}

/// How completely a block is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coverage {
    /// Every leaf has its part.
    Full,
    /// Some leaf lacks its part.
    Partial,
}

/// A block on its vdev.
#[derive(Debug)]
pub(super) struct BlockLayout {
    /// Alternatives to read it back, each sufficient: the sides of a mirror, or the only one.
    sides: Vec<Side>,
    columns: Vec<Column>,
    /// Why a leaf has missed its part.
    error: Option<VdevError>,
}

/// Stripes of columns, each of which may lose as many as it has parity.
#[derive(Debug)]
struct Side {
    stripes: Vec<(Range<usize>, usize)>,
}

/// A piece of a block on one child.
#[derive(Debug)]
struct Column {
    data: Bytes,
    position: u64,
    /// All leaves that get it: one, unless the child is a mirror of any kind.
    leaves: Vec<NodeId>,
    failed: usize,
}

impl BlockLayout {
    /// The writes of all columns.
    pub(super) fn parts(&self, task: usize, birth: Txg) -> impl Iterator<Item = LeafWrite> + '_ {
        self.columns.iter().enumerate().flat_map(move |(index, column)| {
            column.leaves.iter().map(move |leaf| LeafWrite {
                task,
                column: index,
                leaf: *leaf,
                position: column.position,
                data: column.data.clone(),
                birth,
            })
        })
    }

    /// Records that a leaf has missed a column.
    pub(super) fn fail(&mut self, column: usize, error: VdevError) {
        if let Some(column) = self.columns.get_mut(column) {
            column.failed += 1;
        }
        self.error.get_or_insert(error);
    }

    /// Whether the block can be read back.
    pub(super) fn outcome(self) -> Result<Coverage, VdevError> {
        let is_lost =
            |column: &&Column| !column.leaves.is_empty() && column.failed >= column.leaves.len();
        let holds = |(range, parity): &(Range<usize>, usize)| {
            let columns = self.columns.get(range.clone()).unwrap_or_default();
            columns.iter().filter(is_lost).count() <= *parity
        };
        let is_readable = self.sides.iter().any(|side| side.stripes.iter().all(holds));
        match self.error {
            None => Ok(Coverage::Full),
            Some(_) if is_readable => Ok(Coverage::Partial),
            Some(error) => Err(error),
        }
    }
}

impl VdevTree {
    /// Computes the layout of a block.
    pub(super) fn layout(&self, write: &BlockWrite) -> Result<BlockLayout, VdevError> {
        let (dva, size) = (write.dva, write.data.len() as u64);
        let vdev = dva.vdev();
        let fail = |problem| VdevError::Address { vdev, dva, size, problem };
        if !(1..=MAX_BLOCK_SIZE).contains(&size) {
            return Err(fail(AddressProblem::Size));
        }
        let (node, space) = self.holder(vdev).map_err(fail)?;
        let padded = (size as usize).next_multiple_of(1 << space.ashift);
        let asize = self.allocated_size(vdev, size, write.birth).unwrap_or(u64::MAX);
        self.check_range(vdev, dva.offset(), asize).map_err(fail)?;
        let top = self.top_node(vdev).ok_or_else(|| fail(AddressProblem::NoVdev))?;
        let memory = |source| self.no_memory(top, dva.offset(), size, source);
        let data = padded_to(&write.data, padded).map_err(memory)?;
        let sides: &[NodeId] = match &node.role {
            Role::Indirect(_) | Role::Empty | Role::Root => {
                return Err(fail(AddressProblem::NoData));
            }
            Role::Mirrored => &node.children,
            _ => &[top],
        };
        let mut layout = BlockLayout { sides: Vec::new(), columns: Vec::new(), error: None };
        for side in sides {
            let node = self.node(*side);
            let (map, children) = match &node.role {
                Role::Raidz(geometry) => {
                    (geometry.map(dva.offset(), padded, write.birth), node.children.as_slice())
                }
                Role::Draid(geometry) => {
                    (geometry.map(dva.offset(), padded), node.children.as_slice())
                }
                _ => (StripeMap::single(0, dva.offset(), padded), std::slice::from_ref(side)),
            };
            self.add_side(&mut layout, &map, children, &data).map_err(memory)?;
        }
        Ok(layout)
    }

    fn no_memory(&self, top: NodeId, offset: u64, len: u64, source: io::Error) -> VdevError {
        let node = self.node(top);
        let (name, guid) = (node.name.clone(), node.guid);
        let device = name.clone();
        let source =
            DeviceError { device, operation: "write", offset, len, source: Arc::new(source) };
        VdevError::Io { name, guid, source }
    }

    /// Adds the columns of one side, parity computed.
    fn add_side(
        &self,
        layout: &mut BlockLayout,
        map: &StripeMap,
        children: &[NodeId],
        data: &Bytes,
    ) -> io::Result<()> {
        let first = layout.columns.len();
        let mut contents: Vec<Bytes> = Vec::with_capacity(map.columns.len());
        for stripe in &map.stripes {
            contents.extend(stripe_contents(map, stripe.data_columns(), stripe.parity, data)?);
        }
        for (column, data) in map.columns.iter().zip(contents) {
            let area = match column.area {
                DeviceArea::Data => label::START_SIZE,
                DeviceArea::Scratch => label::BOOT_AREA.start,
            };
            let position = area.saturating_add(column.offset);
            let mut leaves = Vec::new();
            if let Some(child) = children.get(column.child).filter(|_| !data.is_empty()) {
                let mut steps = MAX_STEPS;
                self.leaves_of(*child, position, &mut steps, &mut leaves);
            }
            layout.columns.push(Column { data, position, leaves, failed: 0 });
        }
        let stripes = map.stripes.iter().map(|stripe| {
            (stripe.columns.start + first..stripe.columns.end + first, stripe.parity)
        });
        layout.sides.push(Side { stripes: stripes.collect() });
        Ok(())
    }

    /// The leaves for a child's data at `position`, usable or not.
    pub(crate) fn leaves_of(
        &self,
        id: NodeId,
        position: u64,
        steps: &mut usize,
        found: &mut Vec<NodeId>,
    ) {
        let Some(left) = steps.checked_sub(1) else { return };
        *steps = left;
        match &self.node(id).role {
            Role::Device(_) if !found.contains(&id) => found.push(id),
            Role::Mirrored => {
                for child in &self.node(id).children {
                    self.leaves_of(*child, position, steps, found);
                }
            }
            Role::DistributedSpare(spare) => {
                let Role::Draid(geometry) = &self.node(spare.draid).role else { return };
                let offset = position.saturating_sub(label::START_SIZE);
                let child = geometry
                    .spare_device(spare.index, offset)
                    .and_then(|device| self.node(spare.draid).children.get(device));
                if let Some(child) = child {
                    self.leaves_of(*child, position, steps, found);
                }
            }
            _ => {}
        }
    }
}

/// The bytes followed by zeros up to `len`.
fn padded_to(data: &Bytes, len: usize) -> io::Result<Bytes> {
    if data.len() == len {
        return Ok(data.clone());
    }
    IoBuffer::padded(data, len).map(IoBuffer::freeze)
}

/// The contents of a stripe's columns: parity, then data.
fn stripe_contents(
    map: &StripeMap,
    data_columns: Range<usize>,
    parity: usize,
    block: &Bytes,
) -> io::Result<Vec<Bytes>> {
    let columns = map.columns.get(data_columns.clone()).unwrap_or_default();
    let slices = columns.iter().map(|column| {
        let end = column.start.saturating_add(column.len).min(block.len());
        block.slice(column.start.min(end)..end)
    });
    let slices: Vec<Bytes> = slices.collect();
    let mut contents = Vec::with_capacity(parity + slices.len());
    if parity > 0 {
        let first = data_columns.start - parity;
        let height = map.columns.get(first).map_or(0, |column| column.len);
        let mut buffers =
            (0..parity).map(|_| IoBuffer::zeroed(height)).collect::<io::Result<Vec<IoBuffer>>>()?;
        // A column without content counts too: parity depends on the number of columns.
        let data: Vec<&[u8]> = slices.iter().map(|slice| &slice[..]).collect();
        let mut outputs: Vec<&mut [u8]> =
            buffers.iter_mut().map(|buffer| &mut buffer[..]).collect();
        parity::generate(&data, &mut outputs).map_err(io::Error::other)?;
        contents.extend(buffers.into_iter().map(IoBuffer::freeze));
    }
    for (column, slice) in columns.iter().zip(slices) {
        contents.push(padded_to(&slice, column.len + column.filler)?);
    }
    Ok(contents)
}
