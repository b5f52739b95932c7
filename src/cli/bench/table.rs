//! The figures for people.

use std::time::Duration;

use super::figures::{Figures, Publishing, Round, micros};

/// A part of a round.
type Of = fn(&Round) -> &Publishing;

/// Lines of a name and its figures.
pub(super) fn table(figures: &Figures) -> String {
    let mut lines = vec![head(figures), String::new()];
    let mut line = |name: &str, value: String| lines.push(format!("{name:<24}{value}"));
    for (name, value) in deliveries(figures) {
        line(name, value);
    }
    for (name, value) in publishing(figures) {
        line(name, value);
    }
    for (name, value) in rest(figures) {
        line(name, value);
    }
    lines.join("\n")
}

fn head(figures: &Figures) -> String {
    let aof = if figures.aof {
        format!("append-only file, fsync {}", figures.fsync)
    } else {
        "no append-only file: not durable".to_owned()
    };
    format!(
        "{} messages of {} bytes, median of {} rounds, {} cores, Redis {} ({aof})",
        figures.messages,
        figures.body_bytes,
        figures.rounds.len(),
        figures.cores,
        figures.redis_version
    )
}

fn rate(figures: &Figures, value: impl Fn(&Round) -> f64) -> String {
    format!("{:>9.0}/s", figures.median(value))
}

fn us(figures: &Figures, value: impl Fn(&Round) -> Duration) -> f64 {
    figures.median(|round| micros(value(round), figures.messages))
}

fn deliveries(figures: &Figures) -> [(&'static str, String); 3] {
    [
        (
            "raw loop",
            format!(
                "{}   CPU a message: sender {:.1} us, receiver {:.1} us",
                rate(figures, |round| round.raw.pace.rate()),
                us(figures, |round| round.raw.sender),
                us(figures, |round| round.raw.receiver)
            ),
        ),
        (
            "durable path",
            format!(
                "{}   worker {:.1} us (store thread {:.1}), receiver {:.1} us, Redis {:.1} us",
                rate(figures, |round| round.durable.pace.rate()),
                us(figures, |round| round.durable.store_thread
                    + round.durable.delivery_threads),
                us(figures, |round| round.durable.store_thread),
                us(figures, |round| round.durable.receiver),
                us(figures, |round| round.durable.redis)
            ),
        ),
        (
            "durable / raw",
            format!(
                "{:>9.2}     {} lost, {} duplicates",
                figures.ratio(),
                figures.lost(),
                figures.duplicates()
            ),
        ),
    ]
}

fn publishing(figures: &Figures) -> Vec<(&'static str, String)> {
    let parts: [(&str, Of); 3] = [
        ("bare script loop", |round| &round.bare),
        ("publish in batches", |round| &round.publish),
        ("publish one by one", |round| &round.singles),
    ];
    let line = |(name, of): (&'static str, Of)| {
        let value = format!(
            "{}   client {:.1} us, Redis {:.1} us; {:.2} of the bare loop",
            rate(figures, |round| of(round).pace.rate()),
            us(figures, |round| of(round).publisher),
            us(figures, |round| of(round).redis),
            figures.median(|round| of(round).pace.rate() / round.bare.pace.rate())
        );
        (name, value)
    };
    parts.into_iter().map(line).collect()
}

fn rest(figures: &Figures) -> Vec<(&'static str, String)> {
    let mut lines = vec![(
        "memory",
        format!(
            "{:>9.0} bytes a queued message beyond its envelope of {}",
            figures.median(|round| figures.beyond_envelope(&round.publish)),
            figures.envelope_bytes
        ),
    )];
    if let Some(latency) = &figures.latency {
        for (name, times) in [
            ("raw call to receiver", &latency.raw),
            ("publish to receiver", &latency.received),
            ("publish to its answer", &latency.accepted),
        ] {
            let value = format!(
                "{:>9.2} ms p50, {:.2} ms p99, {:.2} ms max at {}/s",
                times.p50, times.p99, times.max, latency.rate
            );
            lines.push((name, value));
        }
    }
    if let Some(idle) = &figures.idle {
        let value = format!(
            "{:>9.2} % of a core, {:.1} Redis commands a second",
            idle.cpu_percent, idle.redis_commands_per_s
        );
        lines.push(("idle worker", value));
    }
    if let Some(backlog) = &figures.backlog {
        let value = format!(
            "{:>9.0}/s with {} queued behind: {:.2} of the rate without; {:.0} bytes a message \
             beyond its envelope",
            backlog.durable.pace.rate(),
            backlog.behind,
            figures.to_without(backlog),
            figures.beyond_envelope(&backlog.publish)
        );
        lines.push(("with a backlog", value));
    }
    lines
}
