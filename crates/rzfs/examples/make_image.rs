//! Makes a pool in an image and writes files to it, without a mount: `make_image IMAGE FILE...`.

use rzfs::NewPool;
use rzfs::zpl::live::{Caller, NewFile, NewKind, WriteAt};
use std::path::Path;

const SIZE: u64 = 128 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, files @ ..] = &*words else { return Err("too few words".into()) };
    let image = std::path::absolute(image)?;
    let pool = NewPool::new("made")
        .vdevs([image.to_string_lossy()])
        .missing_file_size(SIZE)
        .root_property("compression", "zstd")
        .create()?;
    let target = pool.file_system("made")?;
    for path in files {
        let name = Path::new(path).file_name().ok_or("a path without a name")?;
        let caller = Caller::SUPERUSER;
        let new = NewFile { kind: NewKind::Regular, permissions: 0o644, umask: 0, caller };
        let file = target.create(target.root(), name.as_encoded_bytes(), &new)?;
        target.write(file.object, WriteAt::Offset(0), &std::fs::read(path)?, caller)?;
    }
    drop(target);
    pool.export()?;
    Ok(())
}
