//! Lists the datasets of a pool, reads a file at an offset, and walks a ZAP:
//! `read_file IMAGE... FS PATH OFFSET`.

use rzfs::{OpenFiles, PoolOptions};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [images @ .., name, path, offset] = &*words else { return Err("too few words".into()) };
    let pool = PoolOptions::new().device_paths(images).open()?;
    for dataset in pool.datasets().root()?.descendants()? {
        println!("{}", dataset.name());
    }
    let files = pool.file_system(name)?;
    let mut buffer = [0; 64];
    let read = files.open(path)?.read_at(offset.parse()?, &mut buffer)?;
    std::io::stdout().write_all(&buffer[..read])?;

    let root = files.file_system().objset().object(files.root().object())?.zap()?;
    for entry in root.entries() {
        let entry = entry?;
        println!("{} = {:#x?}", rzfs::ShownPath(entry.name()), entry.value.first_u64());
    }
    Ok(())
}
