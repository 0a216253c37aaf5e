//! Keys as users give them: typed, piped, or in files; with OpenZFS's words about what is wrong
//! with them.

use crate::console::Failure;
use rzfs::plain_file::{self, Accepted};
use rzfs::protocol::{MAX_SECRET, Secret};
use rzfs_codec::crypto::KeyFormat;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;
use zeroize::Zeroizing;

const RAW_SIZE: usize = 32;
const HEX_DIGITS: usize = 64;
const PASSPHRASE: std::ops::RangeInclusive<usize> = 8..=512;

/// Whether a key is made up or known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Occasion {
    /// It is new: who types it types it twice.
    New,
    /// It is one that a dataset has.
    Known,
}

/// Whose word it is where a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// A pool's, in the property `keylocation`: perhaps an attacker's.
    ByPool,
    /// The user's, who may have a pipe of another program there.
    ByUser,
}

/// The format with the name that property `keyformat` has for it.
pub(crate) fn format(name: &str) -> Option<KeyFormat> {
    let all = [KeyFormat::Raw, KeyFormat::Hex, KeyFormat::Passphrase];
    all.into_iter().find(|format| format.name() == name)
}

/// Gets the key of a dataset from a place as property `keylocation` says it.
///
/// # Errors
/// Why there is none, without the name of the dataset or what it was for.
pub(crate) fn get(
    dataset: &str,
    format: KeyFormat,
    (location, named): (&str, Named),
    occasion: Occasion,
) -> Result<Secret, String> {
    let key = if let Some(path) = location.strip_prefix("file://") {
        let fail = |error: io::Error| {
            let reason = match error.kind() {
                io::ErrorKind::NotFound => "No such file or directory".to_owned(),
                _ => error.to_string(),
            };
            format!("Failed to open key material file: {reason}")
        };
        let path = Path::new(path);
        match named {
            Named::ByPool => read_regular(path),
            Named::ByUser => read(path),
        }
        .map_err(fail)?
    } else if location != "prompt" {
        return Err("keys are not fetched from the network by this software".to_owned());
    } else if io::stdin().is_terminal() {
        typed(dataset, format, occasion)?
    } else {
        piped(format).map_err(|error| format!("standard input: {error}"))?
    };
    check(format, key.bytes())?;
    Ok(key)
}

/// What a key file holds that the user names in place of a key: perhaps the pipe of another
/// program.
pub(crate) fn read(path: &Path) -> io::Result<Secret> {
    all_of(File::open(path)?)
}

/// What a key file holds that a property names: its word is nobody's but an attacker's. Files that
/// say nothing of their size, as those of the kernel in `/proc`, count as empty: reading them may
/// wait for ever, or take what is in them from others.
pub(crate) fn read_regular(path: &Path) -> io::Result<Secret> {
    let file = plain_file::open(path, Accepted::Files)?;
    let size = file.metadata()?.len();
    all_of(file.take(size))
}

/// Reads to the end of what is shorter than a key may be, into a place that never has to move: a
/// copy left behind would not be wiped.
fn all_of(mut input: impl Read) -> io::Result<Secret> {
    let mut bytes = Zeroizing::new(vec![0; MAX_SECRET]);
    let mut filled = 0;
    while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
        match input.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Secret::new(bytes.get(..filled).unwrap_or_default().to_vec()))
}

/// Ends with the first line.
struct FirstLine<R>(Option<R>);

impl<R: Read> Read for FirstLine<R> {
    /// Byte by byte: what is behind the line is for whoever reads next.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (Some(input), Some(byte)) = (&mut self.0, room.get_mut(..1)) else { return Ok(0) };
        let count = input.read(byte)?;
        if byte == b"\n" {
            self.0 = None;
        }
        Ok(count)
    }
}

/// A line of standard input, or as many bytes as a raw key has; past the buffer that the standard
/// library has for it.
fn piped(format: KeyFormat) -> io::Result<Secret> {
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    match format {
        KeyFormat::Raw => all_of(stdin.take(RAW_SIZE as u64)),
        _ => all_of(FirstLine(Some(stdin))),
    }
}

