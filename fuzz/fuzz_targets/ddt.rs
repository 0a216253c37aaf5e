//! Any bytes are entries, logs or statistics of a dedup table or errors; the pointers that entries
//! make are ones whose accessors answer.
//!
//! Input: a byte (1 = big-endian, 2 = flat), then an entry of a table, a log, or a histogram.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rzfs_format::ByteOrder;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::compression::CompressionFunction;
use rzfs_format::ddt::log::{self, LogHeader};
use rzfs_format::ddt::{DdtEnvelope, DdtHistogram, DdtKey, DdtLayout, DdtValue};

fn use_value(key: &DdtKey, value: &DdtValue, order: ByteOrder, layout: DdtLayout) {
    assert_eq!(DdtValue::decode(&value.encode(order), order, layout).as_ref(), Ok(value));
    let _ = (value.references(), key.compression(), key.physical_size(), key.logical_size());
    for slot in value.used_slots() {
        let pointer = slot.pointer(ChecksumFunction::Sha256, key);
        let _ = (pointer.validate(), slot.matches(&pointer), DdtKey::of_pointer(&pointer));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&flags, data)) = data.split_first() else { return };
    let order = if flags & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let layout = if flags & 2 == 0 { DdtLayout::Traditional } else { DdtLayout::Flat };
    if let Some((key, value)) = data.split_first_chunk::<{ DdtKey::SIZE }>() {
        let mut words = [0; 5];
        for (word, bytes) in words.iter_mut().zip(key.as_chunks::<8>().0) {
            *word = order.u64(*bytes);
        }
        if let Ok(envelope) = DdtEnvelope::decode(value) {
            assert_eq!(DdtEnvelope::decode(&envelope.encode()), Ok(envelope));
            let plain = envelope.compression == CompressionFunction::Off;
            let mut payload = vec![0; layout.value_size()];
            let decoded = match plain {
                true => Ok(envelope.payload),
                false => rzfs_codec::compress::decompress(
                    envelope.compression,
                    envelope.payload,
                    &mut payload,
                )
                .map(|()| payload.as_slice()),
            };
            let value =
                decoded.ok().and_then(|bytes| DdtValue::decode(bytes, envelope.order, layout).ok());
            if let Some(value) = value {
                use_value(&DdtKey(words), &value, order, layout);
            }
        }
    }
    if let Ok(header) = LogHeader::decode(data, order) {
        assert_eq!(LogHeader::decode(&header.encode(order), order), Ok(header));
    }
    for record in log::records(data, order, layout).flatten() {
        use_value(&record.key, &record.value, order, layout);
    }
    if let Ok(histogram) = DdtHistogram::decode(data, order) {
        assert_eq!(DdtHistogram::decode(&histogram.encode(order), order).as_ref(), Ok(&histogram));
        let _ = histogram.total();
    }
});
