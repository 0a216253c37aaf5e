//! The vectors of spec 07, section 25.1, and every loss of every shape against every kernel.

use super::field::{multiply, power};
use super::*;
use proptest::prelude::*;

/// The definition.
fn parity_reference(data: &[Vec<u8>], row: usize, length: usize) -> Vec<u8> {
    let byte = |offset: usize| {
        data.iter().enumerate().fold(0, |sum, (index, column)| {
            let coefficient = power(row * (data.len() - 1 - index));
            sum ^ multiply(coefficient, column.get(offset).copied().unwrap_or(0))
        })
    };
    (0..length).map(byte).collect()
}

fn generated(kernel: Kernel, data: &[Vec<u8>], parity: usize, length: usize) -> Vec<Vec<u8>> {
    let mut columns = vec![vec![0xee; length]; parity];
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut rows: Vec<&mut [u8]> = columns.iter_mut().map(Vec::as_mut_slice).collect();
    generate_with(kernel, &data, &mut rows).unwrap();
    columns
}

#[test]
fn parity_of_the_spec() {
    let one: Vec<Vec<u8>> = [0x01, 0x80, 0xff, 0x53, 0xca].map(|byte| vec![byte]).to_vec();
    let four = vec![vec![0, 1, 2, 3], vec![0x10, 0x20, 0x30, 0x40], vec![0xff, 0xfe, 0xfd, 0xfc]];
    for kernel in Kernel::available() {
        assert_eq!(generated(kernel, &one, 3, 1), [[0xe7], [0xd3], [0x4a]]);
        assert_eq!(
            generated(kernel, &four, 3, 4),
            [[0xef, 0xdf, 0xcf, 0xbf], [0xdf, 0xba, 0x95, 0x70], [0xbf, 0x6e, 0x1d, 0xd1]]
        );
    }
}

/// Data columns whose first is the longest, as in a stripe, or any of which is.
fn stripe() -> impl Strategy<Value = (Vec<Vec<u8>>, usize)> {
    let raidz = (1..2000_usize, 1..512_usize).prop_flat_map(|(long, less)| {
        let short = long.saturating_sub(less);
        let columns = prop::collection::vec(prop::bool::ANY, 1..12).prop_flat_map(move |longs| {
            let column =
                |long_one| prop::collection::vec(any::<u8>(), if long_one { long } else { short });
            longs.into_iter().map(column).collect::<Vec<_>>()
        });
        (columns, Just(long))
    });
    let any_lengths = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..700), 1..8)
        .prop_map(|columns| {
            let longest = columns.iter().map(Vec::len).max().unwrap_or(0);
            (columns, longest)
        });
    prop_oneof![raidz, any_lengths]
}

/// Loses the columns of `lost`, a bit each, and asks for them back.
fn recovers(kernel: Kernel, data: &[Vec<u8>], rows: &[Vec<u8>], lost: u32) -> Result<(), String> {
    let parity = rows.len();
    let good: Vec<&Vec<u8>> = rows.iter().chain(data).collect();
    let mut found: Vec<Vec<u8>> = good.iter().map(|column| vec![0xaa; column.len()]).collect();
    let mut columns: Vec<Column<'_>> =
        found
            .iter_mut()
            .zip(&good)
            .enumerate()
            .map(|(index, (found, good))| {
                if lost >> index & 1 == 1 { Column::Missing(found) } else { Column::Present(good) }
            })
            .collect();
    let result = reconstruct_with(kernel, parity, &mut columns);
    if lost.count_ones() as usize > parity {
        return match result {
            Err(ParityError::Lost { .. }) => Ok(()),
            other => Err(format!("{lost:#b} should be lost: {other:?}")),
        };
    }
    result.map_err(|error| error.to_string())?;
    for (index, (found, good)) in found.iter().zip(good).enumerate() {
        if lost >> index & 1 == 1 && found != good {
            return Err(format!("{}: column {index} of loss {lost:#b} is wrong", kernel.name()));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_kernel_generates_the_parity_of_the_definition((data, length) in stripe()) {
        for kernel in Kernel::available() {
            let rows = generated(kernel, &data, 3, length);
            for (row, bytes) in rows.iter().enumerate() {
                prop_assert_eq!(bytes, &parity_reference(&data, row, length), "{}", kernel.name());
            }
        }
    }

    #[test]
    fn whatever_the_parity_covers_is_recovered(
        (data, length) in stripe(),
        parity in 1..=3_usize,
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..=4),
    ) {
        let rows = generated(Kernel::detect(), &data, parity, length);
        let width = parity + data.len();
        let lost = picks.iter().fold(0_u32, |lost, pick| lost | 1 << pick.index(width));
        for kernel in Kernel::available() {
            prop_assert_eq!(recovers(kernel, &data, &rows, lost), Ok(()));
        }
    }
}

#[test]
fn every_combination_of_losses_is_recovered() {
    let data: Vec<Vec<u8>> = (0..7_u8)
        .map(|column| {
            let length = if column < 4 { 1024 } else { 512 };
            (0..length).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ column).collect()
        })
        .collect();
    for kernel in Kernel::available() {
        for parity in 1..=3 {
            let rows = generated(kernel, &data, parity, 1024);
            for lost in 0_u32..1 << (parity + data.len()) {
                if lost.count_ones() as usize <= parity {
                    recovers(kernel, &data, &rows, lost).unwrap();
                }
            }
        }
    }
}

