//! The dependents of snapshots: clones, and their dependents; and the order in which all of them
//! can be destroyed.

use super::change::query;
use super::name::pool_of;
use crate::console::Failure;
use rzfs_format::property::DatasetProperty;
use rzfs_server::control::ControlClient;
use rzfs_server::protocol::{DatasetKind, DatasetReport, PropertyValue};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The properties needed to find dependents.
pub(super) const NEEDED: [DatasetProperty; 1] = [DatasetProperty::Clones];

/// Datasets to be destroyed.
pub(super) struct DestroyPlan {
    /// Dependents that were not named: the clones of the named snapshots, everything below these,
    /// and so on. Children and clones come later.
    pub(super) dependents: Vec<String>,
    order: Result<Vec<String>, Failure>,
}

impl DestroyPlan {
    /// Finds the dependents of these datasets. Other datasets of the pool are queried only if there
    /// are clones.
    pub(super) fn of<'r>(
        client: &mut ControlClient,
        named: impl IntoIterator<Item = &'r DatasetReport>,
    ) -> Result<Self, Failure> {
        let named: Vec<&DatasetReport> = named.into_iter().collect();
        let has_clones = |one: &&DatasetReport| {
            let clones = one.property(DatasetProperty::Clones.name()).map(|clones| &clones.value);
            matches!(clones, Some(PropertyValue::Text(names)) if !names.is_empty())
        };
        let all = match named.iter().find(|one| has_clones(one)) {
            Some(one) => {
                let kinds = [DatasetKind::Filesystem, DatasetKind::Volume, DatasetKind::Snapshot];
                query(client, pool_of(&one.name), (None, &kinds), &[DatasetProperty::Origin])?
            }
            None => Vec::new(),
        };
        let mut tree = Tree::default();
        tree.names
            .extend(named.iter().chain(&all.iter().collect::<Vec<_>>()).map(|one| &*one.name));
        for one in &all {
            if let Some(origin) = origin(one) {
                tree.clones.entry(origin).or_default().push(&one.name);
            }
        }
        let named: BTreeSet<&str> = named.iter().map(|one| one.name.as_str()).collect();
        let dependents = tree.dependents(&named);
        let order = tree.order(named.iter().chain(&dependents).copied());
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Ok(Self { order: order.map(owned), dependents: owned(dependents) })
    }

    /// All datasets, in an order in which they can be destroyed: dependents come first.
    ///
    /// # Errors
    /// There is no such order: the dependencies are cyclic.
    pub(super) fn into_order(self) -> Result<Vec<String>, Failure> {
        self.order
    }
}

/// The snapshot that a dataset is a clone of.
fn origin(dataset: &DatasetReport) -> Option<&str> {
    match &dataset.property(DatasetProperty::Origin.name())?.value {
        PropertyValue::Text(origin) if origin.contains('@') => Some(origin),
        _ => None,
    }
}

/// Datasets with their dependencies.
#[derive(Default)]
struct Tree<'n> {
    names: BTreeSet<&'n str>,
    /// Clones by their origins.
    clones: BTreeMap<&'n str, Vec<&'n str>>,
}