/// Asks at the terminal, without echo.
fn typed(dataset: &str, format: KeyFormat, occasion: Occasion) -> Result<Secret, String> {
    let what = match format {
        KeyFormat::Raw => return Err("Cannot enter raw keys on the terminal".to_owned()),
        KeyFormat::Hex => "hex key",
        KeyFormat::Passphrase => "passphrase",
    };
    let ask = |prompt: String| {
        let typed = rpassword::prompt_password(prompt).map_err(|error| error.to_string())?;
        Ok::<_, String>(Secret::new(typed.into_bytes()))
    };
    match occasion {
        Occasion::Known => ask(format!("Enter {what} for '{dataset}':")),
        Occasion::New => {
            let key = ask(format!("Enter new {what}:"))?;
            check(format, key.bytes())?;
            match ask(format!("Re-enter new {what}:"))? == key {
                true => Ok(key),
                false => Err("Provided keys do not match.".to_owned()),
            }
        }
    }
}

/// Whether this can be a key.
fn check(format: KeyFormat, input: &[u8]) -> Result<(), String> {
    let line = input.strip_suffix(b"\n").unwrap_or(input);
    let size = |what: &str, len: usize, expected: usize| match len.cmp(&expected) {
        std::cmp::Ordering::Less => Err(format!("{what} key too short (expected {expected}).")),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(format!("{what} key too long (expected {expected}).")),
    };
    match format {
        KeyFormat::Raw => size("Raw", input.len(), RAW_SIZE),
        KeyFormat::Hex => {
            size("Hex", line.len(), HEX_DIGITS)?;
            match line.iter().all(u8::is_ascii_hexdigit) {
                true => Ok(()),
                false => Err("Invalid hex character detected.".to_owned()),
            }
        }
        KeyFormat::Passphrase if line.len() < *PASSPHRASE.start() => {
            Err(format!("Passphrase too short (min {}).", PASSPHRASE.start()))
        }
        KeyFormat::Passphrase if line.len() > *PASSPHRASE.end() => {
            Err(format!("Passphrase too long (max {}).", PASSPHRASE.end()))
        }
        KeyFormat::Passphrase => Ok(()),
    }
}

/// The key of a dataset that is to be made, if its properties ask for one.
pub(crate) fn of_new(
    dataset: &str,
    encryption: &rzfs::setting::EncryptionProperties,
) -> Result<Option<Secret>, Failure> {
    let refused = |reason: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot create '{dataset}': {reason}"))
    };
    match encryption.key().map_err(|error| refused(&error))? {
        None => Ok(None),
        Some((format, location)) => {
            let key = get(dataset, format, (location, Named::ByUser), Occasion::New);
            key.map(Some).map_err(|error| refused(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_makes_up_is_no_key() {
        let status = Path::new("/proc/self/status");
        assert!(std::fs::read(status).is_ok_and(|text| !text.is_empty()));
        assert_eq!(read_regular(status).unwrap().bytes(), b"");
    }

    #[test]
    fn a_key_is_a_line_and_what_follows_stays() {
        let mut input = io::Cursor::new(b"first line\nsecond\n");
        let first = all_of(FirstLine(Some(&mut input))).unwrap();
        assert_eq!(first.bytes(), b"first line\n");
        assert_eq!(all_of(FirstLine(Some(&mut input))).unwrap().bytes(), b"second\n");
        assert_eq!(all_of(&b"no end"[..]).unwrap().bytes(), b"no end");
        assert_eq!(all_of(io::repeat(7).take(9999)).unwrap().bytes(), [7; MAX_SECRET]);
    }

    #[test]
    fn what_is_wrong_with_a_key_is_told() {
        use KeyFormat::{Hex, Passphrase, Raw};
        let said = |format, input: &[u8]| check(format, input).unwrap_err();
        assert_eq!(said(Raw, &[0; 31]), "Raw key too short (expected 32).");
        assert_eq!(said(Raw, &[0; 33]), "Raw key too long (expected 32).");
        assert_eq!(said(Hex, b"00\n"), "Hex key too short (expected 64).");
        assert_eq!(said(Hex, &[b'g'; 64]), "Invalid hex character detected.");
        assert_eq!(said(Passphrase, b"seven77\n"), "Passphrase too short (min 8).");
        assert_eq!(said(Passphrase, &[b'x'; 513]), "Passphrase too long (max 512).");
        check(Hex, &[&[b'a'; 64][..], b"\n"].concat()).unwrap();
        check(Passphrase, b"eight888\n").unwrap();
        check(Raw, &[b'\n'; 32]).unwrap();
    }
}
