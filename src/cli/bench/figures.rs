//! What was measured, as one JSON object; for people it is a [table](super::table).

use std::time::Duration;

use serde_json::{Value, json};

use super::stage::Stage;
use crate::cli::failure::Failure;

/// Everything that was measured in one run.
pub(super) struct Figures {
    pub(super) messages: usize,
    pub(super) body_bytes: usize,
    pub(super) envelope_bytes: usize,
    pub(super) cores: usize,
    pub(super) redis_version: String,
    pub(super) aof: bool,
    pub(super) fsync: String,
    pub(super) rounds: Vec<Round>,
    pub(super) latency: Option<Latency>,
    pub(super) idle: Option<Idle>,
    pub(super) backlog: Option<Backlog>,
}

/// One round.
pub(super) struct Round {
    pub(super) raw: Raw,
    pub(super) bare: Publishing,
    pub(super) publish: Publishing,
    pub(super) durable: Durable,
    pub(super) singles: Publishing,
}

/// So many messages in such a time.
pub(super) struct Pace {
    pub(super) count: usize,
    pub(super) took: Duration,
}

/// The raw loop: CPU of the sending threads and of the receiver.
pub(super) struct Raw {
    pub(super) pace: Pace,
    pub(super) sender: Duration,
    pub(super) receiver: Duration,
}

/// Publishing: CPU of the publishing side and of Redis, and bytes more in Redis.
pub(super) struct Publishing {
    pub(super) pace: Pace,
    pub(super) publisher: Duration,
    pub(super) redis: Duration,
    pub(super) memory: f64,
}

/// The durable path.
pub(super) struct Durable {
    pub(super) pace: Pace,
    pub(super) store_thread: Duration,
    pub(super) delivery_threads: Duration,
    pub(super) receiver: Duration,
    pub(super) redis: Duration,
    pub(super) lost: usize,
    pub(super) duplicates: usize,
}

/// The durable path with messages queued behind.
pub(super) struct Backlog {
    pub(super) behind: usize,
    pub(super) publish: Publishing,
    pub(super) durable: Durable,
}

/// Latency at a steady rate.
pub(super) struct Latency {
    pub(super) rate: u32,
    pub(super) lost: usize,
    pub(super) duplicates: usize,
    /// From a raw call to the receiver: what any work at this rate takes here.
    pub(super) raw: Percentiles,
    /// From the call of publish to the first byte at the receiver.
    pub(super) received: Percentiles,
    /// From the call of publish to its answer.
    pub(super) accepted: Percentiles,
}

/// A worker without work.
pub(super) struct Idle {
    /// Of one core.
    pub(super) cpu_percent: f64,
    pub(super) redis_commands_per_s: f64,
}

/// Milliseconds; `NaN`-free: 0 of nothing.
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Percentiles {
    pub(super) fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1) - 1;
            let time = times.get(rank).copied().unwrap_or_default();
            rounded(1_000.0 * time.as_secs_f64(), 3)
        };
        Self {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }

    fn json(&self) -> Value {
        json!({ "p50_ms": self.p50, "p99_ms": self.p99, "max_ms": self.max })
    }
}

