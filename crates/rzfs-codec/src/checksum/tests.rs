//! The vectors of spec 02, sections 4.11, 4.12 and 4.14.

use super::*;
use ChecksumFunction as F;
use proptest::prelude::*;
use rzfs_format::object_type::ObjectType;

fn input(name: &str) -> Vec<u8> {
    let pattern = |len: usize| (0..len).map(|i| (7 * i + 13 * (i >> 8)) as u8).collect();
    match name {
        "I64" => (0..64).collect(),
        "I512" => (0..512).map(|i: u16| i as u8).collect(),
        "Z512" => vec![0; 512],
        "P4K" => pattern(4096),
        _ => pattern(131_072),
    }
}

fn salt() -> Salt {
    Salt::new(std::array::from_fn(|index| index as u8))
}

#[rustfmt::skip]
const VECTORS: &[(&str, ChecksumFunction, ByteOrder, [u64; 4])] = &[
    ("I64", ChecksumFunction::Fletcher2, ByteOrder::Little, [0x7c78_7470_6c68_6460, 0x9c98_9490_8c88_8480, 0xe6dc_d2c8_beb4_aaa0, 0x372d_2319_0f04_faf0]),
    ("I64", ChecksumFunction::Fletcher2, ByteOrder::Big, [0x6064_686c_7074_787c, 0x8084_888c_9094_989c, 0xa0aa_b4be_c8d2_dce6, 0xf0fb_050f_1923_2d36]),
    ("I64", ChecksumFunction::Fletcher4, ByteOrder::Little, [0x0000_0002_1201_f1e0, 0x0000_000c_43bb_32a0, 0x0000_0039_9663_2fd0, 0x0000_00e3_f0bd_89b0]),
    ("I64", ChecksumFunction::Fletcher4, ByteOrder::Big, [0x0000_0001_e1f2_0210, 0x0000_000a_ab33_bc38, 0x0000_0030_0336_6960, 0x0000_00b6_75a8_db1c]),
    ("I64", ChecksumFunction::Sha256, ByteOrder::Little, [0xfdea_b9ac_f371_0362, 0xbd26_58cd_c9a2_9e8f, 0x9c75_7fcf_9811_603a, 0x8c44_7cd1_d915_1108]),
    ("I64", ChecksumFunction::Sha512, ByteOrder::Little, [0xe815_2562_b983_e4c9, 0x706b_7475_e0e1_5932, 0x8cfb_6378_21b1_2c14, 0x8a18_f456_32e3_fa85]),
    ("I64", ChecksumFunction::Sha512, ByteOrder::Big, [0xc9e4_83b9_6225_15e8, 0x3259_e1e0_7574_6b70, 0x142c_b121_7863_fb8c, 0x85fa_e332_56f4_188a]),
    ("I64", ChecksumFunction::Skein, ByteOrder::Little, [0xadd2_af9b_ce4e_7651, 0x5935_cebe_27c8_ea4b, 0xb462_f82a_ad62_28e7, 0x2a91_fc0c_df1d_2d1a]),
    ("I64", ChecksumFunction::EdonR, ByteOrder::Little, [0x349a_70c1_f0df_bfdf, 0x2b7a_6ae7_1636_4931, 0x74c1_22f6_57b5_a305, 0x3eb2_3dd4_4065_1571]),
    ("I64", ChecksumFunction::Blake3, ByteOrder::Little, [0xd8e0_20f3_8f83_afcf, 0xbba4_b102_badc_0173, 0x3d40_579f_1165_7d39, 0x9b5f_02d4_517a_81f2]),
    ("I64", ChecksumFunction::Blake3, ByteOrder::Big, [0xcfaf_838f_f320_e0d8, 0x7301_dcba_02b1_a4bb, 0x397d_6511_9f57_403d, 0xf281_7a51_d402_5f9b]),
    ("I512", ChecksumFunction::Fletcher2, ByteOrder::Little, [0xefcf_af8f_6f4f_2f00, 0xf0d0_b090_7050_3000, 0x4a38_2614_01ef_dd00, 0xdac8_b6a4_9280_6d80]),
    ("I512", ChecksumFunction::Fletcher4, ByteOrder::Little, [0x0000_0040_c03f_bf00, 0x0000_0da3_42e2_7500, 0x0002_14fa_7f82_8a80, 0x003d_9765_c9f3_c980]),
    ("I512", ChecksumFunction::Sha256, ByteOrder::Little, [0x1100_09dc_ee21_620b, 0x166f_3abf_ecb5_eff7, 0xa873_be72_9d1c_2d53, 0x822e_7acc_5f34_eb9b]),
    ("I512", ChecksumFunction::Sha512, ByteOrder::Little, [0x6cf5_b141_1d91_141d, 0x0ea8_ddb8_6fa6_27f0, 0x9918_9677_9c0d_a9d7, 0x3bdc_08f7_e9f3_faed]),
    ("I512", ChecksumFunction::Skein, ByteOrder::Little, [0xdf06_b17b_ad51_5284, 0xc107_4e6c_80f8_0357, 0x0564_949c_f231_e28f, 0x3b30_efa6_5148_a406]),
    ("I512", ChecksumFunction::EdonR, ByteOrder::Little, [0x86f0_09c2_9382_3406, 0x1787_f335_116e_f352, 0x616d_e2d3_955e_b1e1, 0x0f0e_3039_494f_a11f]),
    ("I512", ChecksumFunction::Blake3, ByteOrder::Little, [0x68e5_f03a_15d3_2d73, 0x2e2d_8e52_a9e2_d91f, 0xb6eb_0668_176e_2d68, 0x95bf_9be2_259b_6c22]),
    ("Z512", ChecksumFunction::Sha256, ByteOrder::Little, [0x076a_27c7_9e5a_ce2a, 0x3d47_f9dd_2e83_e4ff, 0x6ea8_872b_3c22_18f6, 0x6c92_b89b_55f3_6560]),
    ("Z512", ChecksumFunction::Sha512, ByteOrder::Little, [0x5b94_1697_5c40_2b55, 0x1bc2_ae9b_e6ae_0cfc, 0xb88d_f5fb_0b56_052a, 0xa642_2bc4_2c4c_1abd]),
    ("Z512", ChecksumFunction::Skein, ByteOrder::Little, [0x109f_2ea9_7b30_f4fc, 0xf23d_66cc_23e4_eef4, 0x7a78_159e_8b37_61c5, 0x70f3_2bd9_24fe_e9e0]),
    ("Z512", ChecksumFunction::EdonR, ByteOrder::Little, [0x0d00_b586_64fa_7c50, 0x7802_fba8_da63_0b5d, 0x57d4_f6db_197c_77b8, 0x8c1f_e4b0_b798_f54c]),
    ("Z512", ChecksumFunction::Blake3, ByteOrder::Little, [0xc752_cd04_d56f_8f60, 0xf538_71be_99de_6f63, 0x1adb_e7b8_d884_3e49, 0xc250_1199_6e4b_107c]),
    ("P4K", ChecksumFunction::Fletcher2, ByteOrder::Little, [0xffff_ffff_ffff_ff80, 0xffff_ffff_ffff_ff80, 0x8da1_60d7_f9ce_1ec0, 0x9637_8074_1b72_3bc0]),
    ("P4K", ChecksumFunction::Fletcher4, ByteOrder::Little, [0x0000_01ff_ffff_fe00, 0x0004_01a4_e462_ef00, 0x0559_a507_b156_9e00, 0x5c6f_54c7_bc5c_9580]),
    ("P4K", ChecksumFunction::Fletcher4, ByteOrder::Big, [0x0000_01ff_ffff_fe00, 0x0003_fff0_68e0_a300, 0x0555_85ac_ccf7_6000, 0x56c4_b718_cda0_3d80]),
    ("P4K", ChecksumFunction::Sha256, ByteOrder::Little, [0xa656_ad29_a03c_42bf, 0x4af9_a098_8c55_ba4f, 0x864e_e375_223d_4c08, 0x7bfd_aa4b_6aca_0295]),
    ("P4K", ChecksumFunction::Sha512, ByteOrder::Little, [0x018f_78bb_00be_60ad, 0xc52f_af5b_94ac_bcf7, 0x130c_f4f7_e812_e5af, 0x9a57_a0e3_4d1e_ca5c]),
    ("P4K", ChecksumFunction::Skein, ByteOrder::Little, [0xdb41_4982_a02f_948d, 0x68ff_9b58_42c2_a16a, 0x3e87_9311_5466_3bbd, 0x7285_0fc0_7bff_8204]),
    ("P4K", ChecksumFunction::EdonR, ByteOrder::Little, [0x9fc0_8d47_1df3_733a, 0xb2d6_f1e3_60fe_a3d3, 0xabee_3992_1da7_6399, 0xbd63_023d_fae2_6c5a]),
    ("P4K", ChecksumFunction::Blake3, ByteOrder::Little, [0x266e_5540_b62c_e37b, 0xc08c_e1df_21b3_32a6, 0x71a9_2091_ddc3_643d, 0x4845_7fd3_6201_233d]),
    ("P128K", ChecksumFunction::Fletcher2, ByteOrder::Little, [0xffff_ffff_ffff_f000, 0xffff_ffff_ffff_f000, 0x747d_7c91_7b7d_7800, 0x847d_8c71_8b7d_7800]),
    ("P128K", ChecksumFunction::Fletcher4, ByteOrder::Little, [0x0000_3fff_ffff_c000, 0x1000_2817_f7d7_e000, 0xbcaf_ccce_d92d_4000, 0x7614_6ff1_9985_f000]),
    ("P128K", ChecksumFunction::Sha256, ByteOrder::Little, [0xa6c0_1e33_d189_14ef, 0x0533_070a_cd92_f146, 0x84ae_9d74_8136_fd91, 0xc1b9_e54c_de4a_1127]),
    ("P128K", ChecksumFunction::Sha512, ByteOrder::Little, [0x72ca_365d_4bd8_5805, 0x90e3_c914_bb0e_a157, 0xc4d9_63f0_4934_6bee, 0x2e28_6757_baa8_1cee]),
    ("P128K", ChecksumFunction::Skein, ByteOrder::Little, [0x6118_a5e1_db08_d28e, 0x6b56_9045_fb57_92b9, 0xccf2_eba6_164c_7e1c, 0xed33_facc_0bc9_d70e]),
    ("P128K", ChecksumFunction::EdonR, ByteOrder::Little, [0x4d4f_bea3_f613_33d1, 0x7b58_f568_4a60_8745, 0xe2f7_2f60_84f3_e50d, 0x1b3a_55da_d36d_e095]),
    ("P128K", ChecksumFunction::Blake3, ByteOrder::Little, [0x535b_86dc_66bd_79b2, 0x564f_bc1a_92b1_2e58, 0x9828_def4_68ac_2bfb, 0xfad8_f27a_35ad_3d56]),
];

