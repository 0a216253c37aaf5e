//! `zpool labelclear` (spec 09, section 4).

use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word, operands};
use crate::source;
use rzfs_blockdev::{Access, BlockDevice, FileDevice, OpenError, OpenOptions};
use rzfs_vdev::label::{ClearError, ClearMode, clear_labels};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const GRAMMAR: Grammar = Grammar { letters: &[('f', Value::None)], names: &[] };

/// Runs `zpool labelclear`.
pub(super) fn run(words: &[String], console: &mut Console<'_>) -> Outcome {
    let words = GRAMMAR.parse(words)?;
    let names = operands(&words);
    let [name] = names.as_slice() else {
        let problem = if names.is_empty() { "missing vdev name" } else { "too many vdev names" };
        return Err(Failure::Usage(problem.to_owned()));
    };
    let below_dev = Path::new("/dev").join(name);
    let path = match Path::new(name) {
        path if path.exists() => PathBuf::from(path),
        _ if below_dev.exists() => below_dev,
        _ => {
            let message = format!("failed to open {name}: No such file or directory");
            return Err(Failure::Failed(message));
        }
    };
    let options = OpenOptions::new().access(Access::ReadWrite);
    let fail = |error: OpenError| Failure::Failed(format!("failed to open {name}: {error}"));
    let mut writer = None;
    let device = FileDevice::open(&path, &options).or_else(|error| {
        if !error.is_in_use() {
            return Err(error);
        }
        // The owner is more informative; it cannot be written.
        writer = Some(error);
        FileDevice::open(&path, &OpenOptions::new())
    });
    let device: Arc<dyn BlockDevice> = Arc::new(device.map_err(fail)?);
    let force = words.contains(&Word::Flag('f'));
    let mode = if force { ClearMode::Force } else { ClearMode::Careful };
    let imported = source::local_pools(console)?.imported;
    match (clear_labels(&device, mode, |guid| imported.contains(&guid)), writer) {
        (Err(ClearError::Device { .. }), Some(writer)) => Err(fail(writer)),
        (cleared, _) => cleared.map(|_| ()).map_err(|error| Failure::Failed(error.to_string())),
    }
}
