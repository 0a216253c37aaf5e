//! Option parsing for OpenZFS's commands: single letters that combine, values attached or not,
//! options and operands in any order, `--` (spec 09, section 1.1).
//!
//! rzfs adds one thing: `-d DEVICE` names devices wherever a command works on pools. Where OpenZFS
//! already gives `-d` another meaning both are understood, by [`Value`].

use std::path::Path;

/// The value of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value {
    /// Nothing.
    None,
    /// A value, in the same word or the next.
    Required,
    /// A device; further words may be more devices.
    Devices,
    /// A device as for [`Value::Devices`] if the value looks like a path, or names an existing file
    /// and is not a number; otherwise a number.
    NumberOrDevices,
    /// A device as for [`Value::Devices`] if the next word is an existing path, otherwise nothing.
    DevicesOrNone,
}

/// The options of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grammar {
    /// Letters.
    pub(crate) letters: &'static [(char, Value)],
    /// Long names and the letters that they stand for.
    pub(crate) names: &'static [(&'static str, char)],
}

/// A parsed word of the command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    /// An option without a value.
    Flag(char),
    /// An option and its value.
    Option(char, String),
    /// A device given with `-d`.
    Device(String),
    /// Anything else.
    Operand(String),
}

/// An error of a command line, in OpenZFS's words.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum GrammarError {
    #[error("invalid option '{0}'")]
    Unknown(String),
    #[error("missing argument for '{0}' option")]
    MissingValue(char),
    #[error("missing argument for '{0}' option")]
    MissingLongValue(String),
}

impl Grammar {
    /// Parses the words after the command's name.
    pub(crate) fn parse(&self, words: &[String]) -> Result<Vec<Word>, GrammarError> {
        let mut parsed = Vec::new();
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            if word == "--" {
                parsed.extend(rest.map(|word| Word::Operand(word.clone())));
                break;
            } else if let Some(option) = word.strip_prefix("--") {
                let (name, attached) = match option.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (option, None),
                };
                let known = self.names.iter().find(|(long, _)| *long == name);
                let (_, letter) = known.ok_or_else(|| GrammarError::Unknown(word.clone()))?;
                let takes_value = self.letters.contains(&(*letter, Value::Required));
                parsed.push(match (takes_value, attached) {
                    (true, attached) => {
                        let value = attached.or_else(|| rest.next().cloned());
                        let missing = || GrammarError::MissingLongValue(name.to_owned());
                        Word::Option(*letter, value.ok_or_else(missing)?)
                    }
                    (false, None) => Word::Flag(*letter),
                    (false, Some(_)) => return Err(GrammarError::Unknown(word.clone())),
                });
            } else if word.len() > 1 && word.starts_with('-') {
                self.letters_of(word, &mut rest, &mut parsed)?;
            } else {
                parsed.push(Word::Operand(word.clone()));
            }
        }
        Ok(parsed)
    }

    /// Parses a word of letters, such as `-Hpo`, and the value of its last one.
    fn letters_of<'a>(
        &self,
        word: &str,
        rest: &mut std::iter::Peekable<impl Iterator<Item = &'a String>>,
        parsed: &mut Vec<Word>,
    ) -> Result<(), GrammarError> {
        let mut letters = word.strip_prefix('-').unwrap_or_default().chars();
        while let Some(letter) = letters.next() {
            let value = self.letters.iter().find(|(known, _)| *known == letter);
            let (_, value) = value.ok_or_else(|| GrammarError::Unknown(letter.to_string()))?;
            if *value == Value::None {
                parsed.push(Word::Flag(letter));
                continue;
            }
            if *value == Value::DevicesOrNone && !follows_device(letters.as_str(), rest.peek()) {
                parsed.push(Word::Flag(letter));
                continue;
            }
            let attached: String = letters.collect();
            let text = if attached.is_empty() { rest.next().cloned() } else { Some(attached) };
            let text = text.ok_or(GrammarError::MissingValue(letter))?;
            if *value == Value::Required
                || (*value == Value::NumberOrDevices && !names_device(&text))
            {
                parsed.push(Word::Option(letter, text));
            } else {
                parsed.push(Word::Device(text));
                while let Some(next) = rest.next_if(|next| is_device(next)) {
                    parsed.push(Word::Device(next.clone()));
                }
            }
            return Ok(());
        }
        Ok(())
    }
}

