//! Randomness as an argument: ids and nonces come from a [`Random`].

use std::cell::RefCell;
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

/// The operating system's randomness. Each thread asks for [`DRAWN`] numbers at a time: a message
/// needs about ten, and a call of the system for each would be a tenth of its delivery.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

/// Numbers that a thread draws at a time.
const DRAWN: usize = 32;

thread_local! {
    /// Drawn and not given yet.
    static NUMBERS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Random for SystemRandom {
    #[expect(
        clippy::expect_used,
        reason = "without randomness no id is unique: stopping is right"
    )]
    fn next_u64(&self) -> u64 {
        NUMBERS.with_borrow_mut(|numbers| {
            if numbers.is_empty() {
                draw(numbers).expect("the operating system gives random bytes");
            }
            numbers.pop().expect("some were just drawn")
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that asks the system"
)]
fn draw(numbers: &mut Vec<u64>) -> Result<(), getrandom::Error> {
    let mut bytes = [0; 8 * DRAWN];
    getrandom::fill(&mut bytes)?;
    let (words, _) = bytes.as_chunks::<8>();
    numbers.extend(words.iter().map(|word| u64::from_le_bytes(*word)));
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_number_is_given_twice_by_any_thread() {
        let draw = || (0..3 * DRAWN).map(|_| SystemRandom.next_u64()).collect();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(draw)).collect();
        let numbers: Vec<Vec<u64>> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        let different: BTreeSet<&u64> = numbers.iter().flatten().collect();
        assert_eq!(different.len(), 4 * 3 * DRAWN);
    }
}
