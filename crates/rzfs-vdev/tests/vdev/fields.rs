//! Parity by the book: the definition of spec 07, section 8, bit by bit, independent of the code
//! under test.

fn multiply(a: u8, b: u8) -> u8 {
    let mut product: u16 = 0;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

fn power_of_two(exponent: usize) -> u8 {
    (0..exponent).fold(1, |x, _| multiply(x, 2))
}

/// Parity column `which` (0 P, 1 Q, 2 R) of `len` bytes.
pub(crate) fn parity(which: usize, data: &[Vec<u8>], len: usize) -> Vec<u8> {
    let mut parity = vec![0; len];
    for (index, column) in data.iter().enumerate() {
        let coefficient = power_of_two(which * (data.len() - 1 - index));
        let products: Vec<u8> = (0..=255).map(|x| multiply(coefficient, x)).collect();
        for (sum, byte) in parity.iter_mut().zip(column) {
            *sum ^= products[usize::from(*byte)];
        }
    }
    parity
}
