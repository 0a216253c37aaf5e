//! Errors of file access, with their place.

use rzfs_zpl::ZplError;
use std::fmt::{self, Write};
use std::io;

/// The problem with a file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FileProblem {
    /// The file system reports an error.
    #[error(transparent)]
    Zpl(Box<ZplError>),
    /// The path leads through more symbolic links than are followed.
    #[error("too many levels of symbolic links")]
    TooManyLinks,
    /// A symbolic link leads nowhere, or `.zfs` has no such entry.
    #[error("no such file or directory")]
    NotFound,
    /// The path continues after a file that is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// It is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// It has no contents to read.
    #[error("not a regular file")]
    NotRegular,
    /// The directory was entered before: it is its own ancestor, or has several names.
    #[error("the directory is in the tree more than once")]
    DirectoryLoop,
}

impl From<ZplError> for FileProblem {
    fn from(error: ZplError) -> Self {
        Self::Zpl(Box::new(error))
    }
}

impl FileProblem {
    /// The corresponding errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const ENOENT: i32 = 2;
        const ENOTDIR: i32 = 20;
        const EISDIR: i32 = 21;
        const EINVAL: i32 = 22;
        const ELOOP: i32 = 40;
        match self {
            Self::Zpl(error) => error.errno(),
            Self::NotFound => ENOENT,
            Self::NotDirectory => ENOTDIR,
            Self::IsDirectory => EISDIR,
            Self::NotRegular => EINVAL,
            Self::TooManyLinks | Self::DirectoryLoop => ELOOP,
        }
    }
}

/// An error of file access: `garden/notes:/beds/north, offset 131072: ...`.
#[derive(Clone, Debug)]
pub struct FileError {
    /// The dataset, by its full name.
    pub dataset: String,
    /// The file, from the root of the dataset; empty if the error concerns the dataset.
    pub path: Vec<u8>,
    /// The first unreadable byte; `None` if the error does not concern contents.
    pub offset: Option<u64>,
    /// The problem. Damage names objset, object, level and block.
    pub problem: FileProblem,
}

impl FileError {
    pub(crate) fn of_dataset(dataset: &str, error: ZplError) -> Self {
        Self { dataset: dataset.to_owned(), path: Vec::new(), offset: None, problem: error.into() }
    }

    /// The corresponding errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.problem.errno()
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dataset)?;
        if !self.path.is_empty() {
            write!(f, ":{}", ShownPath(&self.path))?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", offset {offset}")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        Self::new(Self::from_raw_os_error(error.errno()).kind(), error)
    }
}

/// A path for display: control characters, backslashes and invalid UTF-8 are escaped, so that a
/// name can neither control a terminal nor break a line.
///
/// ```
/// let shown = rzfs::ShownPath("/naïve\n\x1b[1m".as_bytes()).to_string();
/// assert_eq!(shown, r"/naïve\n\x1b[1m");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ShownPath<'a>(pub &'a [u8]);

impl fmt::Display for ShownPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                    c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}
