//! Reads a file out of a pool that is held in memory: `memory IMAGE.zst FS PATH`.

use rzfs::blockdev::{Access, BlockDevice, MemoryDevice};
use rzfs::{OpenFiles, PoolOptions};
use std::sync::Arc;

/// Size of the sample's device in bytes.
const SIZE: usize = 64 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, name, path] = &*words else { return Err("three words, please".into()) };
    let mut content = Vec::with_capacity(SIZE);
    zstd_safe::decompress(&mut content, &std::fs::read(image)?)
        .map_err(zstd_safe::get_error_name)?;

    let device: Arc<dyn BlockDevice> =
        Arc::new(MemoryDevice::new("sample", content, Access::ReadOnly));
    let pool = PoolOptions::new().sources([device.into()]).open()?;
    let mut file = pool.file_system(name)?.open(path)?;
    std::io::copy(&mut file, &mut std::io::stdout())?;
    Ok(())
}
