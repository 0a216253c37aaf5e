//! The values in a bonus or spill block (spec 05, sections 2.3 and 2.4).

use super::attribute::{Attribute, AttributeNumber, SwapClass};
use super::schema::{ALIGNMENT, Layout, Layouts, Schema};
use crate::FormatError;
use crate::endian::{ByteOrder, Fields, FieldsMut};

/// `sa_magic`.
pub const MAGIC: u32 = 0x002f_505a;

const WHAT: &str = "SA buffer";
const LENGTHS_OFFSET: usize = 6;
const NUMBER_BITS: u32 = 10;

/// One value, in the byte order of its buffer.
#[derive(Clone, Copy, Debug)]
pub struct SaValue<'a> {
    /// Number of the attribute.
    pub number: AttributeNumber,
    /// The attribute, when the format names it.
    pub attribute: Option<Attribute>,
    /// How the value is byte-swapped.
    pub class: SwapClass,
    /// The value as stored.
    pub bytes: &'a [u8],
    /// Byte order of numbers in it.
    pub order: ByteOrder,
}

impl SaValue<'_> {
    /// The value of an attribute that is one number.
    pub fn u64(&self) -> Result<u64, FormatError> {
        Fields::new(WHAT, self.bytes, self.order).u64(0)
    }

    /// The value of an attribute that is a time: seconds and nanoseconds.
    pub fn u64_pair(&self) -> Result<[u64; 2], FormatError> {
        Fields::new(WHAT, self.bytes, self.order).u64s(0)
    }
}

impl Schema {
    /// Decodes a bonus of type SA or a spill block.
    pub fn buffer<'a>(&'a self, bytes: &'a [u8]) -> Result<SaBuffer<'a>, FormatError> {
        SaBuffer::decode(bytes, &self.layouts)
    }
}

/// A decoded bonus of type SA or spill block. All values lie inside of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct SaBuffer<'a> {
    bytes: &'a [u8],
    order: ByteOrder,
    layout: &'a Layout,
}

impl<'a> SaBuffer<'a> {
    /// Decodes a buffer: finds its byte order from the magic number, its layout, and checks that
    /// every value is inside. Bytes after the last value are ignored: they may be stale.
    pub fn decode(bytes: &'a [u8], layouts: &'a Layouts) -> Result<Self, FormatError> {
        let little = Fields::new(WHAT, bytes, ByteOrder::Little);
        let magic = little.u32(0)?;
        let order = match magic {
            0 if little.u16(4)? == 0 => ByteOrder::NATIVE,
            MAGIC => ByteOrder::Little,
            _ if magic.swap_bytes() == MAGIC => ByteOrder::Big,
            _ => return Err(FormatError::field(WHAT, "magic", magic)),
        };
        let info = Fields::new(WHAT, bytes, order).u16(4)?;
        let number = info & ((1 << NUMBER_BITS) - 1);
        let layout =
            layouts.get(number).ok_or_else(|| FormatError::field(WHAT, "layout", number))?;
        let buffer = Self { bytes, order, layout };
        if magic != 0 {
            buffer.validate(usize::from(info >> NUMBER_BITS) * ALIGNMENT)?;
        }
        Ok(buffer)
    }

    fn validate(&self, stored_header_size: usize) -> Result<(), FormatError> {
        if stored_header_size != self.layout.header_size() {
            return Err(FormatError::field(WHAT, "header size", stored_header_size as u64));
        }
        let mut walk = self.walk();
        while walk.step()?.is_some() {}
        Ok(())
    }

    /// Byte order of the buffer.
    #[must_use]
    pub const fn order(&self) -> ByteOrder {
        self.order
    }

