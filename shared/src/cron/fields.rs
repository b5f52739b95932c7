//! The five fields. Each is checked here, so that a refusal names it, then read by `croner`, which
//! alone would take more than the protocol has: names in any field, empty items, nicknames.

use croner::Cron as Pattern;
use croner::parser::{CronParser, Seconds, Year};

use super::CronError;

/// One field: what it is called, its numbers, their names from the first on.
struct Field {
    name: &'static str,
    min: u8,
    max: u8,
    names: &'static [&'static str],
    /// Whether `?` may stand for `*`.
    takes_question_mark: bool,
    expected: &'static str,
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const FIELDS: [Field; 5] = [
    Field {
        name: "minute",
        min: 0,
        max: 59,
        names: &[],
        takes_question_mark: false,
        expected: "*, 0 to 59, ranges (1-5), steps (*/5) and lists of them",
    },
    Field {
        name: "hour",
        min: 0,
        max: 23,
        names: &[],
        takes_question_mark: false,
        expected: "*, 0 to 23, ranges (1-5), steps (*/5) and lists of them",
    },
    Field {
        name: "day of month",
        min: 1,
        max: 31,
        names: &[],
        takes_question_mark: true,
        expected: "*, 1 to 31, ranges (1-5), steps (*/5) and lists of them",
    },
    Field {
        name: "month",
        min: 1,
        max: 12,
        names: &MONTHS,
        takes_question_mark: false,
        expected: "*, 1 to 12, JAN to DEC, ranges (1-5), steps (*/5) and lists of them",
    },
    Field {
        name: "weekday",
        min: 0,
        max: 7,
        names: &WEEKDAYS,
        takes_question_mark: true,
        expected: "*, 0 to 7 (0 and 7 are Sunday), SUN to SAT, ranges (1-5), steps (*/2) and lists \
                   of them",
    },
];

/// Reads exactly five fields between blanks.
pub(super) fn parse(text: &str) -> Result<Pattern, CronError> {
    let texts: Vec<&str> = text.split_whitespace().collect();
    if texts.len() != FIELDS.len() {
        return Err(CronError::Fields(texts.len()));
    }
    for (field, text) in FIELDS.iter().zip(&texts) {
        field.check(text)?;
    }
    let parser = CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .sloppy_ranges(true)
        .build();
    let unreadable = |_| CronError::Fields(texts.len());
    parser.parse(&texts.join(" ")).map_err(unreadable)
}

impl Field {
    fn check(&self, text: &str) -> Result<(), CronError> {
        let is_any = text == "*" || (text == "?" && self.takes_question_mark);
        if is_any || text.split(',').all(|item| self.is_item(item)) {
            return Ok(());
        }
        Err(CronError::Field {
            field: self.name,
            text: text.to_owned(),
            expected: self.expected,
        })
    }

    /// Whether `item` is one of a list: `a`, `a-b`, `*/n`, `a/n`, `a-b/n`.
    fn is_item(&self, item: &str) -> bool {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (item, None),
        };
        let is_step = |step| (1..=self.max).contains(&digits(step).unwrap_or_default());
        if step.is_some_and(|step| !is_step(step)) {
            return false;
        }
        if range == "*" {
            return step.is_some();
        }
        match range.split_once('-') {
            Some((first, last)) => match (self.number(first), self.number(last)) {
                // At its end SUN is 7.
                (Some(first), Some(_)) if last.eq_ignore_ascii_case("SUN") => first > 0,
                (Some(first), Some(last)) => first <= last,
                _ => false,
            },
            None => self.number(range).is_some(),
        }
    }

    fn number(&self, text: &str) -> Option<u8> {
        let named = |name: &&str| name.eq_ignore_ascii_case(text);
        let number = match self.names.iter().position(named) {
            Some(index) => self.min + u8::try_from(index).ok()?,
            None => digits(text)?,
        };
        (self.min..=self.max).contains(&number).then_some(number)
    }
}

/// A number of one or two digits.
fn digits(text: &str) -> Option<u8> {
    let is_short = (1..=2).contains(&text.len());
    let is_number = is_short && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}
