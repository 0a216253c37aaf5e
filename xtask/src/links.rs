//! Relative links of the documents: each leads to a file, and to a heading if it names one.

use crate::markdown::{heading, name_of, prose};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::process::Failure;

/// What is wrong with links, with the places of the links.
pub(crate) fn faults(documents: &[PathBuf]) -> Result<Vec<String>, Failure> {
    let mut faults = Vec::new();
    for document in documents {
        let text = fs::read_to_string(document).map_err(Failure::file(document))?;
        for (line, text) in prose(&text) {
            for target in targets(text) {
                if !leads_somewhere(document, &target)? {
                    faults.push(format!("{}:{line}: no {target}", name_of(document)));
                }
            }
        }
    }
    Ok(faults)
}

/// The relative targets of the links in a line, `[text](target)`, outside of code.
fn targets(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter_map(|link| link.split_whitespace().next());
    let is_relative = |link: &&str| !link.contains("://") && !link.starts_with("mailto:");
    links.filter(is_relative).map(str::to_owned).collect()
}

/// Whether the target of a link in a document is there.
fn leads_somewhere(document: &Path, target: &str) -> Result<bool, Failure> {
    let (name, fragment) = target.split_once('#').unwrap_or((target, ""));
    let file = match (name, document.parent()) {
        ("", _) | (_, None) => document.to_owned(),
        (name, Some(directory)) => directory.join(name),
    };
    if fragment.is_empty() || !file.exists() {
        return Ok(file.exists());
    }
    let text = fs::read_to_string(&file).map_err(Failure::file(&file))?;
    Ok(anchors(&text).contains(fragment))
}

/// The names by which links lead to the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, title) in prose(text).filter_map(|(_, line)| heading(line)) {
        let anchor = anchor(title);
        // A title that was there before gets a number.
        let mut numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut candidate = anchor.clone();
        while !anchors.insert(candidate.clone()) {
            candidate = numbered.next().unwrap_or_default();
        }
    }
    anchors
}

/// A title as GitHub makes an anchor of it: in lower case, without punctuation.
fn anchor(title: &str) -> String {
    let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    title.to_lowercase().chars().filter(is_kept).map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code_count() {
        let line = "[a](b.md), [c](d.md#e \"title\"), `[f](g)`, [h](https://i), [j](#k)";
        assert_eq!(targets(line), ["b.md", "d.md#e", "#k"]);
    }

    #[test]
    fn anchors_are_titles_without_punctuation() {
        let text = "# Create, and `write`\n## 2.1 A_b-c\n```text\n# Code\n```\n## 2.1 A_b-c\n";
        let expected = ["21-a_b-c", "21-a_b-c-1", "create-and-write"];
        assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let (document, other) = (directory.path().join("a.md"), directory.path().join("b.md"));
        fs::write(&document, "# One\n[x](b.md) [x](#one)\n[x](c.md)\n[x](b.md#two) [x](#two)\n")?;
        fs::write(&other, "# One\n")?;
        let faults = faults(&[document])?;
        let found: Vec<&str> =
            faults.iter().filter_map(|fault| fault.split("a.md").nth(1)).collect();
        assert_eq!(found, [":3: no c.md", ":4: no b.md#two", ":4: no #two"]);
        Ok(())
    }
}