    /// The layout.
    #[must_use]
    pub const fn layout(&self) -> &'a Layout {
        self.layout
    }

    /// The value of an attribute, `None` when this buffer has none.
    #[must_use]
    pub fn get(&self, attribute: Attribute) -> Option<SaValue<'a>> {
        self.values().find(|value| value.attribute == Some(attribute))
    }

    /// All values in storage order.
    pub fn values(&self) -> impl Iterator<Item = SaValue<'a>> + use<'a> {
        let mut walk = self.walk();
        // The walk of a decoded buffer has no errors: `decode` went all the way once.
        std::iter::from_fn(move || walk.step().ok().flatten())
    }

    fn walk(&self) -> Walk<'a> {
        Walk {
            fields: Fields::new(WHAT, self.bytes, self.order),
            layout: self.layout,
            slot: 0,
            variable: 0,
            offset: self.layout.header_size(),
        }
    }

    /// Encodes values in the order of `layout`.
    ///
    /// # Errors
    /// A value that is missing, has another length than its attribute, or is longer than the
    /// 65535 bytes that a length can say.
    pub fn encode<'v>(
        layout: &Layout,
        order: ByteOrder,
        value_of: impl Fn(AttributeNumber) -> Option<&'v [u8]>,
    ) -> Result<Vec<u8>, FormatError> {
        let header = layout.header_size();
        let mut out = vec![0; header];
        let mut lengths = Vec::with_capacity(layout.variable_count());
        for slot in layout.slots() {
            let value = value_of(slot.number).ok_or_else(|| {
                FormatError::field(WHAT, "attribute without value", slot.number.0)
            })?;
            let length = u16::try_from(value.len())
                .ok()
                .filter(|length| slot.length == 0 || slot.length == *length)
                .ok_or_else(|| FormatError::field(WHAT, "value length", value.len() as u64))?;
            if slot.length == 0 {
                lengths.push(length);
            }
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend_from_slice(value);
        }
        let mut fields = FieldsMut::new(&mut out, order);
        fields.set_u32(0, MAGIC);
        fields.set_u16(4, layout.number() | ((header / ALIGNMENT) as u16) << NUMBER_BITS);
        for (index, length) in lengths.into_iter().enumerate() {
            fields.set_u16(LENGTHS_OFFSET + 2 * index, length);
        }
        Ok(out)
    }
}

/// A walk through the values of a buffer.
struct Walk<'a> {
    fields: Fields<'a>,
    layout: &'a Layout,
    slot: usize,
    variable: usize,
    offset: usize,
}

