//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1, and its generator 2.

/// The polynomial without its highest term.
pub(super) const POLYNOMIAL: u8 = 0x1d;

/// Powers of 2, twice around, so that sums of two logarithms need no reduction.
const POWERS: [u8; 510] = {
    let mut powers = [0; 510];
    let mut value = 1;
    let mut exponent = 0;
    while exponent < powers.len() {
        powers[exponent] = value;
        value = double(value);
        exponent += 1;
    }
    powers
};

/// Logarithms to base 2; that of 0 is meaningless.
const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        logarithms[POWERS[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    logarithms
};

/// 2 `a`.
pub(super) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { POLYNOMIAL }
}

/// 2 to the `exponent`.
pub(super) const fn power(exponent: usize) -> u8 {
    POWERS[exponent % 255]
}

/// `a` times `b`.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// `a` divided by `b`, which is not 0.
pub(super) const fn divide(a: u8, b: u8) -> u8 {
    if a == 0 {
        return 0;
    }
    POWERS[255 + LOGARITHMS[a as usize] as usize - LOGARITHMS[b as usize] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_of_the_spec() {
        let powers: Vec<u8> = (0..16).map(power).collect();
        assert_eq!(powers, [1, 2, 4, 8, 16, 32, 64, 128, 29, 58, 116, 232, 205, 135, 19, 38]);
        assert_eq!((power(254), power(255)), (0x8e, 1));
        assert_eq!([3, 5, 0x53, 0xff].map(|a| LOGARITHMS[a]), [25, 50, 206, 175]);
        assert_eq!((multiply(0x53, 0xca), divide(1, 0x53)), (0x8f, 0x8c));
    }

    #[test]
    fn multiplication_is_that_of_polynomials_and_division_undoes_it() {
        for a in 0..=255 {
            for b in 0..=255 {
                let (mut sum, mut term) = (0, a);
                for bit in 0..8 {
                    sum ^= if b >> bit & 1 == 1 { term } else { 0 };
                    term = double(term);
                }
                assert_eq!(multiply(a, b), sum);
                if b != 0 {
                    assert_eq!(divide(sum, b), a);
                }
            }
        }
    }
}
