use jiff::Timestamp;
use proptest::prelude::*;

use super::evaluator::Evaluator;
use super::{Cron, CronError};

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The due times after `from`, as long as `until` is not passed.
fn due(cron: &str, from: &str, until: &str) -> Vec<String> {
    let cron = Cron::parse(cron).unwrap();
    between(&cron, at(from), at(until))
        .iter()
        .map(|due| due.strftime("%m-%dT%H:%MZ").to_string())
        .collect()
}

fn between(cron: &Cron, from: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let mut found = Vec::new();
    let mut last = from;
    while let Some(ms) = cron.next_after(last.as_millisecond().try_into().unwrap()) {
        let next = Timestamp::from_millisecond(ms.try_into().unwrap()).unwrap();
        assert!(next > last, "{next} is not after {last}");
        if next > until {
            break;
        }
        found.push(next);
        last = next;
    }
    found
}

#[test]
fn c01_zero_and_seven_are_sunday_and_one_is_monday() {
    for (weekday, first) in [
        ("1", "01-05T09:00Z"),
        ("0", "01-04T09:00Z"),
        ("7", "01-04T09:00Z"),
        ("MON", "01-05T09:00Z"),
        ("mon", "01-05T09:00Z"),
        ("1-5", "01-01T09:00Z"),
        ("5,6", "01-02T09:00Z"),
        ("FRI-SUN", "01-02T09:00Z"),
        ("6-7", "01-03T09:00Z"),
    ] {
        let cron = format!("0 9 * * {weekday}");
        let found = due(&cron, "2026-01-01T00:00Z", "2026-01-31T00:00Z");
        assert_eq!(found[0], first, "{cron}");
    }
}

#[test]
fn c02_day_of_month_and_weekday_are_alternatives() {
    let found = due("0 0 13 * FRI", "2026-01-01T00:00Z", "2026-01-20T00:00Z");
    let either = [
        "01-02T00:00Z",
        "01-09T00:00Z",
        "01-13T00:00Z",
        "01-16T00:00Z",
    ];
    assert_eq!(found, either);
    // Only a bare * leaves the choice to the other field: */2 names the odd days.
    let found = due("0 0 */2 * MON", "2026-01-01T12:00Z", "2026-01-07T12:00Z");
    let either = ["01-03T00:00Z", "01-05T00:00Z", "01-07T00:00Z"];
    assert_eq!(found, either);
    for one in ["0 0 13 * *", "0 0 13 * ?"] {
        let found = due(one, "2026-01-01T00:00Z", "2026-01-31T00:00Z");
        assert_eq!(found, ["01-13T00:00Z"], "{one}");
    }
}

#[test]
fn c05_a_job_in_the_missing_hour_runs_right_after_it_and_one_in_the_repeated_hour_once() {
    let new_york = |fields| format!("CRON_TZ=America/New_York {fields}");
    let spring = due(
        &new_york("30 2 * * *"),
        "2026-03-07T00:00Z",
        "2026-03-09T12:00Z",
    );
    assert_eq!(spring, ["03-07T07:30Z", "03-08T07:00Z", "03-09T06:30Z"]);
    let autumn = due(
        &new_york("30 1 * * *"),
        "2026-10-31T00:00Z",
        "2026-11-02T12:00Z",
    );
    assert_eq!(autumn, ["10-31T05:30Z", "11-01T05:30Z", "11-02T06:30Z"]);
}

