//! Tables in the format of OpenZFS's commands (spec 09, section 1.4).
//!
//! For people: a header, cells padded to the widest of their column, two spaces between columns,
//! the last one not padded when it is left-aligned. For programs (`-H`): no header, one TAB.

use std::io::{self, Write};

/// The alignment of the cells of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its header.
    pub(crate) header: String,
    /// The alignment of its cells.
    pub(crate) align: Align,
    /// Minimum width.
    pub(crate) width: usize,
}

impl Column {
    /// A column of text as wide as its cells need.
    pub(crate) fn text(header: &str) -> Self {
        Self { header: header.to_owned(), align: Align::Left, width: 0 }
    }
}

/// A text of a pool, which may have any characters, as a part of one line.
pub(crate) fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\t'], "?")
}

/// The audience of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// Aligned, with a header.
    Human,
    /// Separated by TABs, without a header.
    Scripted,
}

/// Columns and rows.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(crate) const fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; a row may be shorter than the header.
    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Whether there are no rows.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Fixes the widths of the columns at the current ones.
    pub(crate) fn fix_widths(&mut self) {
        let widths = self.widths();
        self.columns.iter_mut().zip(widths).for_each(|(column, width)| column.width = width);
    }

    /// Keeps the rows for which `keep`, called once per row in order, returns `true`.
    pub(crate) fn retain_rows(&mut self, mut keep: impl FnMut() -> bool) {
        self.rows.retain(|_| keep());
    }

    /// Prints header and rows.
    pub(crate) fn print(&self, layout: Layout, out: &mut dyn Write) -> io::Result<()> {
        if layout == Layout::Scripted {
            return self.rows.iter().try_for_each(|row| writeln!(out, "{}", row.join("\t")));
        }
        if self.rows.iter().flatten().any(|cell| cell.contains('\n')) {
            return self.in_lines().print(layout, out);
        }
        let widths = self.widths();
        let header: Vec<String> = self.columns.iter().map(|column| column.header.clone()).collect();
        std::iter::once(&header)
            .chain(&self.rows)
            .try_for_each(|row| writeln!(out, "{}", self.line(row, &widths)))
    }

    /// The same with every cell on one line: none can look like a row.
    fn in_lines(&self) -> Self {
        let row = |row: &Vec<String>| row.iter().map(|cell| cell.replace('\n', "?")).collect();
        Self { columns: self.columns.clone(), rows: self.rows.iter().map(row).collect() }
    }

    /// Width of each column without its values: only names count. OpenZFS makes the headings of
    /// classes that wide in the output for programs.
    pub(crate) fn scripted_widths(&self) -> Vec<usize> {
        let least = |column: &Column| column.header.chars().count().max(column.width);
        let names = self.widths().into_iter().take(1);
        names.chain(self.columns.iter().skip(1).map(least)).collect()
    }

    /// The rows.
    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Prints the rows aligned, without a header.
    pub(crate) fn print_rows(&self, out: &mut dyn Write) -> io::Result<()> {
        let widths = self.widths();
        self.rows.iter().try_for_each(|row| writeln!(out, "{}", self.line(row, &widths)))
    }

    /// Width of each column.
    pub(crate) fn widths(&self) -> Vec<usize> {
        let cells = |index: usize| self.rows.iter().filter_map(move |row| row.get(index));
        let widest = |(index, column): (usize, &Column)| {
            let header = column.header.chars().count().max(column.width);
            cells(index).map(|cell| cell.chars().count()).fold(header, usize::max)
        };
        self.columns.iter().enumerate().map(widest).collect()
    }

    /// A row, aligned to these widths.
    pub(crate) fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (index, ((cell, column), width)) in
            row.iter().zip(&self.columns).zip(widths).enumerate()
        {
            if index > 0 {
                line.push_str("  ");
            }
            let padding = " ".repeat(width.saturating_sub(cell.chars().count()));
            match column.align {
                Align::Right => line.extend([padding.as_str(), cell]),
                Align::Left if index + 1 == self.columns.len() => line.push_str(cell),
                Align::Left => line.extend([cell.as_str(), padding.as_str()]),
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(layout: Layout) -> String {
        let used = Column { header: "USED".into(), align: Align::Right, width: 5 };
        let mut table = Table::new(vec![Column::text("NAME"), used, Column::text("MOUNTPOINT")]);
        for row in [["tank", "21.1M", "/tank"], ["tank/a", "22K", "-"]] {
            table.push(row.map(str::to_owned).to_vec());
        }
        let mut out = Vec::new();
        table.print(layout, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn people_get_aligned_columns() {
        let expected = "NAME     USED  MOUNTPOINT\ntank    21.1M  /tank\ntank/a    22K  -\n";
        assert_eq!(printed(Layout::Human), expected);
    }

    #[test]
    fn no_cell_looks_like_a_row() {
        let mut table = Table::new(vec![Column::text("NAME"), Column::text("VALUE")]);
        table.push(vec!["tank".to_owned(), "1\ntank  2".to_owned()]);
        let mut out = Vec::new();
        table.print(Layout::Human, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "NAME  VALUE\ntank  1?tank  2\n");
    }

    #[test]
    fn programs_get_tabs() {
        assert_eq!(printed(Layout::Scripted), "tank\t21.1M\t/tank\ntank/a\t22K\t-\n");
    }
}
