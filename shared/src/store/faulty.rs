//! Test equipment: a host that loses, delays, refuses and forgets.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::host::{Host, HostError, Step, StepResult};
use crate::random::Random;

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is applied and no answer comes.
    LoseBefore,
    /// Everything is applied and no answer comes.
    LoseAfter,
    /// The call starts late. Awaits a tokio sleep.
    Delay(Duration),
    /// Every item is refused for now; nothing is applied.
    Refuse,
    /// Every item is refused because the store is full; nothing is applied. A wait is not refused.
    Full,
    /// The host forgets all scripts first (`SCRIPT FLUSH`), then runs the call. A host that refuses
    /// that command has no cache to forget.
    ForgetScripts,
    /// The first so many items are applied and answered; the others are neither.
    Cut(usize),
}

/// How often each fault comes by itself, in calls of 10,000. Checked in this order, at most one per
/// call; zero by default.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultRates {
    /// [`Fault::LoseBefore`].
    pub lose_before: u64,
    /// [`Fault::LoseAfter`].
    pub lose_after: u64,
    /// [`Fault::Delay`] of up to [`FaultRates::delay_max`].
    pub delay: u64,
    /// The longest delay.
    pub delay_max: Duration,
    /// [`Fault::Refuse`].
    pub refuse: u64,
    /// [`Fault::Full`].
    pub full: u64,
    /// [`Fault::ForgetScripts`].
    pub forget_scripts: u64,
    /// [`Fault::Cut`] somewhere within the pipeline.
    pub cut: u64,
}

/// Test equipment: stands in front of a host and lets go wrong what is asked for, or by chance.
/// The same seed and the same calls in the same order give the same faults.
pub struct FaultyHost {
    inner: Arc<dyn Host>,
    random: Arc<dyn Random>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: VecDeque<Fault>,
    rates: FaultRates,
}

impl FaultyHost {
    /// A host that does what `inner` does until told otherwise; chance comes from `random`.
    pub fn new(inner: Arc<dyn Host>, random: Arc<dyn Random>) -> Self {
        Self {
            inner,
            random,
            state: Mutex::default(),
        }
    }

    /// Lets `fault` happen to the next call (run or wait) that no earlier one is waiting for.
    pub fn inject(&self, fault: Fault) {
        self.lock().next.push_back(fault);
    }

    /// From now on, faults come by chance at these rates, after the injected ones.
    pub fn set_rates(&self, rates: FaultRates) {
        self.lock().rates = rates;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of the next call, which has `items` items.
    fn draw(&self, items: usize) -> Option<Fault> {
        let mut state = self.lock();
        if let Some(fault) = state.next.pop_front() {
            return Some(fault);
        }
        let rates = state.rates;
        let below = |bound: u64| self.random.below(bound);
        let chances = [
            (rates.lose_before, Fault::LoseBefore),
            (rates.lose_after, Fault::LoseAfter),
            (rates.refuse, Fault::Refuse),
            (rates.full, Fault::Full),
            (rates.forget_scripts, Fault::ForgetScripts),
            (rates.delay, Fault::Delay(Duration::ZERO)),
            (rates.cut, Fault::Cut(0)),
        ];
        let mut drawn = below(10_000);
        for (rate, fault) in chances {
            if drawn < rate {
                let longest = u64::try_from(rates.delay_max.as_millis()).unwrap_or(u64::MAX);
                return Some(match fault {
                    Fault::Delay(_) => Fault::Delay(Duration::from_millis(below(longest))),
                    Fault::Cut(_) => Fault::Cut(usize::try_from(below(items as u64)).unwrap_or(0)),
                    other => other,
                });
            }
            drawn -= rate;
        }
        None
    }
}

impl Host for FaultyHost {
    fn run(&self, mut steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            let count = steps.len();
            let all = |error: HostError| vec![Err(error); count];
            match self.draw(count) {
                None => self.inner.run(steps).await,
                Some(Fault::LoseBefore) => all(lost()),
                Some(Fault::LoseAfter) => {
                    self.inner.run(steps).await;
                    all(lost())
                }
                Some(Fault::Delay(by)) => {
                    tokio::time::sleep(by).await;
                    self.inner.run(steps).await
                }
                Some(Fault::Refuse) => all(refused()),
                Some(Fault::Full) => all(HostError::Full("injected".to_owned())),
                Some(Fault::ForgetScripts) => {
                    let flush = ["SCRIPT", "FLUSH"].map(Bytes::from).to_vec();
                    self.inner.run(vec![Step::Command(flush)]).await;
                    self.inner.run(steps).await
                }
                Some(Fault::Cut(at)) => {
                    steps.truncate(at);
                    let mut results = self.inner.run(steps).await;
                    results.resize(count, Err(lost()));
                    results
                }
            }
        })
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        Box::pin(async move {
            match self.draw(1) {
                Some(Fault::LoseBefore | Fault::Cut(_)) => return Err(lost()),
                Some(Fault::LoseAfter) => {
                    self.inner.wait(key, timeout).await?;
                    return Err(lost());
                }
                Some(Fault::Refuse) => return Err(refused()),
                Some(Fault::Delay(by)) => tokio::time::sleep(by).await,
                Some(Fault::Full | Fault::ForgetScripts) | None => {}
            }
            self.inner.wait(key, timeout).await
        })
    }
}