#[test]
fn local_times_keep_their_promise_over_both_changes_of_a_year() {
    for (cron, from, until, expected) in [
        // Berlin: 2026-03-29 02:00 -> 03:00, 2026-10-25 03:00 -> 02:00.
        (
            "CRON_TZ=Europe/Berlin 30 2 * * *",
            "2026-03-28T00:00Z",
            "2026-03-30T12:00Z",
            &["03-28T01:30Z", "03-29T01:00Z", "03-30T00:30Z"][..],
        ),
        (
            "CRON_TZ=Europe/Berlin 30 2 * * *",
            "2026-10-24T00:00Z",
            "2026-10-26T12:00Z",
            &["10-24T00:30Z", "10-25T00:30Z", "10-26T01:30Z"],
        ),
        // Several missing times are one, and one that exists right then too.
        (
            "CRON_TZ=Europe/Berlin 0,20,40 2,3 * * *",
            "2026-03-29T00:00Z",
            "2026-03-29T12:00Z",
            &["03-29T01:00Z", "03-29T01:20Z", "03-29T01:40Z"],
        ),
        // New York: 2026-03-08 02:00 -> 03:00, 2026-11-01 02:00 -> 01:00.
        (
            "CRON_TZ=America/New_York 15,45 1 * * *",
            "2026-11-01T00:00Z",
            "2026-11-02T00:00Z",
            &["11-01T05:15Z", "11-01T05:45Z"],
        ),
        // Lord Howe: 2026-04-05 02:00 -> 01:30, 2026-10-04 02:00 -> 02:30.
        (
            "CRON_TZ=Australia/Lord_Howe 45 1 * * *",
            "2026-04-03T12:00Z",
            "2026-04-06T00:00Z",
            &["04-03T14:45Z", "04-04T14:45Z", "04-05T15:15Z"],
        ),
        (
            "CRON_TZ=Australia/Lord_Howe 15 2 * * *",
            "2026-10-02T12:00Z",
            "2026-10-05T00:00Z",
            &["10-02T15:45Z", "10-03T15:30Z", "10-04T15:15Z"],
        ),
        // With * in the minutes or hours it follows elapsed time.
        (
            "CRON_TZ=Europe/Berlin 30 * * * *",
            "2026-03-29T00:00Z",
            "2026-03-29T03:00Z",
            &["03-29T00:30Z", "03-29T01:30Z", "03-29T02:30Z"],
        ),
        (
            "CRON_TZ=Europe/Berlin 30 * * * *",
            "2026-10-25T00:00Z",
            "2026-10-25T03:00Z",
            &["10-25T00:30Z", "10-25T01:30Z", "10-25T02:30Z"],
        ),
        (
            "CRON_TZ=Europe/Berlin */30 2 * * *",
            "2026-03-28T02:00Z",
            "2026-03-30T01:00Z",
            &["03-30T00:00Z", "03-30T00:30Z"],
        ),
        (
            "CRON_TZ=Europe/Berlin */30 2 * * *",
            "2026-10-25T00:00Z",
            "2026-10-25T12:00Z",
            &["10-25T00:30Z", "10-25T01:00Z", "10-25T01:30Z"],
        ),
        (
            "CRON_TZ=Australia/Lord_Howe */15 * * * *",
            "2026-10-03T15:00Z",
            "2026-10-03T16:00Z",
            &[
                "10-03T15:15Z",
                "10-03T15:30Z",
                "10-03T15:45Z",
                "10-03T16:00Z",
            ],
        ),
        // A day that Samoa left out.
        (
            "CRON_TZ=Pacific/Apia 0 12 * * *",
            "2011-12-29T12:00Z",
            "2011-12-31T12:00Z",
            &["12-29T22:00Z", "12-30T10:00Z", "12-30T22:00Z"],
        ),
        (
            "0 0 29 2 *",
            "2026-01-01T00:00Z",
            "2032-12-01T00:00Z",
            &["02-29T00:00Z"; 2],
        ),
        (
            "CRON_TZ=America/New_York * * 29 2 *",
            "2097-01-01T00:00Z",
            "2104-02-29T05:01Z",
            &["02-29T05:00Z", "02-29T05:01Z"],
        ),
    ] {
        assert_eq!(due(cron, from, until), expected, "{cron}");
    }
}

#[test]
fn a_due_time_is_after_the_time_asked_for() {
    let cron = Cron::parse("* * * * *").unwrap();
    assert_eq!(cron.next_after(0), Some(60_000));
    assert_eq!(cron.next_after(59_999), Some(60_000));
    assert_eq!(cron.next_after(60_000), Some(120_000));
    assert_eq!(cron.next_after(60_001), Some(120_000));
    let named = Cron::parse("CRON_TZ=Europe/Berlin 0 12 * * *").unwrap();
    let noon = named.next_after(0).unwrap();
    assert_eq!(named.next_after(noon - 1), Some(noon));
    assert_eq!(named.next_after(noon), Some(noon + 86_400_000));
    assert_eq!(cron.next_after(u64::MAX), None);
}

