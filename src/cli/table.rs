//! A plain table: columns as wide as their widest cell.

use std::fmt::Write as _;

use crate::cli::paint::harmless;

/// Two blanks between columns.
const GAP: usize = 2;
/// Longest last cell, in characters.
const LAST_CHARS_MAX: usize = 160;

/// `rows` under `heads`, aligned. Control characters are escaped.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let cells: Vec<Vec<String>> = std::iter::once(&head)
        .chain(rows)
        .map(|row| row.iter().map(|cell| cut(&harmless(cell))).collect())
        .collect();
    let width = |column: usize| {
        let widths = cells.iter().filter_map(|row| row.get(column));
        widths.map(|cell| cell.chars().count()).max().unwrap_or(0) + GAP
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let mut line = String::new();
        for (cell, width) in cells {
            let _ = write!(line, "{cell:<width$}");
        }
        line.trim_end().to_owned()
    };
    cells.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn cut(cell: &str) -> String {
    if cell.chars().count() <= LAST_CHARS_MAX {
        return cell.to_owned();
    }
    cell.chars().take(LAST_CHARS_MAX - 1).chain(['…']).collect()
}

/// A time for people: `2026-03-01 12:30:05Z`.
pub(super) fn time(ms: u64) -> String {
    let days = ms / 86_400_000;
    let (s, (year, month, day)) = (ms / 1000 % 86_400, date(days));
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}Z",
        s / 3600,
        s / 60 % 60,
        s % 60
    )
}

/// The date that many days after 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_control_characters_are_escaped() {
        let rows = [
            vec!["a".to_owned(), "1\n".to_owned()],
            vec!["bcd".to_owned(), "2".to_owned()],
        ];
        assert_eq!(table(&["X", "Y"], &rows), "X    Y\na    1\\n\nbcd  2");
    }

    #[test]
    fn times_are_shown_in_utc() {
        assert_eq!(time(0), "1970-01-01 00:00:00Z");
        assert_eq!(time(951_827_696_000), "2000-02-29 12:34:56Z");
        assert_eq!(time(1_798_761_599_999), "2026-12-31 23:59:59Z");
    }
}
