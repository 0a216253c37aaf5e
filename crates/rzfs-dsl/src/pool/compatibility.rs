//! The property `compatibility`: the features an administrator allows a pool to have (spec 01,
//! section 5.5).

mod sets;

use rzfs_format::features::Feature;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Directories of the files: the administrator's, then the distribution's.
const DIRECTORIES: [&str; 2] = ["/etc/zfs/compatibility.d", "/usr/share/zfs/compatibility.d"];

/// Maximum file size.
const MAX_SIZE: u64 = 16 << 10;

/// Why the allowed features are unknown.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CompatibilityError {
    /// No directory has the file, or it cannot be read.
    #[error("compatibility file '{0}' cannot be read")]
    NotFound(String),
    /// The file is empty, too long, or does not end with a newline.
    #[error("compatibility file '{0}' is malformed")]
    Malformed(String),
    /// The administrator's file has an unknown feature.
    #[error("compatibility file '{file}' names the unknown feature '{word}'")]
    UnknownFeature {
        /// The file.
        file: String,
        /// The word.
        word: String,
    },
}

/// The features allowed by a value of the property: all without a value or with `off`, none with
/// `legacy`, else those that all of the named files list. The files that OpenZFS ships are built
/// in.
///
/// # Errors
/// [`CompatibilityError`] when a file cannot be used.
pub fn requested(value: Option<&str>) -> Result<BTreeSet<Feature>, CompatibilityError> {
    requested_from(value, &DIRECTORIES.map(Path::new))
}

fn requested_from(
    value: Option<&str>,
    directories: &[&Path],
) -> Result<BTreeSet<Feature>, CompatibilityError> {
    let mut features: BTreeSet<Feature> = Feature::ALL.iter().copied().collect();
    match value {
        None | Some("" | "off") => return Ok(features),
        Some("legacy") => return Ok(BTreeSet::new()),
        Some(names) => {
            for name in names.split(',') {
                let listed = read(name, directories)?;
                features.retain(|feature| listed.contains(feature));
            }
        }
    }
    Ok(features)
}

fn read(name: &str, directories: &[&Path]) -> Result<BTreeSet<Feature>, CompatibilityError> {
    let is_plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let mut found = directories.iter().enumerate().filter(|_| is_plain);
    let found = found.find_map(|(index, directory)| {
        let file = fs::File::open(directory.join(name)).ok()?;
        let mut text = Vec::new();
        file.take(MAX_SIZE + 1).read_to_end(&mut text).ok()?;
        Some((index, text))
    });
    let Some((index, text)) = found else {
        return sets::features(name).ok_or_else(|| CompatibilityError::NotFound(name.to_owned()));
    };
    if text.len() as u64 > MAX_SIZE || text.last() != Some(&b'\n') {
        return Err(CompatibilityError::Malformed(name.to_owned()));
    }
    let text = String::from_utf8_lossy(&text);
    let mut features = BTreeSet::new();
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    for word in lines.flat_map(|line| line.split([' ', '\t', ','])).filter(|word| !word.is_empty())
    {
        match Feature::from_name(word) {
            Some(feature) => {
                features.insert(feature);
            }
            // Files of the distribution may list newer features.
            None if index > 0 => {}
            None => {
                let (file, word) = (name.to_owned(), word.to_owned());
                return Err(CompatibilityError::UnknownFeature { file, word });
            }
        }
    }
    Ok(features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_files_are_intersected() {
        let etc = tempfile::tempdir().unwrap();
        let usr = tempfile::tempdir().unwrap();
        fs::write(etc.path().join("mine"), "# comment\nlz4_compress, skein # more\nedonr\n")
            .unwrap();
        fs::write(usr.path().join("theirs"), "skein\tedonr\nfuture_feature\n").unwrap();
        fs::write(usr.path().join("mine"), "sha512\n").unwrap();
        let directories = [etc.path(), usr.path()];
        let requested = |value| requested_from(value, &directories);
        let features = requested(Some("mine,theirs")).unwrap();
        assert_eq!(features, [Feature::Skein, Feature::EdonR].into());
        assert_eq!(requested(Some("legacy")).unwrap(), BTreeSet::new());
        assert_eq!(requested(Some("off")).unwrap().len(), Feature::ALL.len());
        assert_eq!(requested(None), requested(Some("")));
    }

    #[test]
    fn bad_files_are_errors() {
        let etc = tempfile::tempdir().unwrap();
        fs::write(etc.path().join("unended"), "skein").unwrap();
        fs::write(etc.path().join("empty"), "").unwrap();
        fs::write(etc.path().join("long"), vec![b'\n'; MAX_SIZE as usize + 1]).unwrap();
        fs::write(etc.path().join("unknown"), "skein nonsense\n").unwrap();
        let requested = |value| requested_from(Some(value), &[etc.path()]).unwrap_err();
        for name in ["unended", "empty", "long"] {
            assert_eq!(requested(name), CompatibilityError::Malformed(name.into()));
        }
        assert!(matches!(requested("unknown"), CompatibilityError::UnknownFeature { .. }));
        for name in ["absent", "../unended", ".hidden", "skein,,"] {
            assert!(matches!(requested(name), CompatibilityError::NotFound(_)));
        }
    }
}
