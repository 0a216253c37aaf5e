//! Golden pools as trees, their configuration taken from their labels.

use rzfs_blockdev::{
    BlockDevice, CompletionQueue, DeviceGeometry, FileDevice, IoCompletion, IoOperation, IoRequest,
    OpenOptions, read_exact_at,
};
use rzfs_format::label::{CONFIG_OFFSET, CONFIG_SIZE, decode_config};
use rzfs_format::nvlist::NvList;
use rzfs_format::{Guid, label};
use rzfs_testkit::ReferencePool;
use rzfs_vdev::{TreeOptions, VdevConfig, VdevKind, VdevTree};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// The state of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Missing,
    Garbage,
}

/// A device that reads as noise.
#[derive(Debug)]
struct Noise(DeviceGeometry);

impl BlockDevice for Noise {
    fn name(&self) -> &str {
        "noise"
    }

    fn geometry(&self) -> DeviceGeometry {
        self.0
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        for IoRequest { token, offset, operation } in requests {
            let IoOperation::Read(mut buffer) = operation else {
                panic!("the vdev layer only reads");
            };
            for (at, byte) in (offset..).zip(buffer.iter_mut()) {
                *byte = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
            }
            completions.push(IoCompletion { token, result: Ok(Some(buffer)) });
        }
    }
}

/// The images of a pool and their labels.
pub(crate) struct ImagePool {
    images: Vec<PathBuf>,
    labels: Vec<NvList>,
}

impl ImagePool {
    /// The golden pool of this name, if golden pools are available.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let images = ReferencePool::golden(name)?.images().unwrap();
        let options = OpenOptions::new();
        let labels = images
            .iter()
            .map(|image| {
                let device = FileDevice::open(image, &options).unwrap();
                let bytes = read_exact_at(&device, CONFIG_OFFSET, CONFIG_SIZE).unwrap();
                decode_config(&bytes).unwrap_or_default()
            })
            .collect();
        Some(Self { images, labels })
    }

    pub(crate) fn image(&self, image: usize) -> &std::path::Path {
        &self.images[image]
    }

    pub(crate) fn guid(&self, image: usize) -> Guid {
        Guid(self.labels[image].find_u64("guid").unwrap().unwrap_or(0))
    }

    pub(crate) fn open(&self, damaged: &[(usize, Health)]) -> VdevTree {
        self.open_with(Vec::new(), damaged)
    }

    /// The top-level vdevs described by labels, by id.
    pub(crate) fn top_levels(&self) -> Vec<VdevConfig> {
        self.top_levels_after(Vec::new())
    }

    /// The tree with some additional top-level vdevs that are not in labels, which come first.
    pub(crate) fn open_with(
        &self,
        first: Vec<VdevConfig>,
        damaged: &[(usize, Health)],
    ) -> VdevTree {
        let tops = self.top_levels_after(first);
        let ids: Vec<u64> = tops.iter().map(|top| top.id).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        let root = VdevConfig::new(VdevKind::Root, Guid(1)).with_children(tops);
        VdevTree::open(root, &self.devices(damaged), TreeOptions::default()).unwrap()
    }

    fn top_levels_after(&self, first: Vec<VdevConfig>) -> Vec<VdevConfig> {
        let mut tops: Vec<VdevConfig> = first;
        for label in self.labels.iter().filter(|label| !label.is_empty()) {
            let Some(tree) = label.find_list("vdev_tree").unwrap() else { continue };
            let top = VdevConfig::from_nvlist(tree).unwrap();
            if !tops.iter().any(|known| known.guid == top.guid) {
                tops.push(top);
            }
        }
        // A detached disk keeps a label of the vdev that is gone.
        let removed = tops.iter().filter(|top| top.kind == VdevKind::Indirect);
        let removed: Vec<Guid> = removed.map(|top| top.guid).collect();
        tops.retain(|top| top.kind == VdevKind::Indirect || !removed.contains(&top.guid));
        tops
    }

    fn devices(&self, damaged: &[(usize, Health)]) -> HashMap<Guid, Arc<dyn BlockDevice>> {
        let options = OpenOptions::new();
        let mut devices: HashMap<Guid, Arc<dyn BlockDevice>> = HashMap::new();
        for (index, image) in self.images.iter().enumerate() {
            let device = FileDevice::open(image, &options).unwrap();
            assert!(device.geometry().size >= label::MIN_LEAF_SIZE);
            let state = damaged.iter().find(|(image, _)| *image == index).map(|(_, state)| *state);
            let device: Arc<dyn BlockDevice> = match state {
                Some(Health::Missing) => continue,
                Some(Health::Garbage) => Arc::new(Noise(device.geometry())),
                None => Arc::new(device),
            };
            devices.insert(self.guid(index), device);
        }
        devices
    }
}