#[test]
fn what_is_no_expression_is_refused_and_the_refusal_names_the_fault() {
    for (text, fault) in [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("0 * * * * *", "6 fields"),
        ("0 * * * * * 2026", "7 fields"),
        ("@daily", "1 fields"),
        ("CRON_TZ=Europe/Berlin", "0 fields"),
        (
            "CRON_TZ=Mars/Olympus * * * * *",
            "no time zone \"Mars/Olympus\"",
        ),
        ("CRON_TZ= * * * * *", "no time zone \"\""),
        ("CRON_TZ=../../etc/passwd * * * * *", "no time zone"),
        ("TZ=UTC * * * * *", "6 fields"),
        ("60 * * * *", "minute \"60\""),
        ("* 24 * * *", "hour \"24\""),
        ("* * 0 * *", "day of month \"0\""),
        ("* * 32 * *", "day of month \"32\""),
        ("* * * 13 *", "month \"13\""),
        ("* * * * 8", "weekday \"8\""),
        ("MON * * * *", "minute \"MON\""),
        ("* * * * MONTUE", "weekday \"MONTUE\""),
        ("* * * MON *", "month \"MON\""),
        ("1,,2 * * * *", "minute \"1,,2\""),
        ("5-1 * * * *", "minute \"5-1\""),
        ("*/0 * * * *", "minute \"*/0\""),
        ("/5 * * * *", "minute \"/5\""),
        ("1-2-3 * * * *", "minute \"1-2-3\""),
        ("1/2/3 * * * *", "minute \"1/2/3\""),
        ("-1 * * * *", "minute \"-1\""),
        ("+1 * * * *", "minute \"+1\""),
        ("1.5 * * * *", "minute \"1.5\""),
        ("? * * * *", "minute \"?\""),
        ("*,5 * * * *", "minute \"*,5\""),
        ("* * * * SUN-SUN", "weekday \"SUN-SUN\""),
        ("* * L * *", "day of month \"L\""),
        ("* * * * 5#2", "weekday \"5#2\""),
        ("* * * * +5", "weekday \"+5\""),
        ("* * 30 2 *", "never fires"),
        ("* * 31 4,6,9,11 *", "never fires"),
    ] {
        let error = Cron::parse(text).unwrap_err().to_string();
        assert!(error.contains(fault), "{text}: {error}");
    }
    assert_eq!(Cron::parse(&"*".repeat(257)), Err(CronError::TooLong));
}

#[test]
fn blanks_around_an_expression_do_not_count() {
    assert_eq!(
        Cron::parse(" */10 * * * * ").unwrap().as_str(),
        "*/10 * * * *"
    );
    let zoned = Cron::parse("CRON_TZ=europe/berlin  1 1 1 1 1 ").unwrap();
    assert_eq!(zoned.as_str(), "CRON_TZ=europe/berlin  1 1 1 1 1");
    assert!(Cron::parse("\t*\t*\t*\t*\t*\t").is_ok());
}

const ZONES: [&str; 7] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/St_Johns",
    "Africa/Casablanca",
];

fn any_field(min: u8, max: u8) -> impl Strategy<Value = String> {
    let item = prop_oneof![
        3 => (min..=max).prop_map(|number| number.to_string()),
        1 => (min..=max, min..=max)
            .prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (1..=max).prop_map(|step| format!("*/{step}")),
        1 => (min..=max, 1..=max).prop_map(|(first, step)| format!("{first}/{step}")),
        1 => (min..=max, min..=max, 1..=max)
            .prop_map(|(a, b, step)| format!("{}-{}/{step}", a.min(b), a.max(b))),
    ];
    let items = proptest::collection::vec(item, 1..3).prop_map(|items| items.join(","));
    prop_oneof![1 => Just("*".to_owned()), 2 => items]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn due_times_are_those_of_a_minute_by_minute_evaluator(
        minute in any_field(0, 59),
        hour in prop_oneof![any_field(0, 23), any_field(0, 4)],
        day in any_field(1, 31),
        month in prop_oneof![4 => Just("*".to_owned()), 1 => any_field(1, 12)],
        weekday in any_field(0, 7),
        zone in proptest::sample::select(&ZONES),
        // A day or so before a change of some zone, or anywhere in 2026.
        from_s in prop_oneof![
            Just(1_774_656_000_i64), Just(1_792_800_000), Just(1_772_841_600), Just(1_793_404_800),
            Just(1_775_260_800), Just(1_790_985_600), Just(1_325_116_800),
            1_767_225_600_i64..1_798_761_600,
        ],
        shift_s in 0_i64..7_200,
    ) {
        let fields = format!("{minute} {hour} {day} {month} {weekday}");
        let Ok(cron) = Cron::parse(&format!("CRON_TZ={zone} {fields}")) else {
            // Only a day that does not exist is refused.
            let refused = Cron::parse(&fields);
            prop_assert_eq!(refused, Err(CronError::Never));
            return Ok(());
        };
        let from = Timestamp::from_second(from_s + shift_s).unwrap();
        let until = from + jiff::SignedDuration::from_hours(72);
        let evaluator = Evaluator::new(zone, &fields);
        let is_elapsed = minute.contains('*') || hour.contains('*');
        let expected = if is_elapsed {
            evaluator.elapsed(from, until)
        } else {
            evaluator.named(from, until)
        };
        prop_assert_eq!(between(&cron, from, until), expected);
    }

    #[test]
    fn reading_any_text_never_panics(text in "[-*/,?0-9A-Z#LW@=_ ]{0,40}") {
        if let Ok(cron) = Cron::parse(&text) {
            prop_assert_eq!(cron.as_str(), text.trim());
        }
    }
}
