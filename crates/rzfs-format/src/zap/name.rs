//! How names are folded and normalised before they are hashed and compared (spec 03, section
//! 12.3).
//!
//! A name is stored as it was given. Only the hash and the comparison use the normalised form:
//! first each character's simple upper case, then decomposition, then composition, all by
//! Unicode 5.0. Bytes that are not UTF-8 and characters younger than Unicode 5.0 stay as they are
//! and keep the characters on both sides of them apart.

mod unicode5;

use std::borrow::Cow;

use unicode_normalization::char::{
    canonical_combining_class, compose, decompose_canonical, decompose_compatible,
};

use crate::FormatError;

const TO_UPPER: u64 = 0x02;
const FORM_MASK: u64 = 0x70;

/// A Unicode normalisation form, as the `normalization` property names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// Canonical decomposition (NFD).
    D,
    /// Canonical decomposition, then composition (NFC).
    C,
    /// Compatibility decomposition (NFKD).
    Kd,
    /// Compatibility decomposition, then canonical composition (NFKC).
    Kc,
}

impl Form {
    const fn bits(self) -> u64 {
        match self {
            Self::D => 0x10,
            Self::C => 0x50,
            Self::Kd => 0x20,
            Self::Kc => 0x60,
        }
    }
}

/// How a ZAP normalises its string keys: the `normflags` of its header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Normalization {
    /// Whether lower case equals upper case.
    pub fold_case: bool,
    /// The Unicode form; `None` leaves characters composed as they are.
    pub form: Option<Form>,
}

impl Normalization {
    /// Names are compared byte by byte.
    pub const NONE: Self = Self { fold_case: false, form: None };
    /// Names are compared without regard to case, as the names of snapshots are.
    pub const FOLD_CASE: Self = Self { fold_case: true, form: None };

    /// Decodes `normflags`.
    pub fn from_flags(flags: u64) -> Result<Self, FormatError> {
        let form = match flags & FORM_MASK {
            0 => None,
            0x10 => Some(Form::D),
            0x50 => Some(Form::C),
            0x20 => Some(Form::Kd),
            0x60 => Some(Form::Kc),
            _ => return Err(FormatError::field("ZAP", "normflags", flags)),
        };
        if flags & !(FORM_MASK | TO_UPPER) != 0 {
            return Err(FormatError::field("ZAP", "normflags", flags));
        }
        Ok(Self { fold_case: flags & TO_UPPER != 0, form })
    }

    /// The `normflags`.
    #[must_use]
    pub fn flags(self) -> u64 {
        self.form.map_or(0, Form::bits) | if self.fold_case { TO_UPPER } else { 0 }
    }

    /// Whether names are compared byte by byte.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The same form, with case significant.
    #[must_use]
    pub const fn case_sensitive(self) -> Self {
        Self { fold_case: false, form: self.form }
    }

    /// The normalised form of `name`; borrowed when it is the name itself.
    #[must_use]
    pub fn normalize(self, name: &[u8]) -> Cow<'_, [u8]> {
        if self.is_none() {
            return Cow::Borrowed(name);
        }
        if name.is_ascii() {
            return if self.fold_case && name.iter().any(u8::is_ascii_lowercase) {
                Cow::Owned(name.to_ascii_uppercase())
            } else {
                Cow::Borrowed(name)
            };
        }
        let mut out = Vec::with_capacity(name.len());
        match self.form {
            None => characters(name).for_each(|(bytes, known)| match known {
                Some(character) => encode([upper_case(character)], &mut out),
                None => out.extend_from_slice(bytes),
            }),
            Some(form) => self.normalize_form(form, name, &mut out),
        }
        Cow::Owned(out)
    }

    fn normalize_form(self, form: Form, name: &[u8], out: &mut Vec<u8>) {
        let mut sequence = Sequence::new(form);
        for (bytes, known) in characters(name) {
            match known {
                Some(c) => sequence.push(c, if self.fold_case { upper_case(c) } else { c }, out),
                None => sequence.push_unknown(bytes, out),
            }
        }
        sequence.flush(out);
    }
}

