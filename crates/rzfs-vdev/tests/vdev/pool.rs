//! Pools of one top-level vdev, and a writer for them.

use crate::fields;
use rzfs_blockdev::BlockDevice;
use rzfs_format::label::START_SIZE;
use rzfs_format::uberblock::RaidzReflow;
use rzfs_format::{Dva, Guid, Txg, VdevId};
use rzfs_testkit::SparseDevice;
use rzfs_vdev::config::DraidRecord;
use rzfs_vdev::draid::{DraidGeometry, DraidShape};
use rzfs_vdev::raidz::{RaidzGeometry, Reflow};
use rzfs_vdev::stripe::{DeviceArea, StripeMap};
use rzfs_vdev::{BlockRead, IoTunables, TreeOptions, VdevConfig, VdevError, VdevKind, VdevTree};
use std::collections::HashMap;
use std::sync::Arc;

/// Size of every device.
pub(crate) const DEVICE: u64 = 256 << 20;
/// Allocatable bytes of every device.
pub(crate) const LEAF: u64 = DEVICE - (4 << 20) - (512 << 10);

/// A top-level vdev of the tests.
#[derive(Clone, Debug)]
pub(crate) enum Layout {
    Mirror { children: usize },
    Raidz { parity: usize, children: usize, expansions: Vec<Txg>, reflow: Option<Reflow> },
    Draid { parity: usize, data: usize, children: usize, spares: usize },
}

impl Layout {
    pub(crate) fn children(&self) -> usize {
        match self {
            Self::Mirror { children }
            | Self::Raidz { children, .. }
            | Self::Draid { children, .. } => *children,
        }
    }

    /// Number of children that can be lost.
    pub(crate) fn tolerates(&self) -> usize {
        match self {
            Self::Mirror { children } => children - 1,
            Self::Raidz { parity, .. } | Self::Draid { parity, .. } => *parity,
        }
    }
}

/// A block that was written.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) dva: Dva,
    pub(crate) birth: Txg,
    pub(crate) data: Vec<u8>,
}

/// Maps the blocks of a layout.
enum Geometry {
    Mirror,
    Raidz(RaidzGeometry),
    Draid(Box<DraidGeometry>),
}

/// A pool on sparse devices.
pub(crate) struct Pool {
    pub(crate) config: VdevConfig,
    pub(crate) devices: Vec<Arc<SparseDevice>>,
    pub(crate) missing: Vec<usize>,
    pub(crate) reflow: Option<Reflow>,
    pub(crate) tunables: IoTunables,
    ashift: u32,
    geometry: Geometry,
    /// Where the next block goes.
    pub(crate) next: u64,
}

/// The guid of a child.
pub(crate) fn child_guid(child: usize) -> Guid {
    Guid(100 + child as u64)
}

pub(crate) fn leaf_config(child: usize) -> VdevConfig {
    VdevConfig::new(VdevKind::File, child_guid(child))
}

impl Pool {
    pub(crate) fn new(layout: &Layout, ashift: u32) -> Self {
        let children = layout.children();
        let leaves = (0..children).map(leaf_config);
        let mut reflow_state = None;
        let (mut top, asize, geometry) = match layout {
            Layout::Mirror { .. } => {
                (VdevConfig::new(VdevKind::Mirror, Guid(2)), LEAF, Geometry::Mirror)
            }
            Layout::Raidz { parity, expansions, reflow, .. } => {
                let mut top = VdevConfig::new(VdevKind::Raidz, Guid(2));
                top.nparity = Some(*parity as u64);
                top.raidz_expand_txgs.clone_from(expansions);
                top.raidz_expanding = reflow.is_some();
                reflow_state = *reflow;
                let width = children - usize::from(reflow.is_some());
                let geometry =
                    RaidzGeometry::new(ashift, *parity, children, expansions.clone(), *reflow);
                (top, LEAF * width as u64, Geometry::Raidz(geometry.unwrap()))
            }
            Layout::Draid { parity, data, spares, .. } => {
                let working = (children - spares) as u64;
                let width = (data + parity) as u64;
                let groups = (1..).find(|g| (g * width).is_multiple_of(working)).unwrap();
                let mut top = VdevConfig::new(VdevKind::Draid, Guid(2));
                top.nparity = Some(*parity as u64);
                top.draid = Some(DraidRecord {
                    data: *data as u64,
                    spares: *spares as u64,
                    groups,
                    failure_group_children: None,
                });
                let shape = DraidShape {
                    ashift,
                    parity: *parity,
                    data: *data,
                    spares: *spares,
                    groups,
                    children,
                };
                let geometry = DraidGeometry::new(shape).unwrap();
                (top, geometry.vdev_size(LEAF), Geometry::Draid(Box::new(geometry)))
            }
        };
        top.top.ashift = Some(u64::from(ashift));
        top.top.asize = Some(asize >> ashift << ashift);
        Self {
            config: VdevConfig::new(VdevKind::Root, Guid(1))
                .with_children([top.with_children(leaves)]),
            devices: (0..children).map(|_| SparseDevice::new(DEVICE)).collect(),
            missing: Vec::new(),
            reflow: reflow_state,
            tunables: IoTunables::default(),
            ashift,
            geometry,
            next: 0,
        }
    }

