//! AES-CCM (RFC 3610) with nonces of 12 and tags of 16 bytes.
//!
//! The tag is a CBC-MAC, one block after another, of a first block with the lengths, the
//! additional data and the plaintext; the ciphertext is the plaintext under a key stream. Both go
//! through the message together: while the chain of the MAC waits for each block, the processor
//! computes key stream for many.

use aes::cipher::{
    Array, Block, BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser,
    ParBlocks, consts::U16,
};

const BLOCK: usize = 16;
/// Bytes of the length, and of the counter: what the nonce leaves of a block.
const LENGTH: usize = 3;

/// Messages are shorter: the length has three bytes.
pub(super) const LIMIT: usize = 1 << (8 * LENGTH);

/// Which way the message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Seal,
    Open,
}

/// Encrypts `data` in place; the tag. The data is shorter than [`LIMIT`].
pub(super) fn seal<C>(cipher: &C, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; BLOCK]
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    run(cipher, nonce, aad, data, Direction::Seal)
}

/// Decrypts `data` in place; the tag that it should have. The data is shorter than [`LIMIT`].
pub(super) fn open<C>(cipher: &C, nonce: &[u8; 12], aad: &[u8], data: &mut [u8]) -> [u8; BLOCK]
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    run(cipher, nonce, aad, data, Direction::Open)
}

fn run<C>(
    cipher: &C,
    nonce: &[u8; 12],
    aad: &[u8],
    data: &mut [u8],
    direction: Direction,
) -> [u8; BLOCK]
where
    C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut tag = [0; BLOCK];
    cipher.encrypt_with_backend(Pass { nonce, aad, data, direction, tag: &mut tag });
    tag
}

/// One message on its way through the cipher.
struct Pass<'a> {
    nonce: &'a [u8; 12],
    aad: &'a [u8],
    data: &'a mut [u8],
    direction: Direction,
    tag: &'a mut [u8; BLOCK],
}

impl BlockSizeUser for Pass<'_> {
    type BlockSize = U16;
}

impl BlockCipherEncClosure for Pass<'_> {
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Self { nonce, aad, data, direction, tag } = self;
        let mut mac = Array([0; BLOCK]);
        absorb(backend, &mut mac, &first_block(nonce, aad, data.len()));
        absorb_aad(backend, &mut mac, aad);

        let mut stream = ParBlocks::<B>::default();
        let mut counter = 1;
        for piece in data.chunks_mut(stream.len() * BLOCK) {
            for block in &mut stream {
                *block = Array(counter_block(nonce, counter));
                counter += 1;
            }
            backend.encrypt_par_blocks_inplace(&mut stream);
            for (bytes, key) in piece.chunks_mut(BLOCK).zip(&stream) {
                let mut plain = [0; BLOCK];
                let plain = &mut plain[..bytes.len()];
                if direction == Direction::Seal {
                    plain.copy_from_slice(bytes);
                }
                bytes.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
                if direction == Direction::Open {
                    plain.copy_from_slice(bytes);
                }
                absorb(backend, &mut mac, plain);
            }
        }

        let mut key = Array(counter_block(nonce, 0));
        backend.encrypt_block_inplace(&mut key);
        for ((tag, mac), key) in tag.iter_mut().zip(mac).zip(key) {
            *tag = mac ^ key;
        }
    }
}

/// Takes up to a block into the MAC; what is missing counts as zeros.
#[inline(always)]
fn absorb<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    mac: &mut Block<B>,
    bytes: &[u8],
) {
    mac.iter_mut().zip(bytes).for_each(|(mac, byte)| *mac ^= byte);
    backend.encrypt_block_inplace(mac);
}

/// The additional data with its length in front, two bytes or six.
#[inline(always)]
fn absorb_aad<B: BlockCipherEncBackend<BlockSize = U16>>(
    backend: &B,
    mac: &mut Block<B>,
    aad: &[u8],
) {
    if aad.is_empty() {
        return;
    }
    let mut block = [0; BLOCK];
    let prefix = if aad.len() < 0xff00 {
        block[..2].copy_from_slice(&(aad.len() as u16).to_be_bytes());
        2
    } else {
        block[..2].copy_from_slice(&[0xff, 0xfe]);
        block[2..6].copy_from_slice(&(aad.len() as u32).to_be_bytes());
        6
    };
    let (first, rest) = aad.split_at(aad.len().min(BLOCK - prefix));
    block[prefix..prefix + first.len()].copy_from_slice(first);
    absorb(backend, mac, &block);
    for piece in rest.chunks(BLOCK) {
        absorb(backend, mac, piece);
    }
}

/// What the MAC starts with: tag size, whether there is additional data, nonce, length.
fn first_block(nonce: &[u8; 12], aad: &[u8], length: usize) -> [u8; BLOCK] {
    let flags = 8 * ((BLOCK as u8 - 2) / 2) + LENGTH as u8 - 1;
    numbered_block(if aad.is_empty() { flags } else { flags | 0x40 }, nonce, length)
}

fn counter_block(nonce: &[u8; 12], counter: usize) -> [u8; BLOCK] {
    numbered_block(LENGTH as u8 - 1, nonce, counter)
}

#[inline(always)]
fn numbered_block(flags: u8, nonce: &[u8; 12], number: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[BLOCK - 4..].copy_from_slice(&(number as u32).to_be_bytes());
    block[0] = flags;
    block[1..13].copy_from_slice(nonce);
    block
}
