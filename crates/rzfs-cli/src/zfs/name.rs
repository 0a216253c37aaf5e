//! Valid names of datasets, and OpenZFS's messages for others (spec 09, section 1.2).

/// The longest name, in bytes.
const MAX_LENGTH: usize = 255;

/// The deepest nesting.
const MAX_NESTING: usize = 50;

/// Why a name is not valid for a dataset, snapshot or bookmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NameError {
    #[error("name is too long")]
    TooLong,
    #[error("maximum name nesting depth exceeded")]
    TooDeep,
    #[error("leading slash in name")]
    LeadingSlash,
    #[error("empty component or misplaced '@' or '#' delimiter in name")]
    EmptyComponent,
    #[error("trailing slash in name")]
    TrailingSlash,
    #[error("invalid character '{0}' in name")]
    InvalidCharacter(char),
    #[error("multiple '@' and/or '#' delimiters in name")]
    MultipleDelimiters,
    #[error("self reference, '.' is found in name")]
    SelfReference,
    #[error("parent reference, '..' is found in name")]
    ParentReference,
    #[error("name must begin with a letter")]
    NoLetter,
}

/// Checks a name.
pub(crate) fn check(name: &str) -> Result<(), NameError> {
    if name.len() > MAX_LENGTH {
        return Err(NameError::TooLong);
    }
    if name.matches('/').count() >= MAX_NESTING {
        return Err(NameError::TooDeep);
    }
    if name.starts_with('/') {
        return Err(NameError::LeadingSlash);
    }
    if name.ends_with('/') {
        return Err(NameError::TrailingSlash);
    }
    let (path, rest) = match name.find(['@', '#']) {
        Some(position) => name.split_at(position),
        None => (name, ""),
    };
    for component in path.split('/') {
        check_component(component)?;
    }
    if let Some(short) = rest.strip_prefix(['@', '#']) {
        if short.contains(['@', '#']) {
            return Err(NameError::MultipleDelimiters);
        }
        if short.contains('/') {
            return Err(NameError::EmptyComponent);
        }
        check_component(short)?;
    }
    if path.starts_with(|c: char| c.is_ascii_alphabetic()) {
        Ok(())
    } else {
        Err(NameError::NoLetter)
    }
}

fn check_component(component: &str) -> Result<(), NameError> {
    let is_valid = |c: &char| c.is_ascii_alphanumeric() || "-_.: ".contains(*c);
    match component {
        "" => Err(NameError::EmptyComponent),
        "." => Err(NameError::SelfReference),
        ".." => Err(NameError::ParentReference),
        _ => match component.chars().find(|c| !is_valid(c)) {
            Some(c) => Err(NameError::InvalidCharacter(c)),
            None => Ok(()),
        },
    }
}

/// The pool that a name is in.
pub(crate) fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_refused_in_the_words_of_openzfs() {
        let reason = |name: &str| check(name).unwrap_err().to_string();
        for good in ["tank", "tank/a b", "tank/a@s1", "tank/a#b:1", "t/a.b_c-d"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        let empty = "empty component or misplaced '@' or '#' delimiter in name";
        assert_eq!(reason("tank/b d^"), "invalid character '^' in name");
        assert_eq!(reason("tank/"), "trailing slash in name");
        assert_eq!(reason("/tank"), "leading slash in name");
        assert_eq!(reason("tank//a"), empty);
        assert_eq!(reason(""), empty);
        assert_eq!(reason("tank@"), empty);
        assert_eq!(reason("tank@a@b"), "multiple '@' and/or '#' delimiters in name");
        assert_eq!(reason("tank@a#b"), "multiple '@' and/or '#' delimiters in name");
        assert_eq!(reason(&format!("tank/{}", "x".repeat(255))), "name is too long");
        assert_eq!(check(&format!("t{}", "/d".repeat(49))), Ok(()));
        let deep = format!("t{}", "/d".repeat(50));
        assert_eq!(reason(&deep), "maximum name nesting depth exceeded");
        assert_eq!(reason("9tank"), "name must begin with a letter");
        assert_eq!(reason("tank/.."), "parent reference, '..' is found in name");
    }

    #[test]
    fn every_name_belongs_to_a_pool() {
        for name in ["tank", "tank/a@s", "tank@s", "tank#b"] {
            assert_eq!(pool_of(name), "tank");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged(text in ".{0,300}") {
            let _ = check(&text);
        }
    }
}
