//! Which dead letters a command means.

use clap::Args;
use hookstash_shared::clock::{Clock as _, SystemClock};
use hookstash_shared::duration;
use url::form_urlencoded::Serializer;

use crate::cli::failure::Failure;

/// Filters; a letter must fit each that is given.
#[derive(Args, Default)]
pub(super) struct Which {
    /// Only to exactly this URL; may be repeated
    #[arg(long = "to", value_name = "DESTINATION")]
    destinations: Vec<String>,
    /// Only with this label; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Only with this status as the last answer, 0 for none; may be repeated
    #[arg(long = "status", value_name = "STATUS")]
    statuses: Vec<String>,
    /// Only those that died within this time, such as 10m
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
}

impl Which {
    /// Whether any is given.
    pub(super) fn is_given(&self) -> bool {
        let lists = [&self.destinations, &self.labels, &self.statuses];
        self.since.is_some() || lists.iter().any(|list| !list.is_empty())
    }

    /// What is said when there is no such letter.
    pub(super) fn nothing(&self) -> &'static str {
        if self.is_given() {
            "No such dead letters."
        } else {
            super::EMPTY
        }
    }

    /// The query of a page of `count` letters.
    pub(super) fn query(&self, count: usize) -> Result<String, Failure> {
        let mut query = Serializer::new(String::new());
        query.append_pair("count", &count.to_string());
        for (key, values) in [
            ("url", &self.destinations),
            ("label", &self.labels),
            ("responseStatus", &self.statuses),
        ] {
            query.extend_pairs(values.iter().map(|value| (key, value)));
        }
        if let Some(since) = &self.since {
            query.append_pair("fromDate", &from_ms(since)?.to_string());
        }
        Ok(query.finish())
    }
}

/// The time so long ago, milliseconds since the epoch.
pub(in crate::cli) fn from_ms(since: &str) -> Result<u64, Failure> {
    let since = duration::parse(since)
        .map_err(|error| Failure::usage("--since is not a duration").because(&error))?;
    let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Ok(SystemClock::new().now_ms().saturating_sub(since))
}
