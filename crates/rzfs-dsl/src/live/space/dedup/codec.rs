//! Values of entries as ZAPs store them (spec 02, section 9.3).

use rzfs_codec::compress::{ZstdLevel, compress, decompress};
use rzfs_format::compression::CompressionFunction;
use rzfs_format::ddt::{DdtEnvelope, DdtLayout, DdtValue};
use rzfs_format::{ByteOrder, FormatError};

/// Decodes a value from its envelope.
pub(super) fn decode(value: &[u8], layout: DdtLayout) -> Result<DdtValue, FormatError> {
    let envelope = DdtEnvelope::decode(value)?;
    if envelope.compression == CompressionFunction::Off {
        return DdtValue::decode(envelope.payload, envelope.order, layout);
    }
    let mut payload = vec![0; layout.value_size()];
    decompress(envelope.compression, envelope.payload, &mut payload)
        .map_err(|_| FormatError::invalid("dedup table", "a value cannot be decompressed"))?;
    DdtValue::decode(&payload, envelope.order, layout)
}

/// Encodes a value in its envelope, compressed if that makes it smaller.
pub(super) fn encode(value: &DdtValue) -> Vec<u8> {
    let order = ByteOrder::NATIVE;
    let payload = value.encode(order);
    let mut smaller = vec![0; payload.len()];
    let function = CompressionFunction::Zle;
    let len = compress(function, ZstdLevel::DEFAULT, &payload, &mut smaller);
    match len.and_then(|len| smaller.get(..len)).filter(|small| small.len() < payload.len()) {
        Some(small) => DdtEnvelope { order, compression: function, payload: small }.encode(),
        None => {
            let compression = CompressionFunction::Off;
            DdtEnvelope { order, compression, payload: &payload }.encode()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::ddt::DdtSlot;
    use rzfs_format::{Dva, Txg, VdevId};

    fn slot(offset: u64, asize: u64) -> DdtSlot {
        let dva = Dva::new(VdevId(0), offset, asize, false);
        DdtSlot { dvas: [dva, Dva::default(), Dva::default()], references: 3, birth: Txg(8) }
    }

    #[test]
    fn values_of_the_spec_are_made_and_read() {
        let mut slots = [DdtSlot::default(); 4];
        slots[1] = slot(0xee00, 0x400);
        let value = DdtValue::Traditional(slots);
        let stored = encode(&value);
        let expected = [0x8e, 0x7f, 0, 2, 0x46, 0, 0x77, 0x66, 0, 3, 0x46, 0, 8, 0xc6];
        assert_eq!(stored, expected);
        assert_eq!(decode(&stored, DdtLayout::Traditional).unwrap(), value);
        let value = DdtValue::Flat { slot: slot(0x2e000, 0x1000), class_start: 0x6b01_0021 };
        let stored = encode(&value);
        assert_eq!((stored.len(), stored[0]), (73, 0x82));
        assert_eq!(decode(&stored, DdtLayout::Flat).unwrap(), value);
        assert!(decode(&stored, DdtLayout::Traditional).is_err());
        assert!(decode(&[], DdtLayout::Flat).is_err());
        assert!(decode(&[0x8e, 1, 2], DdtLayout::Flat).is_err());
    }
}
