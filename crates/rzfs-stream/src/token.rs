//! Resume tokens: where an interrupted receive stopped, as a text for `zfs send -t` (spec 08,
//! section 8.2).
//!
//! ```text
//! 1-885856a9b-b8-789c6360...
//! │ │         │  └ the list, compressed (zlib), as hex digits
//! │ │         └ bytes of the packed list, hex
//! │ └ first word of the compressed bytes' fletcher4, hex
//! └ version
//! ```
//! The compressed bytes may differ from OpenZFS's for the same list, which does not matter.

use rzfs_codec::checksum::fletcher4;
use rzfs_codec::compress::{self, ZstdLevel};
use rzfs_format::compression::CompressionFunction;
use rzfs_format::nvlist::{Encoding, NvList, NvString, NvValue};
use rzfs_format::stream::StreamFeatures;
use rzfs_format::{ByteOrder, FormatError, Guid, ObjectId};
use std::fmt::{self, Write as _};

const VERSION: u32 = 1;
const COMPRESSION: CompressionFunction = CompressionFunction::Gzip(6);
/// The longest packed list, in bytes: one with a larger claimed length is not unpacked.
const MAX_PACKED: u64 = 1 << 20;

/// Features in which the stream must match the interrupted one, and their names in a token.
const FLAGS: [(StreamFeatures, &str); 4] = [
    (StreamFeatures::LARGE_BLOCKS, "largeblockok"),
    (StreamFeatures::EMBED_DATA, "embedok"),
    (StreamFeatures::COMPRESSED, "compressok"),
    (StreamFeatures::RAW, "rawok"),
];

/// Why a text is not a valid token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It does not have four parts.
    #[error("resume token is corrupt (invalid format)")]
    Format,
    /// It has another version.
    #[error("resume token is corrupt (invalid version {0})")]
    Version(u32),
    /// Its last part is not pairs of hex digits.
    #[error("resume token is corrupt (payload is not hex-encoded)")]
    Hex,
    /// The compressed bytes do not match the checksum.
    #[error("resume token is corrupt (incorrect checksum)")]
    Checksum,
    /// They do not decompress to the length in the token.
    #[error("resume token is corrupt (decompression failed)")]
    Decompression,
    /// They do not decompress to a list.
    #[error("resume token is corrupt (nvlist_unpack failed)")]
    List(#[source] FormatError),
    /// An entry of the list is missing or has the wrong type.
    #[error("resume token is corrupt")]
    Contents(#[source] FormatError),
}

/// Where an interrupted receive stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResumeToken {
    /// The snapshot that was sent.
    pub to_guid: Guid,
    /// Its name, where the sender looks first.
    pub to_name: NvString,
    /// The source of the increment.
    pub from_guid: Option<Guid>,
    /// The object of the last record that was applied.
    pub object: ObjectId,
    /// The first byte of that record.
    pub offset: u64,
    /// Bytes of the stream so far, over all attempts.
    pub bytes: u64,
    /// The features that the stream must have again: [`StreamFeatures::LARGE_BLOCKS`],
    /// `EMBED_DATA`, `COMPRESSED` and `RAW`; a token has no others.
    pub features: StreamFeatures,
    /// Snapshots with respect to which the stream was redacted.
    pub redact_snaps: Option<Box<[u64]>>,
    /// Snapshots of the redaction bookmark that was the source.
    pub bookmark_redact_snaps: Option<Box<[u64]>>,
}

impl ResumeToken {
    /// Decodes the text of a token.
    ///
    /// # Errors
    /// [`TokenError`]
    pub fn decode(text: &str) -> Result<Self, TokenError> {
        Self::of_list(&Self::unpack(text)?).map_err(TokenError::Contents)
    }

