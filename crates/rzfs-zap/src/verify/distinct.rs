//! No two entries of a block are one.

use rzfs_format::BlockId;
use rzfs_format::zap::ZapHash;

use super::violation::Violation;

/// An entry's place in the order of cookies, and its key as it is stored.
pub(super) type Placed = (ZapHash, u32, Vec<u8>);

/// Looks for entries of one block that share a position or a key.
pub(super) fn check_distinct(block: BlockId, mut entries: Vec<Placed>, found: &mut Vec<Violation>) {
    entries.sort_unstable();
    for pair in entries.windows(2) {
        let [(hash, cd, _), (next, next_cd, _)] = pair else { continue };
        if (hash, cd) == (next, next_cd) {
            found.push(Violation::Position { block, hash: *hash, cd: *cd });
        }
    }
    entries.sort_unstable_by(|a, b| (a.0, &a.2).cmp(&(b.0, &b.2)));
    for pair in entries.windows(2) {
        let [(hash, _, key), (next, _, next_key)] = pair else { continue };
        if (hash, key) == (next, next_key) {
            found.push(Violation::Key { block, hash: *hash });
        }
    }
}
