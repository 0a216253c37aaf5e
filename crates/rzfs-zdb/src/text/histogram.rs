//! Histograms: a line for each bucket between the first and the last non-empty one.

use std::io::{self, Write};

/// Maximum number of stars per line.
const WIDTH: u64 = 40;

/// Prints the buckets; the label of bucket i is `i + first_label`.
///
/// Counts up to 40 are shown as stars, larger ones in proportion to the largest.
pub(crate) fn print(out: &mut dyn Write, buckets: &[u64], first_label: u64) -> io::Result<()> {
    let used = |count: &u64| *count != 0;
    let Some(first) = buckets.iter().position(used) else { return Ok(()) };
    let last = buckets.iter().rposition(used).unwrap_or(first);
    let scale = buckets.iter().copied().max().unwrap_or(0).max(WIDTH);
    let shown = buckets.get(first..=last).unwrap_or(&[]);
    for (count, label) in shown.iter().zip(first_label + first as u64..) {
        // At most 40 stars, so the result of the division is small; the product cannot overflow in
        // 128 bits.
        let stars = (u128::from(*count) * u128::from(WIDTH)).div_ceil(u128::from(scale));
        let stars = "*".repeat(usize::try_from(stars).unwrap_or(0));
        writeln!(out, "\t\t\t{label:3}: {count:6} {stars}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(buckets: &[u64], first_label: u64) -> String {
        let mut out = Vec::new();
        print(&mut out, buckets, first_label).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_the_used_span_is_shown() {
        assert_eq!(
            printed(&[0, 2, 0, 1, 0], 5),
            "\t\t\t  6:      2 **\n\t\t\t  7:      0 \n\t\t\t  8:      1 *\n"
        );
        assert_eq!(printed(&[0, 0], 0), "");
    }

    #[test]
    fn large_counts_are_shown_in_proportion() {
        let text = printed(&[496, 16], 0);
        assert_eq!(text, format!("\t\t\t  0:    496 {}\n\t\t\t  1:     16 **\n", "*".repeat(40)));
        assert_eq!(printed(&[u64::MAX], 0).matches('*').count(), 40);
    }
}
