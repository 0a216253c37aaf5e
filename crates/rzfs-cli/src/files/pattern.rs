//! Shell patterns for byte names.

/// A pattern: `*` matches any bytes, `?` one byte, `[a-c]` one of these, `[!a-c]` one of the
/// others; a backslash quotes the next byte.
#[derive(Clone, Debug)]
pub(super) struct Pattern(Vec<Token>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Byte(u8),
    AnyByte,
    AnyBytes,
    Set { ranges: Vec<(u8, u8)>, is_negated: bool },
}

impl Pattern {
    /// Parses a pattern; every text is one: an unclosed bracket stands for itself.
    pub(super) fn parse(text: &[u8]) -> Self {
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            tokens.push(match byte {
                b'*' => Token::AnyBytes,
                b'?' => Token::AnyByte,
                b'\\' => match after.split_first() {
                    Some((&quoted, after)) => {
                        rest = after;
                        Token::Byte(quoted)
                    }
                    None => Token::Byte(byte),
                },
                b'[' => match set(after) {
                    Some((token, after)) => {
                        rest = after;
                        token
                    }
                    None => Token::Byte(byte),
                },
                byte => Token::Byte(byte),
            });
        }
        Self(tokens)
    }

    /// Whether it matches the whole name. Takes at most as many steps as the product of the lengths
    /// of pattern and name.
    pub(super) fn matches(&self, name: &[u8]) -> bool {
        let (mut token, mut byte) = (0, 0);
        // The last star, and the match after it: it may have to match more.
        let mut star = None;
        while let Some(&next) = name.get(byte) {
            match self.0.get(token) {
                Some(Token::AnyBytes) => {
                    star = Some((token, byte));
                    token += 1;
                    continue;
                }
                Some(one) if one.is_one(next) => {
                    token += 1;
                    byte += 1;
                    continue;
                }
                _ => {}
            }
            let Some((at, from)) = star else { return false };
            star = Some((at, from + 1));
            (token, byte) = (at + 1, from + 1);
        }
        self.0.iter().skip(token).all(|rest| *rest == Token::AnyBytes)
    }
}

impl Token {
    fn is_one(&self, byte: u8) -> bool {
        match self {
            Self::Byte(own) => *own == byte,
            Self::AnyByte => true,
            Self::AnyBytes => false,
            Self::Set { ranges, is_negated } => {
                ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)) != *is_negated
            }
        }
    }
}

/// Parses a set, and returns the rest. A bracket in first place does not close it.
fn set(text: &[u8]) -> Option<(Token, &[u8])> {
    let (is_negated, text) = match text.split_first() {
        Some((b'!' | b'^', rest)) => (true, rest),
        _ => (false, text),
    };
    let end = 1 + text.iter().skip(1).position(|byte| *byte == b']')?;
    let (inside, after) = text.split_at_checked(end)?;
    let mut ranges = Vec::new();
    let mut rest = inside;
    while let Some((&from, behind)) = rest.split_first() {
        (rest, _) = match behind {
            [b'-', to, behind @ ..] => (behind, ranges.push((from, *to))),
            behind => (behind, ranges.push((from, from))),
        };
    }
    Some((Token::Set { ranges, is_negated }, after.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let cases: [(&str, &[&str], &[&str]); 9] = [
            ("north", &["north"], &["north ", "anorth", ""]),
            ("*", &["", "a", "*"], &[]),
            ("*.rs", &[".rs", "a.rs", "a.rs.rs"], &["a.rs.", "rs"]),
            ("a*b*c", &["abc", "axbxc", "abbcc"], &["ab", "acb"]),
            ("b?d", &["bed", "b*d"], &["bd", "beed"]),
            ("bed-[1-3x]", &["bed-1", "bed-x"], &["bed-4", "bed--", "bed-12"]),
            ("[!a]", &["b", "]"], &["a", ""]),
            ("[]a]", &["]", "a"], &["b"]),
            ("[a\\*", &["[a*"], &["[ax", "a"]),
        ];
        for (pattern, same, other) in cases {
            let parsed = Pattern::parse(pattern.as_bytes());
            for name in same {
                assert!(parsed.matches(name.as_bytes()), "{pattern} {name}");
            }
            for name in other {
                assert!(!parsed.matches(name.as_bytes()), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = Pattern::parse("*a".repeat(500).as_bytes());
        assert!(!pattern.matches("a".repeat(499).as_bytes()));
        assert!(!pattern.matches(&[b"a".repeat(5000), b"b".to_vec()].concat()));
    }
}
