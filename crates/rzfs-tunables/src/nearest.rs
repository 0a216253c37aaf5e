//! Which name was meant.

/// The name that takes the fewest letters to be made of what was typed, if these are few enough for
/// it to have been meant: a third of what was typed. A name's beginning may be left out.
pub(crate) fn nearest<'n>(
    typed: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let names = names.into_iter().map(|name| (distance(typed, name), name));
    let (distance, name) = names.min_by_key(|(distance, _)| *distance)?;
    (distance <= typed.chars().count() / 3).then_some(name)
}

/// How many letters are to be put in, left out or replaced; a name that ends with what was typed,
/// after an underscore, counts as one letter away.
fn distance(typed: &str, name: &str) -> usize {
    let is_end = name.strip_suffix(typed).is_some_and(|start| start.ends_with('_'));
    if is_end && !typed.is_empty() {
        return 1;
    }
    let name: Vec<char> = name.chars().collect();
    let mut row: Vec<usize> = (0..=name.len()).collect();
    for (index, letter) in typed.chars().enumerate() {
        // Of the row before, one place to the left.
        let mut diagonal = index;
        let mut left = index + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (place, other) in row.iter_mut().skip(1).zip(&name) {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = *place;
            *place = replaced.min(diagonal + 1).min(left + 1);
            left = *place;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        let cases = [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("zfs_txg_timout", "zfs_txg_timeout", 1),
            ("txg_timeout", "zfs_txg_timeout", 1),
        ];
        for (typed, name, expected) in cases {
            assert_eq!(distance(typed, name), expected, "{typed} {name}");
        }
    }

    #[test]
    fn only_what_may_have_been_meant_is_named() {
        let names = ["zfs_txg_timeout", "zfs_arc_max", "zfs_dirty_data_max"];
        let cases = [
            ("zfs_txg_timeuot", Some("zfs_txg_timeout")),
            ("arc_max", Some("zfs_arc_max")),
            ("zfs_arcmax", Some("zfs_arc_max")),
            ("", None),
            ("noatime", None),
        ];
        for (typed, expected) in cases {
            assert_eq!(nearest(typed, names), expected, "{typed}");
        }
    }
}
