//! Numbers as JavaScript writes them: a whole one has no decimal point.

use serde::Serializer;

/// Largest whole number that every JSON reader keeps exact, 2^53.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
pub(super) fn plain<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() <= EXACT_MAX {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole and within the range that is exact"
        )]
        return serializer.serialize_i64(*number as i64);
    }
    serializer.serialize_f64(*number)
}

#[expect(clippy::ref_option, reason = "the form that serde asks for")]
pub(super) fn optional<S: Serializer>(
    number: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => plain(number, serializer),
        None => serializer.serialize_none(),
    }
}
