//! The pool's vdevs as a block writer.

use rzfs_dmu::write::{DeviceWrite, DeviceWriter};
use rzfs_vdev::{BlockWrite, CurrentTree, VdevError};
use std::sync::Arc;

/// Writes blocks to vdevs; what leaves missed is in their dirty time logs.
#[derive(Debug)]
pub(crate) struct VdevWriter(pub(crate) Arc<CurrentTree>);

impl DeviceWriter for VdevWriter {
    fn write(&self, writes: Vec<DeviceWrite>) -> Vec<Result<(), VdevError>> {
        let writes = writes.into_iter().map(|DeviceWrite { dva, birth, data, .. }| BlockWrite {
            dva,
            birth,
            data,
        });
        self.0.get().write(writes.collect()).into_iter().map(|result| result.map(drop)).collect()
    }
}
