//! Parity of a stripe: generating it and getting missing columns back (spec 07, section 8).
//!
//! With m data columns D0 .. Dm-1 and a(i) = 2^(m-1-i) in GF(2^8):
//! `P = sum D(i)`, `Q = sum a(i) D(i)`, `R = sum a(i)^2 D(i)`. Columns shorter than the parity
//! count as filled up with zeros.

/// The products of one constant with every byte.
struct Product([u8; 256]);

/// Multiplication by 2 in the field of polynomial 0x11d.
const fn double(x: u8) -> u8 {
    (x << 1) ^ if x & 0x80 != 0 { 0x1d } else { 0 }
}

const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// 2 to the power of `exponent`.
fn power(exponent: usize) -> u8 {
    (0..exponent % 255).fold(1, |x, _| double(x))
}

/// The inverse: x^254. That of 0 is 0, which never is asked for.
fn inverse(x: u8) -> u8 {
    (0..253).fold(x, |product, _| multiply(product, x))
}

impl Product {
    fn of(constant: u8) -> Self {
        let mut table = [0; 256];
        for (x, product) in (0..=u8::MAX).zip(&mut table) {
            *product = multiply(constant, x);
        }
        Self(table)
    }

    fn scale(&self, column: &mut [u8]) {
        for byte in column {
            *byte = self.0[usize::from(*byte)];
        }
    }
}

/// `target += constant * source`.
fn add_product(target: &mut [u8], constant: u8, source: &[u8]) {
    if constant == 1 {
        for (t, s) in target.iter_mut().zip(source) {
            *t ^= s;
        }
        return;
    }
    let product = Product::of(constant);
    for (t, s) in target.iter_mut().zip(source) {
        *t ^= product.0[usize::from(*s)];
    }
}

/// The coefficient of data column `index` of `count` in parity `which` (0 P, 1 Q, 2 R).
fn coefficient(which: usize, index: usize, count: usize) -> u8 {
    power(which * count.saturating_sub(index + 1))
}

/// The first `parities` parity columns of `len` bytes for these data columns.
pub(crate) fn generate(data: &[&[u8]], parities: usize, len: usize) -> Vec<Vec<u8>> {
    (0..parities)
        .map(|which| {
            let mut parity = vec![0; len];
            for (index, column) in data.iter().enumerate() {
                add_product(&mut parity, coefficient(which, index, data.len()), column);
            }
            parity
        })
        .collect()
}

/// The missing data columns (`None`), in order, each `len` bytes long; `None` if there is not
/// enough parity. Parity columns that are `None` are not used.
pub(crate) fn reconstruct(
    data: &[Option<&[u8]>],
    parity: &[Option<&[u8]>],
    len: usize,
) -> Option<Vec<Vec<u8>>> {
    let missing: Vec<usize> =
        (0..).zip(data).filter(|(_, column)| column.is_none()).map(|(index, _)| index).collect();
    let count = data.len();
    // One row of the equations for each parity column that is used: the parity minus what the
    // known columns contribute, and the coefficients of the missing ones.
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(missing.len());
    let present = (0..).zip(parity).filter_map(|(which, column)| column.map(|c| (which, c)));
    for (which, column) in present.take(missing.len()) {
        let mut rest = column.to_vec();
        rest.resize(len, 0);
        for (index, known) in data.iter().enumerate() {
            if let Some(known) = known {
                add_product(&mut rest, coefficient(which, index, count), known);
            }
        }
        let coefficients = missing.iter().map(|index| coefficient(which, *index, count)).collect();
        rows.push((coefficients, rest));
    }
    if rows.len() < missing.len() { None } else { Some(solve(rows)) }
}

/// Solves the equations by elimination. Every set of up to three rows of P, Q, R is solvable: its
/// matrix is a (generalised) Vandermonde matrix of distinct coefficients.
fn solve(mut rows: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<Vec<u8>> {
    for pivot in 0..rows.len() {
        let factor = inverse(rows[pivot].0[pivot]);
        scale_row(&mut rows[pivot], factor);
        let (coefficients, values) = rows[pivot].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            let factor = row.0[pivot];
            if index != pivot && factor != 0 {
                add_product(&mut row.0, factor, &coefficients);
                add_product(&mut row.1, factor, &values);
            }
        }
    }
    rows.into_iter().map(|(_, values)| values).collect()
}

fn scale_row(row: &mut (Vec<u8>, Vec<u8>), factor: u8) {
    if factor != 1 {
        let product = Product::of(factor);
        product.scale(&mut row.0);
        product.scale(&mut row.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_field_is_that_of_the_format() {
        let powers: Vec<u8> = (0..16).map(power).collect();
        assert_eq!(
            powers,
            [1, 2, 4, 8, 0x10, 0x20, 0x40, 0x80, 0x1d, 0x3a, 0x74, 0xe8, 0xcd, 0x87, 0x13, 0x26]
        );
        assert_eq!(power(254), 0x8e);
        assert_eq!((power(25), power(50), power(206), power(175)), (0x03, 0x05, 0x53, 0xff));
        assert_eq!(multiply(0x53, 0xca), 0x8f);
        assert_eq!(inverse(0x53), 0x8c);
    }

    #[test]
    fn parity_of_known_columns() {
        let bytes: [&[u8]; 5] = [&[0x01], &[0x80], &[0xff], &[0x53], &[0xca]];
        assert_eq!(generate(&bytes, 3, 1), [[0xe7], [0xd3], [0x4a]]);
        let words: [&[u8]; 3] =
            [&[0, 1, 2, 3], &[0x10, 0x20, 0x30, 0x40], &[0xff, 0xfe, 0xfd, 0xfc]];
        assert_eq!(
            generate(&words, 3, 4),
            [[0xef, 0xdf, 0xcf, 0xbf], [0xdf, 0xba, 0x95, 0x70], [0xbf, 0x6e, 0x1d, 0xd1]]
        );
    }

    proptest! {
        /// Whatever columns are lost, the rest gives them back as long as enough is left.
        #[test]
        fn lost_columns_come_back(
            columns in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..12),
            lost in prop::collection::btree_set(0usize..15, 0..4),
        ) {
            let len = columns.iter().map(Vec::len).max().unwrap();
            let data: Vec<&[u8]> = columns.iter().map(Vec::as_slice).collect();
            let parity = generate(&data, 3, len);
            let is_lost = |index: usize| lost.contains(&index);
            let known: Vec<Option<&[u8]>> =
                (0..).zip(&data).map(|(i, column)| (!is_lost(i + 3)).then_some(*column)).collect();
            let kept: Vec<Option<&[u8]>> =
                (0..).zip(&parity).map(|(i, column)| (!is_lost(i)).then_some(&column[..])).collect();
            let found = reconstruct(&known, &kept, len);
            let missing: Vec<usize> = (0..data.len()).filter(|i| is_lost(i + 3)).collect();
            let kept = kept.iter().flatten().count();
            prop_assert_eq!(found.is_some(), missing.len() <= kept);
            for (index, column) in missing.into_iter().zip(found.unwrap_or_default()) {
                let mut padded = data[index].to_vec();
                padded.resize(len, 0);
                prop_assert_eq!(column, padded);
            }
        }
    }
}