    /// Opens the tree with all devices that are not missing.
    pub(crate) fn open(&self) -> VdevTree {
        let devices: HashMap<Guid, Arc<dyn BlockDevice>> = (0..)
            .zip(&self.devices)
            .filter(|(child, _)| !self.missing.contains(child))
            .map(|(child, device)| (child_guid(child), Arc::clone(device) as Arc<dyn BlockDevice>))
            .collect();
        let reflow = self.reflow.map_or_else(RaidzReflow::default, |reflow| {
            RaidzReflow::new(reflow.offset, reflow.scratch)
        });
        let options = TreeOptions { reflow, tunables: self.tunables, ..TreeOptions::default() };
        VdevTree::open(self.config.clone(), &devices, options).unwrap()
    }

    fn map(&self, offset: u64, size: usize, birth: Txg) -> StripeMap {
        match &self.geometry {
            Geometry::Mirror => {
                StripeMap::single(0, offset, size.next_multiple_of(1 << self.ashift))
            }
            Geometry::Raidz(geometry) => geometry.map(offset, size, birth),
            Geometry::Draid(geometry) => geometry.map(offset, size),
        }
    }

    pub(crate) fn asize(&self, size: usize, birth: Txg) -> u64 {
        match &self.geometry {
            Geometry::Mirror => (size as u64).next_multiple_of(1 << self.ashift),
            Geometry::Raidz(geometry) => geometry.allocated_size(size as u64, birth),
            Geometry::Draid(geometry) => geometry.allocated_size(size as u64),
        }
    }

    /// Writes a block after the last one.
    pub(crate) fn write(&mut self, data: Vec<u8>, birth: Txg) -> Block {
        let asize = self.asize(data.len(), birth);
        let block = self.write_at(self.next, data, birth);
        self.next += asize;
        block
    }

    /// Writes a block with its parity to its mapped location.
    pub(crate) fn write_at(&self, offset: u64, data: Vec<u8>, birth: Txg) -> Block {
        let map = self.map(offset, data.len(), birth);
        let mut padded = data.clone();
        padded.resize(data.len().next_multiple_of(1 << self.ashift), 0);
        for stripe in &map.stripes {
            let columns: Vec<Vec<u8>> = stripe
                .data_columns()
                .map(|index| {
                    let column = map.columns[index];
                    let mut bytes = padded[column.start..column.start + column.len].to_vec();
                    bytes.resize(column.len + column.filler, 0);
                    bytes
                })
                .collect();
            let len = columns.iter().map(Vec::len).max().unwrap();
            for (which, index) in stripe.parity_columns().enumerate() {
                self.store(&map, index, &fields::parity(which, &columns, len));
            }
            for (index, column) in stripe.data_columns().zip(&columns) {
                self.store(&map, index, column);
            }
        }
        let asize = self.asize(data.len(), birth);
        Block { dva: Dva::new(VdevId(0), offset, asize, false), birth, data }
    }

    fn store(&self, map: &StripeMap, index: usize, bytes: &[u8]) {
        let column = map.columns[index];
        let area = match column.area {
            DeviceArea::Data => START_SIZE,
            DeviceArea::Scratch => 512 << 10,
        };
        match self.geometry {
            Geometry::Mirror => {
                self.devices.iter().for_each(|device| device.write(area + column.offset, bytes));
            }
            _ => self.devices[column.child].write(area + column.offset, bytes),
        }
    }
}

/// Reads blocks, verified by their contents.
pub(crate) fn read(tree: &VdevTree, blocks: &[Block]) -> Vec<Result<Vec<u8>, VdevError>> {
    let verifiers: Vec<_> =
        blocks.iter().map(|block| move |data: &[u8]| data == block.data).collect();
    let reads = blocks.iter().zip(&verifiers).map(|(block, verify)| BlockRead {
        dva: block.dva,
        size: block.data.len() as u64,
        birth: block.birth,
        verify,
    });
    tree.read(reads.collect()).into_iter().map(|result| result.map(|data| data.to_vec())).collect()
}

/// Asserts that all blocks can be read.
#[track_caller]
pub(crate) fn assert_readable(tree: &VdevTree, blocks: &[Block]) {
    for (block, result) in blocks.iter().zip(read(tree, blocks)) {
        let data = result.unwrap_or_else(|error| panic!("{}: {error}", block.dva));
        assert!(data == block.data, "{}: wrong data", block.dva);
    }
}

/// Bytes that differ from block to block and from place to place.
pub(crate) fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}
