//! Valid names of pools (spec 09, section 1.2).

/// The longest name of a new pool, in bytes. OpenZFS reserves the rest of the 255 bytes of a
/// dataset name for internal datasets of every pool. Pools with longer names can be imported.
const MAX_LENGTH: usize = 239;

/// Words that start a group of vdevs.
const RESERVED: [&str; 4] = ["mirror", "raidz", "draid", "spare"];

/// Why a name is invalid for a pool; the messages are OpenZFS's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PoolNameError {
    /// It names a dataset below a pool.
    #[error("invalid character '/' in pool name\nuse 'zfs create' to create a dataset")]
    Dataset,
    /// It has more than 239 bytes.
    #[error("name is too long\npool name may have been omitted")]
    TooLong,
    /// It does not start with a letter.
    #[error("name must begin with a letter\npool name may have been omitted")]
    NoLetter,
    /// It contains an invalid character.
    #[error("invalid character '{0}' in pool name\npool name may have been omitted")]
    InvalidCharacter(char),
    /// It has another meaning in commands.
    #[error("name is reserved\npool name may have been omitted")]
    Reserved,
}

/// Checks the name of a new pool.
///
/// # Errors
/// [`PoolNameError`].
pub fn check_pool_name(name: &str) -> Result<(), PoolNameError> {
    let is_valid = |c: &char| c.is_ascii_alphanumeric() || "-_.: ".contains(*c);
    if name.contains('/') {
        return Err(PoolNameError::Dataset);
    }
    if name.len() > MAX_LENGTH {
        return Err(PoolNameError::TooLong);
    }
    if let Some(character) = name.chars().find(|c| !is_valid(c)) {
        return Err(PoolNameError::InvalidCharacter(character));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(PoolNameError::NoLetter);
    }
    if name == "log" || RESERVED.iter().any(|word| name.starts_with(word)) {
        return Err(PoolNameError::Reserved);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_refused_in_the_words_of_openzfs() {
        let reason = |name: &str| {
            let text = check_pool_name(name).unwrap_err().to_string();
            text.lines().next().unwrap_or_default().to_owned()
        };
        for good in ["tank", "a b", "t:1", "logs", "x".repeat(239).as_str()] {
            assert_eq!(check_pool_name(good), Ok(()), "{good}");
        }
        assert_eq!(reason("9s"), "name must begin with a letter");
        assert_eq!(reason(""), "name must begin with a letter");
        for reserved in ["mirror", "mirrored", "raidz1x", "log", "spare0", "draid"] {
            assert_eq!(reason(reserved), "name is reserved");
        }
        assert_eq!(reason("a^b"), "invalid character '^' in pool name");
        assert_eq!(reason("a/b"), "invalid character '/' in pool name");
        assert_eq!(reason(&"x".repeat(240)), "name is too long");
    }
}