    /// The list in a token, without checking it.
    ///
    /// # Errors
    /// [`TokenError`], but for [`TokenError::Contents`].
    pub fn unpack(text: &str) -> Result<NvList, TokenError> {
        let mut parts = text.splitn(4, '-');
        let mut part = || parts.next().ok_or(TokenError::Format);
        let version: u32 = part()?.parse().map_err(|_| TokenError::Format)?;
        let (checksum, length) = (hex_number(part()?)?, hex_number(part()?)?);
        let digits = part()?;
        if version != VERSION {
            return Err(TokenError::Version(version));
        }
        let compressed = hex_bytes(digits).ok_or(TokenError::Hex)?;
        let sum_in = |order| fletcher4(&compressed, order).0[0];
        if ![ByteOrder::Little, ByteOrder::Big].map(sum_in).contains(&checksum) {
            return Err(TokenError::Checksum);
        }
        if length > MAX_PACKED {
            return Err(TokenError::Decompression);
        }
        let mut packed = vec![0; length as usize];
        compress::decompress(COMPRESSION, &compressed, &mut packed)
            .map_err(|_| TokenError::Decompression)?;
        NvList::decode(&packed).map_err(TokenError::List)
    }

    fn of_list(list: &NvList) -> Result<Self, FormatError> {
        let features = FLAGS
            .into_iter()
            .filter(|(_, name)| list.contains(name))
            .fold(StreamFeatures::NONE, |all, (feature, _)| all.with(feature));
        let guids = |name| list.find_u64s(name).map(|found| found.map(Into::into));
        Ok(Self {
            to_guid: Guid(list.u64("toguid")?),
            to_name: list.string("toname")?.clone(),
            from_guid: list.find_u64("fromguid")?.map(Guid),
            object: ObjectId(list.u64("object")?),
            offset: list.u64("offset")?,
            bytes: list.u64("bytes")?,
            features,
            redact_snaps: guids("redact_snaps")?,
            bookmark_redact_snaps: guids("book_redact_snaps")?,
        })
    }

    /// The list of the token.
    fn list(&self) -> Result<NvList, FormatError> {
        let mut list = NvList::new();
        if let Some(from) = self.from_guid {
            list.insert("fromguid", NvValue::UInt64(from.get()))?;
        }
        list.insert("object", NvValue::UInt64(self.object.get()))?;
        list.insert("offset", NvValue::UInt64(self.offset))?;
        list.insert("bytes", NvValue::UInt64(self.bytes))?;
        list.insert("toguid", NvValue::UInt64(self.to_guid.get()))?;
        list.insert("toname", NvValue::String(self.to_name.clone()))?;
        for (feature, name) in FLAGS {
            if self.features.contains(feature) {
                list.insert(name, NvValue::Boolean)?;
            }
        }
        for (name, guids) in [
            ("redact_snaps", &self.redact_snaps),
            ("book_redact_snaps", &self.bookmark_redact_snaps),
        ] {
            if let Some(guids) = guids {
                list.insert(name, NvValue::UInt64Array(guids.clone()))?;
            }
        }
        Ok(list)
    }

    /// The text of the token.
    ///
    /// # Errors
    /// [`TokenError::Contents`]: too long for a token, which only lists of redaction snapshots can
    /// be.
    pub fn encode(&self) -> Result<String, TokenError> {
        let packed = self
            .list()
            .and_then(|list| list.encode(Encoding::Native(ByteOrder::NATIVE)))
            .map_err(TokenError::Contents)?;
        let too_long = || TokenError::Contents(FormatError::invalid("resume token", "too long"));
        if packed.len() as u64 > MAX_PACKED {
            return Err(too_long());
        }
        // Incompressible data grow by some bytes for each 64 KiB.
        let mut compressed = vec![0; packed.len() + packed.len() / 1024 + 64];
        let length = compress::compress(COMPRESSION, ZstdLevel::DEFAULT, &packed, &mut compressed)
            .ok_or_else(too_long)?;
        compressed.truncate(length);
        let checksum = fletcher4(&compressed, ByteOrder::NATIVE).0[0];
        let mut text = format!("{VERSION}-{checksum:x}-{:x}-", packed.len());
        write_hex(&mut text, &compressed).map_err(|_| too_long())?;
        Ok(text)
    }
}

/// Parses a number in hex, as C's `%llx` reads it.
fn hex_number(digits: &str) -> Result<u64, TokenError> {
    if digits.starts_with('+') {
        return Err(TokenError::Format);
    }
    u64::from_str_radix(digits, 16).map_err(|_| TokenError::Format)
}

