//! What is listed has an effect: a tunable that nobody reads would be a lie.

use rzfs_tunables::TABLE;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_tunable_is_read_by_another_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut sources = Vec::new();
    for one in fs::read_dir(crates).unwrap().map(|entry| entry.unwrap()) {
        let name = one.file_name();
        // What only tests use is not used.
        if name != "rzfs-tunables" && name != "rzfs-proof" && name != "rzfs-testkit" {
            collect(&one.path().join("src"), &mut sources);
        }
    }
    let code: String = sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let is_read = |name: &str| {
        code.match_indices(&format!(".{name}")).any(|(at, found)| {
            let rest = code[at + found.len()..].trim_start();
            let is_whole = !code[at + found.len()..]
                .starts_with(|next: char| next.is_alphanumeric() || next == '_');
            is_whole && (!rest.starts_with('=') || rest.starts_with("=="))
        })
    };
    let unread: Vec<_> = TABLE.iter().map(|one| one.name).filter(|name| !is_read(name)).collect();
    assert_eq!(unread, [""; 0]);
}

fn collect(directory: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}
