use super::lanes::{Lanes, fletcher4_words};
use super::*;
use proptest::prelude::*;

/// The definition.
fn fletcher2_reference(data: &[u8], order: ByteOrder) -> [u64; 4] {
    let mut sums = [0_u64; 4];
    for pair in data.as_chunks::<16>().0 {
        for (half, bytes) in pair.as_chunks::<8>().0.iter().enumerate() {
            sums[half] = sums[half].wrapping_add(order.u64(*bytes));
            sums[half + 2] = sums[half + 2].wrapping_add(sums[half]);
        }
    }
    sums
}

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

proptest! {
    #[test]
    fn every_kernel_gives_the_sums_of_the_definition(
        data in prop::collection::vec(any::<u8>(), 0..3000),
        skip in 0..64_usize,
        order in order(),
    ) {
        let data = data.get(skip..).unwrap_or_default();
        let expected = (fletcher4_words([0; 4], data, order), fletcher2_reference(data, order));
        for kernel in Kernel::available() {
            let sums = (kernel.fletcher4(data, order), kernel.fletcher2(data, order));
            prop_assert_eq!(sums, expected, "{}", kernel.name());
        }
    }

    #[test]
    fn pieces_give_the_sums_of_the_whole(
        words in prop::collection::vec(any::<u128>(), 0..200),
        cuts in prop::collection::vec(0..200_usize, 0..4),
        order in order(),
    ) {
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (words.len() + 1) * 16).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let (mut four, mut two) = (Fletcher4::new(order), Fletcher2::new(order));
        for pair in cuts.windows(2) {
            four.update(&data[pair[0]..pair[1]]);
            two.update(&data[pair[0]..pair[1]]);
        }
        prop_assert_eq!(four.value(), fletcher4(&data, order));
        prop_assert_eq!(two.value(), fletcher2(&data, order));
    }
}

#[test]
fn sums_wrap_in_every_kernel_alike() {
    let data = vec![0xff; 1 << 20];
    let expected = fletcher4_words([0; 4], &data, ByteOrder::Little);
    for kernel in Kernel::available() {
        assert_eq!(kernel.fletcher4(&data, ByteOrder::Little), expected, "{}", kernel.name());
    }
}

#[test]
fn coefficients_are_those_of_the_spec() {
    let table = Lanes::<4>::COEFFICIENTS;
    assert_eq!(table[1][1], [4; 4]);
    assert_eq!(table[2][1], [6_u64, 10, 14, 18].map(u64::wrapping_neg));
    assert_eq!(table[3][1], [4, 10, 20, 34]);
    assert_eq!(Lanes::<8>::COEFFICIENTS[3][1], [56, 84, 120, 164, 216, 276, 344, 420]);
}

#[test]
fn lengths_beyond_32_bits_of_words_append_exactly() {
    let mut long = Fletcher4 { order: ByteOrder::Little, sums: [1, 0, 0, 0], words: 1 };
    long.append(&Fletcher4 { order: ByteOrder::Little, sums: [0; 4], words: 1 << 40 });
    let n = 1_u64 << 40;
    // n(n+1)/2 and n(n+1)(n+2)/6 modulo 2^64, with the even factor divided first.
    let second = (n / 2).wrapping_mul(n + 1);
    let third = (n / 2).wrapping_mul(n.div_ceil(3)).wrapping_mul(n + 1);
    assert_eq!(n % 3, 1, "so n + 2 is the factor to divide");
    assert_eq!(long.value().0, [1, n, second, third]);
}
