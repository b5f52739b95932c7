//! The default delay before a retry: `min(86400, e^(2.5 n))` seconds before retry `n`.

use std::time::Duration;

use super::DELAY_MAX;

/// Growth per retry, in the exponent.
const GROWTH: f64 = 2.5;

/// The delay before retry `retry`, which counts from 1: 12.18 s, 2m28s, 30m8s, 6h7m, then one day.
/// Never decreases as `retry` grows and never exceeds [`DELAY_MAX`].
pub fn delay(retry: u32) -> Duration {
    let seconds = (GROWTH * f64::from(retry))
        .exp()
        .min(DELAY_MAX.as_secs_f64());
    Duration::try_from_secs_f64(seconds).unwrap_or(DELAY_MAX)
}

/// Takes a random part, at most `proportion` of it, off `delay`: messages that failed together
/// come back apart and none comes later than the schedule says. `proportion` is held to 0 to 1,
/// where 0 (or not a number) leaves the delay alone. `random` is 64 uniform bits.
pub fn with_jitter(delay: Duration, proportion: f64, random: u64) -> Duration {
    if proportion.is_nan() || proportion <= 0.0 {
        return delay;
    }
    let high_bits = u32::try_from(random >> 32).unwrap_or(u32::MAX);
    let fraction = f64::from(high_bits) / f64::from(u32::MAX);
    delay.mul_f64(1.0 - proportion.min(1.0) * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r10_the_schedule_is_the_documented_one() {
        for (retry, seconds) in [
            (1, 12.18),
            (2, 148.41),
            (3, 1_808.04),
            (4, 22_026.47),
            (5, 86_400.0),
            (6, 86_400.0),
        ] {
            let got = delay(retry).as_secs_f64();
            assert!((got - seconds).abs() < 0.01, "retry {retry}: {got}");
        }
    }

    #[test]
    fn r10_the_delay_never_decreases_and_never_passes_a_day() {
        let delays: Vec<Duration> = (0..=1_000)
            .chain([u32::MAX - 1, u32::MAX])
            .map(delay)
            .collect();
        assert!(delays.is_sorted());
        assert!(delays.iter().all(|delay| *delay >= Duration::from_secs(1)));
        assert_eq!(delays.last(), Some(&DELAY_MAX));
    }

    #[test]
    fn without_a_proportion_there_is_no_jitter() {
        for proportion in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(with_jitter(delay(1), proportion, u64::MAX), delay(1));
        }
    }

    #[test]
    fn jitter_reaches_both_ends() {
        let ten = Duration::from_secs(10);
        assert_eq!(with_jitter(ten, 0.2, 0), ten);
        assert_eq!(with_jitter(ten, 0.2, u64::MAX), Duration::from_secs(8));
        assert_eq!(with_jitter(ten, f64::INFINITY, u64::MAX), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn jitter_stays_within_its_proportion(
            retry in any::<u32>(), proportion in 0.0..=1.0, random in any::<u64>(),
        ) {
            let (plain, spread) = (delay(retry), with_jitter(delay(retry), proportion, random));
            prop_assert!(spread <= plain);
            let least = plain.as_secs_f64() * (1.0 - proportion) - 1e-6;
            prop_assert!(spread.as_secs_f64() >= least);
        }
    }
}
