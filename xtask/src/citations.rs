//! Citations of the format's specification in comments: what they name is there.
//!
//! ```text
//! spec NN                                           a chapter: docs/format/NN-name.md
//! spec NN, section 12.7                             a numbered heading in it
//! spec NN, sections 5, 6.1 and 13.2                 several
//! spec NN, sections 9.5 to 9.7                      these and all between
//! spec NN, section 2.12, checks 1 to 8 and 12       numbered rows or items of the last section
//! ```
//! In place of `check` there can be `step`. Several chapters are several citations.

use crate::markdown::{files_below, heading, name_of, prose};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use xtask::process::{Failure, repository};

/// Where there are sources.
const SOURCES: [&str; 4] = ["crates", "xtask", "benches", "fuzz"];

/// What is wrong with citations in the sources, with the places of the citations.
pub(crate) fn faults() -> Result<Vec<String>, Failure> {
    let specification = Specification::read()?;
    let mut faults = Vec::new();
    for directory in SOURCES {
        for source in files_below(&repository().join(directory), "rs")? {
            let text = fs::read_to_string(&source).map_err(Failure::file(&source))?;
            for citation in comments(&text).iter().flat_map(Comment::citations) {
                let place = format!("{}:{}", name_of(&source), citation.line);
                let lacking = specification.lacking(&citation);
                faults.extend(lacking.into_iter().map(|what| format!("{place}: {what}")));
            }
        }
    }
    Ok(faults)
}

/// Sections of a chapter by their numbers, and the numbers of rows and items in each.
type Chapter = BTreeMap<String, BTreeSet<String>>;

/// What can be cited: chapters by their numbers.
struct Specification {
    chapters: BTreeMap<String, Chapter>,
}

impl Specification {
    fn read() -> Result<Self, Failure> {
        let mut chapters = BTreeMap::new();
        for file in files_below(&repository().join("docs/format"), "md")? {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some((number, _)) = name.split_once('-').filter(|(number, _)| is_chapter(number))
            {
                let text = fs::read_to_string(&file).map_err(Failure::file(&file))?;
                chapters.insert(number.to_owned(), sections(&text));
            }
        }
        Ok(Self { chapters })
    }

    /// What a citation names and there is not.
    fn lacking(&self, citation: &Citation) -> Vec<String> {
        let Some(named) = &citation.named else {
            return vec!["a citation in an unknown form".to_owned()];
        };
        let Some(chapter) = self.chapters.get(&named.chapter) else {
            return vec![format!("no spec {}", named.chapter)];
        };
        let mut lacking = Vec::new();
        for section in named.sections.iter().filter(|section| !chapter.contains_key(*section)) {
            lacking.push(format!("spec {} has no section {section}", named.chapter));
        }
        if let Some((section, items)) =
            named.sections.last().and_then(|section| chapter.get_key_value(section))
        {
            for item in named.items.iter().filter(|item| !items.contains(*item)) {
                lacking.push(format!("spec {}, section {section} has no {item}", named.chapter));
            }
        }
        lacking
    }
}

/// Whether this is the number of a chapter: two digits.
fn is_chapter(number: &str) -> bool {
    number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// The numbered sections of a chapter. The title has the chapter's number and is none of them.
fn sections(text: &str) -> Chapter {
    let mut sections = Chapter::new();
    let mut current = None;
    for (_, line) in prose(text) {
        if let Some((level, title)) = heading(line) {
            current = number_at_start(title).filter(|_| level > 1).map(|(number, _)| number);
            sections.extend(current.clone().map(|number| (number, BTreeSet::new())));
        } else if let Some(items) = current.as_ref().and_then(|number| sections.get_mut(number)) {
            items.extend(item(line));
        }
    }
    sections
}

/// The number of an item of a list (`7. text`) or of a row of a table (`| 7 | text`).
fn item(line: &str) -> Option<String> {
    let line = line.trim_start();
    let row = line.strip_prefix("| ");
    let (number, rest) = number_at_start(row.unwrap_or(line))?;
    let end = if row.is_some() { " |" } else { ". " };
    rest.starts_with(end).then_some(number)
}

/// A number like `12` or `12.7` at the start of a text, and what follows.
fn number_at_start(text: &str) -> Option<(String, &str)> {
    let mut end = 0;
    for part in text.split('.') {
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            break;
        }
        end += usize::from(end > 0) + digits;
        if digits < part.len() {
            break;
        }
    }
    let (number, rest) = text.split_at(end);
    (end > 0).then(|| (number.to_owned(), rest))
}

