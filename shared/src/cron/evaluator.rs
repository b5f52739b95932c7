//! An independent reading of an expression: a set of numbers for each field, asked minute by
//! minute. It shares nothing with the search but the tables of time zones.

use std::collections::BTreeSet;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

const MINUTE: SignedDuration = SignedDuration::from_secs(60);

pub(super) struct Evaluator {
    sets: [BTreeSet<i8>; 5],
    stars: [bool; 5],
    zone: TimeZone,
}

impl Evaluator {
    /// `fields` hold numbers, `*`, ranges and steps only.
    pub(super) fn new(zone: &str, fields: &str) -> Self {
        let mut sets: [BTreeSet<i8>; 5] = Default::default();
        let mut stars = [false; 5];
        let bounds = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)];
        for (index, field) in fields.split(' ').enumerate() {
            let (min, max) = bounds[index];
            stars[index] = field == "*";
            for item in field.split(',') {
                let (range, step) = item.split_once('/').unwrap_or((item, "1"));
                let (first, last) = match range.split_once('-') {
                    Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
                    None if range == "*" => (min, max),
                    None if item.contains('/') => (range.parse().unwrap(), max),
                    None => (range.parse().unwrap(), range.parse().unwrap()),
                };
                sets[index].extend((first..=last).step_by(step.parse().unwrap()));
            }
        }
        if sets[4].contains(&7) {
            sets[4].insert(0);
        }
        let zone = TimeZone::get(zone).unwrap();
        Self { sets, stars, zone }
    }

    fn fits(&self, local: DateTime) -> bool {
        let has = |index: usize, number: i8| self.sets[index].contains(&number);
        let day = has(2, local.day());
        let weekday = has(4, local.weekday().to_sunday_zero_offset());
        let is_day = match (self.stars[2], self.stars[4]) {
            (false, false) => day || weekday,
            _ => day && weekday,
        };
        has(0, local.minute()) && has(1, local.hour()) && has(3, local.month()) && is_day
    }

    /// Due times in `(after, until]`, by what the clock on the wall shows at each minute.
    pub(super) fn elapsed(&self, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let shown = |at: &Timestamp| self.zone.to_datetime(*at);
        minutes(after, until)
            .filter(|at| self.fits(shown(at)))
            .collect()
    }

    /// Due times in `(after, until]`, each local time once: it is due when the clock on the wall
    /// has reached or passed it for the first time.
    pub(super) fn named(&self, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
        let day = SignedDuration::from_hours(26);
        let mut due = BTreeSet::new();
        let mut reached = self.zone.to_datetime(after - day);
        for at in minutes(after - day, until) {
            let shown = self.zone.to_datetime(at);
            while reached < shown {
                reached = reached.checked_add(MINUTE).unwrap();
                if self.fits(reached) {
                    due.insert(at);
                }
            }
        }
        due.into_iter().filter(|at| *at > after).collect()
    }
}

fn minutes(after: Timestamp, until: Timestamp) -> impl Iterator<Item = Timestamp> {
    let first = after.as_second().div_euclid(60) + 1;
    let last = until.as_second().div_euclid(60);
    (first..=last).map(|minute| Timestamp::from_second(minute * 60).unwrap())
}