impl<'a> Walk<'a> {
    fn step(&mut self) -> Result<Option<SaValue<'a>>, FormatError> {
        let Some(slot) = self.layout.slots().get(self.slot) else { return Ok(None) };
        let length = if slot.length == 0 {
            let length = self.fields.u16(LENGTHS_OFFSET + 2 * self.variable)?;
            self.variable += 1;
            length
        } else {
            slot.length
        };
        let length = usize::from(length);
        let bytes = self.fields.bytes(self.offset, length)?;
        self.slot += 1;
        // At most 1024 attributes of 64 KiB, so this stays far below any bound.
        self.offset = (self.offset + length).next_multiple_of(ALIGNMENT);
        Ok(Some(SaValue {
            number: slot.number,
            attribute: slot.known,
            class: slot.class,
            bytes,
            order: self.fields.order(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::tests::sample;
    use super::*;
    use proptest::prelude::*;

    /// The worked example of a regular file with one xattr (layout 7, 236 bytes).
    pub(crate) const FILE_WITH_XATTR: &str = "
        5a502f00 07081800 34000000 00000000 a4810000 00000000 06000000 00000000
        0b000000 00000000 00000000 00000000 00000000 00000000 22000000 00000000
        04000000 08840000 3700016b 00000000 000fbe14 00000000 3700016b 00000000
        0018fb14 00000000 3b00016b 00000000 0013110e 00000000 3700016b 00000000
        000fbe14 00000000 01000000 00000000 00000000 00000000 03000000 00000000
        00000010 9f011e00 00004020 8f001200 00000040 8f001200 01010000 00000000
        00000001 00000020 00000028 00000008 75736572 2e666f6f 0000000a 00000003
        62617200 00000000 00000000";

    pub(crate) fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn file_of_the_spec_decodes() {
        let (bytes, schema) = (hex(FILE_WITH_XATTR), sample());
        assert_eq!(bytes.len(), 236);
        let buffer = schema.buffer(&bytes).unwrap();
        assert_eq!(buffer.layout().number(), 7);
        let number = |attribute| buffer.get(attribute).unwrap().u64().unwrap();
        assert_eq!(number(Attribute::Mode), 0o100_644);
        assert_eq!(number(Attribute::Size), 6);
        assert_eq!(number(Attribute::Gen), 11);
        assert_eq!(number(Attribute::Parent), 34);
        assert_eq!(number(Attribute::Flags), 0x8408_0000_0004);
        assert_eq!(number(Attribute::DaclCount), 3);
        let mtime = buffer.get(Attribute::Mtime).unwrap().u64_pair().unwrap();
        assert_eq!(mtime, [0x6b01_0037, 0x14fb_1800]);
        assert_eq!(buffer.get(Attribute::DaclAces).unwrap().bytes.len(), 24);
        assert_eq!(buffer.get(Attribute::Dxattr).unwrap().bytes.len(), 52);
        assert!(buffer.get(Attribute::Rdev).is_none());
    }

    #[test]
    fn spill_of_the_spec_decodes() {
        let schema = sample();
        let mut bytes = hex("5a502f00 05049600");
        bytes.extend(std::iter::repeat_n(b'a', 150));
        bytes.resize(512, 0);
        let buffer = schema.buffer(&bytes).unwrap();
        assert_eq!(buffer.get(Attribute::Symlink).unwrap().bytes, &[b'a'; 150]);
    }

    #[test]
    fn unwritten_buffers_are_empty() {
        let schema = sample();
        assert_eq!(schema.buffer(&[0; 320]).unwrap().values().count(), 0);
        assert!(schema.buffer(&[0; 5]).is_err());
        assert!(schema.buffer(&hex("00000000 07080000")).is_err());
    }

    #[test]
    fn big_endian_buffers_decode() {
        let schema = sample();
        let layout = schema.layouts.get(5).unwrap();
        let bytes = SaBuffer::encode(layout, ByteOrder::Big, |_| Some(&b"target"[..])).unwrap();
        assert_eq!(bytes, hex("002f505a 0405 0006 746172676574"));
        let buffer = schema.buffer(&bytes).unwrap();
        assert_eq!(buffer.order(), ByteOrder::Big);
        assert_eq!(buffer.get(Attribute::Symlink).unwrap().bytes, b"target");
    }

    #[test]
    fn hostile_headers_are_refused() {
        let (good, schema) = (hex(FILE_WITH_XATTR), sample());
        for (offset, byte) in [(0, 0), (4, 9), (5, 0x0c), (5, 0x04), (7, 0xff), (8, 0x35)] {
            let mut bytes = good.clone();
            bytes[offset] = byte;
            assert!(schema.buffer(&bytes).is_err(), "byte {offset} = {byte:#x} was accepted");
        }
        for len in 0..good.len() {
            assert!(schema.buffer(&good[..len]).is_err(), "{len} bytes were accepted");
        }
    }

    proptest! {
        #[test]
        fn buffers_round_trip(
            number in 2_u16..9,
            big: bool,
            values in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 32..200), 23),
        ) {
            let schema = sample();
            let layout = schema.layouts.get(number).unwrap();
            let value_of = |attribute: AttributeNumber| {
                let length = schema.registry.get(attribute)?.length;
                let value = values.get(usize::from(attribute.0))?;
                Some(if length == 0 { &value[..] } else { &value[..usize::from(length)] })
            };
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let bytes = SaBuffer::encode(layout, order, value_of).unwrap();
            let buffer = schema.buffer(&bytes).unwrap();
            prop_assert_eq!(buffer.order(), order);
            let mut count = 0;
            for value in buffer.values() {
                prop_assert_eq!(value.bytes, value_of(value.number).unwrap());
                count += 1;
            }
            prop_assert_eq!(count, layout.attributes().count());
        }

        #[test]
        fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let schema = sample();
            if let Some(magic) = bytes.get_mut(..4) {
                magic.copy_from_slice(&MAGIC.to_le_bytes());
            }
            if let Ok(buffer) = schema.buffer(&bytes) {
                for value in buffer.values() {
                    prop_assert!(value.bytes.len() <= bytes.len());
                }
            }
        }
    }
}