/// Comment lines below each other, as one text.
#[derive(Default)]
struct Comment {
    /// The lines joined by spaces, in lower case.
    text: String,
    /// Where each line begins in the text, and its number.
    lines: Vec<(usize, usize)>,
}

/// The comments of a source.
fn comments(source: &str) -> Vec<Comment> {
    let mut comments = vec![Comment::default()];
    for (index, line) in source.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//");
        match (comment, comments.last_mut()) {
            (Some(line), Some(open)) => open.push(index + 1, line.trim_start_matches(['/', '!'])),
            (None, Some(open)) if open.lines.is_empty() => {}
            _ => comments.push(Comment::default()),
        }
    }
    comments
}

impl Comment {
    fn push(&mut self, number: usize, line: &str) {
        self.lines.push((self.text.len(), number));
        self.text.push_str(&line.trim().to_ascii_lowercase());
        self.text.push(' ');
    }

    /// The citations in it: every word `spec` before a digit.
    fn citations(&self) -> Vec<Citation> {
        let mut citations = Vec::new();
        for (at, word) in self.text.match_indices("spec ") {
            let (before, rest) = (&self.text[..at], &self.text[at + word.len()..]);
            let is_word = !before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if is_word && rest.starts_with(|c: char| c.is_ascii_digit()) {
                citations.push(Citation { line: self.line_at(at), named: Named::parse(rest) });
            }
        }
        citations
    }

    /// The number of the line that has this position of the text.
    fn line_at(&self, position: usize) -> usize {
        let before = self.lines.iter().take_while(|(start, _)| *start <= position);
        before.last().map_or(0, |(_, number)| *number)
    }
}

/// A citation.
#[derive(PartialEq, Eq, Debug)]
struct Citation {
    /// The line that it begins in.
    line: usize,
    /// `None` if it has a form that nobody knows.
    named: Option<Named>,
}

/// What a citation names.
#[derive(PartialEq, Eq, Debug)]
struct Named {
    chapter: String,
    sections: Vec<String>,
    /// Rows or items of the last section.
    items: Vec<String>,
}

impl Named {
    /// Reads what follows the word `spec`.
    fn parse(text: &str) -> Option<Self> {
        let mut rest = Rest(text);
        let chapter = rest.number_behind(&[""]).filter(|number| is_chapter(number))?;
        let sections = rest.numbers_behind(&[", section ", ", sections "]);
        let items = rest.numbers_behind(&[", check ", ", checks ", ", step ", ", steps "]);
        (!rest.goes_on()).then_some(Self { chapter, sections, items })
    }
}

/// What is still to be read of a text.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    /// Takes one of these words and the number behind it, or nothing.
    fn number_behind(&mut self, words: &[&str]) -> Option<String> {
        let behind = words.iter().filter_map(|word| self.0.strip_prefix(word));
        let (number, rest) = behind.filter_map(number_at_start).next()?;
        self.0 = rest;
        Some(number)
    }

    /// Takes one of these words and the numbers behind it: `5, 6.1 and 13.2`, `3 to 5`.
    fn numbers_behind(&mut self, words: &[&str]) -> Vec<String> {
        let mut numbers = Vec::new();
        let mut next = self.number_behind(words);
        while let Some(first) = next {
            match self.number_behind(&[" to "]) {
                Some(last) => numbers.extend(range(&first, &last)),
                None => numbers.push(first),
            }
            next = self.number_behind(&[", and ", ", ", " and "]);
        }
        numbers
    }

    /// Whether there is more of a citation, in a form that was not taken.
    fn goes_on(&self) -> bool {
        let Some(more) = self.0.strip_prefix(", ") else { return false };
        let words = ["section", "check", "step"];
        more.starts_with(|c: char| c.is_ascii_digit())
            || words.iter().any(|word| more.starts_with(word))
    }
}

