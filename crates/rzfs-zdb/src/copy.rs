//! `zdb -r`: copies a file out of a dataset.

use super::error::ZdbError;
use super::session::Session;
use rzfs::{FileError, FileTree};
use rzfs_blockdev::without_number;
use rzfs_dsl::pool::Pool;
use std::fs;
use std::io::Write;
use std::path::Path;

/// Bytes read at once.
const CHUNK: u64 = 1 << 20;

/// Copies the file at a path of a dataset: the words are dataset, path and destination. An existing
/// destination is overwritten.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    let [dataset, path, destination] = session.arguments.targets.as_slice() else {
        return Err(ZdbError::Usage("-r needs DATASET PATH DESTINATION".into()));
    };
    let dataset = pool.datasets().open(dataset.trim_end_matches('/'))?;
    let file = |error: FileError| ZdbError::Usage(error.to_string());
    let tree = FileTree::of_dataset(pool, &dataset, None).map_err(file)?;
    let node = tree.link_node(path).map_err(file)?;
    let contents = node.open().map_err(file)?;
    let size = node.attributes().map_err(file)?.size;
    writeln!(session.out, "Copying object {} to file {destination}", node.object())?;
    writeln!(session.out, "Object {} is {size} bytes", node.object())?;
    let to = Path::new(destination);
    let unwritable = |error: std::io::Error| ZdbError::Open {
        path: to.to_owned(),
        reason: without_number(&error),
    };
    let mut copy = fs::File::create(to).map_err(unwritable)?;
    let mut at = 0;
    while at < size {
        let segments = contents.read_segments(at, CHUNK.min(size - at)).map_err(file)?;
        let read: u64 = segments.iter().map(|segment| segment.len() as u64).sum();
        if read == 0 {
            break;
        }
        for segment in segments {
            copy.write_all(&segment).map_err(unwritable)?;
        }
        at += read;
    }
    copy.flush().map_err(unwritable)
}