/// Whether the text attached to the letter, or else the next word, is a device.
fn follows_device(attached: &str, next: Option<&&String>) -> bool {
    if attached.is_empty() { next.is_some_and(|next| is_device(next)) } else { is_device(attached) }
}

/// Whether a word can only mean a device: it is an existing path.
fn is_device(word: &str) -> bool {
    is_path(word) && Path::new(word).exists()
}

/// Whether a word that could be a number means a device.
fn names_device(word: &str) -> bool {
    is_path(word) || (word.parse::<u64>().is_err() && Path::new(word).exists())
}

/// Whether a word looks like a path rather than a number or the name of a pool.
fn is_path(word: &str) -> bool {
    !word.starts_with('-') && word.contains(['/', '.'])
}

/// The operands among the words of a subcommand.
pub(crate) fn operands(words: &[Word]) -> Vec<String> {
    let operand = |word: &Word| match word {
        Word::Operand(operand) => Some(operand.clone()),
        _ => None,
    };
    words.iter().filter_map(operand).collect()
}

/// The devices given with `-d`.
pub(crate) fn devices(words: &[Word]) -> Vec<String> {
    let device = |word: &Word| match word {
        Word::Device(device) => Some(device.clone()),
        _ => None,
    };
    words.iter().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRAMMAR: Grammar = Grammar {
        letters: &[
            ('H', Value::None),
            ('p', Value::None),
            ('o', Value::Required),
            ('d', Value::NumberOrDevices),
            ('D', Value::DevicesOrNone),
            ('x', Value::Devices),
        ],
        names: &[("json-int", 'J'), ("only", 'o')],
    };

    fn parse(line: &str) -> Result<Vec<Word>, GrammarError> {
        GRAMMAR.parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn operand(text: &str) -> Word {
        Word::Operand(text.into())
    }

    #[test]
    fn letters_combine_and_values_attach() {
        use Word::{Flag, Option};
        let expected = vec![Flag('H'), Flag('p'), Option('o', "name,used".into()), operand("a")];
        assert_eq!(parse("-Hpo name,used a").unwrap(), expected);
        assert_eq!(parse("-Hponame,used a").unwrap(), expected);
        assert_eq!(parse("a -H -- -p").unwrap(), [operand("a"), Flag('H'), operand("-p")]);
        assert_eq!(parse("--json-int -").unwrap(), [Flag('J'), operand("-")]);
        for only in ["--only name", "--only=name"] {
            assert_eq!(parse(only).unwrap(), [Option('o', "name".into())]);
        }
    }

    #[test]
    fn mistakes_have_the_texts_of_openzfs() {
        let message = |line| parse(line).unwrap_err().to_string();
        assert_eq!(message("-HZ"), "invalid option 'Z'");
        assert_eq!(message("--json-int=1"), "invalid option '--json-int=1'");
        assert_eq!(message("--only"), "missing argument for 'only' option");
        assert_eq!(message("-Ho"), "missing argument for 'o' option");
        assert_eq!(message("--bogus"), "invalid option '--bogus'");
    }

    #[test]
    fn devices_and_depths_share_a_letter() {
        assert_eq!(parse("-d1 a").unwrap(), [Word::Option('d', "1".into()), operand("a")]);
        assert_eq!(parse("-d x.img a").unwrap(), [Word::Device("x.img".into()), operand("a")]);
        assert_eq!(parse("-d x a").unwrap(), [Word::Option('d', "x".into()), operand("a")]);
        // Tests run in the directory of the crate.
        assert_eq!(parse("-d src a").unwrap(), [Word::Device("src".into()), operand("a")]);
        let image = tempfile::NamedTempFile::new().unwrap();
        let path = image.path().to_str().unwrap();
        let device = || Word::Device(path.to_owned());
        let expected = [Word::Device("a".into()), device(), device(), operand("a/b")];
        assert_eq!(parse(&format!("-x a {path} {path} a/b")).unwrap(), expected);
        assert_eq!(parse("-D tank").unwrap(), [Word::Flag('D'), operand("tank")]);
        assert_eq!(parse(&format!("-HD {path}")).unwrap(), [Word::Flag('H'), device()]);
        assert_eq!(parse(&format!("-D{path} a")).unwrap(), [device(), operand("a")]);
    }
}
