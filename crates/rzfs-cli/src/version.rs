//! `zpool version` and `zfs version`.

use crate::console::{Console, Failure, Outcome};
use crate::getopt::{Grammar, Value, Word};
use crate::json::{self, Envelope};

const GRAMMAR: Grammar = Grammar { letters: &[('j', Value::None)], names: &[("json", 'j')] };

/// The release of rzfs, and that of OpenZFS whose features it has.
pub(crate) const RELEASE: &str = concat!("rzfs-", env!("CARGO_PKG_VERSION"));

/// Prints the versions of OpenZFS's user land and kernel module: both are rzfs here.
pub(crate) fn run(program: &str, words: &[String], console: &mut Console<'_>) -> Outcome {
    let parsed = GRAMMAR.parse(words).map_err(|error| Failure::Usage(error.to_string()))?;
    if parsed.contains(&Word::Flag('j')) {
        let mut envelope = Envelope::new(&format!("{program} version"));
        let versions = json::object([("userland", RELEASE.into()), ("kernel", RELEASE.into())]);
        envelope.insert("zfs_version", versions);
        return envelope.print(console.out);
    }
    writeln!(console.out, "{RELEASE}\n{RELEASE}")?;
    Ok(())
}
