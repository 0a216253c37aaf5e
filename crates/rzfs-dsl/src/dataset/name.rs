//! Names of datasets: `pool/a/b` and `pool/a/b@snapshot` (spec 04, section 22; spec 09,
//! section 1.2).

/// A well-formed dataset name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatasetName<'a> {
    head: &'a str,
    snapshot: Option<&'a str>,
}

impl<'a> DatasetName<'a> {
    /// Maximum length of a name in bytes, one less than the format's limit with a NUL.
    pub const MAX_LEN: usize = 255;

    /// Splits a name into its parts; `None` when it is not a valid dataset name.
    #[must_use]
    pub fn parse(name: &'a str) -> Option<Self> {
        let (head, snapshot) = match name.split_once('@') {
            Some((head, snapshot)) => (head, Some(snapshot)),
            None => (name, None),
        };
        let well_formed =
            name.len() <= Self::MAX_LEN && head.split('/').chain(snapshot).all(is_component);
        well_formed.then_some(Self { head, snapshot })
    }

    /// The name of the file system or volume.
    #[must_use]
    pub const fn head(&self) -> &'a str {
        self.head
    }

    /// The name of the snapshot.
    #[must_use]
    pub const fn snapshot(&self) -> Option<&'a str> {
        self.snapshot
    }

    /// Whether it names a pool: it has a single component.
    #[must_use]
    pub fn is_pool(&self) -> bool {
        self.snapshot.is_none() && !self.head.contains('/')
    }

    /// The names of the directories from the pool down.
    pub fn directories(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        self.head.split('/')
    }
}

/// Whether a component is valid as the name of a pool, directory or snapshot. Mount points are
/// built from these, so `.` and `..` are not.
pub(crate) fn is_component(component: &str) -> bool {
    !matches!(component, "" | "." | "..") && component.bytes().all(is_name_byte)
}

/// Letters, digits and `-_.: `; `%` is for internal names.
const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b' ' | b'%')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let name = DatasetName::parse("tank/home/me@monday").unwrap();
        assert_eq!(name.directories().collect::<Vec<_>>(), ["tank", "home", "me"]);
        assert_eq!((name.head(), name.snapshot()), ("tank/home/me", Some("monday")));
        assert_eq!(DatasetName::parse("tank").unwrap().snapshot(), None);
    }

    #[test]
    fn impossible_names_are_refused() {
        let long = "x".repeat(256);
        for name in [
            "",
            "/tank",
            "tank/",
            "tank//a",
            "tank@",
            "tank@a@b",
            "tank@a/b",
            "a*b",
            ".",
            "tank/..",
            "tank/./a",
            "tank@..",
            "tank/a\nb",
            "tank/\u{e4}",
            &long,
        ] {
            assert_eq!(DatasetName::parse(name), None, "{name}");
        }
    }
}
