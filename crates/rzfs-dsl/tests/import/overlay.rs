//! A device that reads like another one except for some bytes.

use rzfs_blockdev::{
    BlockDevice, CompletionQueue, DeviceGeometry, IoCompletion, IoOperation, IoRequest,
    read_exact_at,
};
use rzfs_codec::checksum::{EmbeddedVerifier, generate_embedded};
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::label::{
    CONFIG_OFFSET, CONFIG_SIZE, LabelIndex, LeafSize, START_SIZE, TRAILER_SIZE, UberblockRing,
};
use rzfs_format::nvlist::{Encoding, NvList};
use rzfs_format::uberblock::Uberblock;
use std::sync::{Arc, Mutex};

/// A device with patches; all holders see patches that are added later.
#[derive(Debug)]
pub(crate) struct Overlay {
    base: Arc<dyn BlockDevice>,
    patches: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Overlay {
    /// A device that reads like `base`.
    pub(crate) fn new(base: Arc<dyn BlockDevice>) -> Arc<Self> {
        Arc::new(Self { base, patches: Mutex::new(Vec::new()) })
    }

    /// Changes bytes.
    pub(crate) fn patch(&self, offset: u64, bytes: Vec<u8>) {
        self.patches.lock().unwrap().push((offset, bytes));
    }

    fn size(&self) -> LeafSize {
        LeafSize::of_device(self.geometry().size).expect("a leaf")
    }

    /// Overwrites the three copies of the block of the MOS.
    pub(crate) fn destroy_mos(&self, uberblock: &Uberblock) {
        for dva in uberblock.mos.dvas() {
            self.patch(START_SIZE + dva.offset(), vec![0x55; 512]);
        }
    }

    /// Breaks the checksums of all labels' configurations, and nothing else.
    pub(crate) fn spoil_label_checksums(&self) {
        for label in LabelIndex::ALL {
            let padding = CONFIG_OFFSET + (CONFIG_SIZE - TRAILER_SIZE - 1) as u64;
            self.patch(self.size().label_offset(label) + padding, vec![1]);
        }
    }

    /// Writes a configuration to all labels.
    pub(crate) fn write_config(&self, config: &NvList) {
        for label in LabelIndex::ALL {
            let offset = self.size().label_offset(label) + CONFIG_OFFSET;
            let mut block = config.encode(Encoding::Xdr).unwrap();
            block.resize(CONFIG_SIZE, 0);
            self.write_checked(offset, block);
        }
    }

    /// Writes an uberblock to a slot of all rings.
    pub(crate) fn write_uberblock(&self, ring: UberblockRing, slot: usize, uberblock: &Uberblock) {
        for label in LabelIndex::ALL {
            let offset = self.size().label_offset(label) + ring.slot_offset(slot);
            let mut block = uberblock.encode(ByteOrder::NATIVE).to_vec();
            block.resize(ring.slot_size(), 0);
            self.write_checked(offset, block);
        }
    }

    fn write_checked(&self, offset: u64, mut block: Vec<u8>) {
        let verifier = EmbeddedVerifier::Label { offset };
        generate_embedded(ChecksumFunction::Label, &mut block, verifier, ByteOrder::NATIVE)
            .unwrap();
        self.patch(offset, block);
    }
}

impl BlockDevice for Overlay {
    fn name(&self) -> &str {
        self.base.name()
    }

    fn geometry(&self) -> DeviceGeometry {
        self.base.geometry()
    }

    fn submit(&self, requests: Vec<IoRequest>, completions: &Arc<CompletionQueue>) {
        for IoRequest { token, offset, operation } in requests {
            let IoOperation::Read(buffer) = operation else { panic!("a pool is written to") };
            let mut result = read_exact_at(&*self.base, offset, buffer.len());
            if let Ok(buffer) = &mut result {
                for (at, bytes) in &*self.patches.lock().unwrap() {
                    for (byte, position) in bytes.iter().zip(*at..) {
                        let inside = position.checked_sub(offset);
                        if let Some(target) =
                            inside.and_then(|inside| buffer.get_mut(inside as usize))
                        {
                            *target = *byte;
                        }
                    }
                }
            }
            completions.push(IoCompletion { token, result: result.map(Some) });
        }
    }
}