impl<'n> Tree<'n> {
    /// The direct dependents of a dataset: clones, snapshots, and descendants.
    fn depending_on(&self, name: &str) -> Vec<&'n str> {
        let mut depending = self.clones.get(name).cloned().unwrap_or_default();
        if !name.contains('@') {
            for separator in ['@', '/'] {
                let start = format!("{name}{separator}");
                let from = self.names.range::<str, _>((Bound::Included(&*start), Bound::Unbounded));
                depending.extend(from.take_while(|name| name.starts_with(&start)));
            }
        }
        depending
    }

    /// The dependents of these that are not among them.
    fn dependents(&self, named: &BTreeSet<&'n str>) -> Vec<&'n str> {
        let (mut found, mut seen) = (Vec::new(), named.clone());
        let mut waiting: Vec<&str> = named.iter().rev().copied().collect();
        while let Some(name) = waiting.pop() {
            let mut more = self.depending_on(name);
            more.retain(|one| seen.insert(one));
            found.extend(&more);
            waiting.extend(more.into_iter().rev());
        }
        found
    }

    /// An order in which these can be destroyed; they have no other dependents.
    fn order(&self, names: impl Iterator<Item = &'n str>) -> Result<Vec<&'n str>, Failure> {
        let mut order = Vec::new();
        let mut is_done: BTreeMap<&str, bool> = BTreeMap::new();
        for name in names {
            let mut open = Vec::new();
            if !is_done.contains_key(name) {
                is_done.insert(name, false);
                open.push((name, self.depending_on(name)));
            }
            while let Some((name, before)) = open.last_mut() {
                match before.pop() {
                    Some(next) => match is_done.get(next) {
                        Some(true) => {}
                        Some(false) => return Err(circle(next)),
                        None => {
                            is_done.insert(next, false);
                            open.push((next, self.depending_on(next)));
                        }
                    },
                    None => {
                        is_done.insert(name, true);
                        order.push(*name);
                        open.pop();
                    }
                }
            }
        }
        Ok(order)
    }
}

fn circle(at: &str) -> Failure {
    let message = "cannot determine dependent datasets";
    Failure::Failed(format!("{message}: recursive dependency at '{at}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree<'n>(names: &[&'n str], clones: &[(&'n str, &'n str)]) -> Tree<'n> {
        let mut tree = Tree { names: names.iter().copied().collect(), ..Tree::default() };
        for (clone, origin) in clones {
            tree.clones.entry(origin).or_default().push(clone);
        }
        tree
    }

    /// An order in which the named datasets can be destroyed with their dependents.
    fn order<'n>(tree: &Tree<'n>, named: &[&'n str]) -> Result<Vec<&'n str>, String> {
        let named: BTreeSet<&str> = named.iter().copied().collect();
        let dependents = tree.dependents(&named);
        let order = tree.order(named.iter().chain(&dependents).copied());
        let order = order.map_err(|failure| format!("{failure:?}"))?;
        for (at, name) in order.iter().enumerate() {
            let before: BTreeSet<&str> = order[..at].iter().copied().collect();
            let depending = tree.depending_on(name);
            assert!(depending.iter().all(|one| before.contains(one)), "{name} in {order:?}");
        }
        assert_eq!(order.len(), named.len() + dependents.len());
        Ok(order)
    }

    #[test]
    fn nothing_goes_before_what_depends_on_it() {
        let names = ["p", "p/t", "p/t/aa", "p/t/zz", "p/t/zz@s", "p/t-other"];
        let simple = tree(&names, &[("p/t/aa", "p/t/zz@s")]);
        let order_of = order(&simple, &["p/t", "p/t/aa", "p/t/zz", "p/t/zz@s"]).unwrap();
        assert_eq!(order_of.last(), Some(&"p/t"));
        assert!(!order_of.contains(&"p/t-other"));
        // A clone outside has a snapshot with a clone inside.
        let names = ["p/t", "p/t@s", "p/t/sub", "p/c1", "p/c1@x"];
        let around = tree(&names, &[("p/c1", "p/t@s"), ("p/t/sub", "p/c1@x")]);
        order(&around, &["p/t", "p/t@s", "p/t/sub"]).unwrap();
        let names = ["p/t", "p/t@s", "p/a", "p/a/k", "p/z", "p/z@1", "p/z/last"];
        let clones = [("p/a", "p/t@s"), ("p/z", "p/t@s"), ("p/a/k", "p/z@1")];
        order(&tree(&names, &clones), &["p/t@s"]).unwrap();
    }

    #[test]
    fn nothing_is_first_in_a_circle() {
        let names = ["p", "p/t", "p/t/c", "p/t/c@s", "p/other"];
        let circle = tree(&names, &[("p/t", "p/t/c@s")]);
        for named in [&["p/t/c@s"][..], &["p/t", "p/t/c", "p/t/c@s"]] {
            let refused = order(&circle, named).unwrap_err();
            assert!(refused.contains("recursive dependency at 'p/t"), "{refused}");
        }
        order(&circle, &["p/other"]).unwrap();
    }

    #[test]
    fn chains_of_clones_may_be_long() {
        let names: Vec<String> =
            (0..5_000).flat_map(|n| [format!("p/{n}"), format!("p/{n}@s")]).collect();
        let mut long =
            Tree { names: names.iter().map(String::as_str).collect(), ..Tree::default() };
        for pair in names.windows(3).step_by(2) {
            long.clones.insert(&pair[1], vec![&pair[2]]);
        }
        assert_eq!(order(&long, &["p/0@s"]).unwrap().len(), 9_999);
    }
}
