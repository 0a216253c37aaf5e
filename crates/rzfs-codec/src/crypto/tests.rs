//! The vectors of spec 04, section 19.15, and other implementations of the ciphers as oracles.

use super::layout::{Layout, parts_of};
use super::*;
use hmac::Mac;
use proptest::prelude::*;
use rzfs_format::encryption::EncryptionSuite;
use rzfs_format::object_type::ObjectType;
use rzfs_format::{BlockPointer, ByteOrder, Guid};
use sha2::{Digest, Sha256};

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    assert_eq!(digits.len(), 2 * N);
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    }
    bytes
}

const ALL_SUITES: std::ops::RangeInclusive<u64> = 3..=8;

fn suite(number: u64) -> EncryptionSuite {
    EncryptionSuite::from_number(number).unwrap()
}

fn ccm_wrapping_key() -> WrappingKey {
    WrappingKey::from_raw(&hex::<32>(
        "40f7cd4fc262d499f0dfedd0e72ed29af2299bdaf181430868219f943a7fcbed",
    ))
    .unwrap()
}

/// Vector B.
fn ccm_keys() -> WrappedKeys {
    WrappedKeys {
        suite: suite(5),
        version: CryptoVersion::One,
        guid: Guid(18_286_101_957_978_900_457),
        iv: hex("297c9adb387bcb1982bd80ef"),
        mac: hex("d022f87f2128d1911b62a5b326e3a0ea"),
        master: hex("a3fa4ced67d46f123ae409f3a6560aad85e948ab110f5b8236587687ce331c87"),
        hmac: hex("b411e8a80b594f07a59d06fc533591649cbb96d2a4facd02df9c5d8924c9822a
                   eea94c0dfd6488f61f578fbcde1ade1b5768459afaba405d6cb2d9aaef13dd02"),
    }
}

fn ccm_key() -> DatasetKey {
    DatasetKey::unwrap(&ccm_wrapping_key(), &ccm_keys()).unwrap()
}

fn raw_wrapping_key() -> WrappingKey {
    WrappingKey::from_raw(b"abcdefghijklmnopqrstuvwxyz012345").unwrap()
}

#[test]
fn passphrases_derive_the_wrapping_key() {
    for (salt, expected) in [
        (
            3_894_760_431_309_898_040,
            "40f7cd4fc262d499f0dfedd0e72ed29af2299bdaf181430868219f943a7fcbed",
        ),
        (
            10_390_210_785_248_070_440,
            "7f7b3e349cc1f2dee3b06a299c3ae8c179c28ecf74c655612c829307b6e3afad",
        ),
    ] {
        let derivation = Pbkdf2 { salt, iterations: 350_000 };
        let key = WrappingKey::from_input(KeyFormat::Passphrase, b"password\n", derivation);
        assert_eq!(key.unwrap().as_bytes(), &hex(expected));
    }
}

#[test]
fn key_input_is_checked() {
    let none = Pbkdf2::default();
    let digits = "40f7cd4fc262D499f0dfedd0e72ed29af2299bdaf181430868219f943a7fcbed";
    let key = WrappingKey::from_input(KeyFormat::Hex, format!("{digits}\n").as_bytes(), none);
    assert_eq!(key.unwrap().as_bytes(), ccm_wrapping_key().as_bytes());
    let some = Pbkdf2 { salt: 1, iterations: 1 };
    let many = Pbkdf2 { salt: 1, iterations: 1 << 32 };
    for (format, input, derivation) in [
        (KeyFormat::Raw, &[b'a'; 33][..], none),
        (KeyFormat::Raw, &[b'a'; 31], none),
        (KeyFormat::Hex, &[b'a'; 63], none),
        (KeyFormat::Hex, &[b'a'; 66], none),
        (KeyFormat::Hex, &[b'g'; 64], none),
        (KeyFormat::Hex, &[0xff; 64], none),
        (KeyFormat::Passphrase, b"1234567\n", some),
        (KeyFormat::Passphrase, &[b'a'; 513], some),
        (KeyFormat::Passphrase, b"long enough", none),
        (KeyFormat::Passphrase, b"long enough", many),
    ] {
        let result = WrappingKey::from_input(format, input, derivation);
        assert!(matches!(result, Err(CryptoError::KeyInput { format: f, .. }) if f == format));
    }
}

#[test]
fn ccm_keys_of_the_spec_unwrap() {
    let key = ccm_key();
    assert_eq!(
        key.master(),
        hex::<32>("837ef351b12208f52f02f9e0bf39d23bb73a7faa701bba152e11abb7cd09c054")
    );
    assert_eq!(
        key.hmac_key(),
        &hex("518fa4e5ce57337371d86d36ebf228f3693948fdcd552a029e173fc53099fa28
              a9605d60fcfd8d3ec7a95eb8e01ed94f36c9b2689421fe2b098091e6cd421d18")
    );
}

#[test]
fn gcm_keys_of_the_spec_unwrap_and_derive_block_keys() {
    let wrapped = WrappedKeys {
        suite: suite(8),
        version: CryptoVersion::One,
        guid: Guid(3_068_124_061_361_758_803),
        iv: hex("01c2244e94c93f798875ab77"),
        mac: hex("9903fc3c589029323eba0f32db73238e"),
        master: hex("1c37c1ad1954d11a538196bdce21e07cf74f4732de997829a8b136b40f2fbc45"),
        hmac: hex("a42ae6f966b96de224467acd5a6f0e2682870afc748063ed6ed5fa604f060066
                   7f56d05d108a6d1edc564830b13b7644ad1b1ed68e7ae965c7b775b90f521863"),
    };
    let key = DatasetKey::unwrap(&raw_wrapping_key(), &wrapped).unwrap();
    assert_eq!(
        key.master(),
        hex::<32>("c7560cb6b3306e69b25bfaf89d2d1de628438f1d33c9bb75a1a1770298eb577c")
    );
    assert_eq!(
        key.hmac_key(),
        &hex("777b4738bb0830f0f7ba616eccc729bb481096575ebe072aac29c92ff7d7e71e
              d1dced9e6942d5f08a6cce334fb1713629585dbb55329495c0740fd45548fa9c")
    );
    assert_eq!(
        **key.derive_block_key(hex("fbbd8ac8b0d4afe9")),
        hex("0e1e93a9fe2cd20aa86ac82a52a43c016cbb850f5bf173b954dbcffbb7f7cb04")
    );
}

#[test]
fn short_keys_of_the_spec_unwrap_by_256_bits_whatever_is_behind_them() {
    let mut wrapped = WrappedKeys {
        suite: suite(3),
        version: CryptoVersion::One,
        guid: Guid(16_056_274_589_901_725_446),
        iv: hex("19081ed0fa301045ff441a0a"),
        mac: hex("89b4fdc96580a5d86de06728ec0e2f79"),
        master: hex("b61b0b6605b400ea4628ba9685678cf31815c750407f00000000000000000000"),
        hmac: hex("b00f8b18ba72ad90d47b8b542ed5c9fb88caf12cbe90ab7401c2bd22a4739833
                   15210bc22562611d6eeb2aa3150d30365d4bbc3ffe91c59d1f526e7ca932c402"),
    };
    let key = DatasetKey::unwrap(&raw_wrapping_key(), &wrapped).unwrap();
    assert_eq!(key.master(), hex::<16>("56d24acbb15ffbab80c0843bce33d5a5"));
    assert_eq!(
        key.hmac_key(),
        &hex("7b3629aa8d8fe516a96bd27d8904a61268a39a8218c27a2c844c3e20f3d90632
              117fa622d074a4acd85a97f287612c0117713b0694f29ae12c882a93caa421d6")
    );
    let rewrapped = key.wrap(&raw_wrapping_key(), wrapped.guid, wrapped.iv).unwrap();
    wrapped.master[16..].fill(0);
    assert_eq!(rewrapped, wrapped);
}

#[test]
fn another_wrapping_key_or_identity_is_a_wrong_key() {
    let result = DatasetKey::unwrap(&raw_wrapping_key(), &ccm_keys());
    assert_eq!(result.unwrap_err(), CryptoError::WrongKey);
    for change in [
        |keys: &mut WrappedKeys| keys.guid.0 += 1,
        |keys: &mut WrappedKeys| keys.version = CryptoVersion::Zero,
        |keys: &mut WrappedKeys| keys.hmac[63] ^= 1,
        |keys: &mut WrappedKeys| keys.mac[0] ^= 1,
    ] {
        let mut keys = ccm_keys();
        change(&mut keys);
        let result = DatasetKey::unwrap(&ccm_wrapping_key(), &keys);
        assert_eq!(result.unwrap_err(), CryptoError::WrongKey);
    }
}

#[test]
fn block_keys_derive_from_the_salt() {
    assert_eq!(
        **ccm_key().derive_block_key(hex("87a4d2ac8feb8350")),
        hex("363094282dc0a761a540669162807db63726e3bae2b2caf1a09fd51b3177c469")
    );
}

/// The pointer of vector D, to 512 bytes of a delete queue.
fn delete_queue_pointer() -> BlockPointer {
    let bytes = hex::<128>(
        "0100000000000000e0000000000000000100000000000000e080000000000000
         87a4d2ac8feb8350344651194a34ec9500000000020716a0
         00000000000000000000000000000000 0000000000000000 0800000000000000 01000000269a5e51
         e88f256d4651020024d76742e3c54b00 562c0bf175502a84757679e9c0b54a1a",
    );
    BlockPointer::decode(&bytes, ByteOrder::Little).unwrap()
}

#[test]
fn the_data_block_of_the_spec_encrypts_to_its_mac_and_decrypts() {
    let (key, pointer) = (ccm_key(), delete_queue_pointer());
    let mut plain = [0; 512];
    plain[..16].copy_from_slice(&hex::<16>("03000000000000807b16700000000000"));
    let mut block = plain;
    let params = pointer.crypt_params();
    let kind = ObjectType::UNLINKED_SET;
    let mac =
        key.encrypt_block(kind, ByteOrder::Little, params.salt, params.iv, &mut block).unwrap();
    assert_eq!(mac, params.mac);
    assert_eq!(block[..16], hex::<16>("c2a24683dfb868bc7f735f2fc72ba907"));
    let mut changed = block;
    changed[511] ^= 1;
    assert_eq!(
        key.decrypt_block(&pointer, &mut changed),
        Err(CryptoError::BadMac { what: "encrypted block" })
    );
    key.decrypt_block(&pointer, &mut block).unwrap();
    assert_eq!(block, plain);
}

/// The objset block of vector F, made from its MAC's input.
fn objset_block() -> Vec<u8> {
    let mut block = vec![0; 4096];
    block[..16].copy_from_slice(&hex::<16>("0a110603000000002000000000000000"));
    block[16] = 1;
    // Masked: byte order, compression, checksum, size, deduplication; and what the core leaves out.
    block[7] = 0x0b;
    block[24..32].fill(0x77);
    let prop = 0x250a_0000_0000_00ff_u64 | 1 << 63 | 1 << 62 | 0x07 << 40 | 15 << 32 | 1 << 16;
    block[64] = 1;
    block[64 + 48..64 + 56].copy_from_slice(&prop.to_le_bytes());
    block[64 + 112..192].copy_from_slice(&hex::<16>("4ff4752108c5cd5a366337566b5590ca"));
    block[704] = 2;
    block
}

#[test]
fn portable_mac_of_the_spec() {
    let key = ccm_key();
    let block = objset_block();
    let macs = key.objset_macs(&block, ByteOrder::Little).unwrap();
    assert_eq!(
        macs.portable,
        hex("b932f8b88bf683753a48c24ccd13f344d81e2cc1a57907d52601ed70a3ff83ab")
    );
    assert_eq!(macs.local, [0; 32]);
}

#[test]
fn objset_blocks_verify_by_their_macs_in_both_orders() {
    let key = ccm_key();
    let mut block = objset_block();
    let macs = key.objset_macs(&block, ByteOrder::Little).unwrap();
    block[720..752].copy_from_slice(&macs.portable);
    assert_eq!(key.verify_objset(&block, ByteOrder::Little), Ok(()));
    block[752] = 9;
    assert_eq!(key.verify_objset(&block, ByteOrder::Little), Ok(()), "no accounting, no local MAC");
    block[712] = 1;
    block[1024] = 39;
    let macs = key.objset_macs(&block, ByteOrder::Little).unwrap();
    assert_ne!(macs.local, [0; 32]);
    assert_eq!(
        key.verify_objset(&block, ByteOrder::Little),
        Err(CryptoError::BadMac { what: "objset's accounting" })
    );
    block[752..784].copy_from_slice(&macs.local);
    assert_eq!(key.verify_objset(&block, ByteOrder::Little), Ok(()));
    block[2] ^= 1;
    let bad = Err(CryptoError::BadMac { what: "objset" });
    assert_eq!(key.verify_objset(&block, ByteOrder::Little), bad);
    block[2] ^= 1;

    // The same numbers in a block of a big-endian host.
    for range in [8..10, 10..12, 16..24, 24..32, 704..712, 712..720] {
        block[range].reverse();
    }
    for word in block[64..192].chunks_exact_mut(8) {
        word.reverse();
    }
    assert_eq!(key.objset_macs(&block, ByteOrder::Big).unwrap(), macs);
}

#[test]
fn small_objsets_have_no_local_mac() {
    let key = ccm_key();
    let mut block = objset_block();
    block.truncate(1024);
    block[712] = 1;
    assert_eq!(key.objset_macs(&block, ByteOrder::Little).unwrap().local, [0; 32]);
    assert!(key.objset_macs(&block[..700], ByteOrder::Little).is_err());
    block[3] = 4;
    assert!(matches!(key.verify_objset(&block, ByteOrder::Little), Err(CryptoError::Format(_))));
}

#[test]
fn old_objset_macs_have_shorter_records() {
    let old = DatasetKey::unwrap(
        &WrappingKey::from_raw(&hex::<32>(
            "7f7b3e349cc1f2dee3b06a299c3ae8c179c28ecf74c655612c829307b6e3afad",
        ))
        .unwrap(),
        &WrappedKeys {
            suite: suite(5),
            version: CryptoVersion::Zero,
            guid: Guid(7_559_710_735_042_684_890),
            iv: hex("0dee4938b16dceae68fdbeab"),
            mac: hex("9bff34456291c1d75fcb9fab46a5adfb"),
            master: hex("51f55c5363b83b871ed7738ecd9e0394107591add82d43d2e098faee41b40716"),
            hmac: hex("eee09681c5fb794ff97e9e3740ad7d5f482b3e6a01ee24a73cc6d11d3190d5f8
                       5824908bb95da22151a5d604fbf6bc72aba58b8255c867618b0e1ac4e94f638f"),
        },
    )
    .unwrap();
    assert_eq!(
        old.master(),
        hex::<32>("2bac797b3ce6e205ac108513ea3e86e170fcacfbbd8c48edd7e17523959c593a")
    );
    let mut block = objset_block();
    let prop = 0xa50a_0002_0000_00ff_u64 | 1 << 62 | 7 << 40 | 1 << 16;
    block[64 + 48..64 + 56].copy_from_slice(&prop.to_le_bytes());
    block[64 + 112..192].copy_from_slice(&hex::<16>("0fd2776adcf13d3fafec2de70d0e3f2d"));
    assert_eq!(
        old.objset_macs(&block, ByteOrder::Little).unwrap().portable,
        hex("4f7e924c4a58adab2b3e746ceea06e834b909e490930e1b03f9715f378173645")
    );
}

fn indirect_block() -> (BlockPointer, Vec<u8>) {
    let mut block = delete_queue_pointer().encode(ByteOrder::Little).to_vec();
    block.resize(1024, 0);
    let mut pointer = delete_queue_pointer();
    let words = pointer.words_mut();
    words[6] = 1 << 63 | 1 << 61 | 1 << 56 | 19 << 48 | 7 << 40 | 15 << 32 | 1;
    (pointer, block)
}

#[test]
fn indirect_blocks_verify_without_a_key_in_both_versions() {
    let (mut pointer, block) = indirect_block();
    for version in [CryptoVersion::Zero, CryptoVersion::One] {
        let mac = indirect_mac(version, &block, ByteOrder::Little).unwrap();
        let (low, high) = (mac.first_chunk().unwrap(), mac.last_chunk().unwrap());
        pointer.words_mut()[14] = u64::from_le_bytes(*low);
        pointer.words_mut()[15] = u64::from_le_bytes(*high);
        assert_eq!(verify_indirect(&pointer, &block), Ok(()));
        let mut changed = block.clone();
        changed[127] ^= 1;
        let bad = Err(CryptoError::BadMac { what: "indirect block" });
        assert_eq!(verify_indirect(&pointer, &changed), bad);
    }
    assert!(matches!(verify_indirect(&pointer, &block[1..]), Err(CryptoError::Format(_))));
    assert!(matches!(
        verify_indirect(&delete_queue_pointer(), &block),
        Err(CryptoError::Protection { .. })
    ));
}

#[test]
fn first_record_of_the_spec() {
    let mut pointer = BlockPointer::HOLE;
    pointer.words_mut()[0] = 1;
    pointer.words_mut()[6] = 0x240a_0000_0000_00ff | 1 << 63 | 1 << 62 | 7 << 40 | 15 << 32;
    let mac = hex::<16>("e1437f102b76e5dfb9f59f4cad4fe42f");
    pointer.words_mut()[14] = u64::from_le_bytes(*mac.first_chunk().unwrap());
    pointer.words_mut()[15] = u64::from_le_bytes(*mac.last_chunk().unwrap());
    let record = record::PointerRecord::new(CryptoVersion::One, &pointer);
    let expected = "ff00000000000a24e1437f102b76e5dfb9f59f4cad4fe42f0000000000000000";
    assert_eq!(record.bytes(), hex::<32>(expected));
}

#[test]
fn authenticated_blocks_verify_by_their_mac() {
    let key = ccm_key();
    let block = [7; 512];
    let mut hmac = key.hmac();
    hmac.update(&block);
    let digest = hmac.finalize().into_bytes();
    let mut pointer = delete_queue_pointer();
    pointer.words_mut()[6] = 1 << 63 | 1 << 61 | 21 << 48 | 7 << 40 | 2 << 32;
    pointer.words_mut()[14] = u64::from_le_bytes(*digest.first_chunk().unwrap());
    pointer.words_mut()[15] = u64::from_le_bytes(*digest[8..].first_chunk().unwrap());
    assert_eq!(key.authenticate_block(&pointer, &block), Ok(()));
    assert_eq!(
        key.authenticate_block(&pointer, &[8; 512]),
        Err(CryptoError::BadMac { what: "authenticated block" })
    );
    assert!(matches!(
        key.decrypt_block(&pointer, &mut [7; 512]),
        Err(CryptoError::Protection { .. })
    ));
    assert!(matches!(
        key.authenticate_block(&delete_queue_pointer(), &block),
        Err(CryptoError::Protection { .. })
    ));
}

/// A dnode block of 16 KiB: a file with a bonus in slot 1, one with a spill pointer that takes
/// slots 2 and 3, and one whose bonus is not encrypted in slot 4.
fn dnode_block() -> Vec<u8> {
    let mut block: Vec<u8> = vec![0; 16_384];
    let mut dnode = |slot: usize, slots: u8, pointers: u8, bonus_type: u8, flags: u8| {
        let size = usize::from(slots) * 512;
        let bytes = &mut block[slot * 512..slot * 512 + size];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = (index * 31 + slot) as u8;
        }
        bytes[..16].copy_from_slice(&[
            19,
            17,
            1,
            pointers,
            bonus_type,
            7,
            15,
            flags,
            1,
            0,
            168,
            0,
            slots - 1,
            0,
            0,
            0,
        ]);
    };
    dnode(1, 1, 1, 44, 0x0b);
    dnode(2, 2, 3, 44, 0x0f);
    dnode(4, 1, 2, 17, 0x0b);
    block
}

#[test]
fn dnode_blocks_keep_only_encrypted_bonuses_secret() {
    let block = dnode_block();
    let (aad, encrypted) =
        parts_of(Layout::DnodeBlock, CryptoVersion::One, ByteOrder::Little, &block).unwrap();
    assert_eq!(encrypted, [512 + 192..1024, 1024 + 448..2048 - 128]);
    let free = 28 * 512;
    let used = (64 + 32) + (64 + 3 * 32 + 32) + (64 + 2 * 32 + 192);
    assert_eq!(aad.len(), free + used);
    // Flags but the one for the spill pointer, and the space used, are not authenticated.
    assert_eq!(aad[512 + 7], 0);
    assert_eq!(aad[512 + 24..512 + 32], [0; 8]);
    assert_eq!(aad[512 + 96 + 7], 4);
}

#[test]
fn dnode_blocks_round_trip_and_ignore_what_may_change() {
    let (salt, iv) = ([1; 8], [2; 12]);
    for number in ALL_SUITES {
        let key = DatasetKey::from_random(suite(number), &[5; 32], &[6; 64]);
        let plain = dnode_block();
        let mut block = plain.clone();
        let mac =
            key.encrypt_block(ObjectType::DNODE, ByteOrder::Little, salt, iv, &mut block).unwrap();
        let pointer = pointer_to(ObjectType::DNODE, salt, iv, mac);
        assert_eq!(block[..512 + 192], plain[..512 + 192]);
        assert_ne!(block[512 + 192..1024], plain[512 + 192..1024]);
        block[512 + 24] ^= 0xff;
        key.decrypt_block(&pointer, &mut block).unwrap();
        block[512 + 24] ^= 0xff;
        assert!(block == plain);
        let mut other = plain.clone();
        key.encrypt_block(ObjectType::DNODE, ByteOrder::Little, salt, iv, &mut other).unwrap();
        other[512 + 8] ^= 1;
        assert!(key.decrypt_block(&pointer, &mut other).is_err(), "sizes are authenticated");
    }
}

fn pointer_to(kind: ObjectType, salt: [u8; 8], iv: [u8; 12], mac: [u8; 16]) -> BlockPointer {
    let mut pointer = delete_queue_pointer();
    let words = pointer.words_mut();
    let word = |bytes: &[u8]| u64::from_le_bytes(*bytes.first_chunk().unwrap());
    words[4] = word(&salt);
    words[5] = word(&iv);
    let iv_end = u32::from_le_bytes(*iv.last_chunk().unwrap());
    words[11] = u64::from(iv_end) << 32 | 1;
    words[6] = 1 << 63 | 1 << 61 | u64::from(kind.number()) << 48 | 7 << 40 | 2 << 32;
    (words[14], words[15]) = (word(&mac), word(&mac[8..]));
    pointer
}

/// A log block with a write of 100 bytes, a clone of two blocks and a removal.
fn log_block(order: ByteOrder) -> Vec<u8> {
    let mut block: Vec<u8> = (0..4096_u32).map(|index| (index * 7) as u8).collect();
    let mut offset = 184;
    for (kind, length) in [(9, 192 + 104), (24, 64 + 256), (4, 80)] {
        block[offset..offset + 8].copy_from_slice(&order.bytes64(kind));
        block[offset + 8..offset + 16].copy_from_slice(&order.bytes64(length));
        offset += length as usize;
    }
    block[136..144].copy_from_slice(&order.bytes64(offset as u64));
    block[offset..].fill(0);
    block
}

#[test]
fn log_blocks_keep_headers_and_pointers_readable() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let block = log_block(order);
        let (aad, encrypted) =
            parts_of(Layout::LogBlock, CryptoVersion::One, order, &block).unwrap();
        let encrypted: Vec<_> = encrypted.into_iter().filter(|range| !range.is_empty()).collect();
        assert_eq!(encrypted, [216..248, 376..480, 512..544, 832..880]);
        assert_eq!(aad.len(), 144 + (32 + 128) + (32 + 256) + 32);
    }
}

#[test]
fn log_blocks_carry_their_mac() {
    let (salt, iv) = ([3; 8], [4; 12]);
    for number in ALL_SUITES {
        let key = DatasetKey::from_random(suite(number), &[5; 32], &[6; 64]);
        let plain = log_block(ByteOrder::Little);
        let mut block = plain.clone();
        let kind = ObjectType::INTENT_LOG;
        let mac = key.encrypt_block(kind, ByteOrder::Little, salt, iv, &mut block).unwrap();
        assert_eq!(block[168..184], mac);
        let pointer = pointer_to(kind, salt, iv, [0; 16]);
        let mut changed = block.clone();
        changed[185] ^= 1;
        assert!(key.decrypt_block(&pointer, &mut changed).is_err());
        key.decrypt_block(&pointer, &mut block).unwrap();
        assert!(block[184..] == plain[184..]);
    }
}

#[test]
fn the_most_recent_block_keys_are_kept() {
    let key = DatasetKey::from_random(suite(8), &[5; 32], &[6; 64]);
    for round in 0..100_u8 {
        let salt = [round % 50; 8];
        let plain = [round; 64];
        let mut block = plain;
        let kind = ObjectType::PLAIN_FILE_CONTENTS;
        let mac = key.encrypt_block(kind, ByteOrder::Little, salt, [0; 12], &mut block).unwrap();
        key.decrypt_block(&pointer_to(kind, salt, [0; 12], mac), &mut block).unwrap();
        assert_eq!(block, plain);
    }
    assert_eq!(key.cached_block_keys(), 16);
}

#[test]
fn equal_blocks_get_equal_salts_and_ivs() {
    let key = ccm_key();
    assert_eq!(key.dedup_salt_and_iv(&[1; 512]), key.dedup_salt_and_iv(&[1; 512]));
    assert_ne!(key.dedup_salt_and_iv(&[1; 512]), key.dedup_salt_and_iv(&[2; 512]));
}

#[test]
fn keys_are_not_shown() {
    let text = format!("{:?} {:?}", ccm_wrapping_key(), ccm_key());
    assert_eq!(text, "WrappingKey(..) DatasetKey { suite: \"aes-256-ccm\", version: One, .. }");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hostile_blocks_never_panic(
        mut block in prop::collection::vec(any::<u8>(), 0..2100),
        small in any::<bool>(),
        kind in prop_oneof![Just(ObjectType::DNODE), Just(ObjectType::INTENT_LOG)],
    ) {
        if small {
            block.iter_mut().for_each(|byte| *byte &= 3);
        }
        let key = ccm_key();
        let pointer = pointer_to(kind, [0; 8], [0; 12], [0; 16]);
        prop_assert!(key.decrypt_block(&pointer, &mut block).is_err());
        let _ = key.verify_objset(&block, ByteOrder::Big);
        let _ = indirect_mac(CryptoVersion::One, &block, ByteOrder::Big);
    }
}

#[test]
fn dnodes_that_reach_beyond_their_block_are_refused() {
    let key = ccm_key();
    let pointer = pointer_to(ObjectType::DNODE, [0; 8], [0; 12], [0; 16]);
    for (place, value) in [(12, 32), (3, 4), (3, 255), (31 * 512 + 12, 1)] {
        let mut block = vec![0; 16_384];
        block[place] = value;
        let result = key.decrypt_block(&pointer, &mut block);
        assert!(matches!(result, Err(CryptoError::Format(_))), "{place}: {result:?}");
    }
}

#[test]
fn free_slots_are_authenticated_whole() {
    let (aad, _) =
        parts_of(Layout::DnodeBlock, CryptoVersion::One, ByteOrder::Little, &vec![0; 16_384])
            .unwrap();
    assert_eq!(Sha256::digest(&aad), Sha256::digest(vec![0; 16_384]));
}
