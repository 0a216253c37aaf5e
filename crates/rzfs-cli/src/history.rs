//! Command lines in the form of the pool history.

/// A command and its words.
pub(crate) fn command_line(command: &str, words: &[String]) -> String {
    let words = words.iter().map(String::as_str);
    std::iter::once(command).chain(words).collect::<Vec<_>>().join(" ")
}
