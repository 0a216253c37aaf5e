//! The tables of properties that `zfs` and `zpool` show after usage errors.
//!
//! Their rows are generated from the descriptions of properties; the rest is fixed text.

use super::owner::{self, OwnerAspect};
use rzfs_format::property::{DatasetProperty, Description, Editing, Inheritance, PoolProperty};
use std::fmt::Write;

/// The text below the properties of datasets.
const BELOW_DATASETS: &str = r#"
A size is a number of bytes, or a number with a unit: 512K, 1.5G, 2T.

A property with a colon in its name is free for any use: backup:keep=30d.

After userused@, groupquota@ and the like comes the user, group or project
that is meant: a name, or a number.
"#;

/// The text below the properties of pools.
const BELOW_POOLS: &str = "
After feature@ comes the name of a feature: zpool-features(7) has them all.
";

/// The properties of datasets, as `zfs` shows them.
#[must_use]
pub fn dataset_properties() -> String {
    let mut text = "The following properties are supported:\n\n\
         \tPROPERTY              EDIT  INHERIT   VALUES\n\n"
        .to_owned();
    let mut row = |name: &str, edit: &str, inherit: &str, values: &str| {
        let _ = writeln!(text, "\t{name:<20}  {edit:>4}  {inherit:>7}   {values}");
    };
    for property in in_order(DatasetProperty::all_but_name(), DatasetProperty::description) {
        let description = property.description();
        let inherit = yes_or_no(property.inheritance() != Inheritance::Own);
        row(description.name, edit(description), inherit, &description.usage());
    }
    for aspect in OwnerAspect::ALL {
        let (edit, values) = match aspect {
            OwnerAspect::Used => ("NO", "<size>"),
            OwnerAspect::Quota => ("YES", "<size> | none"),
        };
        for name in owner::names(aspect) {
            row(&format!("{name}@..."), edit, "NO", values);
        }
    }
    row("written@<snap>", "NO", "NO", "<size>");
    row("written#<bookmark>", "NO", "NO", "<size>");
    text + BELOW_DATASETS
}

/// The properties of pools, as `zpool` shows them.
#[must_use]
pub fn pool_properties() -> String {
    let mut text = "the following properties are supported:\n\n\
         \tPROPERTY             EDIT   VALUES\n\n"
        .to_owned();
    let mut row = |name: &str, edit: &str, values: &str| {
        let _ = writeln!(text, "\t{name:<19}  {edit:>4}   {values}");
    };
    for property in in_order(PoolProperty::all_but_name(), PoolProperty::description) {
        let description = property.description();
        row(description.name, edit(description), &description.usage());
    }
    row("feature@...", "YES", "disabled | enabled | active");
    text + BELOW_POOLS
}

/// Sorts read-only properties first, each group by name.
fn in_order<P: Copy>(
    properties: impl Iterator<Item = P>,
    description: impl Fn(P) -> &'static Description,
) -> Vec<P> {
    let mut properties: Vec<P> = properties.collect();
    properties.sort_by_key(|property| {
        let description = description(*property);
        (description.editing != Editing::Never, description.name)
    });
    properties
}

fn edit(description: &Description) -> &'static str {
    yes_or_no(description.editing == Editing::Always)
}

const fn yes_or_no(is_so: bool) -> &'static str {
    if is_so { "YES" } else { "NO" }
}
