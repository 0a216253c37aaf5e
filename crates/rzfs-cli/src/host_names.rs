//! Names of users and groups on this host.

use std::collections::HashMap;

/// The names in a table like `/etc/passwd`, by number; the first of several for one number.
pub(crate) fn names_in(table: &str) -> HashMap<u64, String> {
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
    };
    table.lines().rev().filter_map(named).collect()
}
