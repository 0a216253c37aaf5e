//! Columns of `zpool list` and `zpool get`.

use crate::console::Failure;
use crate::property::{Form, POOL_PROPERTIES, Property};
use crate::table::Column;
use rzfs_format::features::{Feature, Release};

/// The columns of a list of names.
pub(super) fn parse_columns(names: &str) -> Result<Vec<PoolColumn>, Failure> {
    if names == "all" {
        let native = POOL_PROPERTIES.iter().map(PoolColumn::Native);
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

/// A column: a native property, or a feature or a property of users by its name.
#[derive(Clone, Debug)]
pub(crate) enum PoolColumn {
    Native(&'static Property),
    Feature(String),
    User(String),
}

impl PoolColumn {
    /// The column of a property's name, alias, or `feature@...`; none if there is no such one.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        if is_feature(name) {
            return Some(Self::Feature(name.to_owned()));
        }
        if name.contains(':') {
            return Some(Self::User(name.to_owned()));
        }
        Property::find(POOL_PROPERTIES, name).map(Self::Native)
    }

    /// The property's full name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Native(property) => property.name,
            Self::Feature(name) | Self::User(name) => name,
        }
    }

    /// How values are written.
    pub(crate) const fn form(&self) -> Form {
        match self {
            Self::Native(property) => property.form,
            Self::Feature(_) | Self::User(_) => Form::Text,
        }
    }

    /// The least width of a column of values.
    pub(crate) fn value_width(&self) -> usize {
        match self {
            Self::Native(property) => property.value_width(),
            Self::Feature(name) | Self::User(name) => name.len(),
        }
    }

    pub(super) fn column(&self) -> Column {
        match self {
            Self::Native(property) => property.column(),
            Self::Feature(name) | Self::User(name) => Column::text(&name.to_uppercase()),
        }
    }
}

/// Whether a name is that of a feature or of an unsupported one.
pub(crate) fn is_feature(name: &str) -> bool {
    name.starts_with("feature@") || name.starts_with("unsupported@")
}