/// Parses bytes, each as two hex digits.
fn hex_bytes(digits: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

fn write_hex(text: &mut String, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(text, "{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token in the specification.
    const SPEC: &str = "1-885856a9b-b8-789c636064000310a500c4ec50360710e72765a5269730303041946\
                        0caa7a515a796806498e0f26c48f2499525a9c540ba808705abfe92fcf4d2cc140606\
                        d335fc25f10efb9f6920c97382e5f31273538174625eb67e7151b24322031c0000bdbe1522";

    fn token() -> ResumeToken {
        ResumeToken {
            to_guid: Guid(0xe6bf_405f_740f_ac35),
            to_name: NvString::new("tank/src@a").unwrap(),
            from_guid: None,
            object: ObjectId(2),
            offset: 0x2_0000,
            bytes: 0x4_0c70,
            features: StreamFeatures::NONE,
            redact_snaps: None,
            bookmark_redact_snaps: None,
        }
    }

    #[test]
    fn the_token_of_the_spec_decodes() {
        assert_eq!(ResumeToken::decode(SPEC).unwrap(), token());
        let text = ResumeToken::unpack(SPEC).unwrap().indented(5).to_string();
        let first = text.lines().next();
        assert_eq!(first, Some("     object: 2"));
    }

    #[test]
    fn tokens_survive_encoding() {
        let full = ResumeToken {
            from_guid: Some(Guid(7)),
            features: FLAGS.iter().fold(StreamFeatures::NONE, |all, (flag, _)| all.with(*flag)),
            redact_snaps: Some([1, u64::MAX].into()),
            bookmark_redact_snaps: Some([].into()),
            ..token()
        };
        for token in [token(), full] {
            assert_eq!(ResumeToken::decode(&token.encode().unwrap()).unwrap(), token);
        }
        let packed = |text: &str| text.split('-').nth(2).map(str::to_owned);
        assert_eq!(packed(&token().encode().unwrap()), packed(SPEC));
    }

    #[test]
    fn damaged_tokens_say_what_is_wrong() {
        let (head, digits) = SPEC.split_at(17);
        for (text, message) in [
            (String::new(), "resume token is corrupt (invalid format)"),
            ("1".into(), "resume token is corrupt (invalid format)"),
            ("1-2-3".into(), "resume token is corrupt (invalid format)"),
            ("x-2-3-4".into(), "resume token is corrupt (invalid format)"),
            ("1-x-3-4".into(), "resume token is corrupt (invalid format)"),
            ("1-2--4".into(), "resume token is corrupt (invalid format)"),
            (format!("1-{}-3-00", "f".repeat(17)), "resume token is corrupt (invalid format)"),
            (SPEC.replacen("1-", "2-", 1), "resume token is corrupt (invalid version 2)"),
            (format!("{SPEC}0"), "resume token is corrupt (payload is not hex-encoded)"),
            (format!("{head}0g{digits}"), "resume token is corrupt (payload is not hex-encoded)"),
            (format!("{head}é{digits}"), "resume token is corrupt (payload is not hex-encoded)"),
            (SPEC.replacen("7", "8", 1), "resume token is corrupt (incorrect checksum)"),
            (SPEC.replacen("a9b", "a9c", 1), "resume token is corrupt (incorrect checksum)"),
            (SPEC.replacen("-b8-", "-b7-", 1), "resume token is corrupt (decompression failed)"),
            (SPEC.replacen("-b8-", "-b9-", 1), "resume token is corrupt (decompression failed)"),
            (
                SPEC.replacen("-b8-", "-ffffffffffffffff-", 1),
                "resume token is corrupt (decompression failed)",
            ),
            ("1-0-0-".into(), "resume token is corrupt (decompression failed)"),
        ] {
            let error = ResumeToken::decode(&text).unwrap_err();
            assert_eq!(error.to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_token_without_a_guid_is_none() {
        let mut list = token().list().unwrap();
        list.remove("toguid");
        assert!(matches!(ResumeToken::of_list(&list), Err(FormatError::MissingName { .. })));
    }
}