impl Figures {
    /// What is known before anything is measured.
    pub(super) async fn of(stage: &Stage, messages: usize) -> Result<Self, Failure> {
        let info = stage.redis.info().await?;
        let envelope = stage.message(0)?.into_envelope().encode();
        let envelope = envelope
            .map_err(|error| Failure::failed("make the bench's message").because(&error))?;
        Ok(Self {
            messages,
            body_bytes: stage.body_bytes,
            envelope_bytes: envelope.len(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            redis_version: info.text("redis_version").to_owned(),
            aof: info.text("aof_enabled") == "1",
            fsync: stage.redis.fsync().await,
            rounds: Vec::new(),
            latency: None,
            idle: None,
            backlog: None,
        })
    }

    /// Whether every message arrived.
    pub(super) fn is_complete(&self) -> bool {
        let behind = self
            .backlog
            .as_ref()
            .map_or(0, |backlog| backlog.durable.lost);
        let late = self.latency.as_ref().map_or(0, |latency| latency.lost);
        self.lost() + behind + late == 0
    }

    /// Durable rate by raw rate: the median of the rounds.
    pub(super) fn ratio(&self) -> f64 {
        self.median(|round| round.durable.pace.rate() / round.raw.pace.rate())
    }

    pub(super) fn median(&self, value: impl Fn(&Round) -> f64) -> f64 {
        let mut values: Vec<f64> = self.rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    }

    pub(super) fn lost(&self) -> usize {
        self.rounds.iter().map(|round| round.durable.lost).sum()
    }

    pub(super) fn duplicates(&self) -> usize {
        self.rounds
            .iter()
            .map(|round| round.durable.duplicates)
            .sum()
    }

    /// One JSON object. Rates in messages a second, CPU in microseconds a message.
    pub(super) fn json(&self) -> String {
        let median = |value: &dyn Fn(&Round) -> f64, digits| rounded(self.median(value), digits);
        let mut all = json!({
            "ratio": rounded(self.ratio(), 3),
            "messages": self.messages,
            "body_bytes": self.body_bytes,
            "rounds": self.rounds.len(),
            "cores": self.cores,
            "redis": {
                "version": self.redis_version,
                "appendonly": self.aof,
                "appendfsync": self.fsync,
            },
            "raw": {
                "per_s": median(&|round| round.raw.pace.rate(), 0),
                "cpu_us": {
                    "sender": median(&|round| micros(round.raw.sender, round.raw.pace.count), 1),
                    "receiver": median(&|round| micros(round.raw.receiver, round.raw.pace.count), 1),
                },
            },
            "durable": {
                "per_s": median(&|round| round.durable.pace.rate(), 0),
                "cpu_us": {
                    "worker_store_thread":
                        median(&|round| micros(round.durable.store_thread, round.durable.pace.count), 1),
                    "worker_delivery_threads":
                        median(&|round| micros(round.durable.delivery_threads, round.durable.pace.count), 1),
                    "receiver": median(&|round| micros(round.durable.receiver, round.durable.pace.count), 1),
                    "redis": median(&|round| micros(round.durable.redis, round.durable.pace.count), 1),
                },
                "lost": self.lost(),
                "duplicates": self.duplicates(),
            },
            "publish": {
                "bare": self.publishing(&|round| &round.bare),
                "batched": self.publishing(&|round| &round.publish),
                "single": self.publishing(&|round| &round.singles),
                "batched_ratio": median(&|round| round.publish.pace.rate() / round.bare.pace.rate(), 3),
                "single_ratio": median(&|round| round.singles.pace.rate() / round.bare.pace.rate(), 3),
            },
            "memory": {
                "bytes_per_queued_message_beyond_envelope":
                    median(&|round| self.beyond_envelope(&round.publish), 0),
            },
        });
        let mut set = |name: &str, value: Value| {
            if let Value::Object(map) = &mut all {
                map.insert(name.to_owned(), value);
            }
        };
        if let Some(latency) = &self.latency {
            let value = json!({
                "per_s": latency.rate,
                "raw": latency.raw.json(),
                "received": latency.received.json(),
                "accepted": latency.accepted.json(),
                "lost": latency.lost,
                "duplicates": latency.duplicates,
            });
            set("latency", value);
        }
        if let Some(idle) = &self.idle {
            let value = json!({
                "worker_cpu_percent_of_a_core": rounded(idle.cpu_percent, 3),
                "redis_commands_per_s": rounded(idle.redis_commands_per_s, 2),
            });
            set("idle", value);
        }
        if let Some(backlog) = &self.backlog {
            let value = json!({
                "queued_behind": backlog.behind,
                "per_s": rounded(backlog.durable.pace.rate(), 0),
                "to_without": rounded(self.to_without(backlog), 3),
                "bytes_per_queued_message_beyond_envelope":
                    rounded(self.beyond_envelope(&backlog.publish), 0),
            });
            set("backlog", value);
        }
        format!("{all:#}")
    }

    fn publishing(&self, of: &dyn Fn(&Round) -> &Publishing) -> Value {
        let us =
            |value: &dyn Fn(&Publishing) -> f64| rounded(self.median(|round| value(of(round))), 1);
        json!({
            "per_s": us(&|publishing| publishing.pace.rate().round()),
            "cpu_us": {
                "client": us(&|publishing| micros(publishing.publisher, publishing.pace.count)),
                "redis": us(&|publishing| micros(publishing.redis, publishing.pace.count)),
            },
        })
    }

    pub(super) fn beyond_envelope(&self, publishing: &Publishing) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let (count, envelope) = (publishing.pace.count as f64, self.envelope_bytes as f64);
        publishing.memory / count - envelope
    }

    pub(super) fn to_without(&self, backlog: &Backlog) -> f64 {
        backlog.durable.pace.rate() / self.median(|round| round.durable.pace.rate())
    }
}

impl Pace {
    /// Messages a second.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
    pub(super) fn rate(&self) -> f64 {
        self.count as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(super) fn micros(time: Duration, count: usize) -> f64 {
    1e6 * time.as_secs_f64() / count.max(1) as f64
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_by_nearest_rank() {
        let times = (1..=200).map(Duration::from_millis).collect();
        let Percentiles { p50, p99, max } = Percentiles::of(times);
        assert_eq!(format!("{p50} {p99} {max}"), "100 198 200");
        assert!(Percentiles::of(Vec::new()).p99 < f64::EPSILON);
        let one = Percentiles::of(vec![Duration::from_millis(3)]);
        assert_eq!(format!("{} {}", one.p50, one.p99), "3 3");
    }
}
