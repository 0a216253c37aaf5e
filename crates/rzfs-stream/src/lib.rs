//! Send streams of OpenZFS: a reader for untrusted input, a writer, heads of packages, resume
//! tokens (spec 08).
//!
//! ```text
//! bytes -> StreamReader  header, running checksum, Nesting, Rules -> Record, payload
//! Record, payload -> StreamWriter  Nesting, running checksum      -> bytes
//! ```
//! ```
//! use rzfs_format::stream::{Begin, MAGIC, Record, StreamFeatures, StreamKind, StreamName, VersionInfo};
//! use rzfs_format::{ByteOrder, Guid};
//! use rzfs_stream::{ReadOptions, StreamReader, StreamWriter};
//!
//! let begin = Begin {
//!     magic: MAGIC,
//!     version: VersionInfo::new(StreamKind::Substream, StreamFeatures::SA_SPILL),
//!     objset_type: 2,
//!     to_guid: Guid(7),
//!     to_name: StreamName::new(b"tank/fs@monday")?,
//!     ..Begin::default()
//! };
//! let mut stream = Vec::new();
//! let mut writer = StreamWriter::new(&mut stream, ByteOrder::NATIVE);
//! writer.write(&Record::Begin(begin), &[])?;
//! writer.end(Guid(7))?;
//!
//! let mut reader = StreamReader::new(stream.as_slice(), ReadOptions::default());
//! assert_eq!(reader.next_record()?, Some(Record::Begin(begin)));
//! assert!(matches!(reader.next_record()?, Some(Record::End(_))));
//! assert_eq!(reader.next_record()?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod nesting;
mod package;
mod reader;
mod rules;
mod running;
mod token;
mod writer;

pub use error::{Place, Problem, StreamError};
pub use nesting::Nesting;
pub use package::{
    Package, PackageExtent, PackagedBlocks, PackagedDataset, PackagedSnapshot, SentValue,
};
pub use reader::{Checksums, ReadOptions, StreamReader};
pub use rules::{Limits, MAX_NVLIST, MAX_PAYLOAD, Rules};
pub use token::{ResumeToken, TokenError};
pub use writer::StreamWriter;

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
