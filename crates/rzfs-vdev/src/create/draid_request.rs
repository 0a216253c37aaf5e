//! `draid[<parity>][:<data>d][:<children>c][:<spares>s]` (spec 07, section 11.1).

use crate::config::DraidRecord;
use crate::draid::DraidShape;

/// Maximum parity columns.
const MAX_PARITY: u64 = 3;

/// Maximum children.
const MAX_CHILDREN: u64 = 255;

/// Default data columns of a group, if there are enough children.
const DEFAULT_DATA: u64 = 8;

/// Why a specification is not a valid dRAID. The messages are OpenZFS's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DraidError {
    /// The parity.
    #[error("invalid dRAID parity level {0}; must be between 1 and {MAX_PARITY}")]
    Parity(u64),
    /// A part that is not a number with a known letter.
    #[error("invalid dRAID syntax; expected [:<number><c|d|s>] not '{0}'")]
    Syntax(String),
    /// The number of devices differs from the specification.
    #[error("invalid number of dRAID children; {required} required but {provided} provided")]
    Children {
        /// The specified number.
        required: u64,
        /// The number of devices.
        provided: u64,
    },
    /// Spares and parity take all children.
    #[error(
        "request number of distributed spares {spares} and parity level {parity}\nleaves no disks available for data"
    )]
    NoData {
        /// Spares.
        spares: u64,
        /// Columns of parity.
        parity: u64,
    },
    /// More data columns than there are children for.
    #[error(
        "requested number of dRAID data disks per group {data} is too high,\nat most {limit} disks are available for data"
    )]
    TooMuchData {
        /// Data columns.
        data: u64,
        /// Maximum data columns.
        limit: u64,
    },
    /// Too many spares.
    #[error("invalid number of dRAID spares {0}; additional disks would be required")]
    Spares(u64),
    /// Too few devices.
    #[error(
        "{provided} disks were provided, but at least {needed} disks are required for this config"
    )]
    TooFew {
        /// The number of devices.
        provided: u64,
        /// Required devices.
        needed: u64,
    },
    /// Too many devices.
    #[error("{0} disks were provided, but dRAID only supports up to {MAX_CHILDREN} disks")]
    TooMany(u64),
}

/// Parity and shape of a dRAID with this many devices, from its specification.
pub(super) fn parse(word: &str, devices: usize) -> Result<(u8, DraidRecord), DraidError> {
    let children = devices as u64;
    let mut parts = word.strip_prefix("draid").unwrap_or(word).split(':');
    let parity = match parts.next().unwrap_or_default() {
        "" => 1,
        digits => digits.parse().map_err(|_| DraidError::Syntax(digits.to_owned()))?,
    };
    if !(1..=MAX_PARITY).contains(&parity) {
        return Err(DraidError::Parity(parity));
    }
    let (mut data, mut spares) = (None, 0);
    for part in parts {
        let syntax = || DraidError::Syntax(part.to_owned());
        let letter = part.chars().next_back().ok_or_else(syntax)?;
        let number = part.strip_suffix(letter).unwrap_or_default();
        let number: u64 = number.parse().map_err(|_| syntax())?;
        match letter {
            'd' if number > 0 => data = Some(number),
            's' => spares = number,
            'c' if number == children => {}
            'c' => return Err(DraidError::Children { required: number, provided: children }),
            _ => return Err(syntax()),
        }
    }
    let data = data_columns(children, parity, spares, data)?;
    let shape = DraidRecord {
        data,
        spares,
        groups: groups(data + parity, children - spares),
        failure_group_children: None,
    };
    Ok((parity as u8, shape))
}

/// Checks the numbers against each other and fills in the data columns.
fn data_columns(
    children: u64,
    parity: u64,
    spares: u64,
    data: Option<u64>,
) -> Result<u64, DraidError> {
    if children > MAX_CHILDREN {
        return Err(DraidError::TooMany(children));
    }
    let redundant = spares.saturating_add(parity);
    let limit = children.checked_sub(redundant).filter(|limit| *limit > 0);
    let Some(limit) = limit else {
        return Err(match data {
            Some(data) => {
                DraidError::TooFew { provided: children, needed: redundant.saturating_add(data) }
            }
            None => DraidError::NoData { spares, parity },
        });
    };
    let data = data.unwrap_or(DEFAULT_DATA.min(limit));
    if data > limit {
        return Err(DraidError::TooMuchData { data, limit });
    }
    if spares > DraidShape::MAX_SPARES as u64 {
        return Err(DraidError::Spares(spares));
    }
    if children < 2 {
        return Err(DraidError::TooFew { provided: children, needed: 2 });
    }
    Ok(data)
}

/// The minimum number of groups of this width that fill whole rows of the working children.
fn groups(width: u64, working: u64) -> u64 {
    let (mut a, mut b) = (width, working);
    while b != 0 {
        (a, b) = (b, a % b);
    }
    working / a.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_not_given_are_those_of_openzfs() {
        // Word, devices, parity, data, spares, groups.
        for (word, devices, parity, data, spares, groups) in [
            ("draid2:4d:9c:1s", 9, 2, 4, 1, 4),
            ("draid2:3d:12c:1s", 12, 2, 3, 1, 11),
            ("draid", 3, 1, 2, 0, 1),
            ("draid1", 20, 1, 8, 0, 20),
            ("draid:1s", 16, 1, 8, 1, 5),
            ("draid3:8d", 11, 3, 8, 0, 1),
            ("draid:4d:1s", 16, 1, 4, 1, 3),
        ] {
            let (found, shape) = parse(word, devices).unwrap();
            let numbers = (found, shape.data, shape.spares, shape.groups);
            assert_eq!(numbers, (parity, data, spares, groups), "{word}");
            let width = shape.data + u64::from(parity);
            assert_eq!(shape.groups * width % (devices as u64 - spares), 0);
        }
    }

    #[test]
    fn messages_are_those_of_openzfs() {
        for (word, devices, message) in [
            ("draid4", 9, "invalid dRAID parity level 4; must be between 1 and 3"),
            ("draid0", 9, "invalid dRAID parity level 0; must be between 1 and 3"),
            ("draid:4x", 9, "invalid dRAID syntax; expected [:<number><c|d|s>] not '4x'"),
            ("draid:", 9, "invalid dRAID syntax; expected [:<number><c|d|s>] not ''"),
            ("draid:0d", 9, "invalid dRAID syntax; expected [:<number><c|d|s>] not '0d'"),
            ("draid:8c", 9, "invalid number of dRAID children; 8 required but 9 provided"),
            (
                "draid2:2s",
                4,
                "request number of distributed spares 2 and parity level 2\nleaves no disks available for data",
            ),
            (
                "draid2:5d:1s",
                7,
                "requested number of dRAID data disks per group 5 is too high,\nat most 4 disks are available for data",
            ),
            (
                "draid2:5d:6s",
                8,
                "8 disks were provided, but at least 13 disks are required for this config",
            ),
            (
                "draid:101s",
                110,
                "invalid number of dRAID spares 101; additional disks would be required",
            ),
            ("draid", 256, "256 disks were provided, but dRAID only supports up to 255 disks"),
        ] {
            assert_eq!(parse(word, devices).unwrap_err().to_string(), message, "{word}");
        }
    }
}
