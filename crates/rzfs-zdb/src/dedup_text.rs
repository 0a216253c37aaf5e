//! The dedup table by number of references, as shown by `zpool status -D` and `zdb -D`.

use rzfs::quantity::{nicebytes, nicenum};
use std::io::{self, Write};

/// A row: blocks, logical, physical and allocated bytes, first as stored and then as referenced.
pub type Row = [u64; 8];

/// The sums of all rows; they saturate.
#[must_use]
pub fn total(rows: &[Row]) -> Row {
    let mut total = [0_u64; 8];
    for row in rows {
        total.iter_mut().zip(row).for_each(|(sum, value)| *sum = sum.saturating_add(*value));
    }
    total
}

/// Prints the non-empty rows: row i is for blocks with `1 << i` references up to twice that. The
/// rules and blanks are OpenZFS's.
///
/// # Errors
/// `out` cannot be written.
pub fn print(rows: &[Row], total: Option<&Row>, out: &mut dyn Write) -> io::Result<()> {
    let rule = "______________________________";
    writeln!(out, "bucket              allocated                       referenced          ")?;
    writeln!(out, "______   {rule}   {rule}")?;
    writeln!(
        out,
        "refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE\n\
         ------   ------   -----   -----   -----   ------   -----   -----   -----"
    )?;
    for (power, row) in rows.iter().enumerate().filter(|(_, row)| row[0] != 0) {
        let count = 1_u64.checked_shl(u32::try_from(power).unwrap_or(u32::MAX)).unwrap_or(0);
        print_row(&nicenum(count), row, out)?;
    }
    if let Some(total) = total {
        print_row("Total", total, out)?;
    }
    writeln!(out)
}

fn print_row(label: &str, row: &Row, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{label:>6}")?;
    for (index, value) in row.iter().enumerate() {
        let width = if index % 4 == 0 { 6 } else { 5 };
        let text = if index % 4 == 0 { nicenum(*value) } else { nicebytes(*value) };
        write!(out, "   {text:>width$}")?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_rows_are_left_out() {
        let mut rows = [[0; 8]; 3];
        rows[2] = [1, 1 << 17, 4096, 4096, 5, 5 << 17, 20480, 20480];
        let mut out = Vec::new();
        print(&rows, Some(&total(&rows)), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().skip(4).collect();
        assert_eq!(
            lines,
            [
                "     4        1    128K      4K      4K        5    640K     20K     20K",
                " Total        1    128K      4K      4K        5    640K     20K     20K",
                ""
            ]
        );
    }
}
