//! Cycles in the graph of files.

use super::names::Imports;
use std::collections::BTreeSet;
use std::path::Path;

/// Files of which each leads to every other: the strongly connected components of two files or more.
pub(super) fn cycles<'a>(imports: &Imports<'a>) -> Vec<BTreeSet<&'a Path>> {
    let mut seen: BTreeSet<&Path> = BTreeSet::new();
    let mut cycles = Vec::new();
    for &file in imports.keys() {
        if seen.contains(file) {
            continue;
        }
        let below = reachable(imports, file);
        let cycle: BTreeSet<&Path> =
            below.into_iter().filter(|other| reachable(imports, other).contains(file)).collect();
        if cycle.len() > 1 {
            seen.extend(&cycle);
            cycles.push(cycle);
        }
    }
    cycles
}

/// The files that a file leads to, by one import or more.
fn reachable<'a>(imports: &Imports<'a>, from: &'a Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        let next = imports.get(file).into_iter().flat_map(|taken| taken.keys());
        open.extend(next.filter(|next| reached.insert(**next)));
    }
    reached
}
