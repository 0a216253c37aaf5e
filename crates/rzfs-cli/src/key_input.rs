//! Keys entered by users: typed, piped, or in files; with OpenZFS's messages about invalid ones.

use crate::console::Failure;
use rzfs::Secret;
use rzfs_codec::crypto::KeyFormat;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::Path;

const RAW_SIZE: usize = 32;
const HEX_DIGITS: usize = 64;
const PASSPHRASE: std::ops::RangeInclusive<usize> = 8..=512;

/// Whether a key is new or known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Occasion {
    /// It is new: it must be typed twice.
    New,
    /// It is an existing key of a dataset.
    Known,
}

/// The origin of a key location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// A pool's property `keylocation`: possibly an attacker's.
    Pool,
    /// The same from another user's process, which would receive the contents of the file.
    Stranger,
    /// The user, who may name a pipe of another program.
    User,
}

/// Gets the key of a dataset from a location in the form of property `keylocation`.
///
/// # Errors
/// The reason, without the name of the dataset or the purpose.
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
            Named::Stranger => {
                return Err(format!(
                    "the process that has the pool is another user's, and would get what '{}' holds; \
                     'zfs load-key -L file://PATH' names a file for it",
                    path.display()
                ));
            }
            Named::Pool => Secret::read_file(path),
            Named::User => read(path),
        }
        .map_err(fail)?
    } else if location != "prompt" {
        return Err(
            match ["https://", "http://"].iter().any(|place| location.starts_with(place)) {
                true => "keys are not fetched from the network by this software".to_owned(),
                false => "Invalid keylocation.".to_owned(),
            },
        );
    } else if io::stdin().is_terminal() {
        typed(dataset, format, occasion)?
    } else {
        piped(format).map_err(|error| format!("standard input: {error}"))?
    };
    check(format, key.bytes())?;
    Ok(key)
}

/// Reads a key file named by the user: possibly the pipe of another program.
pub(crate) fn read(path: &Path) -> io::Result<Secret> {
    Secret::read(File::open(path)?)
}

/// A reader that ends with the first line.
struct FirstLine<R>(Option<R>);

impl<R: Read> Read for FirstLine<R> {
    /// Reads byte by byte: the input after the line is for later readers.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let (Some(input), Some(byte)) = (&mut self.0, room.get_mut(..1)) else { return Ok(0) };
        let count = input.read(byte)?;
        if byte == b"\n" {
            self.0 = None;
        }
        Ok(count)
    }
}

/// Reads a line of standard input, or as many bytes as a raw key has; bypasses the standard
/// library's buffer.
fn piped(format: KeyFormat) -> io::Result<Secret> {
    let stdin = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    match format {
        KeyFormat::Raw => Secret::read(stdin.take(RAW_SIZE as u64)),
        _ => Secret::read(FirstLine(Some(stdin))),
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

/// Checks that this can be a key.
fn check(format: KeyFormat, input: &[u8]) -> Result<(), String> {
    let key = format.key_in(input);
    let size = |what: &str, len: usize, expected: usize| match len.cmp(&expected) {
        std::cmp::Ordering::Less => Err(format!("{what} key too short (expected {expected}).")),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(format!("{what} key too long (expected {expected}).")),
    };
    match format {
        KeyFormat::Raw => size("Raw", key.len(), RAW_SIZE),
        KeyFormat::Hex => {
            size("Hex", key.len(), HEX_DIGITS)?;
            match key.iter().all(u8::is_ascii_hexdigit) {
                true => Ok(()),
                false => Err("Invalid hex character detected.".to_owned()),
            }
        }
        KeyFormat::Passphrase if key.len() < *PASSPHRASE.start() => {
            Err(format!("Passphrase too short (min {}).", PASSPHRASE.start()))
        }
        KeyFormat::Passphrase if key.len() > *PASSPHRASE.end() => {
            Err(format!("Passphrase too long (max {}).", PASSPHRASE.end()))
        }
        KeyFormat::Passphrase => Ok(()),
    }
}

/// The key of a new dataset, if its properties require one.
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
            let key = get(dataset, format, (location, Named::User), Occasion::New);
            key.map(Some).map_err(|error| refused(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_for_a_process_of_somebody_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a secret of root's").unwrap();
        let location = format!("file://{}", file.path().display());
        let get = |named| get("tank", KeyFormat::Passphrase, (&location, named), Occasion::Known);
        assert!(get(Named::Pool).is_ok());
        let refused = get(Named::Stranger).unwrap_err();
        assert!(
            refused.starts_with("the process that has the pool is another user's"),
            "{refused}"
        );
    }

    #[test]
    fn a_key_is_a_line_and_what_follows_stays() {
        let mut input = io::Cursor::new(b"first line\nsecond\n");
        let first = Secret::read(FirstLine(Some(&mut input))).unwrap();
        assert_eq!(first.bytes(), b"first line\n");
        assert_eq!(Secret::read(FirstLine(Some(&mut input))).unwrap().bytes(), b"second\n");
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
        // Only the first line counts.
        check(Hex, &[&[b'a'; 64][..], b"\n# of tank\n"].concat()).unwrap();
        assert_eq!(said(Passphrase, b"two\nlines of text"), "Passphrase too short (min 8).");
        check(Raw, &[b'\n'; 32]).unwrap();
    }
}
