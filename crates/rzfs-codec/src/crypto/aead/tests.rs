//! The ciphers against RustCrypto's implementations.

use super::*;
use proptest::prelude::*;

const ALL_SUITES: std::ops::RangeInclusive<u64> = 3..=8;

fn suite(number: u64) -> EncryptionSuite {
    EncryptionSuite::from_number(number).unwrap()
}

#[test]
fn ccm_refuses_what_its_length_cannot_say() {
    let mut block = vec![0; 1 << 24];
    let cipher = Aead::ccm256(&[0; 32]);
    let too_long = CryptoError::TooLong { length: 1 << 24 };
    assert_eq!(cipher.seal(&[0; 12], &[], &mut block), Err(too_long.clone()));
    let result = cipher.open(&[0; 12], &[], &mut block, &[0; 16], CryptoError::WrongKey);
    assert_eq!(result, Err(too_long));
}

/// The same message by RustCrypto's implementations.
fn oracle(
    suite: EncryptionSuite,
    key: &[u8; 32],
    iv: &[u8; 12],
    aad: &[u8],
    data: &mut [u8],
) -> [u8; 16] {
    use ::ccm::Ccm;
    use ::ccm::consts::{U12, U16};
    use aes_gcm::AesGcm;
    use aes_gcm::aead::inout::InOutBuf;
    use aes_gcm::aead::{AeadInOut, KeyInit};

    fn seal<A: AeadInOut + KeyInit>(key: &[u8], iv: &[u8], aad: &[u8], data: &mut [u8]) -> Vec<u8> {
        let nonce = iv.try_into().expect("nonces have 12 bytes");
        let cipher = A::new_from_slice(key).expect("keys have the length of the suite");
        let data = InOutBuf::from(data);
        cipher.encrypt_inout_detached(nonce, aad, data).expect("short message").to_vec()
    }

    let seal = match suite {
        EncryptionSuite::Aes128Ccm => seal::<Ccm<aes::Aes128, U16, U12>>,
        EncryptionSuite::Aes192Ccm => seal::<Ccm<aes::Aes192, U16, U12>>,
        EncryptionSuite::Aes256Ccm => seal::<Ccm<aes::Aes256, U16, U12>>,
        EncryptionSuite::Aes128Gcm => seal::<AesGcm<aes::Aes128, U12>>,
        EncryptionSuite::Aes192Gcm => seal::<AesGcm<aes::Aes192, U12>>,
        EncryptionSuite::Aes256Gcm => seal::<AesGcm<aes::Aes256, U12>>,
    };
    seal(&key[..suite.key_len()], iv, aad, data).try_into().expect("tags have 16 bytes")
}

fn agrees_with_oracle(key: [u8; 32], iv: [u8; 12], aad: &[u8], plain: &[u8]) {
    for number in ALL_SUITES {
        let (mut ours, mut theirs) = (plain.to_vec(), plain.to_vec());
        let cipher = Aead::new(suite(number), &key);
        let mac = cipher.seal(&iv, aad, &mut ours).unwrap();
        assert_eq!(mac, oracle(suite(number), &key, &iv, aad, &mut theirs));
        assert!(ours == theirs);
        let mut changed = ours.clone();
        if let Some(last) = changed.last_mut() {
            *last ^= 1;
            let result = cipher.open(&iv, aad, &mut changed, &mac, CryptoError::WrongKey);
            assert_eq!(result, Err(CryptoError::WrongKey));
        }
        cipher.open(&iv, aad, &mut ours, &mac, CryptoError::WrongKey).unwrap();
        assert!(ours == plain);
    }
}

#[test]
fn long_additional_data_has_a_long_length() {
    for length in [0xfeff, 0xff00, 0x1_0000] {
        agrees_with_oracle([1; 32], [2; 12], &vec![3; length], b"message");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ciphers_agree_with_another_implementation(
        key: [u8; 32],
        iv: [u8; 12],
        aad in prop::collection::vec(any::<u8>(), 0..70),
        plain in prop::collection::vec(any::<u8>(), 0..3000),
    ) {
        agrees_with_oracle(key, iv, &aad, &plain);
    }
}
