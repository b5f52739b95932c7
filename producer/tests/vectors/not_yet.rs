//! Every vector is a test, or stands here.

use std::collections::BTreeSet;
use std::path::Path;

/// Vectors that are no test yet, each with its reason.
const NOT_YET: [std::ops::RangeInclusive<u32>; 0] = [];
const LAST: u32 = 220;

/// The numbers of all functions named `vector_NNN_…` below `folder`.
fn tested(folder: &Path, into: &mut BTreeSet<u32>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tested(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text
                .lines()
                .filter_map(|line| line.trim().split("fn vector_").nth(1));
            into.extend(names.filter_map(|name| name.split('_').next()?.parse::<u32>().ok()));
        }
    }
}

#[test]
fn every_vector_is_a_test_or_listed_as_not_there_yet() {
    let mut found = BTreeSet::new();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    tested(&here.join("src"), &mut found);
    tested(&here.join("tests"), &mut found);
    let is_listed = |number: &u32| NOT_YET.iter().any(|range| range.contains(number));
    let lost: Vec<_> = (1..=LAST)
        .filter(|n| !found.contains(n) && !is_listed(n))
        .collect();
    assert!(lost.is_empty(), "neither tested nor listed: {lost:?}");
    let both: Vec<_> = found
        .iter()
        .filter(|n| is_listed(n) || **n > LAST)
        .collect();
    assert!(
        both.is_empty(),
        "tested and listed, or no vector at all: {both:?}"
    );
}
