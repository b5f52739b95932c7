//! CPU time of this process's threads, by the part they belong to.

use std::fs;
use std::ops::Sub;
use std::time::Duration;

/// Beginnings of the names that the worker gives its threads, as the system cuts them.
const STORE: &str = "hookstash-store";
const DELIVERY: &str = "hookstash-deli";
/// Names of the bench's own threads.
pub(super) const RECEIVER: &str = "bench-receiver";
pub(super) const RAW: &str = "bench-raw";

/// CPU time used so far, by part. All zero where the system does not tell (not Linux).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cpu {
    /// The worker's store thread.
    pub(super) store: Duration,
    /// The worker's delivery threads.
    pub(super) delivery: Duration,
    /// The receiver.
    pub(super) receiver: Duration,
    /// Everything else: the publishing side.
    pub(super) rest: Duration,
}

impl Cpu {
    /// Of the threads that run now; one that has ended is not counted any more.
    pub(super) fn now() -> Self {
        let mut cpu = Self::default();
        for task in fs::read_dir("/proc/self/task")
            .into_iter()
            .flatten()
            .flatten()
        {
            let read = |file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let (name, used) = (read("comm"), on_cpu(&read("schedstat")));
            let part = match name.trim_end() {
                name if name.starts_with(STORE) => &mut cpu.store,
                name if name.starts_with(DELIVERY) => &mut cpu.delivery,
                RECEIVER => &mut cpu.receiver,
                _ => &mut cpu.rest,
            };
            *part += used;
        }
        cpu
    }

    /// Of the calling thread alone.
    pub(super) fn of_this_thread() -> Duration {
        on_cpu(&fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default())
    }

    /// The worker's threads together.
    pub(super) fn worker(&self) -> Duration {
        self.store + self.delivery
    }
}

impl Sub for Cpu {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            store: self.store.saturating_sub(earlier.store),
            delivery: self.delivery.saturating_sub(earlier.delivery),
            receiver: self.receiver.saturating_sub(earlier.receiver),
            rest: self.rest.saturating_sub(earlier.rest),
        }
    }
}

/// First number of `schedstat`: nanoseconds on a processor.
fn on_cpu(schedstat: &str) -> Duration {
    let nanos = schedstat
        .split(' ')
        .next()
        .and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_the_processor_is_the_first_number() {
        assert_eq!(on_cpu("1500 7 3\n"), Duration::from_nanos(1_500));
        assert_eq!(on_cpu(""), Duration::ZERO);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_is_counted_by_its_name() {
        let work = || {
            // Until the system has counted something.
            let begun = Cpu::of_this_thread();
            while Cpu::of_this_thread() < begun + Duration::from_millis(5) {}
            Cpu::now()
        };
        let before = Cpu::now();
        let thread = std::thread::Builder::new()
            .name(RECEIVER.to_owned())
            .spawn(work);
        let used = thread.unwrap().join().unwrap() - before;
        assert!(used.receiver > Duration::ZERO, "{used:?}");
    }
}
