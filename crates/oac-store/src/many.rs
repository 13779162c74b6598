//! Statements that name many rows at once.
//!
//! A statement with a place for each item has another text for each number of items, and every connection keeps the
//! statements it prepared. So items are cut into pieces whose lengths are powers of two: nine texts at most, and no
//! more statements than the number has binary digits.
//!
//! The items' values come first among a statement's. SQLite looks for each place that has a number in the list of all
//! that have one, which for thousands of places costs more than everything else together; there the places of items
//! have none, and whatever comes after them keeps its number.

use std::fmt::Write as _;

use crate::{StoreError, dialect::Dialect, limits::ROWS_PER_STATEMENT, row::Stored, tx::Read};

/// `items` in order, in pieces whose lengths are powers of two, the longest first.
pub(crate) fn pieces<T>(mut items: &[T]) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let length = 1 << items.len().min(ROWS_PER_STATEMENT).checked_ilog2()?;
        let (piece, rest) = items.split_at(length);
        items = rest;
        Some(piece)
    })
}

impl Dialect {
    /// The first `count` places of a statement.
    pub(crate) fn places(self, count: usize) -> String {
        self.places_from(1, count)
    }

    /// The first `rows * columns` places of a statement, as rows: `(…), (…)`.
    pub(crate) fn rows_of_places(self, rows: usize, columns: usize) -> String {
        let rows: Vec<String> = (0..rows)
            .map(|row| format!("({})", self.places_from(1 + row * columns, columns)))
            .collect();
        rows.join(", ")
    }

    fn places_from(self, first: usize, count: usize) -> String {
        let mut text = String::with_capacity(count * 6);
        for n in first..first + count {
            let comma = if n > first { ", " } else { "" };
            // Writing to a string cannot fail.
            let _ = if self.is_postgres() {
                write!(text, "{comma}${n}")
            } else {
                write!(text, "{comma}?")
            };
        }
        text
    }
}

impl Read {
    /// Inserts whole rows; `rest` may hold an `ON CONFLICT` clause.
    pub(crate) async fn insert_all<T: Stored>(&self, rows: &[T], rest: &str) -> Result<(), StoreError> {
        for piece in pieces(rows) {
            let sql = format!(
                "INSERT INTO {} ({}) VALUES {} {rest}",
                T::TABLE,
                T::list(""),
                self.dialect.rows_of_places(piece.len(), T::COLUMNS.len())
            );
            let values = piece.iter().flat_map(Stored::values).collect();
            self.execute(&sql, values).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_hold_every_item_in_order_in_few_lengths() {
        for count in [0, 1, 2, 3, 50, 255, 256, 257, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let pieces: Vec<&[usize]> = pieces(&items).collect();
            assert_eq!(pieces.concat(), items);
            assert!(
                pieces
                    .iter()
                    .all(|p| p.len().is_power_of_two() && p.len() <= ROWS_PER_STATEMENT)
            );
        }
    }

    #[test]
    fn places_count_on_over_the_rows_where_they_have_numbers() {
        let dialect = |backend| Dialect {
            backend,
            clock_offset_millis: 0,
        };
        let postgres = dialect(sea_orm::DbBackend::Postgres);
        assert_eq!(postgres.places(2), "$1, $2");
        assert_eq!(postgres.rows_of_places(2, 2), "($1, $2), ($3, $4)");
        let sqlite = dialect(sea_orm::DbBackend::Sqlite);
        assert_eq!(sqlite.places(2), "?, ?");
        assert_eq!(sqlite.rows_of_places(2, 2), "(?, ?), (?, ?)");
    }
}
