//! Send streams that OpenZFS made, and its `zstream`, which judges others.

use crate::manifest::Manifest;
use crate::pool::{absent, golden_dir, gunzip, names_in};
use crate::zdb::installed;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The folder of streams among the golden pools.
const FOLDER: &str = "g30-streams";
/// The folder of an interrupted stream, and of the one that continues it.
const INTERRUPTED: &str = "g30-partial";
const SUFFIX: &str = ".zsend.gz";
/// Streams in the larger set.
const GOLDEN_STREAMS: usize = 13;

/// A send stream that OpenZFS made.
#[derive(Clone, Debug)]
pub struct GoldenStream {
    name: String,
    file: PathBuf,
}

impl GoldenStream {
    /// Every golden stream, in the order of names.
    ///
    /// # Panics
    /// When some are missing and `CI=true`.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let folder = golden_dir().map(|dir| dir.join(FOLDER)).unwrap_or_default();
        let streams: Vec<_> = names_in(&folder)
            .iter()
            .filter_map(|file| {
                let name = file.strip_suffix(SUFFIX)?.to_owned();
                Some(Self { name, file: folder.join(file) })
            })
            .collect();
        if streams.len() < GOLDEN_STREAMS {
            absent("some golden streams: not there");
        }
        streams
    }

    /// One of the streams of a receive that was interrupted: `partial`, of which no more came,
    /// `resumed`, which begins there, or `whole`; `None` where there are none.
    ///
    /// # Panics
    /// When it is missing and `CI=true`.
    #[must_use]
    pub fn interrupted(name: &str) -> Option<Self> {
        let folder = golden_dir().map(|dir| dir.join(INTERRUPTED)).unwrap_or_default();
        let file = folder.join(format!("{name}{SUFFIX}"));
        if !file.exists() {
            absent("golden streams of an interrupted receive: not there");
            return None;
        }
        Some(Self { name: name.to_owned(), file })
    }

    /// The token with which the interrupted receive was resumed.
    ///
    /// # Errors
    /// It is not there.
    pub fn token(&self) -> io::Result<String> {
        Ok(fs::read_to_string(self.file.with_file_name("token"))?.trim().to_owned())
    }

    /// What was sent, and how: `full-c`, `enc-raw`, ...
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The stream.
    ///
    /// # Errors
    /// It cannot be read or decompressed.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        gunzip(&fs::read(&self.file)?)
    }

    /// What the file systems have that streams were made of.
    ///
    /// # Errors
    /// The manifest is not there, or none.
    pub fn manifest(&self) -> io::Result<Manifest> {
        let file = self.file.with_file_name("manifest.gz");
        let text = gunzip(&fs::read(file)?)?;
        Manifest::parse(&text).map_err(io::Error::other)
    }

    /// The last lines of what `zstream dump` said about it.
    ///
    /// # Errors
    /// They are not there.
    pub fn dump_tail(&self) -> io::Result<String> {
        let mut file = self.file.clone().into_os_string();
        file.push(".dump");
        fs::read_to_string(file)
    }
}

/// Where OpenZFS's `zstream` is; `None`, with a message, on a machine that does not have it.
///
/// # Panics
/// When it is not installed and `CI=true`.
#[must_use]
pub fn zstream_program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| installed("zstream")).as_deref();
    if program.is_none() {
        absent("zstream of OpenZFS: not there");
    }
    program
}
