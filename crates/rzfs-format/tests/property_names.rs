//! Properties are described in one place, so code names them by `DatasetProperty`, not by text.

use rzfs_format::property::{DatasetProperty, Storage};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Names that are words of other things as well: features, subcommands, classes of vdevs, fields
/// that `zdb` prints.
const AMBIGUOUS: [&str; 12] = [
    "atime",
    "checksum",
    "copies",
    "dedup",
    "direct",
    "encryption",
    "longname",
    "prefetch",
    "quota",
    "readonly",
    "sync",
    "xattr",
];
/// The table, and crates that are only tests.
const EXEMPT: [&str; 4] =
    ["rzfs-format/src/property", "rzfs-hostile/", "rzfs-proof/", "rzfs-testkit/"];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_code_spells_the_name_of_a_property() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let stored = |property: &&DatasetProperty| property.storage() == Storage::Properties;
    let names = DatasetProperty::ALL.iter().filter(stored).map(|property| property.name());
    let names: BTreeSet<_> = names.filter(|name| !AMBIGUOUS.contains(name)).collect();
    let mut files = Vec::new();
    for member in fs::read_dir(crates).unwrap() {
        let source = member.unwrap().path().join("src");
        if source.is_dir() {
            sources(&source, &mut files);
        }
    }
    for file in files {
        let path = file.strip_prefix(crates).unwrap().to_str().unwrap();
        if EXEMPT.iter().any(|exempt| path.starts_with(exempt)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in lines {
            let mut literals = line.split('"').skip(1).step_by(2);
            let spelt = literals.find(|literal| names.contains(literal));
            assert_eq!(spelt, None, "{path}: {line}");
        }
    }
}
