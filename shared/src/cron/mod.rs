//! Cron expressions: `[CRON_TZ=<IANA zone> ]minute hour day month weekday`.
//!
//! As crontab(5) reads them: weekdays are 0 to 7 where both 0 and 7 are Sunday, and a day fits when
//! day of month *or* weekday fits, if neither of the two is a bare `*`. `a/n` is `a` to the end in
//! steps of `n`.
//!
//! Where local time jumps, a schedule that names its minutes and hours (no `*` in either field)
//! fires once for each day that it names: at a time that does not exist, right after the gap; at a
//! time that comes twice, the first time. A schedule with `*` in its minutes or hours follows
//! elapsed time: it fires whenever the clock on the wall shows a time that fits.

mod fields;

use std::fmt;

use croner::Cron as Pattern;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const ZONE_PREFIX: &str = "CRON_TZ=";
/// Longest expression in bytes.
const BYTES_MAX: usize = 256;
/// Changes of a zone's offset that a search goes over: in half of the 8 years that can lie between
/// two 29ths of February a zone has 16 at most.
const CHANGES_MAX: usize = 64;
/// Local times that a search looks at: all those of a repeated day may lie behind it.
const TIMES_MAX: usize = 24 * 60 + 1;

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// It is longer than 256 bytes.
    #[error("it is longer than {BYTES_MAX} bytes")]
    TooLong,
    /// There is no such time zone.
    #[error("there is no time zone {0:?}: expected CRON_TZ=<IANA name>, such as Europe/Berlin")]
    Zone(String),
    /// There are not exactly five fields.
    #[error("it has {0} fields: expected five (minute, hour, day of month, month, weekday)")]
    Fields(usize),
    /// A field cannot be read.
    #[error("{field} {text:?} cannot be read: expected {expected}")]
    Field {
        /// Which one.
        field: &'static str,
        /// As it was given.
        text: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// No day fits.
    #[error("it never fires: no month has such a day")]
    Never,
}

/// A checked cron expression.
#[derive(Clone)]
pub struct Cron {
    text: String,
    pattern: Pattern,
    zone: TimeZone,
    /// Whether minutes or hours are given by `*`.
    follows_elapsed_time: bool,
}

impl Cron {
    /// Reads an expression; blanks around it do not count.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let text = text.trim();
        if text.len() > BYTES_MAX {
            return Err(CronError::TooLong);
        }
        let (zone, fields) = match text.strip_prefix(ZONE_PREFIX) {
            Some(rest) => {
                let (name, fields) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                (zone_of(name)?, fields)
            }
            None => (TimeZone::UTC, text),
        };
        let cron = Self {
            text: text.to_owned(),
            pattern: fields::parse(fields)?,
            zone,
            follows_elapsed_time: fields.split_whitespace().take(2).any(|f| f.contains('*')),
        };
        match cron.pattern.find_next_occurrence(&DateTime::ZERO, true) {
            Ok(_) => Ok(cron),
            Err(_) => Err(CronError::Never),
        }
    }

    /// The expression as it was given, without blanks around it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first due time after `after_ms`, both in milliseconds since the epoch; `None` beyond the
    /// end of the calendar.
    pub fn next_after(&self, after_ms: u64) -> Option<u64> {
        let after = Timestamp::from_millisecond(i64::try_from(after_ms).ok()?).ok()?;
        let due = if self.follows_elapsed_time {
            self.next_elapsed(after)
        } else {
            self.next_named(after)
        };
        u64::try_from(due?.as_millisecond()).ok()
    }

    /// Every minute whose local time fits counts. Between two changes of the offset, local time goes
    /// like elapsed time.
    fn next_elapsed(&self, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut is_inclusive) = (after, false);
        for _ in 0..CHANGES_MAX {
            let offset = self.zone.to_offset(from);
            let local = offset.to_datetime(from);
            let fits = self
                .pattern
                .find_next_occurrence(&local, is_inclusive)
                .ok()?;
            let due = offset.to_timestamp(fits).ok()?;
            let change = self
                .zone
                .following(from)
                .next()
                .map(|next| next.timestamp());
            match change {
                Some(change) if change <= due => (from, is_inclusive) = (change, true),
                _ => return Some(due),
            }
        }
        None
    }

    /// Every local time that fits counts once.
    fn next_named(&self, after: Timestamp) -> Option<Timestamp> {
        let mut local = self.zone.to_datetime(after);
        for _ in 0..TIMES_MAX {
            local = self.pattern.find_next_occurrence(&local, false).ok()?;
            let due = self.moment_of(local)?;
            if due > after {
                return Some(due);
            }
        }
        None
    }

    /// When a clock on the wall shows `local` first; the end of the gap for what it never shows.
    fn moment_of(&self, local: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(local).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok(),
            AmbiguousOffset::Gap { before, .. } => {
                let within = before.to_timestamp(local).ok()?;
                let behind = within.checked_add(SignedDuration::from_secs(1)).ok()?;
                let gap = self.zone.preceding(behind).next()?;
                Some(gap.timestamp())
            }
        }
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cron").field(&self.text).finish()
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

impl TryFrom<String> for Cron {
    type Error = CronError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}

fn zone_of(name: &str) -> Result<TimeZone, CronError> {
    let unknown = |_| CronError::Zone(name.to_owned());
    TimeZone::get(name).map_err(unknown)
}

#[cfg(test)]
mod evaluator;
#[cfg(test)]
mod tests;
