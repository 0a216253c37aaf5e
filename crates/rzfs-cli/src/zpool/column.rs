//! Columns of `zpool list` and `zpool get`.

use crate::console::Failure;
use crate::property;
use crate::table::{Align, Column};
use rzfs_format::features::{Feature, Release};
use rzfs_format::property::{PoolProperty, Values};

/// Parses a list of columns.
pub(super) fn parse_columns(names: &str) -> Result<Vec<PoolColumn>, Failure> {
    if names == "all" {
        let native = PoolProperty::ALL.iter().copied().map(PoolColumn::Native);
        let features = Feature::ALL.iter().filter(|feature| feature.since() <= Release::V2_3);
        let features = features.map(|one| PoolColumn::Feature(format!("feature@{}", one.name())));
        return Ok(native.chain(features).collect());
    }
    let column = |name: &str| {
        let unknown = || Failure::Usage(format!("bad property list: invalid property '{name}'"));
        PoolColumn::parse(name).ok_or_else(unknown)
    };
    names.split(',').map(column).collect()
}

/// A column: a native property, or a feature or a user property by name.
#[derive(Clone, Debug)]
pub(crate) enum PoolColumn {
    Native(PoolProperty),
    Feature(String),
    User(String),
}

impl PoolColumn {
    /// Parses a property's name, alias, or `feature@...`; `None` if there is no such one.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if is_feature(name) {
            return Some(Self::Feature(name.to_owned()));
        }
        if name.contains(':') {
            return Some(Self::User(name.to_owned()));
        }
        PoolProperty::from_name_or_header(name).map(Self::Native)
    }

    /// The property's full name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Native(property) => property.name(),
            Self::Feature(name) | Self::User(name) => name,
        }
    }

    /// Whether it is this property.
    pub(crate) fn is(&self, property: PoolProperty) -> bool {
        matches!(self, Self::Native(native) if *native == property)
    }

    /// Its kind of values.
    pub(crate) const fn values(&self) -> Values {
        match self {
            Self::Native(property) => property.values(),
            Self::Feature(_) | Self::User(_) => Values::Text,
        }
    }

    /// The minimum width of a column of values.
    pub(crate) fn value_width(&self) -> usize {
        match self {
            Self::Native(property) => property::value_width(property.description()),
            Self::Feature(name) | Self::User(name) => name.len(),
        }
    }

    pub(super) fn column(&self) -> Column {
        match self {
            // The state of a pool is the only right-aligned word.
            Self::Native(PoolProperty::Health) => {
                let column = property::column(PoolProperty::Health.description());
                Column { align: Align::Right, ..column }
            }
            Self::Native(property) => property::column(property.description()),
            Self::Feature(name) | Self::User(name) => Column::text(&name.to_uppercase()),
        }
    }
}

/// Whether a name is that of a supported or unsupported feature.
pub(crate) fn is_feature(name: &str) -> bool {
    name.starts_with("feature@") || name.starts_with("unsupported@")
}
