//! Salts and IVs of blocks that are written (spec 04, section 19.7).
//!
//! A pair of salt and IV must never encrypt two blocks, whatever happens to the pool in between.
//! So they come from the system's random numbers and from nowhere else: a source that a test
//! could replay would use them again after a crash, for other contents.

use super::CryptoError;
use parking_lot::Mutex;

/// Blocks that are encrypted with one salt (`zfs_key_max_salt_uses`).
const MAX_USES: u64 = 400_000_000;

/// Where the salts and IVs of a dataset's blocks come from.
#[derive(Default)]
pub(super) struct Nonces {
    /// Held for a few instructions.
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    salt: [u8; 8],
    /// Blocks that may still be encrypted with it.
    left: u64,
}

impl Nonces {
    /// Salt and IV of one block.
    pub(super) fn next(&self) -> Result<([u8; 8], [u8; 12]), CryptoError> {
        Ok((self.salt()?, random()?))
    }

    fn salt(&self) -> Result<[u8; 8], CryptoError> {
        let mut current = self.current.lock();
        if current.left == 0 {
            *current = Current { salt: random()?, left: MAX_USES };
        }
        current.left -= 1;
        Ok(current.salt)
    }
}

/// Random bytes that nobody can guess.
pub(super) fn random<const N: usize>() -> Result<[u8; N], CryptoError> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

/// The same, where they stay.
pub(super) fn fill(bytes: &mut [u8]) -> Result<(), CryptoError> {
    aws_lc_rs::rand::fill(bytes).map_err(|_| CryptoError::NoRandomNumbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_is_used_up() {
        let nonces = Nonces::default();
        let (salt, iv) = nonces.next().unwrap();
        let (same, other) = nonces.next().unwrap();
        assert_eq!(salt, same);
        assert_ne!(iv, other);
        nonces.current.lock().left = 1;
        assert_eq!(nonces.next().unwrap().0, salt);
        assert_ne!(nonces.next().unwrap().0, salt);
        assert_eq!(nonces.current.lock().left, MAX_USES - 1);
    }
}
