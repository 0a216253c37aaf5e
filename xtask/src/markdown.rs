//! The documents of the repository, as Markdown.

use std::fs;
use std::path::{Path, PathBuf};
use xtask::process::{Failure, repository};

/// `README.md`, `CONTRIBUTING.md` and everything below `docs`.
pub(crate) fn documents() -> Result<Vec<PathBuf>, Failure> {
    let mut documents = vec![repository().join("README.md"), repository().join("CONTRIBUTING.md")];
    documents.extend(files_below(&repository().join("docs"), "md")?);
    documents.sort();
    Ok(documents)
}

/// The files in a directory and those below it whose names end in `.extension`, in order. What
/// cargo has built is not among them.
pub(crate) fn files_below(directory: &Path, extension: &str) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).map_err(Failure::file(&directory))? {
            let entry = entry.map_err(Failure::file(&directory))?;
            let kind = entry.file_type().map_err(Failure::file(&entry.path()))?;
            if kind.is_dir() && entry.file_name() != "target" {
                directories.push(entry.path());
            } else if kind.is_file() && entry.path().extension().is_some_and(|e| e == extension) {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The lines that are not in fenced blocks of code, with their numbers.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The title of a heading, and its level: 1 for `# Title`.
pub(crate) fn heading(line: &str) -> Option<(usize, &str)> {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    let title = title.strip_prefix(' ')?;
    (1..=6).contains(&level).then_some((level, title.trim()))
}

/// The name of a file as messages say it: from the repository's root on.
pub(crate) fn name_of(path: &Path) -> String {
    path.strip_prefix(repository()).unwrap_or(path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_no_prose() {
        let text = "a\n```text\n# b\n```\nc\n";
        assert_eq!(prose(text).collect::<Vec<_>>(), [(1, "a"), (5, "c")]);
    }

    #[test]
    fn headings_have_levels_and_titles() {
        assert_eq!(heading("### 12.7 Leaf"), Some((3, "12.7 Leaf")));
        assert_eq!(heading("#include"), None);
        assert_eq!(heading("text # text"), None);
        assert_eq!(heading("####### seven"), None);
    }
}