/// Splits a name into characters: the bytes of each, and the character if it is one that Unicode
/// 5.0 knows.
///
/// As OpenZFS does it, the first byte alone says how many bytes belong together, and a last
/// character that is cut short ends the name.
fn characters(name: &[u8]) -> impl Iterator<Item = (&[u8], Option<char>)> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let len = match rest.first()? {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 1,
        };
        let (bytes, tail) = rest.split_at(len.min(rest.len()));
        rest = tail;
        let character = std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next());
        Some((bytes, character.filter(|&c| unicode5::knows(c))))
    })
}

fn encode(characters: impl IntoIterator<Item = char>, out: &mut Vec<u8>) {
    for character in characters {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
}

/// Most characters of a sequence of a starter and its marks.
const MAX_SEQUENCE: usize = 30;
const GRAPHEME_JOINER: char = '\u{34f}';

/// Hangul syllables and modern letters, which take no marks.
const fn is_hangul(character: char) -> bool {
    matches!(character,
        '\u{1100}'..='\u{1112}' | '\u{1161}'..='\u{1175}' | '\u{11a8}'..='\u{11c2}'
        | '\u{ac00}'..='\u{d7a3}')
}

/// Decomposed characters that are yet to be ordered and composed.
///
/// OpenZFS departs from the standard's normalisation, since it splits text into sequences of a
/// starter and its marks before it maps anything:
/// * a starter that decomposes into marks (U+0F73, U+FF9E, ...) does not mix with marks before it;
/// * U+0345, whose upper case is the letter U+0399, is ordered as the mark that it was unless it
///   begins a sequence;
/// * a sequence that gets too long is divided by a joiner.
struct Sequence {
    form: Form,
    /// Combining class and character.
    pieces: Vec<(u8, char)>,
    /// Characters since the last starter, itself included.
    len: usize,
    /// The last character before it was mapped.
    previous: Option<char>,
}

impl Sequence {
    const fn new(form: Form) -> Self {
        Self { form, pieces: Vec::new(), len: 0, previous: None }
    }

    /// Appends the decomposition of `mapped`, the case-folded form of `original`.
    fn push(&mut self, original: char, mapped: char, out: &mut Vec<u8>) {
        let begins = self.previous.is_none_or(is_hangul);
        let class = if begins { 0 } else { canonical_combining_class(original) };
        self.previous = Some(original);
        let start = self.pieces.len();
        let pieces = &mut self.pieces;
        let append = |piece| pieces.push((canonical_combining_class(piece), piece));
        match self.form {
            Form::D | Form::C => decompose_canonical(mapped, append),
            Form::Kd | Form::Kc => decompose_compatible(mapped, append),
        }
        let Some(first) = self.pieces.get_mut(start) else { return };
        if class != 0 && first.0 == 0 {
            first.0 = class;
        }
        let leads_with_mark = first.0 != 0;
        let added = self.pieces.len() - start;
        if class == 0 && leads_with_mark {
            let own = self.pieces.split_off(start);
            self.flush(out);
            self.pieces = own;
            self.len = added;
        } else if class == 0 {
            let marks = self.pieces.iter().rev().take_while(|&&(class, _)| class != 0).count();
            self.len = marks + 1;
        } else if self.len + added > MAX_SEQUENCE {
            self.pieces.insert(start, (0, GRAPHEME_JOINER));
            self.len = added + 1;
        } else {
            self.len += added;
        }
    }

    /// Writes a character that has no mappings; what follows does not combine with it.
    fn push_unknown(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.flush(out);
        out.extend_from_slice(bytes);
        self.previous = Some(char::REPLACEMENT_CHARACTER);
        self.len = 1;
    }

    /// Orders, composes and writes what was pushed.
    fn flush(&mut self, out: &mut Vec<u8>) {
        for marks in self.pieces.split_mut(|&(class, _)| class == 0) {
            marks.sort_by_key(|&(class, _)| class);
        }
        match self.form {
            Form::D | Form::Kd => {}
            Form::C | Form::Kc => compose_sequences(&mut self.pieces),
        }
        encode(self.pieces.drain(..).map(|(_, piece)| piece), out);
    }
}

/// Composes starters with what follows them.
///
/// A mark that composes with nothing keeps later marks of its class from composing, but, unlike
/// in the standard, only until the first mark has composed.
fn compose_sequences(pieces: &mut Vec<(u8, char)>) {
    let mut starter: Option<usize> = None;
    let mut composed = false;
    let mut last_class = 0;
    let mut kept = 0;
    for index in 0..pieces.len() {
        let (class, character) = pieces[index];
        let blocked = last_class != 0 && (class == 0 || (class == last_class && !composed));
        let pair = starter
            .filter(|_| !blocked)
            .and_then(|at| compose(pieces[at].1, character).map(|composite| (at, composite)));
        if let Some((at, composite)) = pair {
            pieces[at].1 = composite;
            composed = true;
            continue;
        }
        if class == 0 {
            (starter, composed) = (Some(kept), false);
        }
        last_class = class;
        pieces[kept] = (class, character);
        kept += 1;
    }
    pieces.truncate(kept);
}

/// Simple (one to one) upper case by Unicode 5.0.
fn upper_case(character: char) -> char {
    let greek = match u32::from(character) {
        // Greek with iota subscript: the full mapping has two letters, the simple one is the
        // title-case letter.
        code @ (0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7) => char::from_u32(code + 8),
        code @ (0x1fb3 | 0x1fc3 | 0x1ff3) => char::from_u32(code + 9),
        _ => None,
    };
    if let Some(upper) = greek {
        return upper;
    }
    let mut full = character.to_uppercase();
    match (full.next(), full.next()) {
        (Some(upper), None) if unicode5::knows(upper) => upper,
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(flags: u64, name: &str) -> String {
        let out = Normalization::from_flags(flags).unwrap().normalize(name.as_bytes()).into_owned();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn vectors_of_the_spec_hold() {
        for (flags, input, output) in [
            (0x02, "café", "CAFÉ"),
            (0x02, "Straße", "STRAßE"),
            (0x02, "\u{1e9e}\u{3c2}\u{ff}\u{149}", "\u{1e9e}\u{3a3}\u{178}\u{149}"),
            (0x10, "\u{e9}", "e\u{301}"),
            (0x10, "\u{212b}", "A\u{30a}"),
            (0x10, "\u{d55c}", "\u{1112}\u{1161}\u{11ab}"),
            (0x50, "e\u{301}", "\u{e9}"),
            (0x50, "\u{212b}", "\u{c5}"),
            (0x20, "\u{fb01}le", "file"),
            (0x20, "\u{1c6}", "dz\u{30c}"),
            (0x20, "\u{149}", "\u{2bc}n"),
            (0x60, "\u{1c6}", "d\u{17e}"),
            (0x22, "\u{fb01}le", "fiLE"),
            (0x12, "\u{1c6}", "\u{1c4}"),
        ] {
            assert_eq!(text(flags, input), output, "{flags:#x} {input}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_stay() {
        let folded = Normalization::from_flags(0x12).unwrap();
        assert_eq!(&*folded.normalize(b"\x61\xff\x62"), b"\x41\xff\x42");
    }

    #[test]
    fn characters_younger_than_unicode_5_stay() {
        // Upper case, decomposition and combining class of each came after 5.0.
        assert_eq!(text(0x02, "\u{250}\u{371}\u{10d0}"), "\u{250}\u{371}\u{10d0}");
        assert_eq!(text(0x10, "\u{1109a}\u{fa2e}"), "\u{1109a}\u{fa2e}");
        assert_eq!(text(0x20, "\u{1f130}"), "\u{1f130}");
        assert_eq!(text(0x02, "\u{1f80}\u{1fb3}"), "\u{1f88}\u{1fbc}");
    }

    #[test]
    fn flags_round_trip_and_strangers_are_refused() {
        for flags in [0, 0x02, 0x10, 0x50, 0x20, 0x60, 0x12, 0x52, 0x22, 0x62] {
            assert_eq!(Normalization::from_flags(flags).unwrap().flags(), flags);
        }
        for flags in [0x01, 0x30, 0x40, 0x70, 0x80, 1 << 40] {
            assert!(Normalization::from_flags(flags).is_err());
        }
    }
}