#[test]
fn the_widest_stripe_survives_three_losses() {
    let data: Vec<Vec<u8>> = (0..255_u32)
        .map(|column| (0..64).map(|i| (i * 37 + column * 101) as u8).collect())
        .collect();
    let rows = generated(Kernel::detect(), &data, 3, 64);
    for lost in [[0, 1, 2], [0, 127, 254], [252, 253, 254], [3, 88, 170]] {
        let mut found = vec![vec![0; 64]; 3];
        let mut buffers = found.iter_mut();
        let mut columns: Vec<Column<'_>> = rows.iter().map(|row| Column::Present(row)).collect();
        columns.extend(data.iter().enumerate().map(|(index, column)| {
            if lost.contains(&index) {
                Column::Missing(buffers.next().unwrap())
            } else {
                Column::Present(column)
            }
        }));
        reconstruct(3, &mut columns).unwrap();
        for (found, lost) in found.iter().zip(lost) {
            assert_eq!(found, &data[lost], "column {lost}");
        }
    }
}

#[test]
fn absent_parity_is_neither_used_nor_made() {
    let data = vec![vec![1; 512], vec![2; 512], vec![3; 512]];
    let rows = generated(Kernel::detect(), &data, 3, 512);
    let mut found = [vec![0; 512], vec![0; 512]];
    let [x, y] = &mut found;
    let mut columns = [
        Column::Absent,
        Column::Present(&rows[1]),
        Column::Present(&rows[2]),
        Column::Missing(x),
        Column::Present(&data[1]),
        Column::Missing(y),
    ];
    reconstruct(3, &mut columns).unwrap();
    assert_eq!(found, [data[0].clone(), data[2].clone()]);
    let [x, y] = &mut found;
    let mut columns = [
        Column::Absent,
        Column::Absent,
        Column::Present(&rows[2]),
        Column::Missing(x),
        Column::Present(&data[1]),
        Column::Missing(y),
    ];
    let lost = ParityError::Lost { missing: 2, present: 1 };
    assert_eq!(reconstruct(3, &mut columns), Err(lost));
}

#[test]
fn stripes_that_cannot_be_are_refused() {
    let column = [0_u8; 64];
    let shape = |parity, data| Err(ParityError::Shape { parity, data });
    assert_eq!(generate(&[&column], &mut []), shape(0, 1));
    assert_eq!(generate(&[], &mut [&mut [0; 64]]), shape(1, 0));
    assert_eq!(generate(&[&column[..]; 256], &mut [&mut [0; 64]]), shape(1, 256));
    assert_eq!(
        generate(&[&column[1..], &column], &mut [&mut [0; 63]]),
        Err(ParityError::Length { column: 2, length: 64, parity: 63 })
    );
    assert_eq!(
        generate(&[&column], &mut [&mut [0; 64], &mut [0; 63]]),
        Err(ParityError::Length { column: 1, length: 63, parity: 64 })
    );
    assert_eq!(reconstruct(1, &mut []), shape(1, 0));
    assert_eq!(reconstruct(4, &mut [const { Column::Absent }; 5]), shape(4, 1));
    assert_eq!(reconstruct(1, &mut [Column::Present(&column), Column::Absent]), shape(1, 1));
}