#[test]
fn vectors_of_the_spec_are_reproduced() {
    for (name, function, order, expected) in VECTORS {
        let value = checksum(*function, *order, &input(name), &salt());
        assert_eq!(value, ChecksumValue(*expected), "{name} {} {order:?}", function.name());
    }
}

#[test]
fn salted_functions_take_the_salt_of_the_pool() {
    let mut key = [0; 32];
    for (byte, pair) in key
        .iter_mut()
        .zip(b"a22d1d6ecb3289b65ae974e392b59eb7f28ba7ec7f0d831008c3a6f9e809ce0b".as_chunks::<2>().0)
    {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    let value = |function| {
        checksum(function, ByteOrder::Little, &input("P4K"), &Salt::new(key)).to_string()
    };
    assert_eq!(
        value(F::Skein),
        "c22ae941408df128:f1d06851990c569a:295987730ee3af29:af777ec159cf470a"
    );
    assert_eq!(
        value(F::EdonR),
        "e8fee85a1112faea:0c72fea1a8409e0d:e280c10e4c6f966f:90195fbb9ddf8386"
    );
    assert_eq!(
        value(F::Blake3),
        "91f4f85bbe5b8f9d:137dde832d3980cf:209dd16d731fbb79:b853da2f55fa20ee"
    );
}

#[test]
fn fletcher_of_zeros_is_zero() {
    for function in [F::Fletcher2, F::Fletcher4, F::Off, F::NoParity] {
        let value = checksum(function, ByteOrder::Little, &[0; 512], &salt());
        assert_eq!(value, ChecksumValue::default());
    }
}

/// The gang header of spec 02, section 8.2.
fn gang_header() -> Vec<u8> {
    let mut words = [0_u64; 64];
    #[rustfmt::skip]
    let fields: &[(usize, &[u64])] = &[
        (0x000, &[0x57, 0x8000_0000_0000_1f89, 1, 0x8000_0000_0000_8cd4]),
        (0x030, &[0x8000_0702_0055_0055]),
        (0x050, &[0xbf]),
        (0x060, &[0x157f_ffff_ea80, 0x01ce_4de5_a2e5_f140, 0xe39d_fa59_1f6e_6580, 0x118f_5040_5643_72a0]),
        (0x080, &[0x56, 0x8000_0000_0000_1f8a, 1, 0x8000_0000_0000_8cd5]),
        (0x0b0, &[0x8000_0702_0054_0054]),
        (0x0d0, &[0xbf]),
        (0x0e0, &[0x1540_007f_ea40, 0x01c3_9c86_5da2_0220, 0xff0c_2891_399d_2040, 0xa207_a1b2_992c_2b90]),
        (0x100, &[0x56, 0x8000_0000_0000_1f8b, 1, 0x8000_0000_0000_8cd6]),
        (0x130, &[0x8000_0702_0054_0054]),
        (0x150, &[0xbf]),
        (0x160, &[0x153f_ff7f_eb40, 0x01c3_9d96_c20f_cca0, 0xff2d_0a24_46c5_1a40, 0x713c_ca1d_4f2c_89d0]),
        (0x1d8, &[0x0210_da7a_b10c_7a11, 0xea4f_c875_b4fb_3556, 0xecdd_43e1_e4b3_99a6, 0x231d_bef8_3ea8_c4e0, 0x8c02_dc0c_5b34_0a3a]),
    ];
    for (offset, values) in fields {
        words[offset / 8..offset / 8 + values.len()].copy_from_slice(values);
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

const GANG: EmbeddedVerifier = EmbeddedVerifier::Gang { vdev: 0, offset: 0x3f_1000, birth: 191 };
const ENCRYPTED_GANG: EmbeddedVerifier =
    EmbeddedVerifier::EncryptedGang { vdev: 0, offset: 0x3f_1000, birth: 191 };

#[test]
fn gang_header_of_the_spec_verifies_at_its_own_place_only() {
    let header = gang_header();
    assert_eq!(verify_embedded(F::GangHeader, &header, GANG), Ok(ByteOrder::Little));
    for misplaced in [
        EmbeddedVerifier::Gang { vdev: 1, offset: 0x3f_1000, birth: 191 },
        EmbeddedVerifier::Gang { vdev: 0, offset: 0x3f_1200, birth: 191 },
        EmbeddedVerifier::Gang { vdev: 0, offset: 0x3f_1000, birth: 192 },
    ] {
        assert!(matches!(
            verify_embedded(F::GangHeader, &header, misplaced),
            Err(ChecksumMismatch::Differs { .. })
        ));
    }
}

#[test]
fn gang_header_of_the_spec_is_generated_bit_for_bit() {
    let expected = gang_header();
    let mut header = expected.clone();
    header[0x1d8..].fill(0);
    generate_embedded(F::GangHeader, &mut header, GANG, ByteOrder::Little).unwrap();
    assert_eq!(header, expected);
}

#[test]
fn hostile_log_blocks_are_refused() {
    let chain = EmbeddedVerifier::Zil([1, 2, 3, 4]);
    for used in [0, 183, 8193, u64::MAX] {
        let mut block = vec![0; 8192];
        block[136..144].copy_from_slice(&u64::to_le_bytes(used));
        let result = generate_embedded(F::Zilog2, &mut block, chain, ByteOrder::Little);
        assert!(matches!(result, Err(ChecksumMismatch::Extent { .. })), "{used}");
        assert!(matches!(
            verify_embedded(F::Zilog2, &block, chain),
            Err(ChecksumMismatch::Extent { .. })
        ));
    }
    assert!(matches!(
        verify_embedded(F::Zilog2, &[0; 4096], chain),
        Err(ChecksumMismatch::NoTrailer { .. })
    ));
}

fn pointer(function: F, kind: ObjectType, level: u64, crypt: u64, value: [u64; 4]) -> BlockPointer {
    let mut pointer = BlockPointer::HOLE;
    let words = pointer.words_mut();
    words[0] = 1;
    words[6] = u64::from(function.number()) << 40
        | u64::from(kind.number()) << 48
        | level << 56
        | crypt << 61
        | 1 << 63;
    words[12..].copy_from_slice(&value);
    pointer
}

#[test]
fn folded_fletcher4_of_the_spec() {
    let raw = [0x38_3eee_24e3, 0xdd6_f740_256a, 0x2_517e_53cb_ab0b, 0x4b_c835_b527_f24e];
    let folded = fold(F::Fletcher4, ChecksumValue(raw));
    assert_eq!(folded, [0x2_5146_6d25_8fe8, 0x4b_c5e3_4267_d724]);
}

#[test]
fn blocks_with_a_mac_compare_two_words() {
    let (data, mac) = (input("P4K"), [0xdead, 0xbeef]);
    for function in
        [F::Fletcher2, F::Fletcher4, F::Sha256, F::Sha512, F::Skein, F::EdonR, F::Blake3]
    {
        let value = checksum(function, ByteOrder::Little, &data, &salt());
        let [a, b] = fold(function, value);
        for (kind, level) in [
            (ObjectType::PLAIN_FILE_CONTENTS, 0),
            (ObjectType::MASTER_NODE, 0),
            (ObjectType::ZVOL, 1),
        ] {
            let sealed = pointer(function, kind, level, 1, [a, b, mac[0], mac[1]]);
            assert_eq!(verify(&sealed, &data, &salt()), Ok(()));
            let wrong = pointer(function, kind, level, 1, [a, b ^ 1, mac[0], mac[1]]);
            assert!(verify(&wrong, &data, &salt()).is_err());
        }
        let root = pointer(function, ObjectType::OBJSET, 0, 1, value.0);
        assert_eq!(verify(&root, &data, &salt()), Ok(()));
        let plain = pointer(function, ObjectType::ZVOL, 0, 0, value.0);
        assert_eq!(verify(&plain, &data, &salt()), Ok(()));
        assert!(verify(&plain, &data[1..], &salt()).is_err());
    }
}

#[test]
fn functions_that_no_pointer_can_have_never_verify() {
    for function in [F::Inherit, F::On, F::Label, F::GangHeader] {
        let pointer = pointer(function, ObjectType::ZVOL, 0, 0, [0; 4]);
        assert_eq!(
            verify(&pointer, &[0; 512], &salt()),
            Err(ChecksumMismatch::Misplaced { function })
        );
    }
}

proptest! {
    #[test]
    fn generated_trailers_verify_and_changes_are_seen(
        seed in prop::collection::vec(any::<u8>(), 4096..=4096),
        flip in 0..4096_usize,
        which in 0..6_usize,
        big in any::<bool>(),
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let chain = [11, 22, 33, 44];
        let (function, verifier) = [
            (F::Label, EmbeddedVerifier::Label { offset: 0x4000 }),
            (F::GangHeader, GANG),
            (F::Zilog, EmbeddedVerifier::Zil(chain)),
            (F::Zilog2, EmbeddedVerifier::Zil(chain)),
            (F::Zilog2, EmbeddedVerifier::EncryptedZil(chain)),
            (F::GangHeader, ENCRYPTED_GANG),
        ][which];
        let mut block = seed;
        block[136..144].copy_from_slice(&order.bytes64(4000));
        generate_embedded(function, &mut block, verifier, order).unwrap();
        prop_assert_eq!(verify_embedded(function, &block, verifier), Ok(order));
        block[flip] ^= 0x10;
        let covered = !(which == 4 && (168..184).contains(&flip) || which == 5 && flip >= 4080);
        prop_assert_eq!(verify_embedded(function, &block, verifier).is_err(), covered);
    }

    #[test]
    fn hostile_blocks_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        number in 0..15_u8,
    ) {
        let function = ChecksumFunction::from_number(number).unwrap();
        let verifier = EmbeddedVerifier::Zil([0; 4]);
        prop_assert!(verify_embedded(function, &bytes, verifier).is_err());
        let _ = checksum(function, ByteOrder::Big, &bytes, &salt());
    }
}
