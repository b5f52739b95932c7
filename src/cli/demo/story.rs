//! What the demo tells while it happens, and what it concludes.

use std::collections::HashMap;
use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::retry::judge::Outcome;
use hookstash_worker::AttemptReport;
use std::sync::Arc;

use super::events::Event;
use super::receiver::Seen;
use crate::cli::out::say;
use crate::cli::paint::Paint;

/// Prints lines; remembers what was promised and whether it came true.
pub(super) struct Story {
    paint: Paint,
    clock: Arc<dyn Clock>,
    began: Duration,
    /// Message id -> event.
    names: HashMap<String, &'static str>,
    /// Promise and whether it was kept.
    promises: Vec<(String, bool)>,
}

impl Story {
    pub(super) fn new(paint: Paint, clock: Arc<dyn Clock>) -> Self {
        let began = clock.monotonic();
        Self {
            paint,
            clock,
            began,
            names: HashMap::new(),
            promises: Vec::new(),
        }
    }

    /// A paragraph's title.
    pub(super) fn title(&self, text: &str) {
        say(format_args!("\n{}", self.paint.strong(text)));
    }

    /// A line of a name and a text.
    pub(super) fn line(name: &str, text: &str) {
        say(format_args!("  {name:<18} {text}"));
    }

    /// An event was accepted as the message `id`.
    pub(super) fn accepted(&mut self, event: &Event, id: &str) {
        self.names.insert(id.to_owned(), event.name);
        let (id, about) = (self.paint.faint(id), event.about);
        Self::line(
            event.name,
            &format!("{:>9}  {id}  {about}", bytes(event.body.len())),
        );
    }

    /// The message `id` is the event `name` once more.
    pub(super) fn redriven(&mut self, name: &'static str, id: &str) {
        self.names.insert(id.to_owned(), name);
        Self::line(name, &format!("sent again as {}", self.paint.faint(id)));
    }

    /// An attempt ended.
    pub(super) fn attempt(&self, report: &AttemptReport, seen: Option<Seen>) {
        let id = report.id.to_string();
        let name = self.names.get(&id).copied().unwrap_or("?");
        let status = match (report.status, report.class) {
            (Some(status), _) => status.to_string(),
            (None, Some(class)) => class.to_string(),
            (None, None) => "-".to_owned(),
        };
        let outcome = match report.outcome {
            Outcome::Delivered => self.paint.good(&format!("{:<18}", "delivered")),
            Outcome::Retry { after } => {
                let text = format!("retry in {:.2} s", after.as_secs_f32());
                self.paint.waiting(&format!("{text:<18}"))
            }
            Outcome::Dead { .. } => self.paint.bad(&format!("{:<18}", "dead letter")),
        };
        let signatures = match seen {
            Some(seen) if seen.is_verified => self.paint.good("both signatures verified"),
            Some(_) => self.paint.bad("A SIGNATURE DOES NOT VERIFY"),
            None => self.paint.bad("never reached the receiver"),
        };
        let attempt = report.retried + 1;
        let line = format!("attempt {attempt}  {status:>3}  {outcome} {signatures}");
        say(format_args!(
            "  {:>6.2} s  {name:<18} {line}",
            self.seconds()
        ));
    }

    /// Notes a promise and whether it was kept.
    pub(super) fn promise(&mut self, text: impl Into<String>, is_kept: bool) {
        self.promises.push((text.into(), is_kept));
    }

    /// Prints all promises; whether every one was kept.
    pub(super) fn conclude(&self) -> bool {
        self.title("What was promised");
        for (text, is_kept) in &self.promises {
            let mark = if *is_kept {
                self.paint.good("✓")
            } else {
                self.paint.bad("✗")
            };
            say(format_args!("  {mark} {text}"));
        }
        let kept = self.promises.iter().filter(|(_, is_kept)| *is_kept).count();
        let total = self.promises.len();
        let verdict = format!("{kept} of {total} promises kept in {:.1} s", self.seconds());
        let is_all = kept == total;
        let paint = if is_all { Paint::good } else { Paint::bad };
        say(format_args!("\n{}", paint(self.paint, &verdict)));
        is_all
    }

    fn seconds(&self) -> f32 {
        self.clock
            .monotonic()
            .saturating_sub(self.began)
            .as_secs_f32()
    }
}

fn bytes(count: usize) -> String {
    match count {
        0 => "empty".to_owned(),
        1..=9_999 => format!("{count} B"),
        _ => format!("{} KiB", count / 1024),
    }
}