fn lost() -> HostError {
    HostError::Lost("injected".to_owned())
}

fn refused() -> HostError {
    HostError::RetryLater("injected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;
    use crate::store::host::Reply;

    /// Answers each item with how many items it has seen, and remembers that number.
    #[derive(Default)]
    struct Counting(Mutex<i64>);

    impl Host for Counting {
        fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
            Box::pin(async move {
                let mut seen = self.0.lock().expect("no panic");
                let mut count = || {
                    *seen += 1;
                    Ok(Reply::Int(*seen))
                };
                steps.iter().map(|_| count()).collect()
            })
        }

        fn wait(&self, _: Bytes, _: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
            Box::pin(async { Ok(true) })
        }
    }

    fn faulty() -> (Arc<Counting>, FaultyHost) {
        let inner = Arc::new(Counting::default());
        let host = FaultyHost::new(Arc::clone(&inner) as _, Arc::new(SeededRandom::new(7)));
        (inner, host)
    }

    fn steps(count: usize) -> Vec<Step> {
        vec![Step::Command(vec![Bytes::from("PING")]); count]
    }

    #[tokio::test]
    async fn an_injected_fault_hits_the_next_call_only() {
        let (inner, host) = faulty();
        host.inject(Fault::LoseBefore);
        assert_eq!(host.run(steps(2)).await, vec![Err(lost()); 2]);
        assert_eq!(*inner.0.lock().expect("no panic"), 0);
        host.inject(Fault::LoseAfter);
        assert_eq!(host.run(steps(2)).await, vec![Err(lost()); 2]);
        assert_eq!(*inner.0.lock().expect("no panic"), 2);
        assert_eq!(host.run(steps(1)).await, vec![Ok(Reply::Int(3))]);
    }

    #[tokio::test]
    async fn a_cut_applies_and_answers_only_the_items_before_it() {
        let (inner, host) = faulty();
        host.inject(Fault::Cut(1));
        let results = host.run(steps(3)).await;
        assert_eq!(results, vec![Ok(Reply::Int(1)), Err(lost()), Err(lost())]);
        assert_eq!(*inner.0.lock().expect("no panic"), 1);
    }

    #[tokio::test]
    async fn a_refusal_and_a_full_store_apply_nothing() {
        let (inner, host) = faulty();
        host.inject(Fault::Refuse);
        host.inject(Fault::Full);
        assert_eq!(host.run(steps(1)).await, vec![Err(refused())]);
        assert!(matches!(
            host.run(steps(1)).await[..],
            [Err(HostError::Full(_))]
        ));
        assert_eq!(*inner.0.lock().expect("no panic"), 0);
    }

    #[tokio::test]
    async fn a_delay_lets_the_given_time_pass() {
        let (_, host) = faulty();
        host.inject(Fault::Delay(Duration::from_millis(20)));
        let before = tokio::time::Instant::now();
        host.run(steps(1)).await;
        assert!(before.elapsed() >= Duration::from_millis(20));
    }

    #[tokio::test]
    async fn the_same_seed_gives_the_same_faults_at_about_the_asked_rate() {
        let mut runs = Vec::new();
        for _ in 0..2 {
            let (_, host) = faulty();
            host.set_rates(FaultRates {
                refuse: 2_000,
                ..FaultRates::default()
            });
            let mut refusals = Vec::new();
            for _ in 0..1_000 {
                refusals.push(host.run(steps(1)).await[0].is_err());
            }
            runs.push(refusals);
        }
        assert_eq!(runs[0], runs[1]);
        let refused = runs[0].iter().filter(|&&is_refused| is_refused).count();
        assert!((150..250).contains(&refused), "{refused}");
    }
}
