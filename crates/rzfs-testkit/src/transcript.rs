//! What a command of OpenZFS printed, condensed to what fits into a repository.
//!
//! ```text
//! $ zdb -bcc POOL
//! status 0
//! The first lines of the output as they are ...
//! @lines 16 sha256 0123456789abcdef
//! ... and the last ones.
//! ```
//!
//! The word `POOL` stands for the pool's name, `DIRECTORY` for that of its images. Each `@lines`
//! stands for as many lines, by the beginning of the hash of their text.

use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::path::Path;

/// First lines that are kept.
const HEAD: usize = 24;
/// Last lines that are kept.
const TAIL: usize = 8;
/// Fewest lines that one hash stands for.
const CHUNK: usize = 16;
/// Most hashes of a transcript; in long ones each stands for more lines.
const MAX_CHUNKS: usize = 48;
/// Bytes of a hash that are kept.
const HASH_BYTES: usize = 8;

/// A command, its exit status and its output, condensed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transcript {
    /// The words that follow the program's name.
    pub words: Vec<String>,
    /// The exit status.
    pub status: i32,
    /// The condensed output.
    pub output: String,
}

impl Transcript {
    /// Condenses what a command has printed about a pool with its images in `directory`.
    #[must_use]
    pub fn new(words: Vec<String>, status: i32, output: &[u8], directory: &Path) -> Self {
        let text = String::from_utf8_lossy(output);
        let text = text.replace(&*directory.to_string_lossy(), DIRECTORY);
        Self { words, status, output: condense(&text) }
    }

    /// Parses the text that [`Transcript::to_text`] makes; `None` when it is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (command, rest) = text.strip_prefix("$ zdb ")?.split_once('\n')?;
        let (status, output) = rest.strip_prefix("status ")?.split_once('\n')?;
        Some(Self {
            words: command.split(' ').map(str::to_owned).collect(),
            status: status.parse().ok()?,
            output: output.to_owned(),
        })
    }

    /// The text of a file.
    #[must_use]
    pub fn to_text(&self) -> String {
        format!("$ zdb {}\nstatus {}\n{}", self.words.join(" "), self.status, self.output)
    }

    /// The name of the file: the words but for the pool, as far as a name can have them.
    #[must_use]
    pub fn file_name(&self) -> String {
        let words = self.words.iter().map(|word| word.strip_prefix(POOL).unwrap_or(word));
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        words.join("_").replace('/', "+").replace(':', ".") + ".txt"
    }

    /// The words with a pool's name in them.
    pub fn words_for(&self, pool: &str) -> impl Iterator<Item = String> {
        self.words.iter().map(move |word| match word.strip_prefix(POOL) {
            Some(rest) => format!("{pool}{rest}"),
            None => word.clone(),
        })
    }

    /// How another transcript of the same command differs: the first lines that do.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.status != other.status {
            return Some(format!("exit status {}, not {}", other.status, self.status));
        }
        let (mut lines, mut others) = (self.output.lines(), other.output.lines());
        let mut number = 1;
        loop {
            match (lines.next(), others.next()) {
                (None, None) => return None,
                (Some(one), Some(two)) if one == two => number += lines_of(one),
                (one, two) => {
                    let shown = |line: Option<&str>| line.unwrap_or("(the end)").to_owned();
                    let (one, two) = (shown(one), shown(two));
                    return Some(format!("line {number}:\n  is {two}\n not {one}"));
                }
            }
        }
    }
}

/// What stands for the pool's name.
const POOL: &str = "POOL";

/// What stands for the directory of the pool's images.
const DIRECTORY: &str = "DIRECTORY";

/// How many lines a condensed line stands for.
fn lines_of(line: &str) -> usize {
    let count = line.strip_prefix("@lines ").and_then(|rest| rest.split(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or(1)
}

fn condense(text: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let Some(middle) = lines.len().checked_sub(HEAD + TAIL).filter(|middle| *middle >= CHUNK)
    else {
        return text.to_owned();
    };
    let mut condensed = lines[..HEAD].concat();
    for chunk in lines[HEAD..HEAD + middle].chunks(middle.div_ceil(MAX_CHUNKS).max(CHUNK)) {
        let hash = Sha256::digest(chunk.concat());
        let _ = write!(condensed, "@lines {} sha256 ", chunk.len());
        for byte in &hash[..HASH_BYTES] {
            let _ = write!(condensed, "{byte:02x}");
        }
        condensed.push('\n');
    }
    condensed + &lines[HEAD + middle..].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(words: &str, output: &str) -> Transcript {
        let words = words.split(' ').map(str::to_owned).collect();
        Transcript::new(words, 0, output.as_bytes(), Path::new("/pools/one"))
    }

    #[test]
    fn texts_parse_again() {
        let one = transcript("-m POOL 1", "a\n\nb");
        assert_eq!(Transcript::parse(&one.to_text()), Some(one.clone()));
        assert_eq!(one.file_name(), "-m_1.txt");
        assert_eq!(transcript("-dddd POOL/a 3:4", "").file_name(), "-dddd_+a_3.4.txt");
        assert_eq!(one.words_for("g01").collect::<Vec<_>>(), ["-m", "g01", "1"]);
        assert_eq!(Transcript::parse("anything"), None);
        assert_eq!(transcript("-d", "at /pools/one/0.img").output, "at DIRECTORY/0.img");
    }

    #[test]
    fn every_line_counts_but_few_are_kept() {
        let numbered: Vec<String> = (1..=1000).map(|number| format!("line {number}")).collect();
        let long = transcript("-d POOL", &numbered.join("\n"));
        assert!(long.output.len() < 4000);
        for changed in [0, 23, 24, 500, 991, 992, 999] {
            let mut other = numbered.clone();
            other[changed].push('!');
            let difference = long.difference(&transcript("-d POOL", &other.join("\n"))).unwrap();
            let line: usize =
                difference.split([' ', ':']).nth(1).and_then(|line| line.parse().ok()).unwrap();
            let chunk = CHUNK.max(1000 / MAX_CHUNKS + 1);
            assert!(line <= changed + 1 && line + chunk > changed + 1, "{difference}");
        }
        assert_eq!(long.difference(&long.clone()), None);
        assert!(long.difference(&transcript("-d POOL", "line 1\n")).is_some());
        assert!(long.difference(&Transcript { status: 2, ..long.clone() }).is_some());
    }
}
