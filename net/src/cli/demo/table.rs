//! Answers as text, the way psql prints them.

use tokio_postgres::SimpleQueryMessage;

/// An answer: rows of text, and how many rows the statement counted.
#[derive(Debug, Default)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    count: u64,
}

impl Table {
    /// What a simple query sent.
    pub fn of(messages: Vec<SimpleQueryMessage>) -> Table {
        let mut table = Table::default();
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    table.header = columns.iter().map(|c| c.name().to_owned()).collect();
                }
                SimpleQueryMessage::Row(row) => {
                    table.rows.push(
                        (0..row.len())
                            .map(|i| row.get(i).map(str::to_owned))
                            .collect(),
                    );
                }
                SimpleQueryMessage::CommandComplete(count) => table.count = count,
                _ => {}
            }
        }
        table
    }

    /// A cell; `None` when it is NULL or not there.
    pub fn cell(&self, row: usize, column: usize) -> Option<&str> {
        self.rows.get(row)?.get(column)?.as_deref()
    }

    /// At most `shown` rows under their names; for a statement without rows, how many it counted.
    pub fn show(&self, shown: usize) -> String {
        if self.header.is_empty() {
            return format!(
                " → {} {} written",
                self.count,
                if self.count == 1 { "row" } else { "rows" }
            );
        }
        let texts: Vec<Vec<&str>> = self
            .rows
            .iter()
            .take(shown)
            .map(|r| r.iter().map(|c| c.as_deref().unwrap_or("∅")).collect())
            .collect();
        let width = |i: usize| {
            let cells = texts
                .iter()
                .filter_map(|r| r.get(i))
                .map(|c| c.chars().count());
            cells
                .chain([self.header[i].chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells = cells.zip(&widths).map(|(c, &w)| format!("{c:<w$}"));
            format!(" {}", cells.collect::<Vec<_>>().join(" | "))
                .trim_end()
                .to_owned()
        };
        let mut out = vec![line(&mut self.header.iter().map(String::as_str))];
        out.push(
            widths
                .iter()
                .map(|&w| "-".repeat(w + 2))
                .collect::<Vec<_>>()
                .join("+"),
        );
        out.extend(texts.iter().map(|r| line(&mut r.iter().copied())));
        match self.rows.len() {
            n if n > shown => out.push(format!(" … {n} rows in all")),
            1 => out.push(" (1 row)".into()),
            n => out.push(format!(" ({n} rows)")),
        }
        out.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let cells = |a: &str, b: Option<&str>| vec![Some(a.to_owned()), b.map(str::to_owned)];
        let table = Table {
            header: vec!["entity".into(), "temp".into()],
            rows: vec![
                cells("JFK", Some("21.5")),
                cells("x", None),
                cells("y", None),
            ],
            count: 3,
        };
        let expected =
            " entity | temp\n--------+------\n JFK    | 21.5\n x      | ∅\n … 3 rows in all";
        assert_eq!(table.show(2), expected);
        assert_eq!(
            Table {
                count: 1,
                ..Table::default()
            }
            .show(9),
            " → 1 row written"
        );
        assert_eq!(
            (table.cell(0, 0), table.cell(1, 1), table.cell(7, 0)),
            (Some("JFK"), None, None)
        );
    }
}
