//! The vectors of spec 02, section 5.9, round trips, and hostile streams.

use super::*;
use CompressionFunction as F;
use proptest::prelude::*;

fn input(name: char) -> Vec<u8> {
    const TEXT: &[u8] = b"The quick brown fox jumps over the lazy dog. ";
    match name {
        'A' => b"abcd".repeat(128),
        'B' => (0..4096).map(|i| if i % 64 < 16 { (i / 64 + 1) as u8 } else { 0 }).collect(),
        _ => (0..131_072).map(|i| TEXT[i % 45] ^ u8::from(i / 45 % 97 == 0)).collect(),
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
    digits.iter().map(|pair| byte(pair).unwrap()).collect()
}

/// Compresses with the room that a writer gives.
fn squeeze(function: F, level: ZstdLevel, src: &[u8]) -> Option<Vec<u8>> {
    let mut dst = vec![0xee; src.len() - src.len() / 8];
    let length = compress(function, level, src, &mut dst)?;
    dst.truncate(length);
    Some(dst)
}

fn expand(function: F, src: &[u8], size: usize) -> Result<Vec<u8>, DecompressError> {
    let mut dst = vec![0xee; size];
    decompress(function, src, &mut dst).map(|()| dst)
}

fn all_functions() -> impl Iterator<Item = (F, ZstdLevel)> {
    let plain = (3..=15).filter(|number| *number != 4);
    let plain = plain.map(|number| (F::from_number(number).unwrap(), ZstdLevel::default()));
    let zstd = [1, 3, 9, 19, 103, 112, 123];
    plain.chain(zstd.map(|number| (F::Zstd, ZstdLevel::from_number(number).unwrap())))
}

#[rustfmt::skip]
const VECTORS: &[(char, CompressionFunction, &str)] = &[
    ('A', CompressionFunction::Lzjb, "f061626364fc04fc44fc84fc8407fc84fc84fc8463646162630064616263646162630064616263646162630064616263646162630064616263646162630064616263646162630064"),
    ('A', CompressionFunction::Gzip(1), "78014b4c4a4e491cc523360c006d8bc501"),
    ('A', CompressionFunction::Gzip(6), "789c4b4c4a4e491cc5231603006d8bc501"),
    ('A', CompressionFunction::Gzip(9), "78da4b4c4a4e491cc5231603006d8bc501"),
    ('A', CompressionFunction::Lz4, "0000000f4f616263640400ffe5506461626364"),
    ('A', CompressionFunction::Zstd, "00000010030028a500005d000020616263640100f9ab8e08"),
    ('A', CompressionFunction::Zstd, "00000010130028a500005d000020616263640100f9d44b04"),
    ('A', CompressionFunction::Zstd, "00000010670028a500005d000020616263640100f9ab8e08"),
    ('A', CompressionFunction::Zstd, "00000018700028a500009d0000606162636461626364616263640100f1574b12"),
    ('B', CompressionFunction::Zstd, "00000085030028a500100504001288120810009e067d007c0f0302ece5ddd5cdc5bdb5ada59d958d857d756d655d554d453d352d251d150d05fdf4ece4dcd4ccc4bcb4aca49c948c847c746c645c544c443c342c241c140cfcbe80809810f0010012f8130483ffdf3f4400080800000808000808000008110004040000040400020400008408000101a012801f"),
    ('D', CompressionFunction::Zstd, "00000067030028a50038150300a285141a80c709a03589ec129298118910922932dd3303ddb352c3c04a0506148b7e0c05c4a99c5932eba624cfb0b384b559867ca4f516a7123c4068de391092e37a6fd8e8d982b8e38f165f465bba8194538e6b100200f0ee107172d06001f6ca0c"),];

#[test]
fn streams_of_openzfs_decompress_with_and_without_padding() {
    for (name, function, stream) in VECTORS {
        let (expected, mut stream) = (input(*name), hex(stream));
        assert_eq!(expand(*function, &stream, expected.len()).as_ref(), Ok(&expected));
        stream.resize(stream.len().next_multiple_of(512), 0);
        assert_eq!(expand(*function, &stream, expected.len()).as_ref(), Ok(&expected));
    }
}

#[test]
fn lzjb_is_bit_exact() {
    let expected = VECTORS.iter().find(|(name, f, _)| (*name, *f) == ('A', F::Lzjb)).unwrap().2;
    assert_eq!(squeeze(F::Lzjb, ZstdLevel::default(), &input('A')), Some(hex(expected)));
    for (name, length, start) in [
        ('B', 413, "6a01300100b001023001b03f00b6033001b440043001b4400530016db440"),
        ('D', 8064, "005569642170746862006a2163736e766f2100676e79216b746c710072"),
    ] {
        let stream = squeeze(F::Lzjb, ZstdLevel::default(), &input(name)).unwrap();
        assert_eq!((stream.len(), stream.starts_with(&hex(start))), (length, true));
    }
}

#[test]
fn zle_is_bit_exact() {
    let expected: Vec<u8> =
        (1..=64).flat_map(|v| [vec![0x0f], vec![v; 16], vec![0x6f]].concat()).collect();
    assert_eq!(squeeze(F::Zle, ZstdLevel::default(), &input('B')), Some(expected));
    assert_eq!(squeeze(F::Zle, ZstdLevel::default(), &input('A')), None);
}

#[test]
fn every_function_makes_the_text_smaller_and_gives_it_back() {
    let text = input('D');
    for (function, level) in all_functions() {
        match squeeze(function, level, &text) {
            Some(stream) => assert_eq!(expand(function, &stream, text.len()).as_ref(), Ok(&text)),
            None => assert_eq!(function, F::Zle, "text has no zeros"),
        }
    }
}

#[test]
fn zeros_survive_every_function() {
    for (function, level) in all_functions() {
        let stream = squeeze(function, level, &[0; 131_072]).unwrap();
        assert!(stream.len() < 8192, "{function:?}");
        assert_eq!(expand(function, &stream, 131_072), Ok(vec![0; 131_072]));
    }
}

#[test]
fn another_size_than_the_block_has_is_an_error() {
    let mut made = 0;
    for (function, level) in all_functions() {
        let Some(stream) = squeeze(function, level, &input('B')) else { continue };
        made += 1;
        assert!(expand(function, &stream, 4097).is_err(), "{function:?} gave more");
        if !matches!(function, F::Lzjb) {
            assert!(expand(function, &stream, 4095).is_err(), "{function:?} gave less");
        }
    }
    assert!(made > 15, "only the fastest levels may give up");
    assert!(expand(F::Off, &[0; 512], 1024).is_err());
}

#[test]
fn incompressible_bytes_are_left_alone() {
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(16_384)
    .collect();
    for (function, level) in all_functions() {
        assert_eq!(squeeze(function, level, &noise), None, "{function:?}");
    }
    for function in [F::Off, F::Empty, F::On, F::Inherit] {
        assert_eq!(compress(function, ZstdLevel::default(), &noise, &mut [0; 16_384]), None);
    }
}

#[test]
fn policies_are_not_stored() {
    for function in [F::Inherit, F::On, F::Empty] {
        assert_eq!(expand(function, &[0; 512], 512), Err(DecompressError::NotStored { function }));
    }
}

/// Blocks of short runs, zeros and noise in turn.
fn block() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (any::<u8>(), 1..300_usize).prop_map(|(byte, length)| vec![byte; length]),
        (1..600_usize).prop_map(|length| vec![0; length]),
        prop::collection::vec(any::<u8>(), 1..100),
        (prop::collection::vec(any::<u8>(), 1..20), 1..20_usize)
            .prop_map(|(piece, times)| piece.repeat(times)),
    ];
    prop::collection::vec(piece, 1..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn what_fits_comes_back(block in block(), limit in 0..8192_usize) {
        for (function, level) in all_functions() {
            let mut dst = vec![0; limit];
            if let Some(length) = compress(function, level, &block, &mut dst) {
                prop_assert!(length <= limit);
                prop_assert_eq!(expand(function, &dst, block.len()), Ok(block.clone()));
            }
        }
    }

    #[test]
    fn hostile_streams_never_panic(
        stream in prop::collection::vec(any::<u8>(), 0..2000),
        size in 0..5000_usize,
        number in 0..=16_u8,
    ) {
        let function = F::from_number(number).unwrap();
        let _ = expand(function, &stream, size);
    }

    #[test]
    fn broken_streams_never_panic(
        block in block(),
        breaks in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        more in 0..300_usize,
    ) {
        for (function, level) in all_functions() {
            let mut stream = vec![0; block.len() + 600];
            if let Some(length) = compress(function, level, &block, &mut stream) {
                for (place, byte) in &breaks {
                    stream[place.index(length)] = *byte;
                }
                let _ = expand(function, &stream, block.len() + more);
                let _ = expand(function, &stream[..length], block.len());
            }
        }
    }
}
