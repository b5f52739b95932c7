//! Randomness as an argument: ids and nonces come from a [`Random`].

use std::sync::Mutex;

/// Source of random numbers. Safe to share between threads.
pub trait Random: Send + Sync + 'static {
    /// 64 uniformly distributed bits.
    fn next_u64(&self) -> u64;

    /// A number in `0..below`; 0 when `below` is 0. The bias is below 2^-32 for 32-bit bounds.
    fn below(&self, below: u64) -> u64 {
        if below == 0 {
            0
        } else {
            self.next_u64() % below
        }
    }
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that asks the system"
    )]
    #[expect(
        clippy::expect_used,
        reason = "without randomness no id is unique: stopping is right"
    )]
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
        u64::from_le_bytes(bytes)
    }
}

/// A seeded sequence (SplitMix64): the same seed gives the same numbers. For simulation only.
#[derive(Debug)]
pub struct SeededRandom(Mutex<u64>);

impl SeededRandom {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        let mut state = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