/// The sections from one to another of the same level; of different levels these two.
fn range(first: &str, last: &str) -> Vec<String> {
    let split = |number: &str| {
        let (above, below) = number.rsplit_once('.').unwrap_or(("", number));
        below.parse::<u32>().ok().map(|below| (above.to_owned(), below))
    };
    match (split(first), split(last)) {
        (Some((above, first)), Some((same, last))) if above == same && first < last => {
            let dot = if above.is_empty() { "" } else { "." };
            (first..=last).map(|number| format!("{above}{dot}{number}")).collect()
        }
        _ => vec![first.to_owned(), last.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the citations of a source name, in a short form: `line chapter [sections] [items]`.
    fn cited(source: &str) -> Vec<String> {
        let comments = comments(source);
        let citations = comments.iter().flat_map(Comment::citations);
        let short = |citation: Citation| match citation.named {
            Some(Named { chapter, sections, items }) => {
                format!("{} {chapter} {} {}", citation.line, sections.join(" "), items.join(" "))
            }
            None => format!("{} ?", citation.line),
        };
        citations.map(|citation| short(citation).trim_end().to_owned()).collect()
    }

    fn specification() -> Specification {
        let text = "# 3 Title\n## 1. One\n### 1.1 Two\n7. seven\n| 8 | eight |\n| 9.5 x |\n";
        Specification { chapters: BTreeMap::from([("03".to_owned(), sections(text))]) }
    }

    /// What the citations of a source name and the small specification lacks.
    fn lacking(source: &str) -> Vec<String> {
        let comments = comments(source);
        let citations = comments.iter().flat_map(Comment::citations);
        citations.flat_map(|citation| specification().lacking(&citation)).collect()
    }

    #[test]
    fn one_section_or_a_chapter_is_cited() {
        assert_eq!(cited("/// A leaf (spec 03, section 12.7)."), ["1 03 12.7"]);
        assert_eq!(cited("x();\n    // Spec 03, section 12. More."), ["2 03 12"]);
        assert_eq!(cited("//! Commands (spec 09)."), ["1 09"]);
    }

    #[test]
    fn lists_and_ranges_are_cited() {
        assert_eq!(cited("// spec 06, sections 5, 6.1 and 13.2, and all"), ["1 06 5 6.1 13.2"]);
        assert_eq!(cited("// spec 06, sections 9.9 to 9.11 and 4"), ["1 06 9.9 9.10 9.11 4"]);
        assert_eq!(cited("// spec 04, sections 1, 2, and 3"), ["1 04 1 2 3"]);
        assert_eq!(cited("// spec 04, sections 3 to 5"), ["1 04 3 4 5"]);
        assert_eq!(cited("// spec 04, sections 5 to 3"), ["1 04 5 3"]);
    }

    #[test]
    fn items_of_sections_are_cited() {
        assert_eq!(cited("// spec 02, section 2.12, checks 1 to 3 and 7"), ["1 02 2.12 1 2 3 7"]);
        assert_eq!(cited("// spec 01, section 9.7, step 11."), ["1 01 9.7 11"]);
    }

    #[test]
    fn several_chapters_are_cited() {
        let source = "// (spec 04, sections 1.3, 6 and 7; spec 01, section 11.2)";
        assert_eq!(cited(source), ["1 04 1.3 6 7", "1 01 11.2"]);
    }

    #[test]
    fn citations_go_on_in_the_next_line() {
        let source = "\n//! One (spec 04,\n//! sections 1 and\n//! 2; spec\n//! 05, section 3).\n";
        assert_eq!(cited(source), ["2 04 1 2", "4 05 3"]);
        assert_eq!(cited("// spec 04, section\nlet x = 1;\n// 7"), ["1 ?"]);
    }

    #[test]
    fn other_words_and_code_are_no_citations() {
        assert_eq!(cited("// the spec says; a kspec 04; spec.04"), [""; 0]);
        assert_eq!(cited("let spec = \"spec 04, section 1\";"), [""; 0]);
    }

    #[test]
    fn unknown_forms_are_noticed() {
        for form in ["12.7", "3, section 1", "09, 1.2", "09, section one", "031"] {
            assert_eq!(cited(&format!("// spec {form}")), ["1 ?"], "{form}");
        }
        assert_eq!(lacking("// spec 12.7"), ["a citation in an unknown form"]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        assert_eq!(lacking("// spec 03, sections 1 and 1.1, checks 7 to 8"), [""; 0]);
        assert_eq!(lacking("// spec 04, section 1"), ["no spec 04"]);
        let expected = ["spec 03 has no section 1.2", "spec 03 has no section 3"];
        assert_eq!(lacking("// spec 03, sections 1.1, 1.2 and 3"), expected);
        assert_eq!(lacking("// spec 03, section 1.1, step 9"), ["spec 03, section 1.1 has no 9"]);
    }
}
